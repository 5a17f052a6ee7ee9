"""Chooses a change to a build's settings for a diagnosis; pure, and never an endless loop.

A build is retried at most :data:`LIMIT` times. No change is made twice and no settings are tried
again. Changes never alter what was requested: no architecture is dropped, no version replaced.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipelines.diagnosis.judge import Diagnosis
from pipelines.diagnosis.model import (
    AppendFlag,
    DropFlag,
    FewerJobs,
    Heal,
    OtherToolset,
    SetVariable,
    ShorterRoot,
)

#: Most automatic retries of a build.
LIMIT = 2


@dataclass(frozen=True)
class Settings:
    """The settings of a build that may be changed automatically."""

    jobs: int
    """Parallel compile jobs."""
    build_root: str
    """Windows path; the job's directory is below it."""
    nvcc_threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Names are Windows': without case. MAX_JOBS and NVCC_THREADS follow ``jobs`` and
    ``nvcc_threads`` if they are in it."""
    toolset: str | None = None
    """Version of MSVC for vcvarsall.bat -vcvars_ver, or the one in use; ``None``: the newest."""
    toolsets: tuple[str, ...] = ()
    """Versions on the host, such as 14.44.35207; empty if unknown."""


@dataclass(frozen=True)
class Change:
    """One change: the diagnosis, and the settings before and after."""

    what: str
    """Description for the log and the report."""
    diagnosis: Diagnosis
    """The diagnosis that it responds to; for the first change, the first error."""
    before: Settings
    settings: Settings

    @property
    def why(self) -> str:
        """The signature and its cause, in words."""
        return f"{self.diagnosis.signature.id}: {self.diagnosis.cause.cause}"


def heal(diagnosis: Diagnosis, settings: Settings, tried: Sequence[Change] = ()) -> Change | None:
    """The change to make before a retry, or ``None`` to let the build fail.

    ``settings`` are those of the build that has just failed, ``tried`` the changes made so far,
    in order. Wrappers and warnings heal nothing: the catalogue is refused if they would.
    """
    if len(tried) >= LIMIT:
        return None
    known = [settings, *(s for change in tried for s in (change.before, change.settings))]
    changes = {change.what for change in tried}
    for remedy in diagnosis.signature.heals:
        for what, made in _possible_changes(remedy, settings):
            if what not in changes and made not in known:
                return Change(what, diagnosis, settings, made)
    return None


def first_error(tried: Sequence[Change], last: Diagnosis | None) -> Diagnosis | None:
    """The error to report: the first one, whatever the retries led to."""
    return tried[0].diagnosis if tried else last


def _possible_changes(remedy: Heal, now: Settings) -> Iterator[tuple[str, Settings]]:
    """Possible changes: description and new settings."""
    if isinstance(remedy, FewerJobs):
        yield from _fewer(now)
    elif isinstance(remedy, SetVariable):
        environment = _with_variable(now.environment, remedy.variable, remedy.value)
        yield f"{remedy.variable} is {remedy.value}", replace(now, environment=environment)
    elif isinstance(remedy, AppendFlag):
        flags = _variable_value(now.environment, remedy.variable).split()
        if remedy.flag not in flags:
            environment = _with_variable(
                now.environment, remedy.variable, " ".join([*flags, remedy.flag])
            )
            yield f"{remedy.flag} in {remedy.variable}", replace(now, environment=environment)
    elif isinstance(remedy, DropFlag):
        yield from _dropped(remedy, now)
    elif isinstance(remedy, OtherToolset):
        for version in remedy.versions:
            there = any(f"{toolset}.".startswith(f"{version}.") for toolset in now.toolsets)
            if _is_other_toolset(version, now.toolset, older=remedy.older) and (
                there or not now.toolsets
            ):
                yield f"toolset {version}", replace(now, toolset=version)
    elif isinstance(remedy, ShorterRoot):
        yield from _shorten_build_paths(remedy, now)


def _fewer(now: Settings) -> Iterator[tuple[str, Settings]]:
    if now.jobs > 1:
        jobs = now.jobs // 2
        environment = _following(now.environment, "MAX_JOBS", jobs)
        what = f"{jobs} compile units at a time instead of {now.jobs}"
        yield what, replace(now, jobs=jobs, environment=environment)
    elif now.nvcc_threads > 1:
        threads = now.nvcc_threads // 2
        environment = _following(now.environment, "NVCC_THREADS", threads)
        what = f"{threads} threads of nvcc instead of {now.nvcc_threads}"
        yield what, replace(now, nvcc_threads=threads, environment=environment)


def _dropped(remedy: DropFlag, now: Settings) -> Iterator[tuple[str, Settings]]:
    environment, gone = now.environment, []
    for variable in remedy.variables:
        flags = _variable_value(environment, variable).split()
        left = [f for f in flags if not any(fnmatch.fnmatchcase(f, p) for p in remedy.flags)]
        if left != flags:
            gone += [f"{flag} in {variable}" for flag in flags if flag not in left]
            environment = _with_variable(environment, variable, " ".join(left))
    if gone:
        yield f"no {', no '.join(gone)}", replace(now, environment=environment)


def _shorten_build_paths(remedy: ShorterRoot, now: Settings) -> Iterator[tuple[str, Settings]]:
    environment, changes = now.environment, []
    root = min(now.build_root, remedy.root, key=len)
    if root != now.build_root:
        changes.append(f"build root {root}")
    for variable in ("TEMP", "TMP"):
        if len(_variable_value(environment, variable)) > len(remedy.temp):
            environment = _with_variable(environment, variable, remedy.temp)
            changes.append(f"{variable} {remedy.temp}")
    if changes:
        yield ", ".join(changes), replace(now, build_root=root, environment=environment)


def _is_other_toolset(version: str, now: str | None, *, older: bool) -> bool:
    """Whether ``version`` (14.38) differs from ``now`` (14.44.35207)."""
    if now is None:
        return True
    mine, other = (
        [int(p) if p.isdecimal() else 0 for p in v.split(".")[:2]] for v in (version, now)
    )
    return mine < other if older else mine != other


def _existing_variable_name(environment: Mapping[str, str], variable: str) -> str:
    """The variable as it is spelt in ``environment``."""
    return next((name for name in environment if name.upper() == variable), variable)


def _variable_value(environment: Mapping[str, str], variable: str) -> str:
    return environment.get(_existing_variable_name(environment, variable), "")


def _with_variable(environment: Mapping[str, str], variable: str, value: str) -> Mapping[str, str]:
    return {**environment, _existing_variable_name(environment, variable): value}


def _following(environment: Mapping[str, str], variable: str, value: int) -> Mapping[str, str]:
    """Update a variable that mirrors a setting, if present."""
    present = _existing_variable_name(environment, variable) in environment
    return _with_variable(environment, variable, str(value)) if present else environment
