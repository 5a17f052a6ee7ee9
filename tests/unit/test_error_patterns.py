"""The table of what engines refuse: whole, and the same through the SDK as in the file."""

from __future__ import annotations

import re
import time

import pytest
from docker.errors import APIError, DockerException, ImageLoadError, NotFound
from requests.exceptions import ConnectionError as Unreached

from pipelines.core import errors
from pipelines.hosts.engine import error_patterns
from pipelines.hosts.engine.error_patterns import (
    ErrorPattern,
    engine_errors,
    match_pattern,
    raise_event,
)

EXAMPLES = [(row, text) for row in error_patterns.error_patterns() for text in row.examples]


@pytest.mark.parametrize(("row", "text"), EXAMPLES, ids=[text[:60] for _, text in EXAMPLES])
def test_an_example_is_found_by_its_own_row_and_told_with_its_cure(
    row: ErrorPattern, text: str
) -> None:
    with pytest.raises(errors.PipelineError) as raised, engine_errors("start container 'box'"):
        raise APIError("500 Server Error", explanation=text)
    known = match_pattern(text)
    assert known is not None
    assert known[0] is row, f"an earlier row takes it: {known[0].pattern}"
    assert type(raised.value).__name__ == row.kind
    assert raised.value.exit_code == getattr(errors, row.kind).exit_code
    assert raised.value.hint == row.hint
    assert raised.value.message.startswith(f"start container 'box': {known[1]}: ")
    assert "{what}" not in raised.value.message
    assert text[:200] in raised.value.message


def test_every_row_is_of_use() -> None:
    table = error_patterns.error_patterns()
    assert len({row.pattern for row in table}) == len(table)
    for row in table:
        assert issubclass(getattr(errors, row.kind), errors.PipelineError)
        assert row.hint.endswith((".", "build", "NAME", "version")), row.hint
        assert not re.search("TODO|XXX", row.hint)
        assert row.message == row.message.strip() != ""


@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        (NotFound("x", explanation="No such container: 1"), errors.HostError, "no longer exists"),
        (APIError("x", explanation="never heard of"), errors.HostError, "the engine refused"),
        (ImageLoadError("cannot load windows image on linux"), errors.ConfigError, "for Windows"),
        (DockerException("(8) should specify the units"), errors.ConfigError, "too small"),
        (Unreached("Connection aborted"), errors.HostError, "stopped responding"),
        (TimeoutError("timed out"), errors.HostError, "TimeoutError"),
    ],
)
def test_whatever_is_raised_becomes_an_error_of_ours(
    raised: Exception, kind: type[errors.PipelineError], says: str
) -> None:
    with pytest.raises(kind, match=re.escape(says)), engine_errors("do it"):
        raise raised


def test_what_an_engine_says_is_made_harmless_and_short() -> None:
    text = "\x1b]0;mine\x07\x1b[31mrefused\n" + "x" * 100_000
    with pytest.raises(errors.HostError) as raised, engine_errors("do it"):
        raise APIError("x", explanation=text)
    assert "\x1b" not in raised.value.message
    assert "\x07" not in raised.value.message
    assert len(raised.value.message) < 1000


def test_a_stream_that_ends_badly_is_an_error_although_its_status_was_200() -> None:
    with pytest.raises(errors.ConfigError, match="one is for Windows"), engine_errors("fetch"):
        raise_event({"error": "no matching manifest for linux/amd64 in the manifest list entries"})
    raise_event({"status": "error is only a word here"})


def test_a_build_on_a_full_disk_says_so_by_the_last_lines_of_its_log() -> None:
    log = ["Step 1/2", "dd: error writing '/x': No space left on device", "pip: connection refused"]
    event = {"error": "The command '/bin/sh -c dd' returned a non-zero code: 1"}
    with (
        pytest.raises(errors.StorageError, match="non-zero code: 1: dd: error"),
        engine_errors("build"),
    ):
        raise_event(event, log)
    with pytest.raises(errors.HostError, match="refused: The command"), engine_errors("build"):
        raise_event(event, log[2:])  # of a program inside: no word of the engine's


@pytest.mark.slow
def test_no_pattern_takes_long_with_hostile_text() -> None:
    """A second is a hundred times what it takes; a pattern that is quadratic takes minutes."""
    hostile = ('exec: "', "invalid isolation", "hnsCall failed ", "ssh ended ", "a", "\n")
    began = time.process_time()
    for text in hostile:
        match_pattern(text * (1_000_000 // len(text)))
    assert time.process_time() - began < 5
