"""Findings on this machine, from which builds are driven."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.core.finding import Finding
from pipelines.core.shell import INSTALL_GIT
from pipelines.core.units import GIB, gib
from pipelines.doctor.model import Facts, at_least, finding
from pipelines.doctor.thresholds import Thresholds

AREA = "this machine"
_PYTHON = (3, 11)
_NAMED = 4  # names of tools in one verdict
#: Disk -> what is kept there and what moves it elsewhere.
_DISKS = {
    "cache": ("disk of downloads", "XDG_CACHE_HOME"),
    "out": ("disk of runs", "out in pipeline.yaml"),
}


def judge(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """System, Python, disks, lock and downloads, git; Wine where it was asked for."""
    system = facts.text("system")
    why = facts.at("system").why
    yield finding(AREA, "operating system", "ok" if system else "unknown", system or why)
    yield _python(facts)
    for name in _DISKS:
        yield _disk(facts.at("disks"), name, limits)
    yield _lock(facts)
    yield _downloads(facts)
    yield _git(facts)
    if facts.at("wine").tree is not None:
        yield _wine(facts)


def _python(facts: Facts) -> Finding:
    found = facts.text("python")
    wanted = f"{_PYTHON[0]}.{_PYTHON[1]} or newer"
    if found is None:
        return finding(AREA, "Python", "unknown", facts.at("python").why, wanted)
    words = found.split(".")
    numbers = [int(word) if word.isascii() and word.isdigit() else 0 for word in words[:2]]
    if tuple(numbers) >= _PYTHON:
        return finding(AREA, "Python", "ok", found)
    hint = "install Python 3.11 or newer, then: rm -r .venv; scripts/setup"
    return finding(AREA, "Python", "error", found, wanted, hint)


def _disk(disks: Facts, name: str, limits: Thresholds) -> Finding:
    free, least = disks.number(name, "free"), limits.controller_disk
    title, moved = _DISKS[name]
    wanted = f"{least.warn:g} GiB free"
    if free is None:
        return finding(AREA, title, "unknown", disks.at(name).why, wanted)
    level = at_least(free, warn=least.warn * GIB, fail=least.fail * GIB)
    where = disks.text(name, "path")
    found = f"{gib(free, 1)} free" + (f" in {where}" if where else "")
    hint = "" if level == "ok" else f"free space there, or set {moved} to another disk"
    return finding(AREA, title, level, found, wanted, hint)


def _lock(facts: Facts) -> Finding:
    unpinned, wanted = facts.rows("lock", "unpinned"), "a sha256 for every tool"
    if unpinned is None:
        return finding(AREA, "lock", "unknown", facts.at("lock").why, wanted)
    hint = "invoke lock"
    if unpinned:
        hint += f" --only {','.join(name for row in unpinned if (name := row.text()))}"
        return finding(
            AREA,
            "lock",
            "error",
            f"not pinned: {_names(unpinned)}",
            wanted,
            f"{hint}, on a machine with an internet connection",
        )
    if (error := facts.text("lock", "error")) is not None:
        return finding(AREA, "lock", "error", error, wanted, hint)
    found = f"{facts.number('lock', 'tools') or 0:.0f} tools of this order, each with a sha256"
    return finding(AREA, "lock", "ok", found)


def _names(rows: list[Facts]) -> str:
    names = [name for row in rows if (name := row.text())]
    more = len(rows) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _downloads(facts: Facts) -> Finding:
    missing, size = facts.number("lock", "missing"), facts.text("lock", "missing_size")
    if missing is None or size is None:
        return finding(AREA, "downloads", "unknown", facts.at("lock").why)
    if facts.rows("lock", "unpinned") or facts.text("lock", "error"):
        found = "not known before the lock is whole"
        return finding(AREA, "downloads", "unknown", found)
    if damaged := facts.rows("lock", "damaged"):
        found, hint = f"damaged on this machine: {_names(damaged)}", "invoke cache --prune"
        return finding(AREA, "downloads", "warning", found, "what was pinned", hint)
    if not missing:
        return finding(AREA, "downloads", "ok", "what is sent to the host is here already")
    found = f"{missing:.0f} files to fetch, {size}: the network is needed once"
    return finding(AREA, "downloads", "ok", found)


def _git(facts: Facts) -> Finding:
    found, told = facts.text("git"), facts.at("git")
    if found:
        return finding(AREA, "git", "ok", found)
    if not told.absent:
        return finding(AREA, "git", "unknown", told.why)
    return finding(AREA, "git", "warning", "not found", "git, to fetch sources", INSTALL_GIT)


def _wine(facts: Facts) -> Finding:
    found, wanted = facts.text("wine", "version"), "Wine, for the sandbox"
    if found:
        return finding(AREA, "Wine", "ok", found)
    error = facts.text("wine", "error")
    if error is None:
        return finding(AREA, "Wine", "unknown", facts.at("wine").why, wanted)
    hint = facts.text("wine", "hint") or "scripts/setup"
    return finding(AREA, "Wine", "error", error, wanted, hint)
