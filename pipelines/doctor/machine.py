"""Findings on the host as a machine: Windows, processor, memory, commit limit, disk, clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pipelines.core.finding import Finding, Level
from pipelines.core.hosttext import safe_line
from pipelines.core.units import GIB, format_gib
from pipelines.doctor.model import Facts, Purpose, Setting, at_least, make_finding, on_host, reg_add
from pipelines.plan.matrix.compat import Compat
from pipelines.plan.provisioning.thresholds import Thresholds
from pipelines.remote.resources import page_file

AREA = "host"
_OLDEST = 17763  # Server 2019 and Windows 10 1809; anything older is too old for CUDA and MSVC
_FILES = 4  # page files in one verdict
_OTHER = "name another host of pipeline.yaml with --host"
_DAY = 86400.0
_SOON = 7  # days
_EXPIRY = "https://learn.microsoft.com/windows/security/threat-protection/security-policy-settings/maximum-password-age"
_CONTROL = "https://github.com/scipy/scipy/issues/25959"
_LIDS = ("does nothing", "sends it to sleep", "hibernates it", "shuts it down")
_STAY = (
    "powercfg /change standby-timeout-ac 0 & powercfg /change hibernate-timeout-ac 0 & powercfg "
    "/setacvalueindex SCHEME_CURRENT SUB_BUTTONS LIDACTION 0 & powercfg /setactive SCHEME_CURRENT"
)
_POLICY = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System"


def judge(facts: Facts, purpose: Purpose, limits: Thresholds, compat: Compat) -> Iterator[Finding]:
    """The operating system, processor, Python, rights, memory, commit limit, disk, clock."""
    yield _check_operating_system(facts, compat)
    yield _processor(facts)
    yield _bits(facts)
    if purpose.services:
        yield _rights(facts)
        yield _password(facts)
        yield _check_code_policies(facts)
    yield _memory(facts, purpose, limits)
    yield _commit(facts, purpose, limits)
    if purpose.services:
        yield from (_page_file(facts, setting) for setting in purpose.of("page_file"))
    yield _check_build_disk(facts, purpose, limits)
    yield _clock(facts, limits)
    if purpose.services:
        yield _check_sleep_settings(facts)


def _check_operating_system(facts: Facts, compat: Compat) -> Finding:
    name = "operating system"
    wanted = ", ".join(release.name for release in compat.windows)
    if wine := facts.text("machine", "wine"):
        said = facts.text("facts", "windows", "version") or "?"
        return make_finding(AREA, name, "ok", f"Wine {wine}, as Windows {said}")
    platform = facts.text("facts", "platform")
    if platform is not None and platform != "win32":
        return make_finding(AREA, name, "error", platform, wanted, _OTHER)
    build = facts.number("facts", "windows", "build")
    server = facts.flag("facts", "windows", "server")
    if build is None or server is None:
        return make_finding(AREA, name, "unknown", facts.at("facts", "windows").why, wanted)
    edition = facts.text("machine", "system", "EditionID")
    tail = f"build {build:.0f}" + (f", {edition}" if edition else "")
    if release := compat.release(int(build), server=server):
        return make_finding(AREA, name, "ok", f"{release.name}, {tail}")
    level: Level = "error" if build < _OLDEST else "warning"
    kind = "Windows Server" if server else "Windows"
    hint = f"install Windows Server 2022 or 2025 on that machine, or {_OTHER}"
    return make_finding(AREA, name, level, f"{kind}, {tail}", wanted, hint)


def _processor(facts: Facts) -> Finding:
    architecture, cores = facts.text("facts", "machine"), facts.number("facts", "cpus")
    if architecture is None or not cores:
        return make_finding(AREA, "processor", "unknown", facts.at("facts", "machine").why, "x64")
    model = facts.text("machine", "cpu", "model")
    found = f"{cores:.0f} cores, {model or architecture}"
    if architecture.upper() in ("AMD64", "X86_64"):
        return make_finding(AREA, "processor", "ok", found)
    wanted = "x64: CUDA for Windows has nothing else"
    return make_finding(AREA, "processor", "error", f"{found}, {architecture}", wanted, _OTHER)


def _bits(facts: Facts) -> Finding:
    bits, version = facts.number("facts", "python_bits"), facts.text("facts", "python")
    if bits is None or version is None:
        return make_finding(AREA, "Python", "unknown", facts.at("facts", "python").why, "64 bits")
    if bits == 64:  # noqa: PLR2004 - bits
        return make_finding(AREA, "Python", "ok", f"{version}, 64 bits")
    hint = "install a 64-bit Python there and set python of that host in pipeline.yaml"
    return make_finding(AREA, "Python", "error", f"{version}, {bits:.0f} bits", "64 bits", hint)


def _rights(facts: Facts) -> Finding:
    found, wanted = facts.flag("machine", "administrator"), "an administrator, to provision"
    if found is None:
        why = facts.at("machine", "administrator").why
        return make_finding(AREA, "rights", "unknown", why, wanted)
    if found:
        return make_finding(AREA, "rights", "ok", "administrator")
    # Over the network a local account has its rights only with this policy.
    command = reg_add(_POLICY, "LocalAccountTokenFilterPolicy", "REG_DWORD", 1)
    hint = on_host(command, first="name an administrator as username in pipeline.yaml")
    return make_finding(AREA, "rights", "warning", "no administrator", wanted, *hint)


def _password(facts: Facts) -> Finding:
    """Once it has expired every sign-in is refused, as a wrong one would be."""
    answer = facts.at("machine", "password", "left")
    wanted, left = f"no end within {_SOON} days", answer.signed()
    if answer.absent:
        return make_finding(AREA, "password", "ok", "never expires")
    if left is None:
        return make_finding(AREA, "password", "unknown", answer.why, wanted)
    found = f"expires in {max(0.0, left) / _DAY:.0f} days"
    if left > _SOON * _DAY:
        return make_finding(AREA, "password", "ok", found)
    command = 'powershell -Command "Set-LocalUser -Name USER -PasswordNeverExpires $true"'
    hint = on_host(command, first="give that user a new password")
    return make_finding(AREA, "password", "warning", found, wanted, *hint, source=_EXPIRY)


def _check_code_policies(facts: Facts) -> Finding:
    """A wheel that was just built is not signed."""
    answer, wanted = facts.at("machine", "policies"), "none that blocks unsigned modules"
    state, enforced = answer.signed("smart_app_control"), answer.flag("enforced")
    allow, off = "have it allow the build root and the Pythons there", "switch it off there"
    judged: tuple[tuple[bool, Level, str, str], ...] = (
        (state == 1, "error", "Smart App Control is on", f"{off}, for good"),
        (bool(enforced), "error", "a WDAC policy is on", allow),
        (bool(answer.flag("applocker")), "warning", "AppLocker's rules are on", allow),
        (state == 2, "warning", "Smart App Control may switch itself on", off),  # noqa: PLR2004
    )
    for is_on, level, found, hint in judged:
        if is_on:
            more = {"hint": f"{hint}, or {_OTHER}", "source": _CONTROL}
            return make_finding(AREA, "policies", level, found, wanted, **more)
    if enforced is None:
        return make_finding(AREA, "policies", "unknown", answer.why, wanted)
    return make_finding(AREA, "policies", "ok", "none")


def _compile_job_count(facts: Facts, purpose: Purpose) -> int | None:
    """Compile jobs at a time: as ordered, else one a core."""
    cores = facts.number("facts", "cpus")
    return purpose.jobs or (max(1, int(cores)) if cores else None)


def _jobs_fitting_memory(size: float, limits: Thresholds) -> int:
    return max(1, int(size / (limits.memory_per_job.warn * GIB)))


def _memory(facts: Facts, purpose: Purpose, limits: Thresholds) -> Finding:
    name, least = "memory", limits.memory_per_job
    wanted = f"{least.warn:g} GiB a job"
    total, jobs = facts.number("facts", "memory", "total"), _compile_job_count(facts, purpose)
    if total is None or jobs is None:
        return make_finding(AREA, name, "unknown", facts.at("facts", "memory").why, wanted)
    found = f"{format_gib(total, 1)}: {format_gib(total / jobs, 1)} for each of {jobs} compile jobs"
    level = at_least(total / jobs, warn=least.warn * GIB, fail=least.fail * GIB)
    if level == "ok":
        return make_finding(AREA, name, level, found)
    if total < least.fail * GIB:
        return make_finding(AREA, name, "error", found, wanted, _OTHER)
    # Fewer jobs help, or one is slow.
    hint = f"build with --jobs {_jobs_fitting_memory(total, limits)}"
    return make_finding(AREA, name, "warning", found, wanted, hint)


def _commit(facts: Facts, purpose: Purpose, limits: Thresholds) -> Finding:
    """What may still be reserved; "the paging file is too small" comes from here."""
    name, least, answer = "commit limit", limits.memory_per_job, facts.at("machine", "commit")
    limit, used, jobs = (
        answer.number("limit"),
        answer.number("used"),
        _compile_job_count(facts, purpose),
    )
    if limit is None or used is None or jobs is None:
        return make_finding(AREA, name, "unknown", answer.why)
    free = max(0.0, limit - used)
    wanted = f"{jobs * least.warn:g} GiB free, for {jobs} compile jobs"
    found = f"{format_gib(free, 1)} of {format_gib(limit, 1)} free"
    level = at_least(free, warn=jobs * least.warn * GIB, fail=least.fail * GIB)
    if level == "ok":
        return make_finding(AREA, name, level, found)
    ways = [f"build with --jobs {_jobs_fitting_memory(free, limits)}"] if level == "warning" else []
    # Provisioning makes a larger page file; where there is none to make, memory must be freed.
    ways += ["invoke provision"] if purpose.services else []
    hint = ", or ".join(ways) or "end other programs on that machine"
    return make_finding(AREA, name, level, found, wanted, hint)


def _page_file(facts: Facts, setting: Setting) -> Finding:
    """Any will do for a start; provisioning wants one of fixed bounds."""
    name, wanted = "page file", "one, of fixed size or managed by Windows"
    values = facts.checked(setting).at("values")
    if not isinstance(values.tree, dict):
        return make_finding(AREA, name, "unknown", values.why, wanted)
    texts = (safe_line(f"{path} {sizes}") for path, sizes in [*values.tree.items()][:_FILES])
    if found := "; ".join(filter(None, texts)):
        return make_finding(AREA, name, "ok", found)
    value = page_file.setting(cast(page_file.Spec, setting.spec))
    command = reg_add(page_file.KEY, page_file.NAME, "REG_MULTI_SZ", value)
    hint = on_host(command, provision=setting.provisioned, then="then restart it")
    return make_finding(AREA, name, "warning", "none", wanted, *hint)


def _check_build_disk(facts: Facts, purpose: Purpose, limits: Thresholds) -> Finding:
    least = limits.sandbox_disk if purpose.sandbox else limits.host_disk
    name, wanted = "disk of builds", f"{least.warn:g} GiB free"
    answer = facts.at("machine", "disks", purpose.build_root)
    free = answer.number("free")
    if free is None:
        return make_finding(AREA, name, "unknown", answer.why, wanted)
    level = at_least(free, warn=least.warn * GIB, fail=least.fail * GIB)
    found = f"{format_gib(free, 1)} free for {purpose.build_root}"
    if level == "ok":
        return make_finding(AREA, name, level, found)
    if purpose.sandbox:
        return make_finding(AREA, name, level, found, wanted, "free space on this machine's disk")
    hint = "invoke cache --prune --days 1, which keeps running jobs and those of today"
    return make_finding(AREA, name, level, found, wanted, hint)


def _clock(facts: Facts, limits: Thresholds) -> Finding:
    """How far the host's clock is from ours."""
    most, skew = limits.clock_skew, facts.signed("skew")
    wanted = f"within {most.warn:g} s of this machine's"
    if skew is None:
        return make_finding(AREA, "clock", "unknown", facts.at("skew").why, wanted)
    off = abs(skew)
    if off <= most.warn:
        return make_finding(AREA, "clock", "ok", f"{off:.1f} s off this machine's")
    found = f"{off:.0f} s {'ahead' if skew > 0 else 'behind'}"
    level: Level = "error" if off > most.fail else "warning"
    if level == "error":
        found += ": Kerberos refuses more than five minutes"
    hint = on_host(
        "net start w32time & w32tm /resync /force",
        first="set this machine's clock if it is the wrong one",
    )
    return make_finding(AREA, "clock", level, found, wanted, *hint)


def _check_sleep_settings(facts: Facts) -> Finding:
    """What takes the host away: a job keeps it awake, unless its lid is closed, nor afterwards."""
    wanted, answer = "never on mains power", facts.at("machine", "power")
    sleep, hibernate, lid = (answer.number(key) for key in ("sleep", "hibernate", "lid"))
    if sleep is None or hibernate is None or lid not in (0, 1, 2, 3):
        return make_finding(AREA, "sleep", "unknown", answer.why, wanted)
    waits = {"sleeps": sleep, "hibernates": hibernate}
    found = [f"{what} after {n / 60:.0f} minutes without input" for what, n in waits.items() if n]
    found += [f"a closed lid {_LIDS[int(lid)]}"] if lid else []
    if not found:
        return make_finding(AREA, "sleep", "ok", "never by itself")
    hint = on_host(_STAY, then="in cmd.exe; a job keeps it awake, unless its lid is closed")
    return make_finding(AREA, "sleep", "warning", ", ".join(found), wanted, *hint)
