"""Every error this project raises on purpose: one hierarchy, one exit code a class.

An error says what was found, what was expected and what to do next. ``cli/exit.py`` prints
``message`` and ``hint`` and gives ``exit_code``; no other module of the controller exits.
"""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all expected errors; ``exit_code`` is the class's, ``hint`` the next step."""

    exit_code = 1
    title = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def label(self) -> str:
        """What stands before the message."""
        return f"{self.title} error"


class ConfigError(PipelineError):
    """A file, command or flag is not understood: names it and what was expected."""

    exit_code = 2
    title = "configuration"


class LockError(PipelineError):
    """The tool-chain lock is wrong, or a download does not match it."""

    exit_code = 3
    title = "tool-chain lock"


class SetupError(PipelineError):
    """Something is not installed on this machine: says exactly what to type."""

    exit_code = 4
    title = "set-up"


class HostError(PipelineError):
    """A host cannot be reached, or went away in mid-work."""

    exit_code = 5
    title = "host"


class AuthError(HostError):
    """A host refused the user name or password."""

    exit_code = 6
    title = "sign-in"


class ProvisionError(PipelineError):
    """A resource could not be brought into the wanted state."""

    exit_code = 7
    title = "provision"


class BuildError(PipelineError):
    """The build failed; the log is kept."""

    exit_code = 8
    title = "build"


class AuditError(PipelineError):
    """A wheel is not what was asked for or what it says, however green its build was."""

    exit_code = 9
    title = "audit"


class SmokeError(PipelineError):
    """The smoke suite failed on the host."""

    exit_code = 10
    title = "smoke test"


class StorageError(PipelineError):
    """A disk is full or cannot be written, here or on the host; or an answer not printed."""

    exit_code = 11
    title = "storage"


class TransferError(PipelineError):
    """Bytes that arrived are not the bytes that were sent."""

    exit_code = 12
    title = "transfer"


class RemoteError(PipelineError):
    """A function of ``pipelines.remote`` raised on the host: carries the host's own traceback."""

    exit_code = 13
    title = "on the host"

    def __init__(self, message: str, *, kind: str = "", trace: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.trace = trace


class UnexpectedError(PipelineError):
    """Unforeseen: a fault of this program, its trace is in a file; please report it."""

    exit_code = 70  # EX_SOFTWARE of sysexits.h
    title = "unexpected"


class TimeUpError(PipelineError):
    """The time a build was given (``--minutes``) is up; the next one goes on."""

    exit_code = 75  # EX_TEMPFAIL
    title = "time is up"

    @property
    def label(self) -> str:
        """It is no error."""
        return self.title


def error_class(kind: str) -> type[PipelineError]:
    """The class of that name, for tables that say which error something is."""
    found: type[PipelineError] = globals()[kind]
    return found


#: Verdicts of commands that did what was asked of them: they are no errors.
UNFIT, WORSE, LIKELY, UNKNOWN = 14, 15, 16, 17
#: The exit code after Ctrl-C, as a shell has it for SIGINT.
INTERRUPTED = 130

#: Other exit codes of a command line -> what they mean.
ANSWERS = {
    0: "It was done, and nothing is wrong.",
    UNFIT: "`invoke doctor` found something that will go wrong.",
    WORSE: "`invoke compare` found something missing or failing that was not before.",
    LIKELY: "`invoke diagnose` found a likely cause.",
    UNKNOWN: "`invoke diagnose` found no known cause; it printed the decisive lines.",
    INTERRUPTED: "Interrupted by Ctrl-C, or a fleet was cancelled: what was finished is kept.",
}
