"""Files over a link: chunked, hashed at both ends, landing by rename, within bounded memory."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import StorageError, TransferError
from pipelines.hosts.base import Progress
from pipelines.hosts.link import CHUNK, WINDOW, Link
from pipelines.remote.rpc import ACK


@contextlib.contextmanager
def _local(verb: str, path: Path) -> Iterator[None]:
    """Tell what this machine's file system refused."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk of this machine is full" if full else "this machine's file system refused"
        raise StorageError(
            f"cannot {verb} {path}: {what}: {error.strerror or error}",
            advice="Free space here, or choose another directory." if full else "",
        ) from error


def _compare(host: str, path: str, sent: dict[str, Any], came: dict[str, Any]) -> None:
    """Raise unless what was sent is what came."""
    if sent["sha256"] != came["sha256"]:
        raise TransferError(
            f"{host}: {path} arrived damaged and was removed: sent {sent['size']} bytes, sha256 "
            f"{sent['sha256']}, received {came['size']} bytes, {came['sha256']}",
            advice="Run the same command again; should it happen twice, suspect network or memory.",
        )


def put(link: Link, source: Path, target: str, progress: Progress | None) -> str:
    """Send ``source``; at most ``WINDOW`` chunks are sent that the host has not written yet."""
    digest, size, flying, written, ended = hashlib.sha256(), 0, 0, 0, False
    with _local("read", source), source.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        with link.request("files.receive", {"path": target}) as worker:
            while not worker.finished:
                while not ended and flying < WINDOW:
                    if data := file.read(CHUNK):
                        digest.update(data)
                        worker.send(data)
                        size += len(data)
                        flying += 1
                    else:
                        worker.send(digest.hexdigest())
                        ended = True
                word, value = worker.receive()
                if word == ACK:
                    flying -= 1
                    written += value
                    if progress is not None:
                        progress(written, max(total, written))
    _compare(link.name, target, {"sha256": digest.hexdigest(), "size": size}, value)
    return digest.hexdigest()


def get(link: Link, source: str, target: Path, progress: Progress | None) -> str:
    """Fetch ``source``; the host waits whenever ``WINDOW`` chunks are not written here yet."""
    digest, size = hashlib.sha256(), 0
    part = target.with_name(f"{target.name}.part")
    items = link.exchange("files.send", {"path": source, "chunk": CHUNK})
    try:
        with contextlib.closing(items), _local("write", target):
            total = next(items)  # opens the file there, so nothing is made here when it is missing
            target.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                try:
                    while True:
                        data = next(items)
                        file.write(data)
                        digest.update(data)
                        size += len(data)
                        if progress is not None:
                            progress(size, max(total, size))
                except StopIteration as end:
                    sent = end.value
                file.flush()
                os.fsync(file.fileno())
            _compare(link.name, source, sent, {"sha256": digest.hexdigest(), "size": size})
            part.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    return digest.hexdigest()
