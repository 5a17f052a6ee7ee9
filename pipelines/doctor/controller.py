"""Findings on this machine, from which builds are driven."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.core.finding import Finding
from pipelines.core.shell import INSTALL_GIT
from pipelines.core.units import GIB, format_gib, join_first
from pipelines.doctor.model import Facts, at_least, make_finding
from pipelines.plan.provisioning.thresholds import Thresholds

AREA = "this machine"
#: Disk -> what is kept there and what moves it elsewhere.
_DISKS = {
    "cache": ("disk of downloads", "XDG_CACHE_HOME"),
    "out": ("disk of runs", "out in pipeline.yaml"),
}


def judge(facts: Facts, limits: Thresholds) -> Iterator[Finding]:
    """System, Python, disks, lock and downloads, git; Wine where it was asked for."""
    for title, key in (("operating system", "system"), ("Python", "python")):
        found = facts.text(key)
        yield make_finding(AREA, title, "ok" if found else "unknown", found or facts.at(key).why)
    for name in _DISKS:
        yield _check_controller_disk(facts.at("disks"), name, limits)
    yield _check_lock_pins(facts)
    yield _downloads(facts)
    yield _check_git_installed(facts)
    if facts.at("wine").tree is not None:
        yield _wine(facts)


def _check_controller_disk(disks: Facts, name: str, limits: Thresholds) -> Finding:
    free, least = disks.number(name, "free"), limits.controller_disk
    title, moved = _DISKS[name]
    wanted = f"{least.warn:g} GiB free"
    if free is None:
        return make_finding(AREA, title, "unknown", disks.at(name).why, wanted)
    level = at_least(free, warn=least.warn * GIB, fail=least.fail * GIB)
    where = disks.text(name, "path")
    found = f"{format_gib(free, 1)} free" + (f" in {where}" if where else "")
    hint = "" if level == "ok" else f"free space there, or set {moved} to another disk"
    return make_finding(AREA, title, level, found, wanted, hint)


def _check_lock_pins(facts: Facts) -> Finding:
    unpinned, wanted = facts.rows("lock", "unpinned"), "a sha256 for every tool"
    if unpinned is None:
        return make_finding(AREA, "lock", "unknown", facts.at("lock").why, wanted)
    hint = "invoke lock"
    if unpinned:
        hint += f" --only {','.join(_row_texts(unpinned))}"
        return make_finding(
            AREA,
            "lock",
            "error",
            f"not pinned: {join_first(_row_texts(unpinned))}",
            wanted,
            f"{hint}, on a machine with an internet connection",
        )
    if (error := facts.text("lock", "error")) is not None:
        return make_finding(AREA, "lock", "error", error, wanted, hint)
    found = f"{facts.number('lock', 'tools') or 0:.0f} tools of this order, each with a sha256"
    return make_finding(AREA, "lock", "ok", found)


def _row_texts(rows: list[Facts]) -> list[str]:
    return [text for row in rows if (text := row.text())]


def _downloads(facts: Facts) -> Finding:
    missing, size = facts.number("lock", "missing"), facts.text("lock", "missing_size")
    if missing is None or size is None:
        return make_finding(AREA, "downloads", "unknown", facts.at("lock").why)
    if facts.rows("lock", "unpinned") or facts.text("lock", "error"):
        found = "unknown until the lock is complete"
        return make_finding(AREA, "downloads", "unknown", found)
    if damaged := facts.rows("lock", "damaged"):
        found, hint = (
            f"damaged on this machine: {join_first(_row_texts(damaged))}",
            "invoke cache --prune",
        )
        return make_finding(AREA, "downloads", "warning", found, "what was pinned", hint)
    if not missing:
        return make_finding(AREA, "downloads", "ok", "all files for the host are here")
    found = f"{missing:.0f} files to fetch, {size}: the network is needed once"
    return make_finding(AREA, "downloads", "ok", found)


def _check_git_installed(facts: Facts) -> Finding:
    found, answer = facts.text("git"), facts.at("git")
    if found:
        return make_finding(AREA, "git", "ok", found)
    if not answer.absent:
        return make_finding(AREA, "git", "unknown", answer.why)
    return make_finding(AREA, "git", "warning", "not found", "git, to fetch sources", INSTALL_GIT)


def _wine(facts: Facts) -> Finding:
    found, wanted = facts.text("wine", "version"), "Wine, for the sandbox"
    if found:
        return make_finding(AREA, "Wine", "ok", found)
    error = facts.text("wine", "error")
    if error is None:
        return make_finding(AREA, "Wine", "unknown", facts.at("wine").why, wanted)
    hint = facts.text("wine", "hint") or "scripts/setup"
    return make_finding(AREA, "Wine", "error", error, wanted, hint)
