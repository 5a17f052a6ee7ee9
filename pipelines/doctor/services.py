"""Findings on Windows' services: WinRM's quotas, the job object of its shells, Defender."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.core.finding import Finding, Level
from pipelines.core.units import GIB, format_gib
from pipelines.doctor.model import Facts, Hint, Purpose, Setting, at_least, make_finding, on_host
from pipelines.plan.provisioning.thresholds import Thresholds

AREA = "services"
#: Place of a quota -> where PowerShell sets it.
PLACES = {
    "shell": r"WSMan:\localhost\Shell",
    "plugin": r"WSMan:\localhost\Plugin\microsoft.powershell\Quotas",
}
_MEMORY = "MaxMemoryPerShellMB"


def judge(facts: Facts, purpose: Purpose, limits: Thresholds) -> Iterator[Finding]:
    """The limits of this very shell, both places of WinRM's quotas, and Defender."""
    if not purpose.services:
        return
    quotas = purpose.of("winrm_quota")
    for quota in quotas:
        if (quota.spec["place"], quota.spec["name"]) == ("shell", _MEMORY):
            yield _check_job_memory_limit(facts, quota, limits)
    for quota in quotas:
        yield _quota(facts, quota, limits)
    if exclusions := purpose.of("defender_exclusion"):
        yield _defender(facts, exclusions)


def _winrm_quota_hint(quota: Setting) -> Hint:
    spec = quota.spec
    setting = rf"{PLACES[spec['place']]}\{spec['name']}"
    return on_host(
        f'powershell -Command "Set-Item {setting} {spec["at_least"]}; Restart-Service WinRM"',
        provision=quota.provisioned,
        then="ends the sessions of others",
    )


def _check_job_memory_limit(facts: Facts, quota: Setting, limits: Thresholds) -> Finding:
    """The limit that holds for what runs in this shell, as the kernel has it."""
    name, enough = "memory of this shell", quota.spec["at_least"] << 20
    wanted = f"{enough / GIB:g} GiB or no limit"
    job = facts.at("machine", "job")
    if job.absent:
        return make_finding(AREA, name, "ok", "not in a job object")
    if job.at("memory").absent:
        return make_finding(AREA, name, "ok", "no limit")
    memory = job.number("memory")
    if memory is None:
        return make_finding(AREA, name, "unknown", job.at("memory").why, wanted)
    level = at_least(memory, warn=enough, fail=limits.memory_per_job.fail * GIB)
    hint = Hint() if level == "ok" else _winrm_quota_hint(quota)
    return make_finding(AREA, name, level, format_gib(memory, 1), wanted, *hint)


def _quota(facts: Facts, quota: Setting, limits: Thresholds) -> Finding:
    """Whether it is enough says the host's own check; an error is what ends even one compile."""
    name = quota.spec["name"]
    title = f"{quota.spec['place']}, {'memory' if name == _MEMORY else 'processes'}"
    wanted = f"{quota.spec['at_least']} or more"
    answer = facts.checked(quota)
    found, enough = answer.count("values", name), answer.flag("ok")
    if found is None or enough is None:
        values = answer.at("values").tree
        unset = isinstance(values, dict) and name not in values
        why = f"{name} is not set: Windows' default applies" if unset else answer.why
        return make_finding(AREA, title, "unknown", why, wanted)
    if enough:
        said = f"{found:.0f}" if found else "0: no limit"
        return make_finding(AREA, title, "ok", f"{name} = {said}")
    least = limits.memory_per_job.fail * (GIB >> 20) if name == _MEMORY else limits.shell_processes
    level: Level = "error" if found < least else "warning"
    return make_finding(
        AREA, title, level, f"{name} = {found:.0f}", wanted, *_winrm_quota_hint(quota)
    )


def _defender(facts: Facts, settings: list[Setting]) -> Finding:
    """Scanning every object file costs time and holds files open."""
    name = "Defender"
    roots = [setting.spec["path"] for setting in settings]
    wanted = f"{' and '.join(roots)} not scanned"
    answers = [facts.checked(setting) for setting in settings]
    state = answers[0].text("values", "Defender")
    if state in ("not installed", "off"):
        return make_finding(AREA, name, "ok", "does not scan" if state == "off" else state)
    if state != "scans":
        return make_finding(AREA, name, "unknown", answers[0].why, wanted)
    excluded = [row.text("values", "excluded") for row in answers]
    if unseen := [row for row, said in zip(answers, excluded, strict=True) if said is None]:
        why = unseen[0].text("found") or unseen[0].why
        found = f"scans; what it leaves out is not known: {why}"
        return make_finding(AREA, name, "unknown", found, wanted)
    missing = [root for root, said in zip(roots, excluded, strict=True) if said != "yes"]
    if not missing:
        return make_finding(AREA, name, "ok", f"scans, but not {' and '.join(roots)}")
    command = f'powershell -Command "Add-MpPreference -ExclusionPath {",".join(missing)}"'
    hint = on_host(command, provision=all(setting.provisioned for setting in settings))
    return make_finding(AREA, name, "warning", f"scans {' and '.join(missing)}", wanted, *hint)
