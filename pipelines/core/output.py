"""Standard output and error that nothing can make fail: no encoding, closed pipe or full disk.

A build that runs for hours must not end because its output is not read. What could not be
written is remembered, so that who prints an answer can say that it is not whole.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: What stands for our own symbols in an encoding without them.
_PLAIN = {
    "│": "|",
    "✓": "+",
    "✗": "x",
    "◐": "~",
    "○": "o",
    "…": "...",
    "→": "->",
    "µ": "u",
    "━": "-",
    "─": "-",
    "╸": "-",
    "╺": "-",
}
_HANDLER = "plain"
_STANDARD = 2  # the highest of the descriptors that every program expects to be open


def replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Of characters not in an encoding: our symbols in ASCII, a question mark for others."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(one, "?") for one in missing), error.end


class Sink(io.FileIO):
    """A descriptor to which every write succeeds; ``lost`` is why the first one did not.

    From then on the descriptor itself leads nowhere: for programs that inherit it, too.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.lost: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """All bytes count as written, whatever became of them."""
        try:
            while (done := super().write(data)) is None:  # a pipe that others made non-blocking
                select.select([], [self], [])
        except OSError as error:
            self.lost = self.lost or error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes
        return done


_sinks: dict[str, Sink] = {}


def install_safe_streams() -> None:
    """Make this process' standard output and error such streams; closed ones lead nowhere."""
    codecs.register_error(_HANDLER, replace_unencodable)
    # A closed one is the number of the next file that is opened, and prints would land in that.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), "utf-8")
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, _unfailing(name, number, stream))


def _unfailing(name: str, number: int, stream: io.TextIOWrapper | None) -> TextIO:
    if stream is None:
        return io.TextIOWrapper(io.BufferedWriter(Sink(number)), "utf-8", _HANDLER)
    raw = getattr(stream.buffer, "raw", stream.buffer)
    if type(raw) is not io.FileIO:  # a console of Windows, which takes any text
        stream.reconfigure(errors=_HANDLER)
        return stream
    stream.flush()
    _sinks[name] = Sink(raw.fileno())
    return io.TextIOWrapper(
        io.BufferedWriter(_sinks[name]),
        stream.encoding,
        _HANDLER,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def stdout_error() -> OSError | None:
    """Why something of standard output was lost; a reader who has had enough is no reason."""
    if sys.stdout is not None:
        sys.stdout.flush()
    error = _sinks["stdout"].lost if "stdout" in _sinks else None
    return None if error is None or error.errno == errno.EPIPE else error
