"""Sessions over a real Python at the end of pipes, and over streams that misbehave."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pipelines.core.errors import HostError, RemoteError
from pipelines.remote import blocks, files, rpc
from pipelines.remote import facts as remote_facts
from pipelines.session import bootstrap, channel, link
from pipelines.session.base import DeadHostError
from pipelines.session.channel import (
    ChannelSession,
    bootstrap_command,
    open_session,
    over_winrs,
)
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.popen import PopenStream

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
    assert bootstrap_command() == 'python -I -u -c "import sys;exec(eval(sys.stdin.readline()))"'
    assert bootstrap_command("C:\\a b\\python.exe").startswith('"C:\\a b\\python.exe" -I -u ')


def test_call(session: ChannelSession) -> None:
    before = time.time()
    facts = session.call(remote_facts.facts)
    assert facts["executable"] == sys.executable
    assert before <= facts["time"] <= time.time()


def test_workers_are_used_again(session: ChannelSession) -> None:
    for _ in range(50):
        session.call(rpc.ping)
    assert len(session._current.idle) == 1


def test_errors_carry_the_hosts_traceback(session: ChannelSession, tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="FileNotFoundError") as caught:
        session.call(files.read_tail, path=str(tmp_path / "none"), limit=10)
    assert caught.value.kind == "FileNotFoundError"
    assert 'File "pipelines/remote/files.py"' in caught.value.trace
    assert 'with open(long_path(path), "rb") as file' in caught.value.trace


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "files.nothing", "blocks._finalize_upload"),
        *("files.os.getcwd", "stat", "rpc.time.time"),
    ],
)
def test_only_functions_of_the_package(session: ChannelSession, name: str) -> None:
    """Whatever asks: the far side resolves names itself."""
    module, _, leaf = name.rpartition(".")

    def asked() -> None: ...

    asked.__module__, asked.__name__ = f"pipelines.remote.{module}", leaf
    with pytest.raises(RemoteError, match=r"LookupError|ModuleNotFoundError"):
        session.call(asked)


def test_arguments_travel_by_keyword(session: ChannelSession) -> None:
    with pytest.raises(TypeError, match=r"files\.stat: arguments are passed by keyword"):
        session.call(files.stat, "here")


def test_stream_left_early_and_calls_meanwhile(session: ChannelSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    block: Any = {"path": str(tmp_path / "file"), "offset": 0, "length": 1000, "chunk": 10}
    items = session.stream(blocks.send, **block)
    assert len(next(items)) == 10
    stat = session.call(files.stat, path=str(tmp_path / "file"))
    assert stat
    assert stat["size"] == 1000
    items.close()  # type: ignore[attr-defined]
    assert session.call(rpc.ping)
    assert len(list(session.stream(blocks.send, **block))) == 100
    with pytest.raises(TypeError, match="stream"):
        session.call(blocks.send, **block)


TAMPERINGS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "crlf": (lambda data: data.replace(b"\n", b"\r\n"), "offset 10 .*expected 0a0b0c0d .*got 0d0a"),
    "no cr": (
        lambda data: data.replace(b"\r\n", b"\n"),
        "offset 256 .*expected 0d0a0a0d .*got 0a0a",
    ),
    "7 bits": (lambda data: bytes(byte & 127 for byte in data), "offset 128 .*got 00"),
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
    fails = "import sys; sys.stderr.write('no such thing'); sys.exit(3)"
    with pytest.raises(HostError, match=r"exit code 3.*no such thing"):
        open_session(PopenStream([sys.executable, "-c", fails]), name="here")
    greets = "import sys; print('Welcome to this host', flush=True); sys.stdin.read()"
    with pytest.raises(HostError, match="got b'Welcome'"):
        open_session(PopenStream([sys.executable, "-c", greets]), name="here")


def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match=r"no answer from Python within 0.2 s"):
        bootstrap.open_gateway(
            PopenStream([sys.executable, "-c", "import time; time.sleep(60)"]),
            name="here",
            patience=0.2,
        )


def test_only_idempotent_calls_are_repeated(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with fragile() as (opened, streams):
        opened.call(rpc.ping)
        cut_after(streams[0], 0)
        stat = opened.call(files.stat, path=str(tmp_path / "file"))
        assert stat
        assert stat["size"] == 1
        cut_after(streams[1], 0)
        with pytest.raises(HostError, match=r"connection lost during blocks\.receive"):
            opened.call(blocks.receive, path="x", key="k", offset=0)  # type: ignore[call-arg]
        assert opened.call(rpc.ping)
        assert len(streams) == 3


def test_connection_that_stays_lost() -> None:
    def refuse() -> PopenStream:
        raise HostError("nobody there")

    opened = open_session(PopenStream(PYTHON), name="here", reconnect=refuse, pauses=(0.0, 0.0))
    opened._current.io.stream.kill()
    with pytest.raises(HostError, match="in 2 attempts: nobody there"):
        opened.call(rpc.ping)
    opened.close()
    with pytest.raises(HostError, match="closed"):
        opened.call(rpc.ping)


def test_a_host_that_is_known_to_be_dead_is_not_tried_again() -> None:
    tries = []

    def dead() -> PopenStream:
        tries.append(1)
        raise DeadHostError("it has ended for good", hint="Type this.")

    opened = open_session(PopenStream(PYTHON), name="here", reconnect=dead, pauses=(0.0, 0.0))
    opened._current.io.kill()
    with pytest.raises(DeadHostError, match="for good"):
        opened.call(rpc.ping)
    assert tries == [1]
    opened.close()


def test_a_lost_connection_is_made_where_the_host_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = []

    def stream(place: Endpoint, *_: object, **__: object) -> PopenStream:
        streams.append((place.url, PopenStream(PYTHON)))
        return streams[-1][1]

    monkeypatch.setattr(channel, "WinRSStream", stream)
    first, second = (Endpoint(f"http://h:{port}", "u") for port in (1, 2))
    with over_winrs(first, "python", "h", again=lambda: second) as opened:
        streams[0][1].kill()
        assert opened.call(rpc.ping) > 0
    with over_winrs(first, "python", "h") as opened:
        streams[2][1].kill()
        assert opened.call(rpc.ping) > 0
    assert [url[-1] for url, _ in streams] == ["1", "2", "1", "1"]


def test_an_end_in_mid_stream_is_quiet() -> None:
    code = (
        "import sys; sys.argv = []\n"
        "from pipelines.remote import blocks\n"
        "from pipelines.session.channel import open_session\n"
        "from pipelines.session.transports.popen import PopenStream\n"
        f"s = open_session(PopenStream({PYTHON!r}), name='here')\n"
        "items = s.stream(blocks.send, path=sys.executable, offset=0, length=1 << 20, chunk=100)\n"
        "next(items)\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=120, cwd=root, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


class Staying(PopenStream):
    """Its Python does not notice that the writer is gone, and stays until it is killed."""

    def close_write(self) -> None:
        if self._process.poll() is not None:
            super().close_write()


@pytest.mark.parametrize(("stream", "farewell"), [(PopenStream, 240.0), (Staying, 0.1)])
def test_close_in_mid_stream_waits_for_nobody(
    stream: type[PopenStream], farewell: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that leaves by itself is gone at once, one that does not leave is killed."""
    monkeypatch.setattr(link, "FAREWELL", farewell)
    process = stream(PYTHON)
    opened = open_session(process, name="here")
    next(opened.stream(blocks.send, path=sys.executable, offset=0, length=MB, chunk=100))
    closing = threading.Thread(target=opened.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    assert process._process.returncode is not None


def test_printing_on_the_host_does_no_harm(tmp_path: Path) -> None:
    with open_session(PopenStream(PYTHON), name="here") as opened:
        channel = opened._current.gateway.remote_exec("print('x' * 100000); channel.send(1)")
        assert channel.receive() == 1
        assert opened.call(rpc.ping)


def test_importing_is_cheap() -> None:
    code = "import sys, pipelines.session.transports.winrs; print('winrm' in sys.modules)"
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=root, check=True)
    assert done.stdout.strip() == b"False"


def test_a_finalizer_that_writes_in_the_middle_of_a_write() -> None:
    """The garbage collector ran in one and closed a channel: its own thread waited for itself."""
    sent: list[bytes] = []

    class Stream:
        remoteaddress = "here"

        def write(self, data: bytes) -> None:
            sent.append(data[:2])
            if data == b"first":
                io.write(b"from a finalizer")
                io.write(b"and another")
            sent.append(data[2:])

    io = bootstrap.GatewayIO(cast(Any, Stream()), cast(Any, None))
    writer = threading.Thread(target=io.write, args=(b"first",), daemon=True)
    writer.start()
    writer.join(60)
    assert not writer.is_alive(), "it waits for itself"
    assert b"|".join(sent) == b"fi|rst|fr|om a finalizer|an|d another"
    io.write(b"next")
    assert sent[-2:] == [b"ne", b"xt"]


@pytest.mark.slow
def test_a_stream_that_is_collected_in_the_middle_of_a_write() -> None:
    """As an exception leaves one behind: in a cycle, so that only the collector finds it."""
    with fragile() as (session, (stream, *_)):
        items = session.stream(blocks.send, path=sys.executable, offset=0, length=MB, chunk=100)
        next(items)
        gc.disable()
        try:
            cycle: list[Any] = [items]
            cycle.append(cycle)
            dropped = weakref.ref(items)
            del items, cycle

            def collect(data: bytes) -> bytes:
                gc.collect()
                return data

            stream.on_write = collect
            said: list[Any] = []
            ask = threading.Thread(target=lambda: said.append(session.call(rpc.ping)))
            ask.daemon = True
            ask.start()
            ask.join(60)
        finally:
            gc.enable()
        assert said, "it waits for itself"
        assert dropped() is None
        assert session.call(rpc.ping) >= said[0]
