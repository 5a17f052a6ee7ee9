"""How a command line is left: with an exit code and what there is to say, never a traceback."""

from __future__ import annotations

import errno
import logging
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from invoke.exceptions import Exit

from pipelines.cli.lines import held_matrix, run_folder
from pipelines.core.errors import INTERRUPTED, ConfigError, PipelineError, UnexpectedError
from pipelines.core.extras import missing_extra
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.paths import default_cache

_log = logging.getLogger(__name__)
_LONGEST = 200_000  # characters of a trace: that of an endless recursion has no more to tell


def run_for_exit_code(function: Callable[[], object]) -> int:
    """The exit code that ``function`` ends with, once what there is to say was said."""
    try:
        function()
    except Exit as left:
        return left.code
    except SystemExit as left:  # of invoke's program, which has said what there was to say
        return int(left.code or 0)
    except PipelineError as error:
        return _report_error(error)
    except KeyboardInterrupt:
        from pipelines.core.console import errors

        kept = (
            " Finished work is kept; the same command continues."
            if run_folder() or held_matrix()
            else ""
        )
        errors.print(f"[yellow]Interrupted.[/yellow]{kept}")
        return INTERRUPTED
    except Exception as error:
        return _report_error(_of_the_user(error) or missing_extra(error) or _fault(error))
    return 0


def _of_the_user(error: Exception) -> ConfigError | None:
    """What is wrong with the command, where that is all."""
    if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
        return None
    return ConfigError(
        f"'{safe_line(str(error.filename), 60)}...' is too long for the name of a file",
        hint="It is in a flag or argument of the command: correct that.",
    )


def _fault(error: Exception) -> UnexpectedError:
    _log.info("unexpected", exc_info=error)
    return unexpected_error(error)


def _report_error(error: PipelineError) -> int:
    from pipelines.core.console import print_error

    print_error(error)
    return error.exit_code


def unexpected_error(error: Exception) -> UnexpectedError:
    """What is said of ``error``, whose trace is then in a file."""
    return UnexpectedError(
        f"this should not happen: {type(error).__name__}: {safe_line(error)}",
        hint=f"This is a bug. {_write_traceback(error)}\nPlease report it as an issue of "
        "the project's repository, with that file and the command. With -v it is shown here, too.",
    )


def _write_traceback(error: Exception) -> str:
    """Write the trace to where it fits best, and say where."""
    text = safe_text("".join(traceback.format_exception(error)), _LONGEST)
    name = f"error-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    for place in (run_folder, _in_cache, lambda: Path(tempfile.gettempdir())):
        try:
            if (folder := place()) is not None:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, "utf-8")
                return f"The traceback is in {folder / name}."
        except (OSError, RuntimeError):  # not to be written, or no home
            continue
    return "The traceback could not be written."


def _in_cache() -> Path:
    return default_cache() / "errors"
