"""Verdicts on the host as a machine: Windows, memory, disk, clock, paths."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.doctor.model import GIB, Facts, Level, Order, Verdict, at_least, gib, on_host
from pipelines.doctor.thresholds import Thresholds
from pipelines.plan.compat import Compat

AREA = "host"
_OLDEST = 17763  # Server 2019 and Windows 10 1809; what is older lacks what CUDA and MSVC need


def machine(
    facts: Facts, order: Order, limits: Thresholds, compat: Compat, *, sandbox: bool
) -> Iterator[Verdict]:
    """The operating system, rights, Python's bits, memory, commit limit, disk, clock."""
    yield _system(facts, compat)
    yield _bits(facts)
    if not sandbox:
        yield _rights(facts)
    yield _memory(facts, order, limits)
    yield _commit(facts, order, limits)
    if not sandbox:
        yield _page_file(facts)
    yield _disk(facts, order, limits, sandbox=sandbox)
    yield _clock(facts, limits)


def _system(facts: Facts, compat: Compat) -> Verdict:
    name = "operating system"
    wanted = ", ".join(release.name for release in compat.windows)
    if wine := facts.text("machine", "wine"):
        said = facts.text("facts", "windows", "version") or "?"
        return Verdict(AREA, name, "ok", f"Wine {wine}, as Windows {said}")
    platform = facts.text("facts", "platform")
    if platform is not None and platform != "win32":
        cure = "name another host of pipeline.yaml with --host"
        return Verdict(AREA, name, "error", platform, wanted, cure)
    build = facts.number("facts", "windows", "build")
    server = facts.flag("facts", "windows", "server")
    if build is None or server is None:
        return Verdict(AREA, name, "unknown", facts.at("facts", "windows").why, wanted)
    edition = facts.text("machine", "system", "EditionID")
    tail = f"build {build:.0f}" + (f", {edition}" if edition else "")
    if release := compat.release(int(build), server=server):
        return Verdict(AREA, name, "ok", f"{release.name}, {tail}")
    level: Level = "error" if build < _OLDEST else "warning"
    kind = "Windows Server" if server else "Windows"
    cure = "install Windows Server 2022 or 2025 on that machine, or name another host with --host"
    return Verdict(AREA, name, level, f"{kind}, {tail}", wanted, cure)


def _bits(facts: Facts) -> Verdict:
    bits, version = facts.number("facts", "python_bits"), facts.text("facts", "python")
    if bits is None or version is None:
        return Verdict(AREA, "Python", "unknown", facts.at("facts", "python").why)
    if bits == 64:  # noqa: PLR2004 - bits
        return Verdict(AREA, "Python", "ok", f"{version}, 64 bits")
    cure = "install a 64-bit Python there and set python of that host in pipeline.yaml"
    return Verdict(AREA, "Python", "error", f"{version}, {bits:.0f} bits", "64 bits", cure)


def _rights(facts: Facts) -> Verdict:
    found, wanted = facts.flag("machine", "administrator"), "an administrator, to provision"
    if found is None:
        why = facts.at("machine", "administrator").why
        return Verdict(AREA, "rights", "unknown", why, wanted)
    if found:
        return Verdict(AREA, "rights", "ok", "administrator")
    # Over the network a local account has its rights only with this policy.
    policy = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System"
    command = f"reg add {policy} /v LocalAccountTokenFilterPolicy /t REG_DWORD /d 1 /f"
    return Verdict(AREA, "rights", "warning", "no administrator", wanted, on_host(command))


def _jobs(facts: Facts, order: Order) -> int | None:
    """Compile jobs at a time: as ordered, else one a core."""
    cores = facts.number("facts", "cpus")
    return order.jobs or (max(1, int(cores)) if cores else None)


def _fitting(size: float, limits: Thresholds) -> int:
    return max(1, int(size / (limits.memory_per_job.warn * GIB)))


def _memory(facts: Facts, order: Order, limits: Thresholds) -> Verdict:
    name, least = "memory for each job", limits.memory_per_job
    wanted = f"{least.warn:g} GiB a job"
    total, jobs = facts.number("facts", "memory", "total"), _jobs(facts, order)
    if total is None or jobs is None:
        return Verdict(AREA, name, "unknown", facts.at("facts", "memory").why, wanted)
    model = facts.text("machine", "cpu", "model")
    each = f"{jobs} jobs: {gib(total / jobs)} each of {gib(total)}"
    found = each + (f", {model}" if model else "")
    level = at_least(total / jobs, warn=least.warn * GIB, fail=least.fail * GIB)
    if level == "error" and total >= least.fail * GIB:
        level = "warning"  # fewer jobs help
    cure = f"build with --jobs {_fitting(total, limits)}" if level == "warning" else ""
    if level == "error":
        cure = "name a host with more memory with --host"
    return Verdict(AREA, name, level, found, wanted, cure)


_PAGING = (
    r'reg add "HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management" '
    r'/v PagingFiles /t REG_MULTI_SZ /d "C:\pagefile.sys 16384 65536" /f, then restart it'
)


def _commit(facts: Facts, order: Order, limits: Thresholds) -> Verdict:
    """What may still be reserved; "the paging file is too small" comes from here."""
    name, least = "commit limit", limits.memory_per_job
    limit, used = (
        facts.number("machine", "commit", "limit"),
        facts.number("machine", "commit", "used"),
    )
    jobs = _jobs(facts, order)
    if limit is None or used is None or jobs is None:
        return Verdict(AREA, name, "unknown", facts.at("machine", "commit").why)
    free = max(0.0, limit - used)
    wanted = f"{jobs * least.warn:g} GiB free"
    found = f"{gib(free)} of {gib(limit)} free"
    level = at_least(free, warn=jobs * least.warn * GIB, fail=least.fail * GIB)
    cure = "" if level == "ok" else on_host(_PAGING)
    if level == "warning":
        cure = f"build with --jobs {_fitting(free, limits)}, or {cure}"
    return Verdict(AREA, name, level, found, wanted, cure)


def _page_file(facts: Facts) -> Verdict:
    name, wanted = "page file", "one, of fixed size or managed by Windows"
    rows = facts.rows("machine", "page_file")
    if rows is None:
        why = facts.at("machine", "page_file").why
        return Verdict(AREA, name, "unknown", why, wanted)
    lines = [text for row in rows if (text := row.text())]
    if lines:
        return Verdict(AREA, name, "ok", "; ".join(lines[:4]))
    return Verdict(AREA, name, "warning", "none", wanted, on_host(_PAGING))


def _disk(facts: Facts, order: Order, limits: Thresholds, *, sandbox: bool) -> Verdict:
    least = limits.sandbox_disk if sandbox else limits.host_disk
    name, wanted = "disk of the build root", f"{least.warn:g} GiB free"
    free = facts.number("machine", "disks", order.build_root, "free")
    if free is None:
        why = facts.at("machine", "disks", order.build_root).why
        return Verdict(AREA, name, "unknown", why, wanted)
    level = at_least(free, warn=least.warn * GIB, fail=least.fail * GIB)
    command = rf"rmdir /s /q {order.build_root} (finished builds), or cleanmgr /verylowdisk"
    cure = "" if level == "ok" else on_host(command)
    return Verdict(AREA, name, level, f"{gib(free)} free", wanted, cure)


def _clock(facts: Facts, limits: Thresholds) -> Verdict:
    """How far the host's clock is from ours; half of the round trip is not held against it."""
    most = limits.clock_skew
    wanted = f"within {most.warn:g} s of this machine's"
    skew = facts.at("skew").tree
    if isinstance(skew, bool) or not isinstance(skew, int | float) or skew != skew:  # noqa: PLR0124
        return Verdict(AREA, "clock", "unknown", facts.at("skew").why, wanted)
    off = abs(skew)
    if off <= most.warn:
        return Verdict(AREA, "clock", "ok", f"{off:.0f} s off")
    side = "ahead" if skew > 0 else "behind"
    level: Level = "error" if off > most.fail else "warning"
    cure = on_host("w32tm /resync /force (and look at this machine's clock: date -u)")
    found = f"{off:.3g} s {side}"
    if level == "error":
        found += ": Kerberos refuses more than five minutes"
    return Verdict(AREA, "clock", level, found, wanted, cure)
