"""``invoke lock``: make the lock of what is wanted, complete its pins, hand them on."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from pipelines.core.console import console, say, transfer_progress
from pipelines.core.errors import LockError
from pipelines.core.files import make_directory
from pipelines.core.hosttext import safe_text
from pipelines.core.paths import CHECKOUT
from pipelines.core.tables import print_columns
from pipelines.toolchain.generate import describe_lock_changes, generate_lock, lock_text, write_lock
from pipelines.toolchain.intent import INTENT_FILE, load_bases, load_intent
from pipelines.toolchain.lock import LOCK_FILE, Cache, ToolchainLock, load_lock, own_lock
from pipelines.toolchain.pinning import Pinned, pin_unpinned_tools
from pipelines.toolchain.sync import stage_wheels, sync_pinned_files
from pipelines.toolchain.toolkits import add_toolkit

_NO_CHECKOUT = "images/ and ansible/ are only in the repository, and this is the installed package"


def run_complete(only: str | None = None) -> None:
    """Make the lock of ``toolchain.yaml``, fetch and hash what is not pinned yet, then sync.

    In a repository that has a ``toolchain.yaml`` of its own it is that one's lock, and no other.
    ``only`` is a list of tools, separated by commas. Raises :class:`LockError` for what could not
    be had, after everything else was written down.
    """
    names = None if only is None else [name for part in only.split(",") if (name := part.strip())]
    mine = own_lock()
    intent = mine.with_name(INTENT_FILE.name)
    if intent.is_file():
        _complete_own(intent, mine, names)
        return
    lock = load_lock(LOCK_FILE)
    made = generate_lock(load_intent(INTENT_FILE), lock, load_bases(INTENT_FILE))
    if changes := describe_lock_changes(lock, made):
        say(f"toolchain.lock.yaml: {changes}")
    if stale := LOCK_FILE.read_text("utf-8") != lock_text(made):
        write_lock(made, LOCK_FILE)
    pinned: list[Pinned] = []
    try:
        if made.unpinned or names:
            with transfer_progress() as show:
                pinned = pin_unpinned_tools(LOCK_FILE, names, show)
            if pinned:
                _print_pinned_tools(pinned)
    finally:
        if CHECKOUT is not None and (stale or made.unpinned):
            sync_pinned_files(load_lock(LOCK_FILE), CHECKOUT)
    if made.unpinned:
        say(f"{len(pinned)} pinned: read the change to toolchain.lock.yaml before it is committed")
    else:
        say("every tool is pinned", style="green")


def _complete_own(intent: Path, path: Path, names: list[str] | None) -> None:
    """The same for a repository's own; it adds to what is built in, and replaces nothing."""
    known = load_lock(path) if path.is_file() else ToolchainLock(version=1, tools={})
    made = generate_lock(load_intent(intent), known)
    if not path.is_file():
        path.touch()
    if path.read_text("utf-8") != lock_text(made):
        write_lock(made, path)
    if made.unpinned or names:
        with transfer_progress() as show:
            pinned = pin_unpinned_tools(path, names, show)
        if pinned:
            _print_pinned_tools(pinned)
    load_lock()  # with what is built in: what speaks against it is said now
    say(f"{path}: {len(made.tools)} tools; read what has changed before it is committed")


def run_add(cuda: str) -> None:
    """Add the components of a CUDA toolkit to what is wanted, with NVIDIA's own pins of them.

    In a repository that has a ``toolchain.yaml`` of its own they are that one's.
    """
    own = own_lock().with_name(INTENT_FILE.name)
    if not own.is_file() and CHECKOUT is None:
        raise LockError(
            f"there is no {own}, to which CUDA {cuda} would be added",
            hint="Make one with the two lines 'version: 1' and 'groups: []'.",
        )
    folder = own.parent if own.is_file() else INTENT_FILE.parent
    say(f"wrote {add_toolkit(cuda, folder, load_lock())}")
    run_complete()


def run_sync(*, check: bool) -> None:
    """Write the pins into image and playbook; or only check that all is as it should be.

    Raises :class:`LockError` when ``check`` finds a lock that ``toolchain.yaml`` does not give, or
    a file of image or playbook that differs; and outside a checkout, where there are none.
    """
    lock = load_lock(LOCK_FILE)
    if check:
        _refuse_stale(lock)
    if CHECKOUT is None:
        raise LockError(_NO_CHECKOUT, hint="Type it in a checkout.")
    differ = [str(path) for path in sync_pinned_files(lock, CHECKOUT, check=check)]
    if check and differ:
        raise LockError(
            f"not what toolchain.lock.yaml says: {', '.join(differ)}",
            hint="Type: invoke lock --sync",
        )
    say("\n".join(f"wrote {path}" for path in differ) or "image and playbook agree with the lock")
    if lock.unpinned:
        say(f"not pinned yet: {', '.join(lock.unpinned)}; invoke lock completes them", "yellow")


def run_stage(directory: Path) -> None:
    """Put the wheels that image and playbook install into ``directory``."""
    make_directory(directory)
    with transfer_progress() as show:
        staged = stage_wheels(Cache(load_lock(LOCK_FILE)), directory, show)
    say("\n".join(str(path) for path in staged))


def _refuse_stale(lock: ToolchainLock) -> None:
    made = generate_lock(load_intent(INTENT_FILE), lock, load_bases(INTENT_FILE))
    if LOCK_FILE.read_text("utf-8") != lock_text(made):
        raise LockError(
            "toolchain.lock.yaml is not what toolchain.yaml gives: "
            + (describe_lock_changes(lock, made) or "it was edited by hand"),
            hint="Type: invoke lock",
        )


def _print_pinned_tools(pinned: list[Pinned]) -> None:
    lines = [
        {
            "tool": row.tool,
            "version": row.version,
            "MiB": f"{row.size / (1 << 20):.1f}",
            "sha256": row.sha256[:16],
            "from": escape(safe_text(row.place, 200)),
        }
        for row in pinned
    ]
    print_columns(console, lines, fold=["from"])
