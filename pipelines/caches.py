"""``invoke cache``: what is kept to make the next command fast, and giving the room back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from pipelines.console import console, say
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosttext import safe
from pipelines.recipe.load import load_versions, recipe_names
from pipelines.recipe.sourcetree import cache_key
from pipelines.remote import cargo, compilecache
from pipelines.remote.jobs import prune as remote_prune
from pipelines.stages.work import Work

_DAY = 86400.0


@dataclass(frozen=True)
class Kept:
    """Something that is kept on this machine."""

    what: str
    path: Path
    size: int
    """In bytes."""
    useful: bool
    """Whether a command of today would use it."""
    used: float
    """When it was last changed, in seconds since the epoch."""


def show(work: Work) -> None:
    """Print what is kept here and on the host, and how much of it nothing would use."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("where", "what", "entries", "MiB", "of it unused"):
        table.add_column(column, justify="left" if column in ("where", "what") else "right")
    kept = list(_here(work))
    for what in dict.fromkeys(one.what for one in kept):
        some = [one for one in kept if one.what == what]
        spare = [one for one in some if not one.useful]
        table.add_row(
            "this machine",
            what,
            str(len(some)),
            _mib(sum(one.size for one in some)),
            _mib(sum(one.size for one in spare)),
        )
    jobs = work.session.call(remote_prune.sizes, root=work.layout.build_root)
    size = sum(int(job["bytes"]) for job in jobs)
    table.add_row(work.host.name, "builds and their units", str(len(jobs)), _mib(size), "")
    layout = work.layout
    units = work.session.call(
        compilecache.stats, executable=layout.sccache, directory=layout.compile_cache
    )
    rows = work.session.call(cargo.libraries, root=layout.join(layout.compile_cache, "libraries"))
    size = sum(int(row["bytes"]) for row in rows)
    name = work.host.name
    table.add_row(name, "compiled units", str(units["entries"]), _mib(int(units["bytes"])), "")
    table.add_row(name, "libraries of kernels", str(len(rows)), _mib(size), "")
    console.print(table)
    say("invoke cache --prune gives the unused back, and builds of more than --days 14", "dim")


def prune(work: Work, days: float) -> None:
    """Remove what no command of today would use, and builds not heard of for ``days``."""
    freed = 0
    for one in _here(work):
        if one.useful or time.time() - one.used < _DAY:  # another checkout may be at it
            continue
        shutil.rmtree(one.path, ignore_errors=True)
        freed += one.size
        say(f"removed {one.path}")
    removed = work.session.call(remote_prune.prune, root=work.layout.build_root, days=days)
    layout = work.layout
    work.session.call(cargo.prune, root=layout.join(layout.compile_cache, "libraries"), days=days)
    limit = getattr(work.config.compile_cache, "size_gib", 20) << 30
    told = work.session.call(compilecache.prune, directory=layout.compile_cache, most=limit)
    if told["busy"]:
        say(f"{work.host.name}: a build is at the compile cache: left alone", "yellow")
    for job in removed:
        say(f"removed build {safe(str(job), 40)} on {work.host.name}")
    say(f"{_mib(freed)} MiB freed here, {len(removed)} builds on {work.host.name}", "green")


def _here(work: Work) -> Iterator[Kept]:
    """Downloads and sandbox images of the cache; the sources of all recipes are among the first."""
    from pipelines.hosts.sandbox.image import image_key

    root = work.cache.root
    pinned = {source.sha256 for tool in work.cache.lock.tools.values() for source in tool.sources}
    for name in recipe_names():
        pinned |= {cache_key(recipe) for recipe in load_versions(name).values()}
    wanted = {sha256[:16] for sha256 in pinned if sha256}
    for path in _folders(root / "downloads"):
        yield Kept("downloads", path, _size(path), path.name in wanted, path.stat().st_mtime)
    hosts = work.config.hosts.values()
    if any(isinstance(host, SandboxHost) for host in hosts):
        pythons = {path.name.rpartition("-py")[2] for path in _folders(root / "images")}
        current = {f"{image_key(work.cache, python)}-py{python}" for python in pythons}
        for path in _folders(root / "images"):
            useful = path.name in current
            yield Kept("sandbox images", path, _size(path), useful, path.stat().st_mtime)


def _folders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []


def _size(path: Path) -> int:
    return sum(p.lstat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink())


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f}"
