"""A byte stream to a Python on this machine: the pipes of a child process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

#: Most bytes of the child's stderr to keep for error messages.
STDERR_TAIL = 8192


class PopenStream:
    """The stdin and stdout of a child, as :class:`pipelines.session.base.ByteStream`."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        """Start ``argv``; ``FileNotFoundError`` when there is no such program."""
        self.remoteaddress = f"local process {argv[0]}"
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
            # Ctrl-C is handled here: a terminal sends it to the whole process group.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self._errors = bytearray()
        self._drain = threading.Thread(target=self._read_stderr, daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def _pipe(self, pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None or pipe.closed:
            raise BrokenPipeError(f"{self.remoteaddress}: the pipe is closed")
        return pipe

    def _read_stderr(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            pipe = self._pipe(self._process.stderr)
            while data := os.read(pipe.fileno(), 4096):
                self._errors += data
                del self._errors[:-STDERR_TAIL]

    def _end_message(self) -> str:
        """How the child ended, and its last output."""
        code = self.wait()
        self._drain.join(0.5)
        output = self._errors.decode("utf-8", "replace").strip()
        end = "closed its output" if code is None else f"ended with exit code {code}"
        return f"{self.remoteaddress} {end}" + (f": {output}" if output else "")

    def read(self, numbytes: int) -> bytes:
        """Exactly ``numbytes`` bytes, or ``EOFError``."""
        data = b""
        try:
            while len(data) < numbytes:
                more = self._pipe(self._process.stdout).read(numbytes - len(data))
                if not more:
                    raise EOFError(self._end_message())
                data = data + more if data else more
        except (OSError, ValueError) as error:
            raise EOFError(f"{self.remoteaddress}: {error}") from error
        return data

    def write(self, data: bytes) -> None:
        """All of ``data``, or ``OSError``."""
        pipe = self._pipe(self._process.stdin)
        try:
            pipe.write(data)
            pipe.flush()
        except ValueError as error:  # closed by another thread meanwhile
            raise BrokenPipeError(str(error)) from error

    def close_read(self) -> None:
        """Stop reading. :meth:`kill` closes the pipe itself, once it is no longer being read."""

    def close_write(self) -> None:
        """Close the child's stdin."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.close()

    def wait(self) -> int | None:
        """The exit code; ``None`` if the child does not end within a moment."""
        try:
            return self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill the child and reap it."""
        with contextlib.suppress(OSError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self.close_write()
        self._drain.join(0.5)
        for pipe in (self._process.stdout, self._process.stderr):
            # A reader in another thread holds the pipe's lock, which close() would wait for; it
            # reaches the end of the file as soon as the child is gone.
            if pipe is not None:
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()
