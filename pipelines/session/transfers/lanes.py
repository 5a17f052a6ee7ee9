"""The blocks of one transfer, and the lanes that carry them.

A lane is a thread with one request at a time. Two share a link, so that the end of a block (the
host hashes, writes, answers) costs no time; where the link's latency is what takes long, links of
their own (each a shell of its own on the host) carry blocks as well. The caller's thread is the
first lane: progress is told from there, and Ctrl-C arrives there.

A connection that breaks costs the blocks that were on their way. The first lane connects anew and
goes on; other links are simply not used any more.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipelines.errors import HostError, StorageError, TransferError
from pipelines.session.base import Progress
from pipelines.session.link import ConnectionLostError, Link

#: One message: three WinRS Sends (330 KiB each), framing included.
CHUNK = 3 * 330 * 1024 - 1024
#: What is verified, resumed and sent again at a time.
BLOCK = 8 * CHUNK
#: Pieces of a block that the host may be ahead of the writer here.
AHEAD = 4
#: So often a block may arrive damaged, and so many connections in a row may bring no block across.
ATTEMPTS = 3
#: Names of what compresses well. Everything else (wheels, archives) is compressed already.
PLAIN = frozenset({".log", ".txt", ".xml", ".json", ".tar", ".csv", ".yaml", ".yml"})

T = TypeVar("T")
Move = Callable[[Link, int, Callable[[int], None]], bool]


@dataclass(frozen=True)
class Lines:
    """Where a transfer finds its links."""

    name: str
    main: Callable[[], Link]
    """The session's connection, made anew if it broke."""
    another: Callable[[int], Link | None]
    """The n-th additional link, from 0; ``None`` when the host grants no more."""
    useful: Callable[[Link, int], int]
    """How many additional links are of use for so many bytes."""
    chunk: int = CHUNK
    block: int = BLOCK


class Stopped(Exception):  # noqa: N818 - not an error
    """The transfer is over for this lane."""


class Blocks:
    """Which blocks of a file are still to be carried; shared by the lanes."""

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
        self.closed = self.aborted = False
        self.changed = threading.Condition()

    def length(self, number: int) -> int:
        """Bytes of a block: the last one is shorter."""
        return max(0, min(self.block, self.size - number * self.block))

    def count(self) -> int:
        """Bytes carried up to now."""
        with self.changed:
            return self.done + sum(self.flying.values())

    def take(self) -> int | None:
        """A block to carry, or ``None``."""
        with self.changed:
            if self.closed or not self.todo:
                return None
            number = self.todo.popleft()
            self.flying[number] = 0
            return number

    def carry(self, link: Link, number: int, move: Move) -> None:
        """Move a block; whatever goes wrong with it, it is there to be taken again."""

        def moved(size: int) -> None:
            if self.aborted:
                raise Stopped
            with self.changed:
                self.flying[number] += size

        whole = False
        try:
            whole = move(link, number, moved)
            if not whole:
                self._damage(number)
        finally:
            with self.changed:
                del self.flying[number]
                if whole:
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
                f"from {number * self.block} on had another check sum than was sent",
                advice="What arrived whole is kept: run the same command again; should it happen "
                "twice, suspect network or memory.",
            )

    def lane(self, link: Link, move: Move) -> None:
        """Carry blocks as long as there are some: a lane beside the first one."""
        try:
            while (number := self.take()) is not None:
                self.carry(link, number, move)
        except (ConnectionLostError, Stopped):
            pass  # the first lane finds the block where it was
        except BaseException as error:  # raised again by the first lane
            with self.changed:
                self.error = self.error or error
                self.changed.notify_all()


def carry(lines: Lines, blocks: Blocks, move: Move, progress: Progress | None) -> None:
    """Carry all blocks, over as many connections as it takes.

    Raises what ``move`` raises, ``TransferError`` for a block that keeps arriving damaged, and
    ``HostError`` when the connection keeps breaking.
    """
    fruitless = 0
    while blocks.todo:
        before = blocks.landed
        try:
            _attempt(lines, blocks, move, progress)
        except ConnectionLostError as error:
            fruitless = 0 if blocks.landed > before else fruitless + 1
            if fruitless == ATTEMPTS:
                raise _lost(lines, blocks.what, error) from error


def again(lines: Lines, what: str, ask: Callable[[Link], T]) -> T:
    """Ask the host something that may be asked twice, over as many connections as it takes."""
    for attempt in range(ATTEMPTS):
        try:
            return ask(lines.main())
        except ConnectionLostError as error:
            if attempt == ATTEMPTS - 1:
                raise _lost(lines, what, error) from error
    raise AssertionError("unreachable")


def _lost(lines: Lines, what: str, error: BaseException) -> HostError:
    """What is said when a transfer gives up."""
    return HostError(
        f"{lines.name}: connection lost during the transfer of {what}, {ATTEMPTS} times without "
        f"getting on: {error}",
        advice="What has arrived is kept: run the same command again to continue.",
    )


def _attempt(lines: Lines, blocks: Blocks, move: Move, progress: Progress | None) -> None:
    """Carry blocks until none is left or the main link breaks."""
    link = lines.main()
    blocks.closed = False

    def beside() -> None:
        blocks.lane(link, move)

    def apart(number: int) -> None:
        if (other := lines.another(number)) is not None:
            blocks.lane(other, move)

    waiting = sum(map(blocks.length, blocks.todo))
    jobs = [beside] if len(blocks.todo) > 1 else []
    extra = lines.useful(link, waiting) if jobs else 0
    jobs += [lambda number=number: apart(number) for number in range(extra)]  # type: ignore[misc]
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        while (number := _next(blocks, progress)) is not None:
            blocks.carry(link, number, _telling(move, blocks, progress))
    except ConnectionLostError:
        raise  # blocks on other links may well arrive
    except BaseException:
        blocks.aborted = True
        raise
    finally:
        # Blocks that are on their way are waited for; not so a link that is still being opened.
        deadline = time.monotonic() + (2.0 if blocks.aborted else 60.0)
        with blocks.changed:
            blocks.closed = True
            while blocks.flying and time.monotonic() < deadline:
                blocks.changed.wait(0.1)


def _next(blocks: Blocks, progress: Progress | None) -> int | None:
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
    """``move``, which also tells how far all lanes together are."""
    if progress is None:
        return move

    def telling(link: Link, number: int, moved: Callable[[int], None]) -> bool:
        def both(size: int) -> None:
            moved(size)
            progress(blocks.count(), blocks.size)

        return move(link, number, both)

    return telling


@contextlib.contextmanager
def local(verb: str, path: Path) -> Iterator[None]:
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
