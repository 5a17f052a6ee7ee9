"""The subject of a command line: a line, with one plan and one session; or a matrix of lines."""

from __future__ import annotations

import atexit
import re
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.cli.options import AXIS_FLAGS, Flags, Shared
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.plan.config.model import Config
    from pipelines.plan.matrix.buildplan import Request
    from pipelines.plan.matrix.hostfacts import HostFacts
    from pipelines.session.base import Bars
    from pipelines.stages.line import Line
    from pipelines.stages.matrix import Matrix

#: What was said of values of flags.
_said: set[str] = set()
_line: Line | None = None
_matrix: Matrix | None = None


@dataclass(frozen=True)
class Tell:
    """Shows what a host is doing while it is prepared."""

    name: str

    def step(self, text: str) -> None:
        """A line for each step."""
        from pipelines.core.console import say

        say(f"{self.name}: {text}", style="dim")

    def bars(self) -> AbstractContextManager[Bars]:
        """A bar for each transfer."""
        from pipelines.core.console import transfer_progress

        return transfer_progress()


def request_of(flags: Flags) -> tuple[Request, Shared]:
    """The request of a line's flags."""
    from pipelines.plan.matrix.buildplan import Request

    known = {name: flags[name] for name in Shared.model_fields if flags.get(name)}
    shared = Shared.model_validate(known)
    axes = {
        axis: _parse_axis_values(axis, flags[flag])
        for axis, flag in AXIS_FLAGS.items()
        if flags.get(flag)
    }
    if shared.for_:
        axes = _with_preset(shared.for_, axes)
    request = Request(
        axes=axes,
        jobs=shared.jobs,
        minutes=shared.minutes,
        wheel=shared.wheel,
        share=shared.shard,
        objects=_parse_object_runs(shared.objects),
        shards=shared.shards,
        reproducible=shared.reproducible,
    )
    return request, shared


def _parse_axis_values(axis: str, typed: str) -> str:
    """The values of an axis; prints how a patch release was understood."""
    from pipelines.core.versions import as_release

    values = [as_release(axis, one.strip()) for one in typed.split(",")]
    if re.search(r"\d\.\d+\.\d", typed) and (made := ",".join(values)) != typed:
        _say_once(f"--{axis} {typed}: taken as {made}")
    return ",".join(values)


def _with_preset(name: str, axes: dict[str, str]) -> dict[str, str]:
    """The axes with those of ``--for``."""
    from pipelines.plan.config.presets import apply_preset

    made, words = apply_preset(name, axes)
    _say_once(words)
    return made


def _say_once(words: str) -> None:
    """Say it once on a line of commands."""
    from pipelines.core.console import say

    if words not in _said:
        _said.add(words)
        say(words)


def _parse_object_runs(text: str | None) -> tuple[str, ...]:
    """The runs of ``--objects``; :class:`ConfigError` if it names none.

    An empty variable of a script would otherwise build a whole wheel.
    """
    runs = tuple(filter(None, map(str.strip, (text or "").split(","))))
    if text and not runs:
        raise ConfigError(
            f"--objects '{text[:40]}' names no run",
            hint="Name the runs of invoke build --shard. Leave it out for a whole wheel.",
        )
    return runs


def effective_settings(shared: Shared, host: str | None = None) -> Config:
    """``pipeline.yaml`` with the flags applied; a GPU is for the host of that name."""
    from pipelines.plan.config.model import load_config

    said = {name: value for name in ("offline", "wheelhouse") if (value := getattr(shared, name))}
    settings = load_config().model_copy(update=said)
    return settings.with_gpu(host or settings.default.host) if shared.gpu else settings


def open_line(flags: Flags) -> Line:
    """The line of these flags: the open one, unless they request another cell or host."""
    from pipelines.hosts.live import visible_gpu_capabilities

    request, shared = request_of(flags)
    settings = effective_settings(shared, request.axes.get("host"))
    asked = request.axes.get("archs") or settings.default.archs or ""
    native = None
    if re.search(r"\bnative\b", asked, re.IGNORECASE):  # the host's own, so it is asked first
        default = settings.default.model_copy(update={"archs": None})
        axes = {name: value for name, value in request.axes.items() if name != "archs"}
        first = _resolve_shared_line(
            replace(request, axes=axes), settings.model_copy(update={"default": default})
        )
        native = visible_gpu_capabilities(first.session)
    return _resolve_shared_line(request, settings, native)


def _resolve_shared_line(
    request: Request, settings: Config, native: tuple[str, ...] | None = None
) -> Line:
    global _line  # noqa: PLW0603
    from pipelines.hosts.live import LiveSession
    from pipelines.plan.matrix.buildplan import resolve_build_plan
    from pipelines.stages.line import Line

    opened = _line.plan if _line is not None else None
    plan = resolve_build_plan(settings, request, native=native, opened=opened, events=Tell)
    if opened is not None and plan.host is not opened.host:
        tell_line()
        close_line()
    if _line is None:
        _line = Line(plan, LiveSession(plan.host))
    _line.plan = plan
    return _line


@contextmanager
def open_separate_line(host: str | None, *, gpu: bool = False) -> Iterator[Line]:
    """A line of its own with a host, in addition to the one that is open."""
    from pipelines.hosts.live import LiveSession
    from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
    from pipelines.stages.line import Line

    asked = Request(axes={"host": host} if host else {})
    plan = resolve_build_plan(effective_settings(Shared(gpu=gpu), host), asked, events=Tell)
    line = Line(plan, LiveSession(plan.host))
    try:
        yield line
    finally:
        line.close()


def run_folder() -> Path | None:
    """The directory of this process's run, if it has one."""
    return _line.run.path if _line is not None and _line.begun else None


def hold_matrix(matrix: Matrix) -> Matrix:
    """Keep the cells of this command line instead of a line."""
    global _matrix  # noqa: PLW0603
    tell_line()
    close_line()
    _matrix = matrix
    return matrix


def held_matrix() -> Matrix | None:
    """The cells of this command line, if it has several."""
    return _matrix


def tell_line() -> None:
    """Print the state of this command line's runs, unless that was done."""
    for one in (_line, _matrix):
        if one is not None:
            one.tell()


def require_cells() -> None:
    """Raise an error if cells of this command line failed; their results were reported."""
    if _matrix is not None:
        _matrix.require_all()


def close_line() -> None:
    """Leave the host as it was found."""
    global _line, _matrix
    line, _line, matrix, _matrix = _line, None, _matrix, None
    for one in (line, matrix):
        if one is not None:
            one.close()


def _terminate(*_: object) -> None:
    raise KeyboardInterrupt


def register_cleanup() -> None:
    """Close what is open however this process ends."""
    _said.clear()
    atexit.register(close_line)
    signal.signal(signal.SIGTERM, _terminate)


def native_facts(host: str | None, archs: str | None, *, gpu: bool = False) -> HostFacts | None:
    """The host's facts if ``archs`` is native; otherwise it is not asked."""
    return (
        host_facts(host, gpu=gpu) if re.search(r"\bnative\b", archs or "", re.IGNORECASE) else None
    )


def host_facts(host: str | None, *, gpu: bool) -> HostFacts:
    """The host's facts; with a GPU if requested."""
    from pipelines.hosts.live import visible_gpu_capabilities
    from pipelines.plan.matrix.hostfacts import HostFacts
    from pipelines.stages.toolset import default_toolset

    with open_separate_line(host, gpu=gpu) as line:
        native = visible_gpu_capabilities(line.session)
        msvc = default_toolset(line.session, line.plan.host)
        return HostFacts.from_session(
            line.session.facts, name=line.plan.host.name, native=native, msvc=msvc
        )
