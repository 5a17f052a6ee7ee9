"""Files by blocks: over real Pythons at the end of pipes that tear, lie and refuse."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import random
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.errors import HostError, RemoteError, StorageError, TransferError
from pipelines.remote import blocks, rpc
from pipelines.session.channel import open_session
from pipelines.session.link import Link
from pipelines.session.transfers import lanes, upload
from pipelines.session.transports.popen import PopenStream

pytestmark = pytest.mark.slow


PYTHON = [sys.executable, "-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
MB = 1 << 20
CHUNK = 10_000
BLOCK = 5 * CHUNK
SIZE = 10 * BLOCK + 123


class Torn(PopenStream):
    """Counts what passes, changes it, and dies after so many bytes."""

    def __init__(self, after: float = float("inf")) -> None:
        super().__init__(PYTHON)
        self.left = after
        self.passed = 0
        self.on_write: Callable[[bytes], bytes] = lambda data: data
        self.on_read: Callable[[bytes], bytes] = lambda data: data

    def _count(self, size: int) -> None:
        self.passed += size
        self.left -= size
        if self.left < 0:
            self._process.kill()

    def write(self, data: bytes) -> None:
        self._count(len(data))
        super().write(self.on_write(data))

    def read(self, numbytes: int) -> bytes:
        if self.left < 0:  # a pipe still has what the dead process has written
            raise EOFError("the connection was torn")
        data = self.on_read(super().read(numbytes))
        self._count(len(data))
        return data


class Way:
    """A session whose streams are known, with small blocks, and a file to carry."""

    def __init__(self, place: Path, direction: str, *lives: float) -> None:
        self.direction = direction
        self.lives = list(lives)
        self.streams: list[Torn] = []
        self.source, self.target = place / "source", place / "there" / "target"
        self.target.parent.mkdir(exist_ok=True)
        if not self.source.exists():
            self.source.write_bytes(random.Random(7).randbytes(SIZE))
        self.session = open_session(
            self.stream(), name="here", reconnect=self.stream, pauses=(0.0, 0.0)
        )
        self.session._transfers = dataclasses.replace(
            self.session._transfers, chunk=CHUNK, block=BLOCK
        )
        self.session.call(rpc.ping)
        if self.lives:
            self.streams[0].left = self.lives[0]

    def stream(self) -> Torn:
        number = len(self.streams)
        # What every connection begins with does not count.
        life = self.lives[number] if number < len(self.lives) else float("inf")
        self.streams.append(Torn(life + BOOT if number else float("inf")))
        return self.streams[-1]

    def carry(self, progress: Callable[[int, int], None] | None = None) -> str:
        if self.direction == "put":
            return self.session.put(self.source, str(self.target), progress=progress)
        return self.session.get(str(self.source), self.target, progress=progress)

    def landed(self) -> bool:
        return self.target.exists() and self.target.read_bytes() == self.source.read_bytes()

    def blocks(self) -> list[Path]:
        return sorted(self.target.parent.glob("*.part"))


def _boot() -> int:
    stream = Torn()
    with open_session(stream, name="here") as session:
        session.call(rpc.ping)
        return stream.passed


#: Bytes that pass before a connection serves.
BOOT = _boot()
BOTH = pytest.mark.parametrize("direction", ["put", "get"])


def slowly(seconds: float) -> Callable[[bytes], bytes]:
    def pass_on(data: bytes) -> bytes:
        time.sleep(seconds)
        return data

    return pass_on


@contextlib.contextmanager
def way(place: Path, direction: str, *lives: float) -> Iterator[Way]:
    made = Way(place, direction, *lives)
    try:
        yield made
    finally:
        made.session.close()


@pytest.mark.parametrize("size", [0, 1, CHUNK, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_there_and_back(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "source").write_bytes(data)
    seen: list[tuple[int, int]] = []
    with way(tmp_path, "put") as going:
        there, back = tmp_path / "x" / "there", tmp_path / "y" / "back"
        digest = going.session.put(going.source, str(there), progress=lambda *now: seen.append(now))
        assert digest == hashlib.sha256(data).hexdigest() == going.session.get(str(there), back)
    assert back.read_bytes() == there.read_bytes() == data
    assert seen[-1:] == ([(size, size)] if size else [])
    assert seen == sorted(seen)
    assert not list(tmp_path.rglob("*.part"))


@BOTH
def test_what_compresses_travels_compressed(tmp_path: Path, direction: str) -> None:
    line = b"smoke_attention.cu(17): warning C4996: deprecated\n"
    (tmp_path / "build.log").write_bytes(line * 20_000)
    with way(tmp_path, direction) as going:
        going.source = tmp_path / "build.log"
        going.target = going.target.with_suffix(".log")
        before = going.streams[0].passed
        going.carry()
        assert going.streams[0].passed - before < going.source.stat().st_size / 10
        assert going.landed()


@BOTH
def test_a_break_costs_only_what_was_on_its_way(tmp_path: Path, direction: str) -> None:
    with way(tmp_path, direction, 5.5 * BLOCK) as going:
        assert going.carry() == hashlib.sha256(going.source.read_bytes()).hexdigest()
        assert going.landed()
        assert len(going.streams) == 2
        assert going.streams[1].passed - BOOT < SIZE - 2 * BLOCK
        assert not going.blocks()


@BOTH
def test_a_connection_that_keeps_breaking(tmp_path: Path, direction: str) -> None:
    """As long as blocks get across it goes on; then it gives up, and the next command goes on."""
    lives = [3.5 * BLOCK, 3.5 * BLOCK, *[0.5 * BLOCK] * 3]
    with way(tmp_path, direction, *lives) as going:
        with pytest.raises(HostError, match="without progress") as caught:
            going.carry()
        assert "continue" in caught.value.hint
        assert len(going.streams) == 5
        assert len(going.blocks()) == 1
        assert not going.target.exists()
    with way(tmp_path, direction) as going:
        seen: list[int] = []
        going.carry(lambda done, total: seen.append(done))
        assert going.landed()
        assert seen[0] >= 3 * BLOCK, "what was there counts as done"
        assert going.streams[0].passed - BOOT < SIZE - 3 * BLOCK + BLOCK
        assert not going.blocks()


@BOTH
def test_without_a_way_back_the_part_stays(tmp_path: Path, direction: str) -> None:
    with way(tmp_path, direction, 6 * BLOCK) as going:
        going.session._reconnect = None
        with pytest.raises(HostError, match="connection was lost"):
            going.carry()
        assert len(going.blocks()) == 1


@BOTH
@pytest.mark.parametrize("times", [1, 99])
def test_a_flipped_byte_costs_one_block(tmp_path: Path, direction: str, times: int) -> None:
    left = [times]

    def flip(data: bytes) -> bytes:
        if len(data) < CHUNK or not left[0]:
            return data
        left[0] -= 1
        return data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]

    with way(tmp_path, direction) as going:
        going.target.write_text("old")
        stream = going.streams[0]
        setattr(stream, "on_write" if direction == "put" else "on_read", flip)
        if times == 1:
            before = stream.passed
            going.carry()
            assert going.landed()
            assert stream.passed - before < SIZE + 2 * BLOCK
        else:
            with pytest.raises(TransferError, match=r"3 times.*checksum") as caught:
                going.carry()
            assert "again" in caught.value.hint
            assert going.target.read_text() == "old"
        assert len(going.streams) == 1


def test_a_block_that_keeps_arriving_damaged_is_sent_three_times() -> None:
    sent: list[object] = []

    def damaged(*block: object) -> bool:
        sent.append(block)
        return False

    link: Any = None
    blocks_left = lanes.Blocks(10, 10, [0], "a file")
    with pytest.raises(TransferError, match="arrives damaged: 3 times the 10 bytes"):
        lanes.transfer_blocks(lanes.Connection("host", lambda: link), blocks_left, damaged, None)
    assert len(sent) == 3


def test_a_small_file_that_arrives_damaged_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"A" * CHUNK)
    for direction in ("put", "get"):
        with way(tmp_path, direction) as going:
            damage = lambda data: data.replace(b"A" * 40, b"A" * 39 + b"B", 1)  # noqa: E731
            stream = going.streams[0]
            setattr(stream, "on_write" if direction == "put" else "on_read", damage)
            with pytest.raises(TransferError, match="checksum"):
                going.carry()
            assert not list(going.target.parent.iterdir())


def test_other_contents_do_not_mix_and_stale_parts_go(tmp_path: Path) -> None:
    with way(tmp_path, "put", 5 * BLOCK) as going:
        going.session._reconnect = None
        with pytest.raises(HostError):
            going.carry()
    (stale,) = going.blocks()
    os.utime(stale, (0, time.time() - blocks.ABANDONED - 1))
    living = going.target.with_name("target.ba9876543210.part")
    living.write_text("somebody sends this now")
    other = going.target.with_name("targets.0123456789ab.part")
    other.write_text("of another target")
    os.utime(other, (0, 0))
    (tmp_path / "source").write_bytes(os.urandom(SIZE))
    with way(tmp_path, "put") as going:
        going.carry()
        assert going.landed()
    assert going.blocks() == [living, other]


@pytest.mark.parametrize("same", [True, False])
def test_two_at_once(tmp_path: Path, same: bool) -> None:
    failures: list[BaseException] = []
    contents = [os.urandom(SIZE)] * 2 if same else [os.urandom(SIZE), os.urandom(SIZE)]
    with way(tmp_path, "put") as one, way(tmp_path, "put") as two:

        def carry(going: Way, source: Path) -> None:
            going.source = source
            try:
                for _ in range(4):
                    going.carry()
            except BaseException as error:  # shown below
                failures.append(error)

        threads = []
        for number, going in enumerate((one, two)):
            source = tmp_path / f"source{number}"
            source.write_bytes(contents[number])
            threads.append(threading.Thread(target=carry, args=(going, source)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        assert not failures
        assert one.target.read_bytes() in contents
        assert not one.blocks()


def test_who_was_slower_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another controller landed the same, and a third has started again."""
    genuine = upload._Upload.land
    with way(tmp_path, "put") as going:

        def land(self: upload._Upload, link: Link, size: int) -> str:
            (part,) = going.blocks()
            part.rename(going.target)
            part.write_text("a block")
            return genuine(self, link, size)

        monkeypatch.setattr(upload._Upload, "land", land)
        going.carry()
        assert going.landed()
        assert not going.blocks()


def test_full_disk_there(tmp_path: Path) -> None:
    with way(tmp_path, "put") as going:
        key = hashlib.sha256(going.source.read_bytes()).hexdigest()[:12]
        going.target.with_name(f"target.{key}.part").symlink_to("/dev/full")
        with pytest.raises(StorageError, match=r"here: the host's disk is full.*target"):
            going.carry()
        assert not list(going.target.parent.iterdir())
        assert going.session.call(rpc.ping)


def test_full_disk_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with way(tmp_path, "get") as going:
        opened = os.open
        full = lambda *_: opened("/dev/full", os.O_RDWR)  # noqa: E731
        monkeypatch.setattr(os, "open", full)
        with pytest.raises(StorageError, match="machine's disk is full"):
            going.carry()
        monkeypatch.undo()
        assert not list(going.target.parent.iterdir())
        with pytest.raises(StorageError, match="cannot read"):
            going.session.put(tmp_path / "none", "x")
        with pytest.raises(RemoteError, match="FileNotFoundError"):
            going.session.get(str(tmp_path / "none"), tmp_path / "target")
        assert going.session.call(rpc.ping)


@BOTH
def test_interrupt_leaves_the_part_and_no_process(tmp_path: Path, direction: str) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > 4 * BLOCK:
            raise KeyboardInterrupt

    with way(tmp_path, direction) as going:
        with pytest.raises(KeyboardInterrupt):
            going.carry(interrupt)
        assert len(going.blocks()) == 1
    assert going.streams[0]._process.returncode is not None
    with way(tmp_path, direction) as going:
        going.carry()
        assert going.streams[0].passed - BOOT < SIZE - 2 * BLOCK
        assert going.landed()


def test_a_source_that_changes_meanwhile(tmp_path: Path) -> None:
    with way(tmp_path, "get") as going:

        def change(done: int, total: int) -> None:
            with going.source.open("r+b") as file:
                file.write(os.urandom(10))

        with pytest.raises(TransferError, match="changed during") as caught:
            going.carry(change)
        assert "nothing writes to it" in caught.value.hint
        assert not list(going.target.parent.iterdir())


def test_memory_is_bounded(tmp_path: Path) -> None:
    source = tmp_path / "big"
    with source.open("wb") as file:
        file.truncate(48 * MB)
    with way(tmp_path, "put") as going:
        going.session._transfers = dataclasses.replace(
            going.session._transfers, chunk=lanes.CHUNK, block=lanes.BLOCK
        )
        tracemalloc.start()
        try:
            # A reader that is slow to begin with: an eager host would fill this machine's memory.
            going.session.get(str(source), tmp_path / "back", progress=lambda *_: time.sleep(0.005))
            going.session.put(tmp_path / "back", str(tmp_path / "again"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 20 * MB


# -- the host's side, called directly -------------------------------------------------------------


class FakeFeed(rpc.Feed):
    """Pieces without a channel."""

    def __init__(self, *pieces: bytes, digest: str | None = None) -> None:
        self.pieces = pieces
        self.digest = digest or f"{zlib.crc32(b''.join(pieces)):08x}"

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces


def test_receive_and_land(tmp_path: Path) -> None:
    target = str(tmp_path / "deep" / "file")
    digest = hashlib.sha256(b"abcdef").hexdigest()
    assert blocks.receive(FakeFeed(b"d", b"ef"), target, "k" * 12, 3)
    assert blocks.land(target, "k" * 12, 6, digest) != digest
    assert blocks.receive(FakeFeed(b"abc"), target, "k" * 12, 0)
    assert list(blocks.digests(target, 3, 9, "k" * 12)) == [
        f"{zlib.crc32(data):08x}" for data in (b"abc", b"def")
    ]
    assert blocks.land(target, "k" * 12, 6, digest) == digest
    assert Path(target).read_bytes() == b"abcdef"
    assert blocks.land(target, "k" * 12, 6, digest) == digest, "twice does no harm"
    assert blocks.land(str(tmp_path / "none"), "k" * 12, 6, digest) == ""
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_a_part_that_another_controller_took_and_began_anew(tmp_path: Path) -> None:
    """Only what is on the disk lands, never what this Python believes to have written."""
    target, key = str(tmp_path / "file"), "k" * 12
    digest = hashlib.sha256(b"abcdef").hexdigest()
    assert blocks.receive(FakeFeed(b"abc"), target, key, 0)
    (tmp_path / f"file.{key}.part").unlink()
    assert blocks.receive(FakeFeed(b"def"), target, key, 3)
    assert blocks.land(target, key, 6, digest) != digest
    assert not (tmp_path / "file").exists()
    assert blocks.receive(FakeFeed(b"abc"), target, key, 0)
    assert blocks.land(target, key, 6, digest) == digest


@pytest.mark.parametrize("packed", [True, False])
def test_receive_refuses_damage(tmp_path: Path, packed: bool) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    feed = FakeFeed(b"abc", digest="0" * 64)
    assert not blocks.receive(feed, str(target), "k", 0, packed=packed, whole=True)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_receive_writes_nothing_when_the_sender_goes(tmp_path: Path) -> None:
    class Gone:
        def receive(self) -> bytes:
            raise EOFError

        def send(self, item: object) -> None:
            raise AssertionError(item)

        def __iter__(self) -> Iterator[bytes]:
            yield self.receive()

    with pytest.raises(ConnectionAbortedError):
        blocks.receive(rpc.Feed(Gone()), str(tmp_path / "file"), "k", 0)
    assert not list(tmp_path.iterdir())


@given(st.binary(max_size=5000))
def test_packing(data: bytes) -> None:
    assert blocks.unpack(blocks.pack(data)) == data
    for wrong in (data, blocks.pack(data)[:-1]):
        if wrong[:1] != b"x":
            with pytest.raises(ValueError, match="compressed block"):
                blocks.unpack(wrong)


def test_a_bomb_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        blocks.unpack(blocks.pack(bytes(200 * MB)))
