"""Verdicts on path lengths: long paths, the build root, its budget, TEMP."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.doctor.model import Facts, Order, Verdict, on_host
from pipelines.doctor.thresholds import Thresholds

AREA = "paths"
_JOB = 12 + 1  # what a build's own directory adds: a backslash and its id
_LONG = (
    r"reg add HKLM\SYSTEM\CurrentControlSet\Control\FileSystem "
    "/v LongPathsEnabled /t REG_DWORD /d 1 /f"
)
_SHORTER = r"set layout.build_root in pipelines/provisioning/resources.yaml to C:\b"
_CL = "https://github.com/ninja-build/ninja/pull/2225"
_BLANK = "https://github.com/microsoft/vcpkg/issues/39594"
_UNSET = "https://github.com/cupy/cupy/pull/4397"


def judge(facts: Facts, order: Order, limits: Thresholds) -> Iterator[Verdict]:
    """Long paths, the root's length, what is left below it, and TEMP."""
    enabled = facts.flag("machine", "long_paths")
    yield _long_paths(facts, enabled)
    yield _root(order, limits)
    yield _budget(order, limits, enabled)
    yield from _temp(facts, order, limits)


def _long_paths(facts: Facts, enabled: bool | None) -> Verdict:
    name, wanted = "long paths", "LongPathsEnabled = 1"
    if enabled is None:
        return Verdict(AREA, name, "unknown", facts.at("machine", "long_paths").why, wanted)
    if enabled:
        return Verdict(AREA, name, "ok", "on (ninja and git use them, cl.exe may not)")
    cure = on_host(_LONG, provision=True, then="then restart it")
    return Verdict(AREA, name, "warning", "off", wanted, *cure)


def _root(order: Order, limits: Thresholds) -> Verdict:
    length = len(order.build_root) + _JOB
    found = f"{order.build_root}: {length} characters with a build's own directory"
    wanted = f"at most {limits.build_root}"
    if length <= limits.build_root:
        return Verdict(AREA, "build root", "ok", found)
    return Verdict(AREA, "build root", "warning", found, wanted, _SHORTER)


def _budget(order: Order, limits: Thresholds, enabled: bool | None) -> Verdict:
    """Whether the longest path below the root still fits; the root's own rule is stricter."""
    name = "path budget"
    longest = order.longest or len(order.build_root) + _JOB + limits.longest_path
    about = "" if order.longest else "about "
    found = f"{about}{longest} characters for the longest path of the build"
    wanted = f"less than {limits.max_path}"
    if longest < limits.max_path:
        return Verdict(AREA, name, "ok", found)
    if enabled is False:
        return Verdict(AREA, name, "error", found, wanted, _SHORTER, source=_CL)
    state = "on" if enabled else "perhaps on"
    found = f"{found}; long paths are {state}, but cl.exe may not take them"
    return Verdict(AREA, name, "warning", found, wanted, _SHORTER, source=_CL)


def _temp(facts: Facts, order: Order, limits: Thresholds) -> Iterator[Verdict]:
    """TEMP and TMP, in one verdict where they are the same."""
    told = facts.at("machine", "temp")
    if told.at("TEMP").tree == told.at("TMP").tree:
        yield _variable("TEMP and TMP", told.at("TEMP"), order, limits)
    else:
        for name in ("TEMP", "TMP"):
            yield _variable(name, told.at(name), order, limits)


def _variable(name: str, told: Facts, order: Order, limits: Thresholds) -> Verdict:
    """Builds are given the short one in any case; installers and tools take this one."""
    path, exists, machine = told.text("path"), told.flag("exists"), told.text("machine")
    wanted, source = order.temp, ""
    if machine is not None and machine.lower() == order.temp.lower() != (path or "").lower():
        # This shell is older than the setting.
        return Verdict(AREA, name, "ok", f"{machine}, in shells that start from now on")
    if told.at("path").absent:
        found, source = "not set: nvcc ends without a word", _UNSET
    elif path is None or exists is None:
        return Verdict(AREA, name, "unknown", told.why, wanted)
    elif not exists:
        found = f"{path} does not exist"
    elif " " in path:
        found, source = f"{path}: nvcc stumbles over the blank", _BLANK
    elif len(path) > limits.temp:
        found, wanted = path, f"at most {limits.temp} characters: {order.temp}"
    else:
        return Verdict(AREA, name, "ok", path)
    setting = " & ".join(f"setx {part} {order.temp} /M" for part in name.split(" and "))
    cure = on_host(f'cmd /c "{setting}"', provision=True, then="then Restart-Service WinRM")
    return Verdict(AREA, name, "warning", found, wanted, *cure, source=source)
