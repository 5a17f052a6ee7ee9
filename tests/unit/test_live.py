"""The session that a line's stages share, and the line that leaves the host as it was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plans import Lab, at_desk
from sessions import Here

from pipelines.hosts.live import LiveSession
from pipelines.record.results import (
    StageRecord,
)
from pipelines.record.run import Run
from pipelines.remote import facts as remote_facts
from pipelines.remote import files
from pipelines.session.base import Progress, Session


class Restarted(Lab):
    """A host whose restart gives another session."""

    def restart(self, session: Session) -> Session:
        super().restart(session)
        self.session = Here(answers={remote_facts.facts: {"python": "new"}})
        return self.connect()


def told(**answers: Any) -> Here:
    return Here(answers={remote_facts.facts: answers})


def test_a_host_is_connected_once_and_when_it_is_needed() -> None:
    host = Lab(told(python="old"))
    live = LiveSession(host)
    assert host.connects == 0
    assert [live.facts["python"] for _ in range(2)] == ["old", "old"]
    assert live.call(files.stat, path="/not/there") is None
    assert host.connects == 1
    assert host.session.times(remote_facts.facts) == 1


def test_a_restart_leaves_nothing_of_the_old_windows() -> None:
    old = told(python="old")
    host = Restarted(old)
    live = LiveSession(host)
    assert live.facts["python"] == "old"
    live.restart()
    assert live.facts["python"] == "new"
    assert live.connect() is host.session is not old
    assert (host.restarts, host.connects) == (1, 2)


def test_progress_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def transfer(*_: object, progress: Progress | None = None) -> str:
        told.append(progress)
        return "sha"

    monkeypatch.setattr(Here, "put", transfer)
    monkeypatch.setattr(Here, "get", transfer)
    live = LiveSession(Lab(Here()))
    assert live.put(tmp_path, "t", progress=print) == "sha"
    assert live.get("s", tmp_path, progress=print) == "sha"
    assert told == [print, print]


def test_a_session_is_left_once() -> None:
    host = Lab(told(python="old"))
    live = LiveSession(host)
    with live:
        assert live.facts
    assert (host.session.closed, host.closed) == (1, 1)
    live.close()
    assert (host.session.closed, host.closed) == (1, 2), "a host minds no second time"
    assert live.facts
    assert host.connects == 2


def test_a_host_that_nobody_connected_is_closed_as_well() -> None:
    """It may have been started to be asked something."""
    host = Lab()
    LiveSession(host).close()
    assert host.closed == 1


def test_a_session_that_does_not_close_leaves_no_host_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def close(_: Here) -> None:
        raise OSError("broken")

    monkeypatch.setattr(Here, "close", close)
    host = Lab(Here())
    live = LiveSession(host)
    live.connect()
    with pytest.raises(OSError, match="broken"):
        live.close()
    assert host.closed == 1


@pytest.mark.parametrize("broken", [True, False])
def test_a_line_leaves_its_host_and_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    def close(_: Here) -> None:
        if broken:
            raise OSError("broken")

    monkeypatch.setattr(Here, "close", close)
    line, _ = at_desk(tmp_path)
    run = line.begin_run()
    run.put_stage(StageRecord(name="build", state="interrupted", started=1.0))
    line.session.connect()
    assert Run.take_up(line.plan.out, line.plan.facts) is None, "somebody is at it"
    if broken:
        with pytest.raises(OSError, match="broken"):
            line.close()
    else:
        line.close()
    host = line.plan.host
    assert isinstance(host, Lab)
    assert host.closed == 1
    assert Run.take_up(line.plan.out, line.plan.facts) is not None
