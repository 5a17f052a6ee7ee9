"""Sessions over a real Python at the end of pipes, and over streams that misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.errors import HostError, RemoteError, StorageError, TransferError
from pipelines.hosts import bootstrap, link
from pipelines.hosts.channel import ChannelSession, bootstrap_command, open_session
from pipelines.hosts.transports.popen import PopenStream

PYTHON = [sys.executable, "-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
MB = 1 << 20


class Tampering(PopenStream):
    """Changes what is read and written, and can break."""

    def __init__(self) -> None:
        super().__init__(PYTHON)
        self.on_write: Callable[[bytes], bytes] = lambda data: data
        self.on_read: Callable[[bytes], bytes] = lambda data: data
        self._ahead = b""

    def write(self, data: bytes) -> None:
        super().write(self.on_write(data))

    def read(self, numbytes: int) -> bytes:
        while len(self._ahead) < numbytes:
            self._ahead += self.on_read(super().read(numbytes - len(self._ahead)))
        data, self._ahead = self._ahead[:numbytes], self._ahead[numbytes:]
        return data


@pytest.fixture(scope="module")
def session() -> Iterator[ChannelSession]:
    with open_session(PopenStream(PYTHON), name="here") as opened:
        yield opened


@contextlib.contextmanager
def fragile() -> Iterator[tuple[ChannelSession, list[Tampering]]]:
    streams = [Tampering()]

    def again() -> Tampering:
        streams.append(Tampering())
        return streams[-1]

    with open_session(streams[0], name="here", reconnect=again, pauses=(0.0, 0.0)) as opened:
        yield opened, streams


def cut_after(stream: Tampering, size: int) -> None:
    """Kill the process once ``size`` more bytes were written to it."""
    left = [size]

    def count(data: bytes) -> bytes:
        left[0] -= len(data)
        if left[0] < 0:
            stream._process.kill()
        return data

    stream.on_write = count


def test_command() -> None:
    assert bootstrap_command() == 'python -u -c "import sys;exec(eval(sys.stdin.readline()))"'
    assert bootstrap_command("C:\\a b\\python.exe").startswith('"C:\\a b\\python.exe" -u ')


def test_call(session: ChannelSession) -> None:
    facts = session.call("facts.facts")
    assert facts["executable"] == sys.executable
    assert abs(facts["time"] - time.time()) < 5


def test_workers_are_used_again(session: ChannelSession) -> None:
    for _ in range(50):
        session.call("rpc.ping")
    assert len(session._current.idle) == 1


def test_errors_carry_the_hosts_traceback(session: ChannelSession, tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="FileNotFoundError") as caught:
        session.call("files.read_tail", path=str(tmp_path / "none"), limit=10)
    assert caught.value.kind == "FileNotFoundError"
    assert 'File "pipelines/remote/files.py"' in caught.value.trace
    assert 'with open(_long(path), "rb") as file' in caught.value.trace


@pytest.mark.parametrize(
    "name",
    ["os.system", "files.nothing", "files._long", "files.os.getcwd", "stat", "rpc.time.time"],
)
def test_only_functions_of_the_package(session: ChannelSession, name: str) -> None:
    with pytest.raises(RemoteError, match=r"LookupError|ModuleNotFoundError"):
        session.call(name)


def test_stream_left_early_and_calls_meanwhile(session: ChannelSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    items = session.stream("files.send", path=str(tmp_path / "file"), chunk=10)
    assert next(items) == 1000
    assert len(next(items)) == 10
    assert session.call("files.stat", path=str(tmp_path / "file"))["size"] == 1000
    items.close()  # type: ignore[attr-defined]
    assert session.call("rpc.ping")
    everything = list(session.stream("files.send", path=str(tmp_path / "file"), chunk=10))
    assert len(everything) == 101
    with pytest.raises(TypeError, match="stream"):
        session.call("files.send", path=str(tmp_path / "file"), chunk=10)


@pytest.mark.parametrize("size", [0, 1, link.CHUNK, 5 * MB])
def test_put_and_get(session: ChannelSession, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    source, there, back = tmp_path / "source", tmp_path / "x" / "there", tmp_path / "y" / "back"
    source.write_bytes(data)
    seen: list[tuple[int, int]] = []
    digest = session.put(source, str(there), progress=lambda *now: seen.append(now))
    assert digest == hashlib.sha256(data).hexdigest() == session.get(str(there), back)
    assert back.read_bytes() == there.read_bytes() == data
    assert seen[-1:] == ([(size, size)] if size else [])
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("direction", ["put", "get"])
def test_damaged_on_the_way(tmp_path: Path, direction: str) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"A" * MB)
    target.write_text("old")
    damage = lambda data: data.replace(b"A" * 40, b"A" * 39 + b"B", 1)  # noqa: E731
    with fragile() as (opened, streams):
        setattr(streams[0], "on_write" if direction == "put" else "on_read", damage)
        with pytest.raises(TransferError, match="sha256"):
            getattr(opened, direction)(
                *((source, str(target)) if direction == "put" else (str(source), target))
            )
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


TAMPERINGS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "crlf": (lambda data: data.replace(b"\n", b"\r\n"), "offset 10 .*0a.* became 0d0a"),
    "no cr": (lambda data: data.replace(b"\r\n", b"\n"), "offset 256 .*0d.* became 0a"),
    "7 bits": (lambda data: bytes(byte & 127 for byte in data), "offset 128 .* became 00"),
    "no ff": (lambda data: data.replace(b"\xff", b""), "offset 255 "),
}


@pytest.mark.parametrize("way", ["on_write", "on_read"])
@pytest.mark.parametrize("kind", TAMPERINGS)
def test_streams_that_damage_bytes_are_refused(kind: str, way: str) -> None:
    tamper, message = TAMPERINGS[kind]
    stream = Tampering()
    setattr(stream, way, tamper)
    direction = "to" if way == "on_write" else "from"
    with pytest.raises(HostError, match=f"on the way {direction} the host: at {message}"):
        open_session(stream, name="here")
    assert stream._process.returncode is not None


def test_no_python_there() -> None:
    with pytest.raises(HostError, match=r"exit code 3.*no such thing"):
        open_session(PopenStream(["sh", "-c", "echo no such thing >&2; exit 3"]), name="here")
    with pytest.raises(HostError, match="got b'Welcome'"):
        open_session(PopenStream(["sh", "-c", "echo Welcome to this host; cat"]), name="here")


def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match=r"no answer from Python within 0.2 s"):
        bootstrap.open_gateway(PopenStream(["sleep", "60"]), name="here", patience=0.2)


def test_death_in_mid_put(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "there" / "target"
    source.write_bytes(os.urandom(5 * MB))
    target.parent.mkdir()
    with fragile() as (opened, streams):
        opened.call("rpc.ping")
        cut_after(streams[0], 2 * MB)
        with pytest.raises(HostError, match="connection lost during the transfer") as caught:
            opened.put(source, str(target))
        assert "again" in caught.value.advice
        assert not target.exists()
        opened.put(source, str(target))
        assert len(streams) == 2
        assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_only_idempotent_calls_are_repeated(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with fragile() as (opened, streams):
        opened.call("rpc.ping")
        cut_after(streams[0], 0)
        assert opened.call("files.stat", path=str(tmp_path / "file"))["size"] == 1
        cut_after(streams[1], 0)
        with pytest.raises(HostError, match=r"connection lost during files\.send"):
            opened.call("files.send", path="x", chunk=1)
        assert opened.call("rpc.ping")
        assert len(streams) == 3


def test_connection_that_stays_lost() -> None:
    def refuse() -> PopenStream:
        raise HostError("nobody there")

    opened = open_session(PopenStream(PYTHON), name="here", reconnect=refuse, pauses=(0.0, 0.0))
    opened._current.io.stream.kill()
    with pytest.raises(HostError, match="did not come back in 2 attempts: nobody there"):
        opened.call("rpc.ping")
    opened.close()
    with pytest.raises(HostError, match="closed"):
        opened.call("rpc.ping")


def test_full_disk_there(session: ChannelSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(MB))
    (tmp_path / "target.part").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"here: the host's disk is full.*target"):
        session.put(source, str(tmp_path / "target"))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert session.call("rpc.ping")


def test_full_disk_here(session: ChannelSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(MB))
    (tmp_path / "target.part").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="disk of this machine is full"):
        session.get(str(source), tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    with pytest.raises(StorageError, match="cannot read"):
        session.put(tmp_path / "none", "x")
    with pytest.raises(RemoteError, match="FileNotFoundError"):
        session.get(str(tmp_path / "none"), tmp_path / "target")
    assert session.call("rpc.ping")


def test_memory_is_bounded(session: ChannelSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.truncate(24 * MB)
    tracemalloc.start()
    try:
        # A reader that is slow to begin with: an eager host would fill this machine's memory.
        session.get(str(source), tmp_path / "there", progress=lambda *_: time.sleep(0.005))
        session.put(tmp_path / "there", str(tmp_path / "again"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * MB


def test_interrupt_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = PopenStream(PYTHON)
    source = tmp_path / "source"
    source.write_bytes(bytes(5 * MB))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_session(stream, name="here") as opened:
        opened.put(source, str(tmp_path / "target"), progress=interrupt)
    assert stream._process.returncode is not None
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_close_is_quick_and_quiet_even_in_mid_stream(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = []\n"
        "from pipelines.hosts.channel import open_session\n"
        "from pipelines.hosts.transports.popen import PopenStream\n"
        f"s = open_session(PopenStream({PYTHON!r}), name='here')\n"
        "items = s.stream('files.send', path=sys.executable, chunk=100)\n"
        "next(items)\n"
    )
    started = time.monotonic()
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=20, cwd=root, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert time.monotonic() - started < 5
    opened = open_session(PopenStream(PYTHON), name="here")
    next(opened.stream("files.send", path=sys.executable, chunk=100))
    started = time.monotonic()
    opened.close()
    assert time.monotonic() - started < 1


def test_printing_on_the_host_does_no_harm(tmp_path: Path) -> None:
    with open_session(PopenStream(PYTHON), name="here") as opened:
        channel = opened._current.gateway.remote_exec("print('x' * 100000); channel.send(1)")
        assert channel.receive() == 1
        assert opened.call("rpc.ping")


def test_importing_is_cheap() -> None:
    code = "import sys, pipelines.hosts.transports.winrs; print('winrm' in sys.modules)"
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=root, check=True)
    assert done.stdout.strip() == b"False"
