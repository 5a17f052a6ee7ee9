"""The SOAP faults a WinRM service answers with, as one exception class (MS-WSMV 2.2.4.43).

Clients distinguish faults by the number in ``WSManFault/@Code``, not by the text; so the numbers
are those of Windows (``wsmerror.h`` and ``winerror.h``), and the texts are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

TIMED_OUT = 2150858793
SHELL_NOT_FOUND = 2150858843
ENVELOPE_TOO_LARGE = 2150858825
TOO_MANY_SHELLS = 2150859173
TOO_MANY_OPERATIONS = 2150859174
RESOURCE_NOT_FOUND = 2150858752
INVALID_ACTION = 2150858753
# Plain Win32 errors travel in the same attribute.
FILE_NOT_FOUND = 2
ACCESS_DENIED = 5
INVALID_PARAMETER = 87
BUSY = 170
PIPE_CLOSING = 232
OPERATION_ABORTED = 995
INTERNAL_ERROR = 1359


@dataclass(eq=False)
class WsmanFaultError(Exception):
    """One fault: ``code`` as in Windows, ``subcode`` from DSP0226, and a text for people."""

    code: int
    subcode: str
    reason: str
    by_sender: bool = False

    def __str__(self) -> str:
        return f"{self.subcode} ({self.code}): {self.reason}"


def timed_out() -> WsmanFaultError:
    """No output (or no room for input) within OperationTimeout: the client asks again."""
    return WsmanFaultError(
        TIMED_OUT, "TimedOut", "The operation did not complete within its OperationTimeout."
    )


def shell_not_found(shell_id: str) -> WsmanFaultError:
    """The ShellId selector names no live shell."""
    return WsmanFaultError(
        SHELL_NOT_FOUND, "InvalidSelectors", f"No shell has the id '{shell_id}'.", by_sender=True
    )


def command_not_found(command_id: str) -> WsmanFaultError:
    """The CommandId names no command of this shell."""
    return WsmanFaultError(
        SHELL_NOT_FOUND,
        "InvalidSelectors",
        f"No command has the id '{command_id}'.",
        by_sender=True,
    )


def envelope_too_large(size: int, limit: int) -> WsmanFaultError:
    """The request is above MaxEnvelopeSizekb (DSP0226 5.4.9)."""
    return WsmanFaultError(
        ENVELOPE_TOO_LARGE,
        "EncodingLimit",
        f"The request has {size} bytes; MaxEnvelopeSizekb allows {limit}.",
        by_sender=True,
    )


def too_many_shells(limit: int) -> WsmanFaultError:
    """MaxShellsPerUser is reached."""
    return WsmanFaultError(
        TOO_MANY_SHELLS,
        "QuotaLimit",
        f"{limit} shells are open, which is the limit.",
        by_sender=True,
    )


def too_many_commands(limit: int) -> WsmanFaultError:
    """MaxProcessesPerShell is reached."""
    return WsmanFaultError(
        TOO_MANY_OPERATIONS,
        "QuotaLimit",
        f"{limit} commands run in this shell, which is the limit.",
    )


def access_denied() -> WsmanFaultError:
    """The shell belongs to another user."""
    return WsmanFaultError(ACCESS_DENIED, "AccessDenied", "Access is denied.", by_sender=True)


def aborted() -> WsmanFaultError:
    """The command was terminated while this request waited for it."""
    return WsmanFaultError(OPERATION_ABORTED, "InternalError", "The operation was aborted.")


def busy() -> WsmanFaultError:
    """A Send while the previous one is still in progress (ERROR_BUSY)."""
    return WsmanFaultError(BUSY, "InternalError", "The requested resource is in use.")


def input_closed() -> WsmanFaultError:
    """Send after the end of the stream, or to a command that no longer reads."""
    return WsmanFaultError(PIPE_CLOSING, "InternalError", "The pipe is being closed.")


def invalid(reason: str) -> WsmanFaultError:
    """A well-formed envelope with a missing or invalid value."""
    return WsmanFaultError(INVALID_PARAMETER, "SchemaValidationError", reason, by_sender=True)


def cannot_start(error: OSError) -> WsmanFaultError:
    """The launcher could not start the command; the errno is mapped to a Win32 error."""
    code = INTERNAL_ERROR
    if isinstance(error, FileNotFoundError):
        code = FILE_NOT_FOUND
    elif isinstance(error, PermissionError):
        code = ACCESS_DENIED
    return WsmanFaultError(code, "InternalError", f"The command could not be started: {error}")
