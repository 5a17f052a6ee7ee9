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
from pipelines.session.transfers.lanes import AHEAD, PLAIN, Blocks, Connection, local_file_errors

_BINARY = getattr(os, "O_BINARY", 0)


def get(connection: Connection, source: str, target: Path, progress: Progress | None) -> str:
    """Fetch ``source``: only the missing blocks, then compare the sha256 of the complete file.

    Received blocks are kept next to the target in a file named after the host, the path, and the
    source's size and modification time. If these do not identify the contents, it is removed.
    """
    head = lanes.retry_request(
        connection, source, lambda link: link.result(blocks.head, {"path": source})
    )
    size = int(head["size"])
    identity = f"{connection.name}\0{source}\0{size}\0{head['changed']}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    fetch = _Fetch(connection, source, target, target.with_name(f"{target.name}.{key}.part"))
    count = max(1, -(-size // connection.block))
    with local_file_errors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    digests: list[str] = []
    if count > 1:  # the host hashes the file during the transfer
        ask = threading.Thread(
            target=fetch.ask, args=(connection.link(), size, digests), daemon=True
        )
        ask.start()
    try:
        missing = fetch.missing(count)
        lanes.transfer_blocks(
            connection, Blocks(size, connection.block, missing, source), fetch.move, progress
        )
    except BaseException as error:
        # Less than a block cannot be resumed, and on a full disk frees space.
        if count == 1 or isinstance(error, StorageError):
            with contextlib.suppress(OSError):
                fetch.part.unlink()
        raise
    if count > 1:
        ask.join()
    if not digests:
        lanes.retry_request(connection, source, lambda link: fetch.digest(link, size, digests))
    # The file was read twice, for the hash and for sending, and a writer may have changed both.
    if count > 1 and head != lanes.retry_request(
        connection, source, lambda link: link.result(blocks.head, {"path": source})
    ):
        fetch.part.unlink()
        raise TransferError(
            f"{connection.name}: {source} changed during the download",
            hint="Run the same command again once nothing writes to it.",
        )
    return _finalize_download(fetch, size, digests[0])


def _finalize_download(fetch: _Fetch, size: int, sent: str) -> str:
    with local_file_errors("write", fetch.target):
        with fetch.part.open("r+b") as file:
            file.truncate(size)
            actual = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if actual != sent:
            fetch.part.unlink()
            raise TransferError(
                f"{fetch.connection.name}: {fetch.source} arrived damaged and was removed: "
                f"{size} bytes, sha256 {sent} on the host, {actual} here",
                hint="If nothing on the host writes to it, run the same command again; if it "
                "happens twice, suspect the network or memory.",
            )
        files.replace(fetch.part, fetch.target)
    return actual


class _Fetch:
    """The per-file work of the lanes."""

    def __init__(self, connection: Connection, source: str, target: Path, part: Path) -> None:
        self.connection = connection
        self.block = connection.block
        self.source = source
        self.target = target
        self.part = part
        self.packed = Path(source).suffix.lower() in PLAIN

    def digest(self, link: Link, size: int, digests: list[str]) -> None:
        """Append the sha256 computed on the host to ``digests``."""
        arguments = {"path": self.source, "size": size}
        digests.append(str(link.result(files.sha256, arguments)))

    def ask(self, link: Link, size: int, digests: list[str]) -> None:
        """As :meth:`digest`; if it fails, the hash is requested again at the end."""
        with contextlib.suppress(ConnectionLostError, PipelineError):
            self.digest(link, size, digests)

    def missing(self, count: int) -> list[int]:
        """The blocks that are missing here or differ from the host's."""
        here = list(blocks.digests(str(self.part), self.block, count))
        if not here:
            return list(range(count))
        arguments = {"path": self.source, "block": self.block, "count": len(here)}
        there = lanes.retry_request(
            self.connection,
            self.source,
            lambda link: list(link.exchange(blocks.digests, arguments)),
        )
        return [n for n in range(count) if n >= len(here) or here[n] != there[n]]

    def move(self, link: Link, number: int, moved: Callable[[int], None]) -> bool:
        """Fetch one block; whether it arrived intact."""
        arguments = {
            "path": self.source,
            "offset": number * self.block,
            "length": self.block,
            "chunk": self.connection.chunk,
            "packed": self.packed,
        }
        digest = blocks.Check()
        items = link.exchange(blocks.send, arguments, AHEAD)
        with contextlib.closing(items), local_file_errors("write", self.target):
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
