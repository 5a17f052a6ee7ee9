"""The sandboxes of a checkout: their sizes, and whether a configured host uses them."""

from __future__ import annotations

import getpass
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from pipelines.core.files import tree_size
from pipelines.core.paths import config_file, project_dir
from pipelines.hosts.base import OwnedItem
from pipelines.hosts.sandbox.state import is_service_alive
from pipelines.hosts.sandbox.wine import Prefix

_USERS = "used-by"
_NAME = re.compile(r"(.+)-py\d+\.\d+(?:-msvc)?(?:-gpu)?")


def list_sandboxes(bases: Mapping[str, Path]) -> Iterator[OwnedItem]:
    """Each sandbox directory; ``bases``: the hosts of kind sandbox, and their base paths."""
    own = project_dir() / ".sandbox"
    folders = {base.parent for base in bases.values()} | {own}
    hosts = {base: name for name, base in bases.items()}
    for folder in sorted(folders):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            match = _NAME.fullmatch(path.name)
            if not match or not (path / "prefix").is_dir():
                continue
            host = hosts.get(folder / match[1], "")
            if not host and folder != own:  # a directory set by 'home': others may use it too
                continue
            running = is_service_alive(path / "run")
            used = host or running or used_elsewhere(path)
            yield OwnedItem(
                what="sandbox",
                name=str(path),
                host=host or match[1],
                state="running" if running else "stopped",
                size=tree_size(path),
                who=f"{getpass.getuser()}@{platform.node()}",
                unowned="" if used else "pipeline.yaml has no such host",
                remove=partial(_remove_sandbox, path),
            )


def note_user(sandbox: Path) -> None:
    """Note that hosts of this configuration use it: another one's view of it is another."""
    users = {*_read_used_by_file(sandbox), str(config_file().resolve())}
    if sandbox.is_dir():
        (sandbox / _USERS).write_text("\n".join(sorted(users)), "utf-8")


def used_elsewhere(sandbox: Path) -> bool:
    """Whether another configuration has used it that is still there."""
    own = config_file().resolve()
    return any(Path(one) != own and Path(one).is_file() for one in _read_used_by_file(sandbox))


def _read_used_by_file(sandbox: Path) -> list[str]:
    file = sandbox / _USERS
    return file.read_text("utf-8").splitlines() if file.is_file() else []


def _remove_sandbox(path: Path) -> None:
    if path.is_dir():
        Prefix(path / "prefix").halt()
        shutil.rmtree(path, ignore_errors=True)
