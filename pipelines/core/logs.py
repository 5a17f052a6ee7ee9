"""What goes on, for who wants to watch: with ``-v`` the steps, with ``-vv`` every remote call.

Each module has a logger of its own, as usual (``logging.getLogger(__name__)``), and nothing is
shown unless :func:`configure_logging` is asked to. Messages name functions, hosts, files and times,
never arguments; what they quote of a host or an error is made harmless, and loses every known
secret, before it reaches any handler of ours.
"""

from __future__ import annotations

import logging
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.core.hosttext import safe_line, safe_text

ROOT = "pipelines"
_LIMIT = 2000  # characters of a message
_LEVELS = (logging.CRITICAL + 1, logging.INFO, logging.DEBUG)
_NAME = "pipelines -v"


class Redacting(logging.Filter):
    """Makes a record one harmless line without secrets, and its traceback an indented block."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place; it is always kept."""
        try:
            said = record.getMessage()
        except (TypeError, ValueError):  # wrong arguments, which are then left out
            said = str(record.msg)
        record.msg, record.args = safe_line(said, _LIMIT), None
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = textwrap.indent(safe_text(text, 4 * _LIMIT), "    ")
        record.stack_info = None
        return True


def configure_logging(verbosity: int) -> None:
    """Show on stderr: nothing with 0, INFO with 1, DEBUG with 2 and more; replaces what was set."""
    logger = logging.getLogger(ROOT)
    for handler in logger.handlers[:]:
        if handler.get_name() == _NAME:
            logger.removeHandler(handler)
    logger.setLevel(_LEVELS[max(0, min(verbosity, len(_LEVELS) - 1))])
    if verbosity < 1:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(_NAME)
    handler.addFilter(Redacting())
    layout = "%(asctime)s.%(msecs)03d %(levelname)-5s %(name)s: %(message)s"
    handler.setFormatter(logging.Formatter(layout, "%H:%M:%S"))
    logger.addHandler(handler)


def is_verbose() -> bool:
    """Whether ``-v`` was said: what is as it should be is then listed one by one."""
    return logging.getLogger(ROOT).isEnabledFor(logging.INFO)


@contextmanager
def log_duration(log: logging.Logger, level: int, what: str, *args: object) -> Iterator[None]:
    """Log ``what % args`` with the seconds that the block took, and what kind of error ended it."""
    began = time.perf_counter()
    ended = ""
    try:
        yield
    except GeneratorExit:  # who asked has heard enough
        raise
    except BaseException as error:
        ended = f", {type(error).__name__}"
        raise
    finally:
        log.log(level, f"{what}: %.3f s%s", *args, time.perf_counter() - began, ended)
