"""Verdicts on this machine, from which builds are driven."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.doctor.model import GIB, Facts, Verdict, at_least, gib
from pipelines.doctor.thresholds import Thresholds

AREA = "this machine"
_PYTHON = (3, 11)


def controller(facts: Facts, limits: Thresholds, *, sandbox: bool) -> Iterator[Verdict]:
    """Python, disks, lock and downloads, git, the clock; Wine where the host is a sandbox."""
    yield _python(facts)
    for name in ("cache", "out"):
        yield _disk(facts.at("disks"), name, limits)
    yield _lock(facts)
    yield _downloads(facts)
    yield _git(facts)
    yield _clock(facts)
    if sandbox:
        yield _wine(facts)


def _python(facts: Facts) -> Verdict:
    found = facts.text("python")
    wanted = f"{_PYTHON[0]}.{_PYTHON[1]} or newer"
    if found is None:
        return Verdict(AREA, "Python", "unknown", facts.at("python").why, wanted)
    words = found.split(".")
    numbers = [int(word) if word.isascii() and word.isdigit() else 0 for word in words[:2]]
    if tuple(numbers) >= _PYTHON:
        return Verdict(AREA, "Python", "ok", found)
    cure = "uv python install 3.11, then: make setup"
    return Verdict(AREA, "Python", "error", found, wanted, cure)


def _disk(disks: Facts, name: str, limits: Thresholds) -> Verdict:
    free, least = disks.number(name, "free"), limits.controller_disk
    title = f"disk of {name}"
    wanted = f"{least.warn:g} GiB free"
    if free is None:
        return Verdict(AREA, title, "unknown", disks.at(name).why, wanted)
    level = at_least(free, warn=least.warn * GIB, fail=least.fail * GIB)
    where = disks.text(name, "path")
    found = f"{gib(free)} free" + (f" in {where}" if where else "")
    moved = "XDG_CACHE_HOME" if name == "cache" else "out in pipeline.yaml"
    cure = "" if level == "ok" else f"free space there, or set {moved} to another disk"
    return Verdict(AREA, title, level, found, wanted, cure)


def _lock(facts: Facts) -> Verdict:
    unpinned, wanted = facts.rows("lock", "unpinned"), "sha256 and size of every tool"
    if unpinned is None:
        return Verdict(AREA, "lock", "unknown", facts.at("lock").why, wanted)
    cure = "invoke lock, on a machine with an internet connection"
    if unpinned:
        return Verdict(AREA, "lock", "error", f"not pinned: {_names(unpinned)}", wanted, cure)
    if (error := facts.text("lock", "error")) is not None:
        return Verdict(AREA, "lock", "error", error, wanted, cure)
    found = f"{facts.number('lock', 'tools') or 0:.0f} tools, each with a sha256"
    if others := _names(facts.rows("lock", "others") or []):
        found += f"; not pinned, but not wanted here: {others}"
    return Verdict(AREA, "lock", "ok", found)


def _names(rows: list[Facts]) -> str:
    return ", ".join(filter(None, (row.text() for row in rows)))


def _downloads(facts: Facts) -> Verdict:
    missing, size = facts.number("lock", "missing"), facts.number("lock", "missing_bytes")
    if missing is None or size is None:
        return Verdict(AREA, "downloads", "unknown", facts.at("lock").why)
    if not missing:
        return Verdict(AREA, "downloads", "ok", "all in the cache: no network is needed")
    found = f"{missing:.0f} files to fetch, {size / (1 << 20):.0f} MiB: the network is needed once"
    return Verdict(AREA, "downloads", "ok", found)


def _git(facts: Facts) -> Verdict:
    found = facts.text("git")
    if found:
        return Verdict(AREA, "git", "ok", found)
    cure = "sudo apt-get install git"
    return Verdict(AREA, "git", "warning", "not found", "to name the commit of a build", cure)


def _clock(facts: Facts) -> Verdict:
    now, newest = facts.number("time"), facts.number("newest_file")
    if now is None or newest is None:
        return Verdict(AREA, "clock", "unknown", facts.at("time").why)
    slack = 86400
    if now + slack >= newest:
        return Verdict(AREA, "clock", "ok", "not behind its own files")
    days = (newest - now) / 86400
    cure = "sudo timedatectl set-ntp true"
    found = f"{days:.0f} days behind the files of this checkout"
    return Verdict(AREA, "clock", "error", found, "the time: TLS and Kerberos need it", cure)


def _wine(facts: Facts) -> Verdict:
    found = facts.text("wine", "version")
    wanted = "for the sandbox"
    if found:
        return Verdict(AREA, "Wine", "ok", found)
    error = facts.text("wine", "error")
    if error is None:
        return Verdict(AREA, "Wine", "unknown", facts.at("wine").why, wanted)
    cure = "sudo apt-get install --no-install-recommends wine64 libwine-dev"
    return Verdict(AREA, "Wine", "error", error, wanted, cure)
