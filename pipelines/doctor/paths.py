"""Verdicts on path lengths: long paths, the build root, its budget, TEMP."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.doctor.model import Facts, Order, Verdict, on_host
from pipelines.doctor.thresholds import Thresholds

AREA = "paths"
_JOB = 12 + 1  # what a build's own directory adds: a backslash and its id
_LONG = (
    r"reg add HKLM\SYSTEM\CurrentControlSet\Control\FileSystem "
    "/v LongPathsEnabled /t REG_DWORD /d 1 /f, then restart it"
)


def paths(facts: Facts, order: Order, limits: Thresholds) -> Iterator[Verdict]:
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
        return Verdict(AREA, name, "ok", "on (ninja and git use them, cl.exe does not)")
    cure = f"invoke provision; or {on_host(_LONG)}"
    return Verdict(AREA, name, "warning", "off", wanted, cure)


def _root(order: Order, limits: Thresholds) -> Verdict:
    length = len(order.build_root) + _JOB
    found = f"{length} characters with a build's own directory"
    wanted = f"at most {limits.build_root}"
    if length <= limits.build_root:
        return Verdict(AREA, "build root", "ok", found)
    cure = r"set layout.build_root in pipelines/resources.yaml to C:\b"
    return Verdict(AREA, "build root", "warning", found, wanted, cure)


def _budget(order: Order, limits: Thresholds, enabled: bool | None) -> Verdict:
    """Whether the longest path below the root still fits; the root's own rule is stricter."""
    name = "path budget"
    longest = len(order.build_root) + _JOB + limits.longest_path
    found = f"about {longest} characters for the longest object file"
    wanted = f"less than {limits.max_path}"
    if longest < limits.max_path:
        return Verdict(AREA, name, "ok", found)
    if enabled:
        return Verdict(AREA, name, "ok", f"{found}, long paths are on")
    if enabled is None:
        return Verdict(AREA, name, "unknown", f"{found}; are long paths on?", wanted)
    cure = r"invoke provision, or set layout.build_root in pipelines/resources.yaml to C:\b"
    return Verdict(AREA, name, "error", found, wanted, cure)


def _temp(facts: Facts, order: Order, limits: Thresholds) -> Iterator[Verdict]:
    """TEMP and TMP, in one verdict where they are the same."""
    told = facts.at("machine", "temp")
    if told.at("TEMP").tree == told.at("TMP").tree:
        yield _variable("TEMP", told.at("TEMP"), order, limits, both=True)
    else:
        for name in ("TEMP", "TMP"):
            yield _variable(name, told.at(name), order, limits)


def _variable(
    name: str, told: Facts, order: Order, limits: Thresholds, *, both: bool = False
) -> Verdict:
    title = "TEMP and TMP" if both else name
    path, exists, machine = told.text("path"), told.flag("exists"), told.text("machine")
    if path is None or exists is None:
        why = "not set" if isinstance(told.tree, dict) else told.why
        return Verdict(AREA, title, "unknown", why, order.temp)
    setting = f"setx {name} {order.temp} /M" + (f" & setx TMP {order.temp} /M" if both else "")
    cure = (
        f"invoke provision; or {on_host(setting)}; Restart-Service WinRM (it keeps its variables)"
    )
    if not exists:
        return Verdict(AREA, title, "error", f"{path} does not exist", order.temp, cure)
    if len(path) <= limits.temp:
        return Verdict(AREA, title, "ok", path)
    if machine is not None and machine.lower() == order.temp.lower():
        # Builds are given the short one in any case; this shell is older than the setting.
        return Verdict(AREA, title, "ok", f"{machine}, in shells that start from now on")
    wanted = f"at most {limits.temp} characters: {order.temp}"
    return Verdict(AREA, title, "warning", path, wanted, cure)
