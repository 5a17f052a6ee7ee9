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


#: Of each fault its code, its subcode and its text; ``{names}`` are filled in.
_KINDS = {
    "access-denied": (ACCESS_DENIED, "AccessDenied", "Access is denied."),
    "command-not-found": (SHELL_NOT_FOUND, "InvalidSelectors", "No command has the id '{id}'."),
    "envelope-too-large": (
        ENVELOPE_TOO_LARGE,  # DSP0226 5.4.9
        "EncodingLimit",
        "The request has {size} bytes; MaxEnvelopeSizekb allows {limit}.",
    ),
    "shell-not-found": (SHELL_NOT_FOUND, "InvalidSelectors", "No shell has the id '{id}'."),
    "too-many-shells": (
        TOO_MANY_SHELLS,
        "QuotaLimit",
        "{limit} shells are open, which is the limit.",
    ),
    "unknown-action": (INVALID_ACTION, "ActionNotSupported", "Unknown action '{action}'."),
    "unknown-resource": (
        RESOURCE_NOT_FOUND,
        "InvalidResourceURI",
        "This service only has command shells and its configuration.",
    ),
}
#: The same of those that are no fault of the sender; a client asks again after ``timed-out``.
_OURS = {
    "aborted": (OPERATION_ABORTED, "InternalError", "The operation was aborted."),
    "busy": (BUSY, "InternalError", "The requested resource is in use."),
    "input-closed": (PIPE_CLOSING, "InternalError", "The pipe is being closed."),
    "timed-out": (
        TIMED_OUT,
        "TimedOut",
        "The operation did not complete within its OperationTimeout.",
    ),
    "too-many-commands": (
        TOO_MANY_OPERATIONS,
        "QuotaLimit",
        "{limit} commands run in this shell, which is the limit.",
    ),
}


def wsman_fault(kind: str, **said: object) -> WsmanFaultError:
    """The fault of that kind."""
    code, subcode, reason = (_KINDS | _OURS)[kind]
    return WsmanFaultError(code, subcode, reason.format(**said), by_sender=kind in _KINDS)


def invalid_parameter_fault(reason: str) -> WsmanFaultError:
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
