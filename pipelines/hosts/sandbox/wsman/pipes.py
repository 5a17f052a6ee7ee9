"""The pipes of one command: output with a timeout, input with back-pressure, both bounded.

The kernel's pipe *is* the output queue. Nothing is read before a client asks for it, so a command
that prints faster than it is read blocks in its own write, and only one response is buffered.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import select
import threading
from collections.abc import Mapping

PIPE_SIZE = 1 << 20
#: Bytes the service writes to a command that does not read its input: the default size of Windows'
#: anonymous pipes.
#: https://learn.microsoft.com/windows/win32/api/namedpipeapi/nf-namedpipeapi-createpipe
INPUT_SIZE = 4 << 10
_SLICE = 128 << 10  # taken from one stream before the other gets its turn


def _configure_pipe(fd: int, size: int = PIPE_SIZE) -> None:
    os.set_blocking(fd, False)
    # Fewer wake-ups on both sides. Refused if the user's pipe pages are used up: it stays small
    # then.
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)


class OutputPipes:
    """The read ends of stdout and stderr. Not thread-safe: the command holds a lock around it."""

    def __init__(self, fds: Mapping[str, int]) -> None:
        self._open = dict(fds)
        self._unreported: list[str] = []
        for fd in self._open.values():
            _configure_pipe(fd)

    @property
    def all_ended(self) -> bool:
        """Whether every stream has ended and been reported so."""
        return not self._open and not self._unreported

    def fds(self) -> list[int]:
        """What to poll."""
        return list(self._open.values())

    def take(self, limit: int) -> tuple[dict[str, bytes], list[str]]:
        """The available output, up to ``limit`` bytes, and the streams that ended with it."""
        parts: dict[str, list[bytes]] = collections.defaultdict(list)
        progress = True
        while progress and limit > 0:
            progress = False
            for name, fd in list(self._open.items()):
                try:
                    data = os.read(fd, min(_SLICE, limit))
                except BlockingIOError:
                    continue
                if data:
                    parts[name].append(data)
                    limit -= len(data)
                    progress = True
                else:
                    self._end(name)
                if limit <= 0:
                    break
        ended, self._unreported = self._unreported, []
        return {name: b"".join(pieces) for name, pieces in parts.items()}, ended

    def _end(self, name: str) -> None:
        os.close(self._open.pop(name))
        self._unreported.append(name)

    def end_all(self) -> None:
        """Close the open ones, whoever holds the other end."""
        for name in list(self._open):
            self._end(name)


class InputPipe:
    """The write end of stdin. A Send that timed out continues; the next is refused meanwhile.

    https://github.com/ansible/ansible/blob/v2.17.0/lib/ansible/plugins/connection/winrm.py
    (``_winrm_write_stdin``).
    """

    def __init__(self, fd: int, stopped: int) -> None:
        self._fd = fd
        self._stopped = stopped  # an eventfd which wakes the writer for good
        self._pending: collections.deque[memoryview] = collections.deque()
        self._size = 0
        self._ending = self._closed = False
        self._writer: threading.Thread | None = None
        self._changed = threading.Condition()
        _configure_pipe(fd, INPUT_SIZE)

    def offer(self, data: bytes, *, end: bool, timeout: float) -> bool:
        """Write ``data``. False: not read in time, BlockingIOError: nor was the previous data.

        BrokenPipeError: there is no reader.
        """
        with self._changed:
            if self._closed or self._ending:
                raise BrokenPipeError
            if self._size:
                raise BlockingIOError
            if data:
                self._pending.append(memoryview(data))
                self._size += len(data)
            self._ending = end
            # Usually the pipe has room and no other thread is needed.
            if self._writer is None and not self._flush():
                self._writer = threading.Thread(
                    target=self._write_rest, name="wsman-stdin", daemon=True
                )
                self._writer.start()
            return self._changed.wait_for(lambda: not self._size, timeout)

    def _flush(self) -> bool:
        """Write as much as possible without waiting. True when everything is written."""
        try:
            while self._pending:
                written = os.write(self._fd, self._pending[0])
                self._size -= written
                if written == len(self._pending[0]):
                    self._pending.popleft()
                else:
                    self._pending[0] = self._pending[0][written:]
        except BlockingIOError:
            return False
        except OSError:  # the command closed its stdin or died
            self._close()
            return True
        if self._ending:
            self._close()
        return True

    def _write_rest(self) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        poller.register(self._stopped, select.POLLIN)
        done = False
        while not done:
            ready = dict(poller.poll())
            with self._changed:
                if self._stopped in ready:
                    self._close()
                done = self._closed or self._flush()
                if done:
                    self._writer = None
                self._changed.notify_all()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pending.clear()
            self._size = 0
            os.close(self._fd)
        self._changed.notify_all()

    def close(self) -> None:
        """Close at once, dropping what is pending; call after ``stopped`` is set."""
        with self._changed:
            writer = self._writer
            if writer is None:
                self._close()
        if writer is not None:  # it polls the descriptor, so it is the one to close it
            writer.join(timeout=2)
