"""``invoke lock``: complete the pins, and hand them on to the image and the playbook."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from pipelines.console import bars, console, say
from pipelines.errors import LockError
from pipelines.hosttext import safe
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.toolchain.pinning import Pinned, complete
from pipelines.toolchain.sync import stage, sync


def run_complete(only: str | None = None) -> None:
    """Fetch and hash what is not pinned yet, then :func:`run_sync`.

    ``only`` is a list of tools, separated by commas. Raises :class:`LockError` for what could not
    be had, after everything else was written down.
    """
    names = None if only is None else [name for part in only.split(",") if (name := part.strip())]
    if not load_lock().unpinned:
        say("every tool is pinned", style="green")
        return
    try:
        with bars() as show:
            pinned = complete(names=names, progress=show)
        if pinned:
            console.print(_table(pinned))
    finally:
        sync(load_lock())
    say(f"{len(pinned)} pinned: read the change to toolchain.lock.yaml before it is committed")


def run_sync(*, check: bool) -> None:
    """Write the pins into image and playbook; or only check that they are there already.

    Raises :class:`LockError` when ``check`` finds a file that differs.
    """
    lock = load_lock()
    differ = [str(path) for path in sync(lock, check=check)]
    if check and differ:
        raise LockError(
            f"not what toolchain.lock.yaml says: {', '.join(differ)}",
            advice="Type: invoke lock --sync",
        )
    say("\n".join(f"wrote {path}" for path in differ) or "image and playbook agree with the lock")
    if lock.unpinned:
        say(f"not pinned yet: {', '.join(lock.unpinned)}; invoke lock completes them", "yellow")


def run_stage(directory: Path) -> None:
    """Put the wheels that image and playbook install into ``directory``."""
    with bars() as show:
        staged = stage(Cache(load_lock()), directory, show)
    say("\n".join(str(path) for path in staged))


def _table(pinned: list[Pinned]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("tool", "version", "MiB", "sha256", "from"):
        table.add_column(column, justify="right" if column == "MiB" else "left", overflow="fold")
    for row in pinned:
        size = f"{row.size / (1 << 20):.1f}"
        table.add_row(row.tool, row.version, size, row.sha256[:16], escape(safe(row.place, 200)))
    return table
