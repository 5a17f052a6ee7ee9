"""stdin and stdout of a program in a container, as a ``ByteStream``: a session without WinRM.

It needs no port, password or certificate: permission to use the engine is enough, also over ssh://
and TLS. For containers only; virtual machines can only be reached by WinRM.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from docker.errors import DockerException
from docker.models.containers import Container
from requests.exceptions import RequestException

from pipelines.core.hosttext import safe
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.hijack import STDERR, Hijacked, low_level

_ERRORS = 8192  # bytes of stderr to keep
_PIECE = 1 << 18
_PATIENCE = 0.5
_NOT_STARTED = (126, 127)


class ExecStream:
    """A :class:`pipelines.session.base.ByteStream`; the program is started at once."""

    def __init__(
        self,
        container: Container,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``command`` is an argument list, without a shell. Raises what ``engine_errors`` does."""
        self._api = low_level(container)
        self.remoteaddress = f"exec in container {container.name}"
        self._program, self._heard = command[0], False
        self._buffer = bytearray()
        self._errors = bytearray()
        with engine_errors(self.remoteaddress):
            made = self._api.exec_create(
                container.id, list(command), stdin=True, environment=dict(environment or {}) or None
            )
            self._id = str(made["Id"])
            self._way = Hijacked(self._api.exec_start(self._id, socket=True))

    def read(self, numbytes: int) -> bytes:
        """Exactly ``numbytes`` bytes, or ``EOFError`` with the end of stderr."""
        while len(self._buffer) < numbytes:
            try:
                stream, data = self._way.piece(_PIECE)
            except (EOFError, OSError, ValueError) as error:
                raise EOFError(self._end_message(error)) from error
            if stream == STDERR:
                self._errors += data
                del self._errors[:-_ERRORS]
            else:
                self._buffer += data
                if not self._heard:  # the engine reports here that a program does not start
                    self._heard = True
                    if self._code() in _NOT_STARTED:
                        raise EOFError(self._end_message(EOFError()))
        piece = bytes(memoryview(self._buffer)[:numbytes])
        del self._buffer[:numbytes]
        return piece

    def _end_message(self, error: BaseException) -> str:
        code = self.wait()
        words = bytes(self._errors)
        if code in _NOT_STARTED:  # the engine gives the reason in place of its output
            words = f"{self._program} does not start. ".encode() + bytes(self._buffer[:_ERRORS])
        output = safe(words.decode("utf-8", "replace").strip(), 1000)
        end = str(error) if code is None else f"ended with exit code {code}"
        return f"{self.remoteaddress}: {end}" + (f": {output}" if output else "")

    def write(self, data: bytes) -> None:
        """Write all of ``data``, or raise ``OSError``."""
        try:
            self._way.send(data)
        except ValueError as error:  # a closed pipe
            raise BrokenPipeError(str(error)) from error

    def close_read(self) -> None:
        """Does nothing: :meth:`kill` ends the connection."""

    def close_write(self) -> None:
        """Close the program's input."""
        self._way.close_write()

    def wait(self) -> int | None:
        """The exit code; ``None`` while it runs, or if the engine does not report it."""
        deadline = time.monotonic() + _PATIENCE
        while (code := self._code()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return code

    def _code(self) -> int | None:
        try:
            code = self._api.exec_inspect(self._id)["ExitCode"]
        except (DockerException, RequestException):
            return None
        return None if code is None else int(code)

    def kill(self) -> None:
        """Drop the connection; the program ends at the end of its input."""
        with contextlib.suppress(Exception):
            self._way.close()
