"""What is kept to make the next command fast, and giving the room back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from pipelines.core.console import console, say
from pipelines.core.files import tree_size
from pipelines.core.hosttext import safe_text
from pipelines.hosts.base import CacheEntry
from pipelines.plan.config.model import load_config
from pipelines.recipe.load import load_versions, recipe_names
from pipelines.recipe.origin import FileSource
from pipelines.recipe.sourcetree import cache_key
from pipelines.record.prebuilt import COMPANIONS
from pipelines.remote import cargo, compilecache, dependency_wheels
from pipelines.remote.jobs import prune as remote_prune
from pipelines.stages.line import Line
from pipelines.toolchain.compilecache import disk_gib
from pipelines.toolchain.sources import describe_pin_mismatch

_DAY = 86400.0


@dataclass(frozen=True)
class Shelf:
    """What is kept of one kind in one place; ``unused`` are bytes, None: unknown."""

    where: str
    what: str
    entries: int
    bytes: int
    unused: int | None = None


def iter_shelves(line: Line, kept: Sequence[CacheEntry]) -> Iterator[Shelf]:
    """What is kept here, which is ``kept``, then what is kept on the host, if it exists."""
    line.plan.host.inspect_only()
    for what in dict.fromkeys(one.what for one in kept):
        some = [one for one in kept if one.what == what]
        size = sum(tree_size(one.path) for one in some)
        spare = sum(tree_size(one.path) for one in some if not one.useful or one.damage)
        yield Shelf("this machine", what, len(some), size, spare)
    if line.plan.host.unmade():
        return
    name, layout = line.plan.host.name, line.plan.layout
    jobs = line.session.call(remote_prune.sizes, root=layout.build_root)
    size = sum(int(job["bytes"]) for job in jobs)
    yield Shelf(name, "builds and their units", len(jobs), size)
    units = line.session.call(
        compilecache.stats, executable=layout.sccache, directory=layout.compile_cache
    )
    yield Shelf(name, "compiled units", int(units["entries"]), int(units["bytes"]))
    rows = line.session.call(cargo.libraries, root=layout.join(layout.compile_cache, "libraries"))
    size = sum(int(row["bytes"]) for row in rows)
    yield Shelf(name, "libraries of kernels", len(rows), size)
    given = line.session.call(dependency_wheels.sizes, root=layout.join(layout.wheels, COMPANIONS))
    yield Shelf(name, "requirements of external wheels", len(given), sum(given))


def as_json(line: Line) -> dict[str, Any]:
    """For programs: ``schema`` 1, and each shelf; sizes in bytes."""
    return {"schema": 1, "kept": [asdict(shelf) for shelf in iter_shelves(line, [*_here(line)])]}


def show(line: Line) -> None:
    """Print what is kept here and on the host, and how much of it nothing would use."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("where", "what", "entries", "MiB", "unused"):
        table.add_column(column, justify="left" if column in ("where", "what") else "right")
    kept = [*_here(line)]
    for shelf in iter_shelves(line, kept):
        unused = "" if shelf.unused is None else _mib(shelf.unused)
        table.add_row(shelf.where, shelf.what, str(shelf.entries), _mib(shelf.bytes), unused)
    console.print(table)
    for one in kept:
        if one.damage:
            say(f"{one.path} is damaged: {one.damage}", style="yellow")
    if why := line.plan.host.unmade():
        say(why, style="dim")
    say("To remove what is unused, and builds older than --days 14: invoke cache --prune", "dim")


def prune(line: Line, days: float) -> None:
    """Remove what no command of today would use, and builds not heard of for ``days``."""
    line.plan.host.inspect_only()
    freed = young = 0
    for one in _here(line):
        # Another checkout may be at what is not damaged.
        try:
            recent = time.time() - one.path.stat().st_mtime < _DAY
        except FileNotFoundError:  # it was being made
            continue
        if not one.damage and (one.useful or recent):
            young += 0 if one.useful else tree_size(one.path)
            continue
        freed += tree_size(one.path)
        shutil.rmtree(one.path, ignore_errors=True)
        say(f"removed {one.path}{one.damage and f', which was damaged: {one.damage}'}")
    removed = [] if line.plan.host.unmade() else _prune_host(line, days)
    for job in removed:
        say(f"removed build {job} on {line.plan.host.name}")
    if young:
        say(f"{_mib(young)} MiB kept for one more day, because another checkout may use them")
    say(f"{_mib(freed)} MiB freed here, {len(removed)} builds on {line.plan.host.name}", "green")


def _prune_host(line: Line, days: float) -> list[str]:
    """The builds that were removed."""
    removed = line.session.call(remote_prune.prune, root=line.plan.layout.build_root, days=days)
    layout = line.plan.layout
    line.session.call(cargo.prune, root=layout.join(layout.compile_cache, "libraries"), days=days)
    line.session.call(
        dependency_wheels.prune, root=layout.join(layout.wheels, COMPANIONS), days=days
    )
    limit = disk_gib(line.plan.compile_cache) << 30
    answer = line.session.call(compilecache.prune, directory=layout.compile_cache, most=limit)
    if answer["busy"]:
        say(f"{line.plan.host.name}: compile cache not pruned, a build is using it", "yellow")
    return [safe_text(str(job), 40) for job in removed]


def _here(line: Line) -> Iterator[CacheEntry]:
    """Downloads, among them the sources of all recipes, and what kinds of hosts keep."""
    cache = line.plan.cache
    pinned = {tool.sha256: tool.file for tool in cache.lock.tools.values()}
    wanted = set(pinned)
    for name in recipe_names():
        for recipe in load_versions(name).values():
            wanted |= {cache_key(recipe) or ""}
            if isinstance(recipe.source, FileSource):
                pinned[recipe.source.sha256] = recipe.source.file
    for path in _sorted_subfolders(cache.root / "downloads"):
        file = path / pinned.get(path.name, "")
        wrong = describe_pin_mismatch(file, path.name) if file.is_file() else ""
        yield CacheEntry("downloads", path, path.name in wanted, wrong)
    for kind in {type(host): host for host in load_config().hosts.values()}.values():
        yield from kind.cache_entries(cache)
    yield from line.plan.host.cache_entries()


def _sorted_subfolders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f}"
