"""From a bare byte stream to an execnet gateway that serves calls.

The Python at the far end was started with :func:`bootstrap_command` and reads one line: a Python
literal with the source to run. That source first verifies, byte by byte and in both directions,
that the stream changes nothing, and only then becomes an execnet worker. In detail::

    here                                   there
    one line: probe + execnet's source ->
                                        <- READY
    PATTERN (only now, because the far side's text reader reads ahead)
                                        <- a report of fixed length: the first damaged bytes, if any
                                        <- PATTERN
                                        <- "1", execnet's sign of life
    sources of pipelines/remote, packed ->
                                        <- "serving"
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import execnet
from execnet import gateway_base
from execnet.xspec import XSpec

from pipelines.core.errors import HostError, PipelineError
from pipelines.session.base import ByteStream

if TYPE_CHECKING:
    from execnet.gateway_base import ExecModel

REMOTE = Path(__file__).resolve().parent.parent / "remote"

READY = b"8bit?ok"
REPORT = 64
BLOCK = 1024
_LAST_WORDS = 2.0  # seconds
_LARGEST = 64 << 20  # bytes of one message; ours are 100 KiB, the longest answers a few MiB
#: All byte values, sequences that text modes and consoles change, noise, and filler: bytes lost on
#: the way shift the filler forward, so that a damaged block always has its full length.
PATTERN = (
    bytes(range(256))
    + b"\r\n\n\r\r\r\n\x1a\x04\x03\x00\xff\xfe\xff\xff\xef\xbb\xbf\x1b[0m\x11\x13\x7f\x80\xc3("
    + hashlib.shake_256(b"eight bits").digest(65536)
    + b"." * BLOCK
)

# Runs on the host before anything else. Blocks are compared as they arrive: waiting for the whole
# pattern would block forever if the stream swallows some of it.
_PROBE = """
import sys, hashlib
def probe(pattern, block, report, ready):
    if sys.platform == "win32":
        import os, msvcrt
        msvcrt.setmode(0, os.O_BINARY)
        msvcrt.setmode(1, os.O_BINARY)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(ready)
    sink.flush()
    verdict = "clean"
    for start in range(0, len(pattern), block):
        wanted = pattern[start:start + block]
        came = source.read(len(wanted))
        if came != wanted:
            at = next((i for i, (a, b) in enumerate(zip(came, wanted)) if a != b), len(came))
            verdict = "%d %s" % (start + at, came[at:at + 4].hex() or "nothing")
            break
    sink.write(verdict.ljust(report).encode("ascii"))
    sink.flush()
    if verdict != "clean":
        sys.exit(3)
    sink.write(pattern)
    sink.flush()
"""

_SERVE = """
execmodel = get_execmodel("thread")
io = init_popen_io(execmodel)
io.write(b"1")
serve(io, id="host")
"""


_SERVED = "import sys;exec(eval(sys.stdin.readline()))"


def bootstrap_command(python: str = "python") -> str:
    """The command line that starts a host's Python in isolated mode: no PYTHONPATH, no user site.

    A path with spaces is quoted, which ``cmd /c`` mangles when there are other quotes: such a
    path needs a transport that starts the program itself (WinRS: ``skip_cmd_shell``).
    """
    program = f'"{python}"' if " " in python else python
    return f'{program} -I -u -c "{_SERVED}"'


def bootstrap_argv(python: str) -> list[str]:
    """The same as an argument list, for transports without a shell."""
    return [python, "-I", "-u", "-c", _SERVED]


@cache
def _first_line() -> bytes:
    """The expression that the far side evaluates first; pure ASCII, one line."""
    tail = PATTERN[256:-BLOCK][:-65536]
    pattern = (
        f"bytes(range(256)) + {tail!r}"
        f" + hashlib.shake_256(b'eight bits').digest(65536) + b'.' * {BLOCK}"
    )
    call = f"probe({pattern}, {BLOCK}, {REPORT}, {READY!r})"
    # execnet's source begins with a __future__ import, which must stay first.
    source = "\n".join([inspect.getsource(gateway_base), _PROBE, call, _SERVE])
    return ascii(source).encode("ascii") + b"\n"


def remote_sources() -> dict[str, tuple[bool, str, str]]:
    """``pipelines/remote`` as a value: module name to (is package, file name, source)."""
    sources = {}
    for file in sorted(REMOTE.rglob("*.py")):
        inner = file.relative_to(REMOTE)
        parts = ["remote", *inner.with_suffix("").parts]
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        sources[name] = (package, f"pipelines/remote/{inner.as_posix()}", file.read_text("utf-8"))
    return sources


@cache
def packed_sources() -> bytes:
    """The same as sent over the wire: compressed to a quarter, since each connection sends it."""
    return zlib.compress(json.dumps(remote_sources()).encode())


class GatewayIO:
    """The stream interface execnet needs; also records why it broke.

    execnet reads in its own thread and swallows most errors; ``failure`` keeps the first one.
    """

    def __init__(self, stream: ByteStream, execmodel: ExecModel) -> None:
        self.stream = stream
        self.execmodel = execmodel
        self.remoteaddress = stream.remoteaddress
        self.failure: BaseException | None = None
        # The garbage collector closes channels in any thread at any time, even in the middle of a
        # write. Its messages wait for the end of the message being sent.
        self._lock = threading.RLock()
        self._waiting: deque[bytes] = deque()
        self._writing = False

    def read(self, numbytes: int) -> bytes:
        """As the stream's; every failure becomes the ``EOFError`` execnet expects."""
        if numbytes > _LARGEST:  # a hostile host or a damaged stream
            self.failure = self.failure or EOFError(f"a message of {numbytes} bytes was announced")
            raise EOFError(str(self.failure))
        try:
            return self.stream.read(numbytes)
        except (EOFError, OSError, PipelineError) as error:
            self.failure = self.failure or error
            raise EOFError(str(error)) from error

    def write(self, data: bytes) -> None:
        """As the stream's, one message at a time."""
        with self._lock:
            self._waiting.append(data)
            while self._waiting and not self._writing:
                self._writing = True
                try:
                    self._write(self._waiting.popleft())
                finally:
                    self._writing = False

    def _write(self, data: bytes) -> None:
        if self.failure is not None:
            raise BrokenPipeError(str(self.failure))
        try:
            self.stream.write(data)
        except PipelineError as error:
            self.failure = error
            raise BrokenPipeError(str(error)) from error
        except BaseException as error:  # an interrupt also leaves half a message
            self.failure = error
            raise

    def close_read(self) -> None:
        """As the stream's."""
        self.stream.close_read()

    def close_write(self) -> None:
        """As the stream's; does nothing if it broke."""
        if self.failure is None:
            self.stream.close_write()

    def wait(self) -> int | None:
        """As the stream's."""
        return self.stream.wait()

    def kill(self) -> None:
        """As the stream's; nothing is written after it."""
        self.failure = self.failure or EOFError("the connection was closed")
        self.stream.kill()


@contextlib.contextmanager
def _kill_after_timeout(stream: ByteStream, seconds: float) -> Iterator[threading.Event]:
    """Kill the stream if its far side does not answer in time: reads have no timeout."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        stream.kill()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def _byte_corruption_error(direction: str, position: int, actual: str, name: str) -> HostError:
    expected = PATTERN[position : position + 4].hex()
    return HostError(
        f"{name}: the connection changes bytes on the way {direction} the host: at offset "
        f"{position} of the test pattern, expected {expected} (hex), got {actual}",
        hint="Start Python with pipes, not with a console or terminal (WinRS: console mode off, "
        "code page 65001; ssh and docker: without -t).",
    )


def _write_allowing_disconnect(stream: ByteStream, data: bytes) -> None:
    """Write; if the far side no longer reads, still read from it for a moment.

    Its last output says more than the broken pipe. A connection that was cut sends nothing more,
    and would be waited for until the timeout.
    """
    try:
        stream.write(data)
    except ConnectionError:
        end = threading.Timer(_LAST_WORDS, stream.kill)
        end.daemon = True
        end.start()


def prove_eight_bit_clean(stream: ByteStream, name: str) -> None:
    """Send :data:`PATTERN` there and back; ``HostError`` names the first byte that changed."""
    _write_allowing_disconnect(stream, _first_line())
    greeting = stream.read(len(READY))
    if greeting != READY:
        raise HostError(
            f"{name}: expected Python waiting for its first line, got {greeting!r}",
            hint="Something else writes to the output first, such as a banner or AutoRun of cmd.",
        )
    _write_allowing_disconnect(stream, PATTERN)
    verdict = stream.read(REPORT).decode("ascii", "replace").split()
    if verdict != ["clean"]:
        position = verdict[0] if verdict and verdict[0].isdigit() else "0"
        raise _byte_corruption_error("to", int(position), " ".join(verdict[1:]), name)
    for start in range(0, len(PATTERN), BLOCK):
        expected = PATTERN[start : start + BLOCK]
        actual = stream.read(len(expected))
        if actual != expected:
            at = next(i for i, (a, b) in enumerate(zip(actual, expected, strict=True)) if a != b)
            raise _byte_corruption_error("from", start + at, actual[at : at + 4].hex(), name)


def open_gateway(
    stream: ByteStream, *, name: str, patience: float = 60.0
) -> tuple[execnet.Gateway, execnet.Channel, GatewayIO]:
    """Verify the stream, start execnet over it and send ``pipelines/remote``.

    Returns the gateway, the channel for requesting new workers, and the stream as execnet sees it.
    On any failure the stream is killed and a ``HostError`` gives the reason.
    """
    execmodel = gateway_base.get_execmodel("thread")
    io = GatewayIO(stream, execmodel)
    with _kill_after_timeout(stream, patience) as expired:
        try:
            prove_eight_bit_clean(stream, name)
            stream.read(1)  # written by execnet, once it has taken over the pipes
            spec = XSpec("popen//id=host//execmodel=thread")
            gateway = execnet.Gateway(io, spec)
            channel = gateway.remote_exec((REMOTE / "loader.py").read_text("utf-8"))
            channel.send(packed_sources())
            channel.receive()  # "serving"
        except BaseException as error:
            reason = io.failure or error
            io.kill()
            if expired.is_set():
                raise HostError(
                    f"{name}: no answer from Python within {patience:g} s of starting it",
                    hint="Check that it is Python 3.10 or newer and that the host is not "
                    "overloaded.",
                ) from error
            if isinstance(error, (EOFError, OSError, gateway_base.RemoteError)):
                raise HostError(
                    f"{name}: Python did not start on the host: {reason}",
                    hint="Check that this Python exists on the host; provisioning installs it.",
                ) from error
            raise
    return gateway, channel, io
