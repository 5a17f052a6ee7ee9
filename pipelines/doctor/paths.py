"""Findings on path lengths: long paths, the build root, its budget."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.core.finding import Finding
from pipelines.doctor.model import Facts, Purpose, Setting, make_finding, on_host, reg_add
from pipelines.plan.provisioning.thresholds import Thresholds

AREA = "paths"
_JOB = 12 + 1  # what a build's own directory adds: a backslash and its id
_LONG_PATHS = "LongPathsEnabled"
_SHORTER = r"set layout.build_root in pipelines/plan/provisioning/resources.yaml to C:\b"
_SHORTER_ROOT = "set 'root' of this host in pipeline.yaml to a shorter directory"
_CL = "https://github.com/ninja-build/ninja/pull/2225"


def judge(facts: Facts, purpose: Purpose, limits: Thresholds) -> Iterator[Finding]:
    """Long paths, the root's length, and what is left below it."""
    enabled = None
    for setting in purpose.of("registry"):
        if setting.spec["name"] == _LONG_PATHS:
            enabled = facts.checked(setting).flag("ok")
            yield _long_paths(facts, setting, enabled)
    yield _root(purpose, limits)
    yield _budget(purpose, limits, enabled)


def _long_paths(facts: Facts, setting: Setting, enabled: bool | None) -> Finding:
    spec = setting.spec
    name, wanted = "long paths", f"{_LONG_PATHS} = {spec['value']}"
    if enabled is None:
        return make_finding(AREA, name, "unknown", facts.checked(setting).why, wanted)
    if enabled:
        return make_finding(AREA, name, "ok", "on (ninja and git use them, cl.exe may not)")
    command = reg_add(spec["key"], _LONG_PATHS, "REG_DWORD", spec["value"])
    hint = on_host(command, provision=setting.provisioned, then="then restart it")
    return make_finding(AREA, name, "warning", "off", wanted, *hint)


def _root(purpose: Purpose, limits: Thresholds) -> Finding:
    length = len(purpose.build_root) + _JOB
    found = f"{purpose.build_root}: {length} characters with a build's own directory"
    wanted = f"at most {limits.build_root}"
    if length <= limits.build_root:
        return make_finding(AREA, "build root", "ok", found)
    return make_finding(AREA, "build root", "warning", found, wanted, _shorter_path_hint(purpose))


def _budget(purpose: Purpose, limits: Thresholds, enabled: bool | None) -> Finding:
    """Whether the longest path below the root still fits; the root's own rule is stricter."""
    name = "path budget"
    longest = purpose.longest or len(purpose.build_root) + _JOB + limits.longest_path
    about = "" if purpose.longest else "about "
    found = f"{about}{longest} characters for the longest path of the build"
    wanted = f"less than {limits.max_path}"
    if longest < limits.max_path:
        return make_finding(AREA, name, "ok", found)
    if enabled is False:
        return make_finding(
            AREA, name, "error", found, wanted, _shorter_path_hint(purpose), source=_CL
        )
    state = "on" if enabled else "perhaps on"
    found = f"{found}; long paths are {state}, but cl.exe may not take them"
    return make_finding(
        AREA, name, "warning", found, wanted, _shorter_path_hint(purpose), source=_CL
    )


def _shorter_path_hint(purpose: Purpose) -> str:
    return _SHORTER_ROOT if purpose.existing else _SHORTER
