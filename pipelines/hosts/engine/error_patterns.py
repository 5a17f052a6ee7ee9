"""Errors of the Docker SDK, translated into ours with a hint; the patterns are data.

SDK errors never leave this package: :func:`engine_errors` translates them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from docker.errors import APIError, DockerException, NotFound
from pydantic import Field
from requests.exceptions import InvalidJSONError, RequestException
from urllib3.exceptions import HTTPError

from pipelines.core import errors
from pipelines.core.hosttext import safe_text
from pipelines.core.model import Model, read_data
from pipelines.hosts.engine.transport import SshError

_FILE = Path(__file__).with_name("error_patterns.yaml")
_LONGEST = 600  # characters of an engine's message
_SEARCHED = 20_000


class ErrorPattern(Model):
    """One way in which engines refuse a request."""

    pattern: str
    """A regular expression searched for in the error text."""
    kind: Literal["ConfigError", "SetupError", "HostError", "StorageError"]
    message: str
    hint: str
    source: str | None = None
    """Reference, if it was not observed."""
    examples: Annotated[tuple[str, ...], Field(min_length=1)]


class _Table(Model):
    errors: tuple[ErrorPattern, ...]


def error_patterns() -> tuple[ErrorPattern, ...]:
    """All patterns."""
    return read_data(_FILE, _Table, hint="").errors


def match_pattern(text: str) -> tuple[ErrorPattern, str] | None:
    """The first pattern that matches ``text``, and its message."""
    text = text[:_SEARCHED]
    for row in error_patterns():
        if match := re.search(row.pattern, text, re.DOTALL):
            what = match.groupdict().get("what") or ""
            return row, row.message.replace("{what}", safe_text(what, 100))
    return None


def as_pipeline_error(error: BaseException, doing: str) -> errors.PipelineError:
    """The project's error for an exception raised while ``doing`` something (``start 'box'``)."""
    if isinstance(error, errors.PipelineError):
        return error
    if isinstance(error, DockerException):
        return _engine_refusal(_error_text(error), doing, gone=isinstance(error, NotFound))
    if isinstance(error, InvalidJSONError):
        return errors.HostError(
            f"{doing}: unexpected response, not from an engine: {safe_text(str(error), 300)}"
        )
    if isinstance(error, RequestException | HTTPError | SshError):
        return errors.HostError(
            f"{doing}: the engine stopped responding: {safe_text(str(error), 300)}",
            hint="Check that it is running: docker info. Everything it created is found by its "
            "label: invoke hosts",
        )
    return errors.HostError(f"{doing}: {type(error).__name__}: {safe_text(str(error), _LONGEST)}")


def _error_text(error: Exception) -> str:
    text = getattr(error, "explanation", None) or getattr(error, "msg", None) or error
    return str(text)


def _engine_refusal(text: str, doing: str, *, gone: bool) -> errors.PipelineError:
    if known := match_pattern(text):
        row, says = known
        return errors.error_class(row.kind)(
            f"{doing}: {says}: {safe_text(text, _LONGEST)}", hint=row.hint
        )
    if gone:
        return errors.HostError(
            f"{doing}: it no longer exists: {safe_text(text, _LONGEST)}",
            hint="Type the command again.",
        )
    return errors.HostError(f"{doing}: the engine refused: {safe_text(text, _LONGEST)}")


@contextlib.contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Translate exceptions of the SDK into the project's errors."""
    try:
        yield
    except (DockerException, RequestException, HTTPError, OSError) as error:
        raise as_pipeline_error(error, doing) from error


def raise_event(event: dict[str, Any], log: Iterable[str] = ()) -> None:
    """Raise the error at the end of an engine's stream: its response was '200 OK' long before.

    ``log``: the last lines of a build, which mention a full disk when the error does not.
    """
    if "error" in event:
        text = str(event["error"])
        for row in log:
            if (known := match_pattern(row)) is not None and known[0].kind == "StorageError":
                text = f"{text}: {row}"
        raise APIError(text, explanation=text)
