"""Gathers the facts: of this machine, and of the host through its session.

Reaching a host may start it (a sandbox, a container) or put a missing Python there, as every other
task would; the inspection itself changes nothing. What it stands on is looked at before.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import HostError, LockError, PipelineError
from pipelines.core.paths import default_cache, project_dir
from pipelines.doctor.model import Setting
from pipelines.doctor.settings import binding_of, settings_to_check
from pipelines.doctor.toolchain import SERVERS
from pipelines.plan.provisioning.resources import known_missing
from pipelines.remote import provision, rpc
from pipelines.remote.inspection import machine, tools
from pipelines.session.base import Session

if TYPE_CHECKING:
    from pipelines.hosts.live import LiveSession
    from pipelines.plan.matrix.buildplan import BuildPlan

#: Programs that builds use, besides the compilers.
PROGRAMS = ("ninja", "git", "sccache")
_PINGS = 3


def _measure_disk_usage(path: Path) -> dict[str, object] | None:
    """Free and total bytes where ``path`` is, or will be."""
    place = path.expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        usage = shutil.disk_usage(place)
    except OSError:
        return None
    return {"path": str(place), "free": usage.free, "total": usage.total}


def _inspect_tool_lock(plan: BuildPlan) -> dict[str, object]:
    """Tools without a pin, wanted or not, and what of the pinned ones is still to be fetched."""
    lock = plan.cache.lock
    names: dict[str, None] = {}
    unpinned: list[str] = []
    error = None
    try:
        names = dict.fromkeys(tool for wanted in plan.wanted for tool in wanted.uploads)
        unpinned = known_missing(plan.wanted, lock)
    except PipelineError as failure:
        error = failure.message
    pinned = [name for name in names if name in lock.tools and lock.tools[name].pinned]
    missing, damaged = plan.cache.missing(pinned), plan.cache.damaged(pinned)
    return {
        "tools": len(pinned),
        "unpinned": unpinned,
        "others": sorted({*lock.unpinned} - names.keys()),
        "error": error,
        "missing": len(missing),
        "missing_size": plan.cache.sizes(missing),
        "damaged": [str(path) for path in damaged],
    }


def _emulator(plan: BuildPlan) -> dict[str, str]:
    try:
        return {"version": plan.host.emulator()}
    except PipelineError as error:
        return {"error": error.message, "hint": error.hint}
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"Wine does not run: {error}"}


def inspect_controller(plan: BuildPlan | None) -> dict[str, object]:
    """Facts of the controller: Python, disks, lock, git, what the host stands on there."""
    facts: dict[str, object] = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": ".".join(map(str, sys.version_info[:3])),
        "disks": {
            "cache": _measure_disk_usage(plan.cache.root if plan else default_cache()),
            "out": _measure_disk_usage(plan.out if plan else project_dir() / "out"),
        },
        "git": shutil.which("git"),
    }
    if plan is not None:
        facts["lock"] = _inspect_tool_lock(plan)
    else:
        facts["problems"] = {"lock": "not asked: no host was named"}
    if plan is not None and (below := plan.host.prerequisites()) is not None:
        facts["groundwork"] = below
    if plan is not None and plan.host.capabilities.emulated:
        facts["wine"] = _emulator(plan)
    return facts


def measure_skew(session: Session) -> float:
    """Seconds that the host's clock is ahead of ours, by the quickest of a few round trips.

    The host's answer is taken as given in the middle of the trip, so that the error is half of it
    at most.
    """
    trips: list[tuple[float, float]] = []
    for _ in range(_PINGS):
        wall, began = time.time(), time.monotonic()
        clock = float(session.call(rpc.ping))
        trip = time.monotonic() - began
        trips.append((trip, clock - (wall + trip / 2)))
    return min(trips)[1]


def _query_host_settings(session: Session, settings: Sequence[Setting]) -> dict[str, provision.Row]:
    """What the host's own checks say, by the ids of the resources."""
    rows = session.call(provision.check_all, specs=[setting.spec for setting in settings])
    return dict(zip((setting.id for setting in settings), rows, strict=True))


def _archive_settings(plan: BuildPlan) -> list[Setting]:
    """The tools that provisioning unpacks there; none while the lock is not whole."""
    with contextlib.suppress(LockError):
        return [Setting(w.id, w.spec, True) for w in plan.wanted if w.spec["kind"] == "archive"]
    return []


def inspect_host(plan: BuildPlan, session: LiveSession) -> dict[str, object]:
    """The host, part by part; or ``error`` and ``hint`` when there is no session with it.

    ``skipped`` where a session would first take minutes or hours to make what it is with.
    """
    try:
        if unmade := plan.host.unmade():
            return {"skipped": unmade}
        session.connect()
    except PipelineError as error:
        return {"error": error.message, "hint": error.hint}
    except OSError as error:
        return {"error": f"{type(error).__name__}: {error}", "hint": ""}
    layout, settings, binding = plan.layout, settings_to_check(plan), binding_of(plan)
    places = {name: binding.places(name) for name in PROGRAMS}
    parts: dict[str, Callable[[], object]] = {
        "skew": lambda: measure_skew(session),
        "facts": lambda: session.facts,
        "machine": lambda: session.call(machine.machine, paths=[layout.build_root, layout.temp]),
        "tools": lambda: session.call(
            tools.tools,
            cuda=layout.cuda,
            programs=places,
            ours=plan.host.existing is None,
            servers=SERVERS if plan.host.capabilities.msvc else (),
        ),
    }
    if unpacked := _archive_settings(plan):
        parts["unpacked"] = lambda: [
            {"id": name, **row} for name, row in _query_host_settings(session, unpacked).items()
        ]
    if settings:  # after machine: to check a variable is to take it over
        parts["resources"] = lambda: _query_host_settings(session, settings)
    found: dict[str, object] = dict.fromkeys(parts)
    problems: dict[str, str] = {}
    for name, part in parts.items():
        try:
            found[name] = part()
        except HostError as error:  # it is gone: what is left to ask would only wait for it again
            problems |= {other: error.message for other in found if found[other] is None}
            break
        except PipelineError as error:
            problems[name] = error.message
        except (OSError, ValueError, TypeError, OverflowError) as error:
            problems[name] = f"{type(error).__name__}: {error}"
    return {**found, "problems": problems}
