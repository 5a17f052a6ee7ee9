"""Logging shows what was asked for, harmless and without secrets; unasked, nothing."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.core import hosttext, logs
from pipelines.core.errors import RemoteError
from pipelines.remote import files, rpc
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session
from pipelines.session.transports.popen import PopenStream

LOG = logging.getLogger("pipelines.test")
PASSWORD = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hosttext, "_secrets", {PASSWORD})
    yield
    logs.configure_logging(0)
    logging.getLogger(logs.ROOT).setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("verbosity", "shown"), [(-1, ""), (0, ""), (1, "IW"), (2, "DIW"), (7, "DIW")]
)
def test_as_much_as_is_asked_for(
    verbosity: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure_logging(2)  # what was set before does not count
    logs.configure_logging(verbosity)
    LOG.debug("a D line")
    LOG.info("an I line")
    LOG.warning("a W line")
    logging.getLogger("urllib3").debug("not ours")
    out, err = capsys.readouterr()
    assert out == ""
    assert re.findall(r" an? ([DIW]) line\n", err) == list(shown)
    assert "not ours" not in err
    if shown:
        assert re.search(r"^\d\d:\d\d:\d\d\.\d{3} INFO  pipelines\.test: an I line$", err, re.M)


def test_unasked_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    LOG.info("an I line")
    assert capsys.readouterr() == ("", "")


def test_a_secret_never_appears(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging(2)
    LOG.info("signed in with %s", PASSWORD)
    LOG.info(f"signed in with {PASSWORD}")
    LOG.info("%s", {"password": [PASSWORD]})
    few = "too few: %s %s"
    LOG.info(few, PASSWORD)
    LOG.info(ValueError(PASSWORD))
    try:
        int(PASSWORD)
    except ValueError:
        LOG.exception("no sign-in with %s", PASSWORD, stack_info=True)
    err = capsys.readouterr().err
    assert PASSWORD not in err
    assert err.count("***") >= 6
    assert "\n    ValueError: invalid literal for int() with base 10: '***'" in err


def test_what_a_host_says_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging(1)
    LOG.info("lost: %s", "\x1b[2Jgone\n::error::forged\r\x07" + "x" * 9000)
    (one,) = capsys.readouterr().err.splitlines()
    assert "\x1b" not in one
    assert "gone ::error::forged" in one
    assert len(one) < 3000


def test_timed(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging(2)
    with logs.log_duration(LOG, logging.INFO, "%s: %s", "lab1", "50%"):
        pass
    with pytest.raises(RuntimeError), logs.log_duration(LOG, logging.DEBUG, "fetch"):
        raise RuntimeError(PASSWORD)
    first, second = capsys.readouterr().err.splitlines()
    assert re.search(r"INFO  pipelines\.test: lab1: 50%: 0\.\d{3} s$", first)
    assert re.search(r"DEBUG pipelines\.test: fetch: 0\.\d{3} s, RuntimeError$", second)


def test_a_session_tells_of_calls_and_transfers_but_not_of_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure_logging(2)
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("content")
    with open_session(PopenStream(bootstrap_argv(sys.executable)), name="lab1") as session:
        session.call(rpc.ping)
        session.put(source, str(target))
        session.get(str(target), tmp_path / "back.txt")
        with pytest.raises(RemoteError):
            session.call(files.sha256, path=str(tmp_path / "untold"))
    err = capsys.readouterr().err
    assert re.search(r"INFO .*session\.channel: lab1: connect: \d", err)
    assert re.search(r"DEBUG .*session\.channel: lab1: rpc\.ping: \d\.\d{3} s$", err, re.M)
    assert re.search(r"DEBUG .*channel: lab1: files\.sha256: \d\.\d{3} s, RemoteError$", err, re.M)
    assert re.search(r"INFO .*lab1: sent source\.txt, 7 bytes: \d\.\d{3} s$", err, re.M)
    assert re.search(r"INFO .*lab1: fetched back\.txt: \d\.\d{3} s$", err, re.M)
    assert "untold" not in err
