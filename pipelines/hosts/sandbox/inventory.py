"""The sandboxes of a checkout: which there are, how large, and whether a host of its has them."""

from __future__ import annotations

import getpass
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from pipelines.core.paths import home
from pipelines.hosts.base import Thing
from pipelines.hosts.sandbox.state import alive
from pipelines.hosts.sandbox.wine import Prefix

_NAME = re.compile(r"(.+)-py\d+\.\d+(?:-msvc)?(?:-gpu)?")


def sandboxes(bases: Mapping[str, Path]) -> Iterator[Thing]:
    """Each directory of one; ``bases``: the hosts of kind sandbox, and where theirs begin."""
    own = home() / ".sandbox"
    folders = {base.parent for base in bases.values()} | {own}
    hosts = {base: name for name, base in bases.items()}
    for folder in sorted(folders):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            found = _NAME.fullmatch(path.name)
            if not found or not (path / "prefix").is_dir():
                continue
            host = hosts.get(folder / found[1], "")
            if (
                not host and folder != own
            ):  # a place that 'home' names: others may have theirs there
                continue
            running = alive(path / "run")
            yield Thing(
                what="sandbox",
                name=str(path),
                host=host or found[1],
                state="running" if running else "stopped",
                size=sum(p.lstat().st_size for p in path.rglob("*") if not p.is_symlink()),
                who=f"{getpass.getuser()}@{platform.node()}",
                unowned="" if host or running else "pipeline.yaml has no such host",
                remove=partial(_remove, path),
            )


def _remove(path: Path) -> None:
    if path.is_dir():
        Prefix(path / "prefix").halt()
        shutil.rmtree(path, ignore_errors=True)
