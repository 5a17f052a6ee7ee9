"""One publisher at a time: a lock in the index, and a final check before writing the catalogue."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from pipelines.core.errors import StorageError
from pipelines.core.hosttext import safe_line
from pipelines.publish.index.catalogue import CATALOGUE, MOST, Catalogue, parse_catalogue
from pipelines.publish.index.store import Store

#: The publisher's lock file.
LOCK = "publish.lock"
_LOCK_BYTES = 4096


@contextmanager
def hold_index_lock(store: Store, unlock: bool) -> Iterator[bytes]:
    """Hold the lock and yield its contents; a lock of a dead process of this machine is removed."""
    about = {"host": socket.gethostname(), "pid": os.getpid(), "token": secrets.token_hex(8)}
    mine = json.dumps(about | {"since": datetime.now(UTC).isoformat(timespec="seconds")}).encode()
    if not store.create(LOCK, mine):
        there = store.read(LOCK, _LOCK_BYTES) or b""
        if not unlock and not _dead(there):
            holder = safe_line(there.decode("utf-8", "replace"), 200) or "unknown"
            raise StorageError(
                f"another publish to {store.name} is running: {holder}",
                hint="Wait for it. If it has died, run the command again with --unlock.",
            )
        store.remove(LOCK)
        if not store.create(LOCK, mine):
            raise StorageError(
                f"another publish to {store.name} has just started", hint="Wait for it."
            )
    try:
        yield mine
    finally:
        with suppress(StorageError):  # the first error is the relevant one
            if store.read(LOCK, _LOCK_BYTES) == mine:
                store.remove(LOCK)


def _dead(lock: bytes) -> bool:
    """Whether it was left by a dead process of this machine."""
    try:
        packages = json.loads(lock)
        if packages["host"] != socket.gethostname() or os.name != "posix":
            return False
        os.kill(int(packages["pid"]), 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return False
    return False


def require_mine(store: Store, mine: bytes, before: Catalogue) -> None:
    """The final check before the catalogue is written."""
    data = store.read(CATALOGUE, MOST)
    # Compare the contents, not the formatting.
    now = Catalogue() if data is None else parse_catalogue(data, store.name)
    same = now.dump() == before.dump()
    if store.read(LOCK, _LOCK_BYTES) != mine or not same:
        raise StorageError(
            f"{store.name} was changed by another publish",
            hint="Nothing visible was changed. Run the same command again.",
        )
