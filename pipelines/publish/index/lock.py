"""One publisher at a time: a lock in the index, and a last look before the write that decides."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from pipelines.core.errors import StorageError
from pipelines.core.hosttext import line
from pipelines.publish.index.catalogue import CATALOGUE, MOST, Catalogue, read_catalogue
from pipelines.publish.index.store import Store

#: Held by the one that publishes.
LOCK = "publish.lock"
_LOCK_BYTES = 4096


@contextmanager
def locked(store: Store, unlock: bool) -> Iterator[bytes]:
    """Keep others out; what the lock says. Whoever dies on this machine holds it no longer."""
    about = {"host": socket.gethostname(), "pid": os.getpid(), "token": secrets.token_hex(8)}
    mine = json.dumps(about | {"since": datetime.now(UTC).isoformat(timespec="seconds")}).encode()
    if not store.create(LOCK, mine):
        there = store.read(LOCK, _LOCK_BYTES) or b""
        if not unlock and not _dead(there):
            raise StorageError(
                f"somebody else is publishing to {store.name}: {_said(there)}",
                hint="Wait for it. If it has died, type the same with --unlock.",
            )
        store.remove(LOCK)
        if not store.create(LOCK, mine):
            raise StorageError(
                f"somebody else has just begun to publish to {store.name}", hint="Wait for it."
            )
    try:
        yield mine
    finally:
        with suppress(StorageError):  # the first error is the one to tell
            if store.read(LOCK, _LOCK_BYTES) == mine:
                store.remove(LOCK)


def _said(lock: bytes) -> str:
    return line(lock.decode("utf-8", "replace"), 200) or "its lock says nothing"


def _dead(lock: bytes) -> bool:
    """Whether it was left by a process of this machine that is no more."""
    try:
        told = json.loads(lock)
        if told["host"] != socket.gethostname() or os.name != "posix":
            return False
        os.kill(int(told["pid"]), 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return False
    return False


def require_mine(store: Store, mine: bytes, before: Catalogue) -> None:
    """The last look before the one write that decides."""
    data = store.read(CATALOGUE, MOST)
    # Compared as what it says: somebody may have laid the file out in another way.
    now = Catalogue() if data is None else read_catalogue(data, store.name)
    same = now.dump() == before.dump()
    if store.read(LOCK, _LOCK_BYTES) != mine or not same:
        raise StorageError(
            f"somebody else has published to {store.name} meanwhile",
            hint="Nothing that anybody sees was changed. Type the same again.",
        )
