"""The blocks of one transfer, and the two lanes that carry them over one connection.

A lane is a thread with one request at a time. Two lanes share the connection, so that the end of a
block (the host hashes, writes, replies) costs no time. The caller's thread is the first lane: it
reports progress and receives Ctrl-C.

A broken connection costs the blocks in flight; the first lane reconnects and continues.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipelines.core.errors import HostError, StorageError, TransferError
from pipelines.session.base import Progress
from pipelines.session.link import ConnectionLostError, Link

#: Size of one message: three WinRS Sends (330 KiB each), including framing.
CHUNK = 3 * 330 * 1024 - 1024
#: Unit of verification, resumption and retransmission.
BLOCK = 8 * CHUNK
#: Parts of a block that the host may be ahead of the writer here.
AHEAD = 4
#: Attempts for a damaged block, and connections in a row without transferring a block.
ATTEMPTS = 3
#: File names that compress well. Everything else (wheels, archives) is already compressed.
PLAIN = frozenset({".log", ".txt", ".xml", ".json", ".tar", ".csv", ".yaml", ".yml"})

T = TypeVar("T")
Move = Callable[[Link, int, Callable[[int], None]], bool]


@dataclass(frozen=True)
class Connection:
    """The session's connection, as used for transfers."""

    name: str
    link: Callable[[], Link]
    """The link, reopened if it broke."""
    chunk: int = CHUNK
    block: int = BLOCK


class Stopped(Exception):  # noqa: N818 - not an error
    """The transfer is over for this lane."""


class Blocks:
    """The remaining blocks of a file; shared by the lanes."""

    def __init__(self, size: int, block: int, missing: list[int], what: str) -> None:
        self.size = size
        self.block = block
        self.what = what
        self.todo = deque(missing)
        self.flying: dict[int, int] = {}
        self.landed = 0
        self.done = size - sum(self.length(number) for number in missing)
        self.damaged: Counter[int] = Counter()
        self.error: BaseException | None = None
        self.stopped = False
        self.changed = threading.Condition()

    def length(self, number: int) -> int:
        """Size of a block in bytes: the last one may be shorter."""
        return max(0, min(self.block, self.size - number * self.block))

    def count(self) -> int:
        """Bytes transferred so far."""
        with self.changed:
            return self.done + sum(self.flying.values())

    def take(self) -> int | None:
        """A block to transfer, or ``None``."""
        with self.changed:
            if self.stopped or not self.todo:
                return None
            number = self.todo.popleft()
            self.flying[number] = 0
            return number

    def carry(self, link: Link, number: int, move: Move) -> None:
        """Move a block; on any failure it is returned to the queue."""

        def moved(size: int) -> None:
            if self.stopped:
                raise Stopped
            with self.changed:
                self.flying[number] += size

        complete = False
        try:
            complete = move(link, number, moved)
            if not complete:
                self._damage(number)
        finally:
            with self.changed:
                del self.flying[number]
                if complete:
                    self.done += self.length(number)
                    self.landed += 1
                else:
                    self.todo.appendleft(number)
                self.changed.notify_all()

    def _damage(self, number: int) -> None:
        self.damaged[number] += 1
        if self.damaged[number] == ATTEMPTS:
            raise TransferError(
                f"{self.what} arrives damaged: {ATTEMPTS} times the {self.length(number)} bytes "
                f"at offset {number * self.block} had a different checksum from the one sent",
                hint="Intact data is kept: run the same command again; if it happens twice, "
                "suspect the network or memory.",
            )

    def lane(self, link: Link, move: Move) -> None:
        """Transfer blocks while there are any: the second lane."""
        try:
            while (number := self.take()) is not None:
                self.carry(link, number, move)
        except (ConnectionLostError, Stopped):
            pass  # the block is back in the queue for the first lane
        except BaseException as error:  # raised again by the first lane
            with self.changed:
                self.error = self.error or error
                self.changed.notify_all()


def transfer_blocks(
    connection: Connection, blocks: Blocks, move: Move, progress: Progress | None
) -> None:
    """Transfer all blocks, reconnecting as often as necessary.

    Raises what ``move`` raises, ``TransferError`` for a block that keeps arriving damaged, and
    ``HostError`` if the connection keeps breaking.
    """
    fruitless = 0
    while blocks.todo:
        before = blocks.landed
        try:
            _attempt_transfer(connection, blocks, move, progress)
        except ConnectionLostError as error:
            fruitless = 0 if blocks.landed > before else fruitless + 1
            if fruitless == ATTEMPTS:
                raise _lost_transfer_error(connection, blocks.what, error) from error


def retry_request(connection: Connection, what: str, ask: Callable[[Link], T]) -> T:
    """Make an idempotent request to the host, reconnecting if necessary."""
    for attempt in range(ATTEMPTS):
        try:
            return ask(connection.link())
        except ConnectionLostError as error:
            if attempt == ATTEMPTS - 1:
                raise _lost_transfer_error(connection, what, error) from error
    raise AssertionError("unreachable")


def _lost_transfer_error(connection: Connection, what: str, error: BaseException) -> HostError:
    """The error when a transfer gives up."""
    return HostError(
        f"{connection.name}: connection lost during the transfer of {what}, {ATTEMPTS} times "
        f"without progress: {error}",
        hint="What has arrived is kept: run the same command again to continue.",
    )


def _attempt_transfer(
    connection: Connection, blocks: Blocks, move: Move, progress: Progress | None
) -> None:
    """Transfer blocks until none is left or the link breaks."""
    link = connection.link()
    blocks.stopped = False
    second = threading.Thread(target=blocks.lane, args=(link, move), daemon=True)
    if len(blocks.todo) > 1:
        second.start()
    try:
        while (number := _next_block(blocks, progress)) is not None:
            blocks.carry(link, number, _telling(move, blocks, progress))
    finally:
        blocks.stopped = True
        if second.is_alive():
            second.join(2.0)  # if it takes longer, it hangs in a link that the next attempt closes


def _next_block(blocks: Blocks, progress: Progress | None) -> int | None:
    """The first lane's next block; ``None`` once all have landed."""
    while True:
        if progress is not None and blocks.size:
            progress(blocks.count(), blocks.size)
        with blocks.changed:
            if blocks.error is not None:
                raise blocks.error
            if not blocks.flying and not blocks.todo:
                return None
        if (number := blocks.take()) is not None:
            return number
        with blocks.changed:
            if blocks.flying:
                blocks.changed.wait(0.1)


def _telling(move: Move, blocks: Blocks, progress: Progress | None) -> Move:
    """``move``, also reporting the combined progress of both lanes."""
    if progress is None:
        return move

    def reporting(link: Link, number: int, moved: Callable[[int], None]) -> bool:
        def both(size: int) -> None:
            moved(size)
            progress(blocks.count(), blocks.size)

        return move(link, number, both)

    return reporting


@contextlib.contextmanager
def local_file_errors(verb: str, path: Path) -> Iterator[None]:
    """Report errors of this machine's file system."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "this machine's disk is full" if full else "this machine's file system refused"
        raise StorageError(
            f"cannot {verb} {path}: {what}: {error.strerror or error}",
            hint="Free space here, or choose another directory." if full else "",
        ) from error
