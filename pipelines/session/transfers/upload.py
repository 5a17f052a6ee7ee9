"""Files to the host."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from pipelines.core.errors import PipelineError, StorageError, TransferError
from pipelines.remote import blocks, files
from pipelines.remote.rpc import DONE
from pipelines.session.base import Progress
from pipelines.session.link import ConnectionLostError, Link
from pipelines.session.transfers import lanes
from pipelines.session.transfers.lanes import ATTEMPTS, PLAIN, Blocks, Connection, local_file_errors


def put(connection: Connection, source: Path, target: str, progress: Progress | None) -> str:
    """Upload ``source``: only the missing blocks, then compare the complete sha256."""
    with local_file_errors("read", source), source.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    count = max(1, -(-size // connection.block))
    upload = _Upload(connection, source, target, sha256, whole=count == 1)
    try:
        return upload.run(size, count, progress)
    except StorageError:
        # Another lane may have written after the host found its disk full.
        with contextlib.suppress(PipelineError, ConnectionLostError):
            upload.discard(connection.link())
        raise


class _Upload:
    """The per-file work of the lanes."""

    def __init__(
        self, connection: Connection, source: Path, target: str, sha256: str, *, whole: bool
    ) -> None:
        self.connection = connection
        self.block = connection.block
        self.source = source
        self.target = target
        self.sha256 = sha256
        self.whole = whole
        self.key = sha256[:12]
        self.packed = source.suffix.lower() in PLAIN

    def run(self, size: int, count: int, progress: Progress | None) -> str:
        """Upload the missing blocks and rename the file into place; returns the sha256."""

        def carry(missing: list[int]) -> None:
            blocks = Blocks(size, self.block, missing, self.target)
            lanes.transfer_blocks(self.connection, blocks, self.move, progress)

        if self.whole:
            carry([0])
            return self.sha256
        actual = ""
        for _ in range(ATTEMPTS):
            carry(self.missing(count))
            actual = lanes.retry_request(
                self.connection, self.target, lambda link: self.land(link, size)
            )
            if actual == self.sha256:
                return actual
            # Another upload of the same file used these blocks and finished, or they were removed
            # or changed: upload what is missing now.
            if lanes.retry_request(self.connection, self.target, self.landed) == self.sha256:
                lanes.retry_request(self.connection, self.target, self.discard)
                return self.sha256
        raise TransferError(
            f"{self.connection.name}: {self.target} arrived damaged: sent {size} bytes, sha256 "
            f"{self.sha256}, received {actual or 'nothing'}",
            hint=f"If nothing writes to {self.source}, run the same command again; if it "
            "happens twice, suspect the network or memory.",
        )

    def missing(self, count: int) -> list[int]:
        """The blocks not yet on the host, including those of earlier commands."""
        arguments = {"path": self.target, "block": self.block, "count": count, "key": self.key}
        there = lanes.retry_request(
            self.connection,
            self.target,
            lambda link: list(link.exchange(blocks.digests, arguments)),
        )
        here = blocks.digests(str(self.source), self.block, len(there))
        good = {n for n, pair in enumerate(zip(here, there, strict=False)) if pair[0] == pair[1]}
        return [n for n in range(count) if n not in good]

    def landed(self, link: Link) -> str:
        """The sha256 of the target now; empty if it does not exist."""
        if link.result(files.stat, {"path": self.target}) is None:
            return ""
        return str(link.result(files.sha256, {"path": self.target}))

    def discard(self, link: Link) -> None:
        """Remove the received blocks."""
        link.result(blocks.discard, {"path": self.target, "key": self.key})

    def land(self, link: Link, size: int) -> str:
        """Have the host verify and rename; returns the sha256 it computed."""
        arguments = {"path": self.target, "key": self.key, "size": size, "sha256": self.sha256}
        return str(link.result(blocks.land, arguments))

    def move(self, link: Link, number: int, moved: Callable[[int], None]) -> bool:
        """Upload one block; whether it arrived intact."""
        arguments = {
            "path": self.target,
            "key": self.key,
            "offset": number * self.block,
            "packed": self.packed,
            "whole": self.whole,
        }
        digest: blocks.Digest = hashlib.sha256() if self.whole else blocks.Check()
        left = self.block
        with local_file_errors("read", self.source), self.source.open("rb") as file:
            file.seek(number * self.block)
            with link.request(blocks.receive, arguments) as worker:
                while left and (data := file.read(min(left, self.connection.chunk))):
                    left -= len(data)
                    digest.update(data)
                    worker.send(blocks.pack(data) if self.packed else data)
                    moved(len(data))
                worker.send(digest.hexdigest())
                word, value = worker.receive()
                while word != DONE:  # each piece is acknowledged
                    word, value = worker.receive()
        return bool(value)
