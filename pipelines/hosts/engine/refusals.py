"""What the Docker SDK raises, as errors of ours that say what to do; the table is data.

Nothing of the SDK leaves this package: :func:`telling` turns it into the project's errors.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from docker.errors import APIError, DockerException, NotFound
from pydantic import Field
from requests.exceptions import InvalidJSONError, RequestException
from urllib3.exceptions import HTTPError

from pipelines.core import errors
from pipelines.core.hosttext import safe
from pipelines.core.model import Model, read_data
from pipelines.hosts.engine.wire import SshError

_FILE = Path(__file__).with_name("refusals.yaml")
_LONGEST = 600  # characters of what an engine said
_SEARCHED = 20_000


class Refusal(Model):
    """One way in which engines refuse."""

    pattern: str
    """A regular expression that is found in what they say."""
    kind: Literal["ConfigError", "SetupError", "HostError", "StorageError"]
    says: str
    hint: str
    source: str | None = None
    """Where it is written, if it was not seen."""
    examples: Annotated[tuple[str, ...], Field(min_length=1)]


class _Table(Model):
    refusals: tuple[Refusal, ...]


@functools.cache
def refusals() -> tuple[Refusal, ...]:
    """The table."""
    return read_data(_FILE, _Table, hint="").refusals


def understood(text: str) -> tuple[Refusal, str] | None:
    """The first row whose pattern is found in ``text``, and what it says of it."""
    text = text[:_SEARCHED]
    for row in refusals():
        if found := re.search(row.pattern, text, re.DOTALL):
            what = found.groupdict().get("what") or ""
            return row, row.says.replace("{what}", safe(what, 100))
    return None


def told(error: BaseException, doing: str) -> errors.PipelineError:
    """The project's error for what was raised while ``doing`` something (``start 'box'``)."""
    if isinstance(error, errors.PipelineError):
        return error
    if isinstance(error, DockerException):
        return _refused(_words(error), doing, gone=isinstance(error, NotFound))
    if isinstance(error, InvalidJSONError):
        return errors.HostError(f"{doing}: what answers is no engine: {safe(str(error), 300)}")
    if isinstance(error, RequestException | HTTPError | SshError):
        return errors.HostError(
            f"{doing}: the engine does not answer any more: {safe(str(error), 300)}",
            hint="Is it still running? Type: docker info. What was made is found again by its "
            "label: invoke hosts",
        )
    return errors.HostError(f"{doing}: {type(error).__name__}: {safe(str(error), _LONGEST)}")


def _words(error: Exception) -> str:
    said = getattr(error, "explanation", None) or getattr(error, "msg", None) or error
    return str(said)


def _refused(text: str, doing: str, *, gone: bool) -> errors.PipelineError:
    if known := understood(text):
        row, says = known
        return errors.named(row.kind)(f"{doing}: {says}: {safe(text, _LONGEST)}", hint=row.hint)
    if gone:
        return errors.HostError(
            f"{doing}: it is gone: {safe(text, _LONGEST)}", hint="Type the command again."
        )
    return errors.HostError(f"{doing}: the engine refused: {safe(text, _LONGEST)}")


@contextlib.contextmanager
def telling(doing: str) -> Iterator[None]:
    """Turn what the SDK raises inside into the project's errors."""
    try:
        yield
    except (DockerException, RequestException, HTTPError, OSError) as error:
        raise told(error, doing) from error


def raise_event(event: dict[str, Any], log: Iterable[str] = ()) -> None:
    """Raise what a stream of the engine ends with: its answer was '200 OK' long before.

    ``log``: the last lines of a build, which say that a disk is full; the error does not.
    """
    if "error" in event:
        text = str(event["error"])
        for said in log:
            if (known := understood(said)) is not None and known[0].kind == "StorageError":
                text = f"{text}: {said}"
        raise APIError(text, explanation=text)
