"""Verdicts on path lengths: long paths, the build root, its budget, TEMP."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.doctor.model import Facts, Purpose, Setting, Verdict, on_host, reg_add
from pipelines.doctor.thresholds import Thresholds

AREA = "paths"
_JOB = 12 + 1  # what a build's own directory adds: a backslash and its id
_LONG_PATHS = "LongPathsEnabled"
_SHORTER = r"set layout.build_root in pipelines/provisioning/resources.yaml to C:\b"
_CL = "https://github.com/ninja-build/ninja/pull/2225"
_BLANK = "https://github.com/microsoft/vcpkg/issues/39594"
_UNSET = "https://github.com/cupy/cupy/pull/4397"


def judge(facts: Facts, purpose: Purpose, limits: Thresholds) -> Iterator[Verdict]:
    """Long paths, the root's length, what is left below it, and TEMP."""
    enabled = None
    for setting in purpose.of("registry"):
        if setting.spec["name"] == _LONG_PATHS:
            enabled = facts.checked(setting).flag("ok")
            yield _long_paths(facts, setting, enabled)
    yield _root(purpose, limits)
    yield _budget(purpose, limits, enabled)
    yield from _temp(facts, purpose, limits)


def _long_paths(facts: Facts, setting: Setting, enabled: bool | None) -> Verdict:
    spec = setting.spec
    name, wanted = "long paths", f"{_LONG_PATHS} = {spec['value']}"
    if enabled is None:
        return Verdict(AREA, name, "unknown", facts.checked(setting).why, wanted)
    if enabled:
        return Verdict(AREA, name, "ok", "on (ninja and git use them, cl.exe may not)")
    command = reg_add(spec["key"], _LONG_PATHS, "REG_DWORD", spec["value"])
    cure = on_host(command, provision=setting.provisioned, then="then restart it")
    return Verdict(AREA, name, "warning", "off", wanted, *cure)


def _root(purpose: Purpose, limits: Thresholds) -> Verdict:
    length = len(purpose.build_root) + _JOB
    found = f"{purpose.build_root}: {length} characters with a build's own directory"
    wanted = f"at most {limits.build_root}"
    if length <= limits.build_root:
        return Verdict(AREA, "build root", "ok", found)
    return Verdict(AREA, "build root", "warning", found, wanted, _SHORTER)


def _budget(purpose: Purpose, limits: Thresholds, enabled: bool | None) -> Verdict:
    """Whether the longest path below the root still fits; the root's own rule is stricter."""
    name = "path budget"
    longest = purpose.longest or len(purpose.build_root) + _JOB + limits.longest_path
    about = "" if purpose.longest else "about "
    found = f"{about}{longest} characters for the longest path of the build"
    wanted = f"less than {limits.max_path}"
    if longest < limits.max_path:
        return Verdict(AREA, name, "ok", found)
    if enabled is False:
        return Verdict(AREA, name, "error", found, wanted, _SHORTER, source=_CL)
    state = "on" if enabled else "perhaps on"
    found = f"{found}; long paths are {state}, but cl.exe may not take them"
    return Verdict(AREA, name, "warning", found, wanted, _SHORTER, source=_CL)


def _temp(facts: Facts, purpose: Purpose, limits: Thresholds) -> Iterator[Verdict]:
    """TEMP and TMP, in one verdict where they are the same."""
    settings = {setting.spec["name"]: setting for setting in purpose.of("environment")}
    told = {name: facts.at("machine", "temp", name) for name in ("TEMP", "TMP")}
    machine = {
        name: facts.checked(setting).text("values", name) for name, setting in settings.items()
    }
    ours = any(setting.provisioned for setting in settings.values())
    same = told["TEMP"].tree == told["TMP"].tree and machine.get("TEMP") == machine.get("TMP")
    for name in ("TEMP",) if same else ("TEMP", "TMP"):
        shown = "TEMP and TMP" if same else name
        yield _variable(shown, told[name], machine.get(name), purpose, limits, ours=ours)


def _variable(
    name: str, told: Facts, machine: str | None, purpose: Purpose, limits: Thresholds, *, ours: bool
) -> Verdict:
    """Builds are given the short one in any case; installers and tools take this one.

    ``told`` is of our shell, ``machine`` of those that start from now on; ``ours`` whether
    provisioning sets it.
    """
    path, exists = told.text("path"), told.flag("exists")
    wanted, source = purpose.temp, ""
    later = machine is not None and machine.lower() == purpose.temp.lower() != (path or "").lower()
    if later and told.tree is not None:
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
        found, wanted = path, f"at most {limits.temp} characters: {purpose.temp}"
    else:
        return Verdict(AREA, name, "ok", path)
    setting = " & ".join(f"setx {part} {purpose.temp} /M" for part in name.split(" and "))
    cure = on_host(f'cmd /c "{setting}"', provision=ours, then="then Restart-Service WinRM")
    return Verdict(AREA, name, "warning", found, wanted, *cure, source=source)
