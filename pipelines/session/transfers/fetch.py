"""Files from the host."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from pipelines.core.errors import PipelineError, StorageError, TransferError
from pipelines.remote import blocks, files
from pipelines.session.base import Progress
from pipelines.session.link import ConnectionLostError, Link
from pipelines.session.transfers import lanes
from pipelines.session.transfers.lanes import AHEAD, PLAIN, Blocks, Connection, local

_BINARY = getattr(os, "O_BINARY", 0)


def get(connection: Connection, source: str, target: Path, progress: Progress | None) -> str:
    """Fetch ``source``: only the blocks that are not here yet, then compare the sha256 of it all.

    What has come lies beside the target, named after the host, the path, and the file's size and
    time of change. When that turns out to be too little to tell contents apart, it is removed.
    """
    head = lanes.again(connection, source, lambda link: link.result(blocks.head, {"path": source}))
    size = int(head["size"])
    identity = f"{connection.name}\0{source}\0{size}\0{head['changed']}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    fetch = _Fetch(connection, source, target, target.with_name(f"{target.name}.{key}.part"))
    count = max(1, -(-size // connection.block))
    with local("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    told: list[str] = []
    if count > 1:  # the host reads the file while its blocks travel
        ask = threading.Thread(target=fetch.ask, args=(connection.link(), size, told), daemon=True)
        ask.start()
    try:
        missing = fetch.missing(count)
        lanes.carry(
            connection, Blocks(size, connection.block, missing, source), fetch.move, progress
        )
    except BaseException as error:
        # Less than a block is of no use later, and on a full disk nothing is.
        if count == 1 or isinstance(error, StorageError):
            with contextlib.suppress(OSError):
                fetch.part.unlink()
        raise
    if count > 1:
        ask.join()
    if not told:
        lanes.again(connection, source, lambda link: fetch.digest(link, size, told))
    # What was hashed and what was sent are two readings, of which a writer may spoil both alike.
    if count > 1 and head != lanes.again(
        connection, source, lambda link: link.result(blocks.head, {"path": source})
    ):
        fetch.part.unlink()
        raise TransferError(
            f"{connection.name}: {source} was written to while it was fetched",
            hint="Run the same command again once nothing writes to it any more.",
        )
    return _land(fetch, size, told[0])


def _land(fetch: _Fetch, size: int, sent: str) -> str:
    with local("write", fetch.target):
        with fetch.part.open("r+b") as file:
            file.truncate(size)
            came = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if came != sent:
            fetch.part.unlink()
            raise TransferError(
                f"{fetch.connection.name}: {fetch.source} arrived damaged and was removed: "
                f"{size} bytes, sha256 {sent} there, {came} here",
                hint="Does anything write to it? Run the same command again; should it happen "
                "twice, suspect network or memory.",
            )
        files.replace(fetch.part, fetch.target)
    return came


class _Fetch:
    """What the lanes do for one file."""

    def __init__(self, connection: Connection, source: str, target: Path, part: Path) -> None:
        self.connection = connection
        self.block = connection.block
        self.source = source
        self.target = target
        self.part = part
        self.packed = Path(source).suffix.lower() in PLAIN

    def digest(self, link: Link, size: int, told: list[str]) -> None:
        """The sha256 that the host finds, into ``told``."""
        asked = {"path": self.source, "size": size}
        told.append(str(link.result(files.sha256, asked)))

    def ask(self, link: Link, size: int, told: list[str]) -> None:
        """As :meth:`digest`; should that fail, it is asked once more at the end."""
        with contextlib.suppress(ConnectionLostError, PipelineError):
            self.digest(link, size, told)

    def missing(self, count: int) -> list[int]:
        """The blocks that are not here, or are not the host's."""
        here = list(blocks.digests(str(self.part), self.block, count))
        if not here:
            return list(range(count))
        asked = {"path": self.source, "block": self.block, "count": len(here)}
        there = lanes.again(
            self.connection, self.source, lambda link: list(link.exchange(blocks.digests, asked))
        )
        return [n for n in range(count) if n >= len(here) or here[n] != there[n]]

    def move(self, link: Link, number: int, moved: Callable[[int], None]) -> bool:
        """Fetch one block; whether it came undamaged."""
        arguments = {
            "path": self.source,
            "offset": number * self.block,
            "length": self.block,
            "chunk": self.connection.chunk,
            "packed": self.packed,
        }
        digest = blocks.Check()
        items = link.exchange(blocks.send, arguments, AHEAD)
        with contextlib.closing(items), local("write", self.target):
            descriptor = os.open(self.part, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
            with os.fdopen(descriptor, "r+b") as file:
                file.seek(number * self.block)
                while True:
                    try:
                        item = next(items)
                    except StopIteration as end:
                        if end.value != digest.hexdigest():
                            return False
                        break
                    try:
                        data = blocks.unpack(item) if self.packed else item
                    except ValueError:
                        return False
                    file.write(data)
                    digest.update(data)
                    moved(len(data))
                file.flush()
                os.fsync(file.fileno())
                return True
