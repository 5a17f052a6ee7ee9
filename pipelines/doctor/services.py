"""Verdicts on Windows' services: WinRM's quotas, the job object of its shells, Defender."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.doctor.model import GIB, Facts, Order, Verdict, at_least, gib, on_host
from pipelines.doctor.thresholds import Least, Thresholds

AREA = "services"
_PLACES = {
    "shell": ("winrm_shell", r"WSMan:\localhost\Shell"),
    "plugin": ("winrm_plugin", r"WSMan:\localhost\Plugin\microsoft.powershell\Quotas"),
}
_ENOUGH = {"MaxMemoryPerShellMB": 8192, "MaxProcessesPerShell": 200}


def services(facts: Facts, order: Order, limits: Thresholds, *, sandbox: bool) -> Iterator[Verdict]:
    """The limits of this very shell, both places of WinRM's quotas, and Defender."""
    if sandbox:
        found = "the sandbox has no WinRM quotas, page file, Defender or driver to look at"
        yield Verdict(AREA, "whole Windows", "unknown", found)
        return
    yield _job(facts, limits)
    for place in _PLACES:
        yield _quota(facts, place, "MaxMemoryPerShellMB", limits.shell_memory, unit=GIB >> 20)
        yield _quota(facts, place, "MaxProcessesPerShell", limits.shell_processes, unit=1)
    yield _defender(facts, order)


def _cure(place: str, name: str) -> str:
    command = rf"powershell -Command Set-Item {_PLACES[place][1]}\{name} {_ENOUGH[name]}"
    return f"invoke provision; or {on_host(command)}; Restart-Service WinRM"


def _job(facts: Facts, limits: Thresholds) -> Verdict:
    """The limit that holds for what runs in this shell, as the kernel has it."""
    name, least = "memory of this shell", limits.shell_memory
    job = facts.at("machine", "job")
    if job.absent:
        return Verdict(AREA, name, "ok", "not in a job object")
    if not isinstance(job.tree, dict):
        return Verdict(AREA, name, "unknown", job.why, f"{least.warn:g} GiB")
    if job.at("memory").absent:
        return Verdict(AREA, name, "ok", "no limit")
    memory = job.number("memory")
    if memory is None:
        return Verdict(AREA, name, "unknown", job.why, f"{least.warn:g} GiB")
    level = at_least(memory, warn=least.warn * GIB, fail=least.fail * GIB)
    cure = "" if level == "ok" else _cure("shell", "MaxMemoryPerShellMB")
    return Verdict(AREA, name, level, gib(memory), f"{least.warn:g} GiB or no limit", cure)


def _quota(facts: Facts, place: str, name: str, least: Least, *, unit: int) -> Verdict:
    key = _PLACES[place][0]
    title = f"{name}, {place}"
    wanted = f"{least.warn * unit:.0f} or more"
    found = facts.number("services", key, name)
    if found is None:
        told = facts.at("services", key)
        why = "not set: Windows' default holds" if isinstance(told.tree, dict) else told.why
        return Verdict(AREA, title, "unknown", why, wanted)
    if not found:
        return Verdict(AREA, title, "ok", "0: no limit")
    level = at_least(found, warn=least.warn * unit, fail=least.fail * unit)
    cure = "" if level == "ok" else _cure(place, name)
    return Verdict(AREA, title, level, f"{found:.0f}", wanted, cure)


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
    rows = facts.rows("services", "exclusions")
    if rows is None:
        why = facts.at("services", "exclusions").why
        return Verdict(AREA, name, "unknown", f"scans; exclusions not readable: {why}", wanted)
    excluded = [row.tree for row in rows if isinstance(row.tree, str)]
    missing = [root for root in roots if not any(_covers(path, root) for path in excluded)]
    if not missing:
        return Verdict(AREA, name, "ok", "scans, but not the build root and TEMP")
    command = f"powershell -Command Add-MpPreference -ExclusionPath {','.join(missing)}"
    cure = f"invoke provision; or {on_host(command)}"
    return Verdict(AREA, name, "warning", f"scans {' and '.join(missing)}", wanted, cure)


def _covers(path: str, root: str) -> bool:
    """Whether an excluded directory is ``root`` or above it."""
    above = path[:1024].rstrip("\\").lower() + "\\"
    return (root.rstrip("\\").lower() + "\\").startswith(above)
