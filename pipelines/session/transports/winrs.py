"""A byte stream to a Python on a Windows host: WinRS, the remote shell of WinRM, over pywinrm.

Writing is WinRS Send, reading is WinRS Receive, each over its own HTTP connection. The rule for
failures: **a request is repeated only if it certainly was not carried out**, because the connection
was never made or the server refused it (an idle connection whose sealing context is gone, a busy
service). A Send that was cut off may have arrived: repeated, it would duplicate bytes. A Receive
that was cut off may have consumed output: repeating it would lose bytes. Both break the stream; the
session above opens a new one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pipelines.core.errors import AuthError, HostError, PipelineError
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs_errors import (
    explain_winrm_error,
    is_command_busy,
    is_safe_to_repeat,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from winrm.protocol import Protocol as Connection

#: Raw bytes of one Send: 4/3 of it in base64 and the envelope stay below 500 KiB, the default.
SEND_LIMIT = 330 * 1024
STDERR_TAIL = 8192
#: Delays in seconds before each repetition of a request that was not carried out.
PAUSES = (0.1, 0.5, 2.0, 5.0)
#: Seconds that Windows may need to open a shell or start a command: the first sign-in of an account
#: creates its profile. https://github.com/diyan/pywinrm/issues/123
FIRST = 60
#: Seconds that a command may leave its input unread: a scanner may delay its start that long.
UNREAD = 300.0
#: Windows drops idle connections after 120 s; one that was silent this long is reopened.
IDLE_LIMIT = 60.0
#: Seconds that closing the shell may take in total.
FAREWELL = 3.0

T = TypeVar("T")


def connect_winrs(endpoint: Endpoint) -> Connection:
    """A new connection; imports pywinrm, which takes 0.4 s, only when needed."""
    from pipelines.session.transports import winrs_http

    return winrs_http.create_winrm_client(endpoint)


class WinRSStream:
    """stdin and stdout of a command on a Windows host: a ``ByteStream`` of session.base."""

    def __init__(
        self,
        endpoint: Endpoint,
        command: str,
        *,
        skip_cmd_shell: bool = False,
        environment: Mapping[str, str] | None = None,
        pauses: tuple[float, ...] = PAUSES,
        connections: Callable[[], Connection] | None = None,
    ) -> None:
        """Sign in, open a shell and start ``command`` in it, or raise ``HostError``/``AuthError``.

        ``skip_cmd_shell`` starts the program itself instead of ``cmd /c``, necessary when its
        path has spaces. ``connections`` creates them, for tests.
        """
        self.endpoint = endpoint
        self.remoteaddress = endpoint.url
        self._pauses = pauses
        self._connect = connections or (lambda: connect_winrs(endpoint))
        self._buffer = bytearray()
        self._stderr = bytearray()
        self._exit_code: int | None = None
        self._done = False
        self._killed = self._torn = self._shut_out = False
        self._write_lock = threading.Lock()
        self._shell = self._command = ""
        try:
            self._sender = self._connect()
            self._receiver = self._connect()
            self._used = time.monotonic()
            self._start(command, skip_cmd_shell, dict(environment or {}) or None)
        except PipelineError:  # from the password's source
            self.kill()
            raise
        except Exception as error:
            problem = self._explain(error)
            self.kill()
            # Not "from error": requests keeps headers in its exceptions, passwords among them.
            raise problem from None
        except BaseException:
            self.kill()
            raise

    def _start(
        self, command: str, skip_cmd_shell: bool, environment: dict[str, str] | None
    ) -> None:
        """Open a shell and start the command; once more if Windows was not ready in time."""
        from winrm.exceptions import WinRMOperationTimeoutError

        self._late = WinRMOperationTimeoutError
        self._wait_for(self._sender, FIRST)
        for again in (True, False):
            try:
                self._shell = self._sender.open_shell(
                    codepage=65001, idle_timeout="PT7200S", env_vars=environment
                )
                self._command = self._sender.run_command(
                    self._shell, command, console_mode_stdin=False, skip_cmd_shell=skip_cmd_shell
                )
                break
            except WinRMOperationTimeoutError:
                if not again:
                    raise
                if self._shell:  # the command may be running: it ends with its shell
                    self._sender.close_shell(self._shell, close_session=False)
                    self._shell = ""
        self._wait_for(self._sender, 0)

    def _wait_for(self, connection: Connection, seconds: int) -> None:
        """Allow the host ``seconds`` to answer, or its settings if they allow more."""
        connection.operation_timeout_sec = max(seconds, self.endpoint.operation_timeout)
        connection.transport.read_timeout_sec = max(seconds + 20, self.endpoint.read_timeout)

    def _explain(self, error: Exception) -> PipelineError:
        problem = explain_winrm_error(error, self.endpoint)
        if isinstance(problem, AuthError):
            self._shut_out = True
            self.endpoint.refused()
        return problem

    def _renew(self, connection: Connection) -> None:
        """Drop the HTTP connection and its sealing context; shell and command keep running."""
        connection.transport.close_session()
        connection.transport.encryption = None

    def _request(
        self, connection: Connection, request: Callable[[], T], patience: float = 0.0
    ) -> T:
        """Make a request; repeat it while it certainly was not carried out.

        ``patience``: seconds for which the host may still be busy with the previous one.
        """
        renewed = False
        pauses, end = iter(self._pauses), time.monotonic() + patience
        while True:
            try:
                return request()
            except Exception as error:
                from winrm.exceptions import AuthenticationError, WinRMOperationTimeoutError

                if isinstance(error, WinRMOperationTimeoutError | PipelineError):
                    raise
                # Once more, the host may only have dropped the connection; signins.py prevents
                # retrying a password too often.
                again = is_safe_to_repeat(error) and not (
                    renewed and isinstance(error, AuthenticationError)
                )
                waits = is_command_busy(error) and time.monotonic() < end
                pause = next(pauses, self._pauses[-1] if waits else None)
                if pause is None or self._killed or self._shut_out or not again:
                    raise self._explain(error) from None
                time.sleep(pause)
                self._renew(connection)
                renewed = True

    def _receive(self) -> None:
        """One Receive: the available output, or nothing after the operation timeout."""
        from winrm.exceptions import WinRMOperationTimeoutError

        try:
            out, err, code, done = self._request(
                self._receiver,
                lambda: self._receiver.get_command_output_raw(self._shell, self._command),
            )
        except WinRMOperationTimeoutError:
            return
        self._buffer += out
        self._stderr += err
        del self._stderr[:-STDERR_TAIL]
        if done:
            self._done, self._exit_code = True, code

    def read(self, numbytes: int) -> bytes:
        """Exactly ``numbytes`` bytes, or ``EOFError`` with the end of stderr in its message."""
        while len(self._buffer) < numbytes:
            if self._killed or self._done:
                raise EOFError(self._end_message())
            try:
                self._receive()
            except HostError:
                if self._killed:
                    raise EOFError(self._end_message()) from None
                raise
        data = bytes(memoryview(self._buffer)[:numbytes])
        del self._buffer[:numbytes]
        return data

    def _end_message(self) -> str:
        if not self._done:
            return f"{self.remoteaddress}: the connection was closed"
        output = self._stderr.decode("utf-8", "replace").strip()
        end = f"{self.remoteaddress}: the remote command ended with exit code {self._exit_code}"
        return f"{end}: {output}" if output else end

    def write(self, data: bytes) -> None:
        """Write all of ``data``, in Sends of :data:`SEND_LIMIT` bytes; unusable after an error."""
        with self._write_lock:
            for start in range(0, len(data), SEND_LIMIT):
                self._send(data[start : start + SEND_LIMIT])

    def _send(self, piece: bytes, *, end: bool = False) -> None:
        if self._killed or self._torn:
            raise BrokenPipeError(f"{self.remoteaddress}: the connection was closed")
        if time.monotonic() - self._used > IDLE_LIMIT:
            self._renew(self._sender)  # a Send on a dropped connection may be lost
        self._torn = True  # until all of it has arrived; an interrupt may cut it off as well
        try:
            self._request(
                self._sender,
                lambda: self._sender.send_command_input(self._shell, self._command, piece, end=end),
                0.0 if end else UNREAD,
            )
        except PipelineError as error:
            raise ConnectionError(error.message) from None
        except Exception as error:
            # WinRM continues with it then, and refuses the next one until the command has read it.
            if not isinstance(error, self._late):
                raise ConnectionError(f"{self.remoteaddress}: {error}") from None
        self._torn = False
        self._used = time.monotonic()

    def close_read(self) -> None:
        """Does nothing: the host buffers at most a pipe full of output, until :meth:`kill`."""

    def close_write(self) -> None:
        """Close the remote stdin."""
        with self._write_lock, contextlib.suppress(OSError):
            if not self._done:
                self._send(b"", end=True)

    def wait(self) -> int | None:
        """The remote exit code; ``None`` if the command has not ended."""
        return self._exit_code

    def kill(self) -> None:
        """End the command, delete the shell, close both connections; never raises or lingers."""
        if self._killed:
            return
        self._killed = True
        # Over a separate connection, since another thread may be in the middle of a request on the
        # others; in a separate thread, since the host may not answer any more.
        goodbye = threading.Thread(target=self._close_shell, daemon=True)
        with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
            goodbye.start()
            goodbye.join(FAREWELL)
        for connection in (getattr(self, "_sender", None), getattr(self, "_receiver", None)):
            with contextlib.suppress(Exception):
                if connection is not None:
                    connection.transport.close_session()

    def _close_shell(self) -> None:
        with contextlib.suppress(Exception):
            if not self._shell or self._shut_out:
                return
            connection = self._connect()
            try:
                if self._command and not self._done:
                    with contextlib.suppress(Exception):
                        connection.cleanup_command(self._shell, self._command)
            finally:
                connection.close_shell(self._shell, close_session=True)
