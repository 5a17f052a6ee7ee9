"""Verdicts on Windows' services: WinRM's quotas, the job object of its shells, Defender."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.doctor.model import GIB, Cure, Facts, Order, Verdict, at_least, gib, on_host
from pipelines.doctor.thresholds import Least, Thresholds

AREA = "services"
_PLACES = {
    "shell": ("winrm_shell", r"WSMan:\localhost\Shell"),
    "plugin": ("winrm_plugin", r"WSMan:\localhost\Plugin\microsoft.powershell\Quotas"),
}
_MEMORY, _PROCESSES = "MaxMemoryPerShellMB", "MaxProcessesPerShell"
_ENOUGH = {_MEMORY: 8192, _PROCESSES: 200}
#: What ``resources.yaml`` raises.
PROVISIONED = {("shell", _MEMORY), ("shell", _PROCESSES), ("plugin", _MEMORY)}


def judge(facts: Facts, order: Order, limits: Thresholds) -> Iterator[Verdict]:
    """The limits of this very shell, both places of WinRM's quotas, and Defender."""
    if not order.services:
        return
    yield _job(facts, limits)
    for place in _PLACES:
        yield _quota(facts, place, _MEMORY, limits.shell_memory, unit=GIB >> 20)
        yield _quota(facts, place, _PROCESSES, limits.shell_processes, unit=1)
    yield _defender(facts, order)


def _cure(place: str, name: str) -> Cure:
    command = rf"Set-Item {_PLACES[place][1]}\{name} {_ENOUGH[name]}; Restart-Service WinRM"
    return on_host(
        f'powershell -Command "{command}"',
        provision=(place, name) in PROVISIONED,
        then="ends the sessions of others",
    )


def _job(facts: Facts, limits: Thresholds) -> Verdict:
    """The limit that holds for what runs in this shell, as the kernel has it."""
    name, least = "memory of this shell", limits.shell_memory
    wanted = f"{least.warn:g} GiB or no limit"
    job = facts.at("machine", "job")
    if job.absent:
        return Verdict(AREA, name, "ok", "not in a job object")
    if job.at("memory").absent:
        return Verdict(AREA, name, "ok", "no limit")
    memory = job.number("memory")
    if memory is None:
        return Verdict(AREA, name, "unknown", job.at("memory").why, wanted)
    level = at_least(memory, warn=least.warn * GIB, fail=least.fail * GIB)
    cure = Cure() if level == "ok" else _cure("shell", _MEMORY)
    return Verdict(AREA, name, level, gib(memory), wanted, *cure)


def _quota(facts: Facts, place: str, name: str, least: Least, *, unit: int) -> Verdict:
    key = _PLACES[place][0]
    title = f"{place}, {'memory' if name == _MEMORY else 'processes'}"
    wanted = f"{least.warn * unit:.0f} or more"
    told = facts.at("services", key)
    found = told.number(name)
    if found is None:
        default = told.absent or (isinstance(told.tree, dict) and name not in told.tree)
        why = f"{name} is not set: Windows' default holds" if default else told.why
        return Verdict(AREA, title, "unknown", why, wanted)
    if not found:
        return Verdict(AREA, title, "ok", f"{name} = 0: no limit")
    level = at_least(found, warn=least.warn * unit, fail=least.fail * unit)
    cure = Cure() if level == "ok" else _cure(place, name)
    return Verdict(AREA, title, level, f"{name} = {found:.0f}", wanted, *cure)


def _defender(facts: Facts, order: Order) -> Verdict:
    """Scanning every object file costs time and holds files open."""
    name = "Defender"
    roots = (order.build_root, order.temp)
    wanted = f"{' and '.join(roots)} not scanned"
    told = facts.at("services", "defender")
    scans = told.flag("scans")
    if told.absent or scans is False:
        return Verdict(AREA, name, "ok", "not installed" if told.absent else "does not scan")
    if scans is None:
        return Verdict(AREA, name, "unknown", told.why, wanted)
    exclusions = facts.at("services", "exclusions")
    if not isinstance(exclusions.tree, list):
        found = f"scans; what it leaves out is not known: {exclusions.why}"
        return Verdict(AREA, name, "unknown", found, wanted)
    excluded = [path for path in exclusions.tree[:500] if isinstance(path, str)]
    missing = [root for root in roots if not any(_covers(path, root) for path in excluded)]
    if not missing:
        return Verdict(AREA, name, "ok", f"scans, but not {' and '.join(roots)}")
    command = f'powershell -Command "Add-MpPreference -ExclusionPath {",".join(missing)}"'
    cure = on_host(command, provision=True)
    return Verdict(AREA, name, "warning", f"scans {' and '.join(missing)}", wanted, *cure)


def _covers(path: str, root: str) -> bool:
    """Whether an excluded directory is ``root`` or above it."""
    above = path[:1024].rstrip("\\").lower() + "\\"
    return (root.rstrip("\\").lower() + "\\").startswith(above)
