"""``invoke jobs``: what a host says of its jobs, as people see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.core.errors import ConfigError
from pipelines.remote import rpc
from pipelines.stages import jobs

RUNNING = {
    "id": "79a4b4bca157",
    "directory": r"C:\b\79a4b4bca157",
    "title": "smoke-attention-cp311",
    "state": "running",
    "attempt": 2,
    "started": 1795248465.4,
    "way": "breakaway",
    "result": None,
    "log_size": 3,
}
ENDED = RUNNING | {
    "id": "79ffffffffff",
    "directory": r"C:\b\79ffffffffff",
    "state": "ended",
    "result": {
        "attempt": 2,
        "ended": 1795248465.4 + 3725,
        "cancelled": False,
        "result": {"exit": 3},
    },
}
HOSTILE = RUNNING | {
    "id": "evil\x1b]0;x\x07",
    "title": "::error::[red]a\r\nb[/red]",
    "way": "x" * 5000,
}


@dataclass
class FakeSession:
    answers: dict[str, Any]
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def call(self, asked: Callable[..., object], /, **arguments: Any) -> Any:
        function = rpc.name_of(asked)
        self.asked.append((function, arguments))
        return self.answers[function]

    def stream(self, asked: Callable[..., object], /, **arguments: Any) -> Iterator[Any]:
        function = rpc.name_of(asked)
        self.asked.append((function, arguments))
        yield from self.answers[function]


def line(*listed: dict[str, Any], **answers: Any) -> Any:
    """As much of a line as the command looks at."""
    plan = SimpleNamespace(
        host=SimpleNamespace(name="lab1", inspect_only=bool, unmade=str),
        layout=SimpleNamespace(build_root=r"C:\b"),
    )
    session = FakeSession({"jobs.store.listed": list(listed), **answers})
    return SimpleNamespace(plan=plan, session=session)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    jobs.show(line(RUNNING, ENDED))
    said = " ".join(capsys.readouterr().out.split())
    assert "79a4b4bca157" in said
    assert "ended, exit 3" in said
    assert "1 h 02 min" in said


def test_jobs_for_programs() -> None:
    document = jobs.as_json(line(RUNNING, ENDED, HOSTILE))
    running, ended, hostile = document["jobs"]
    assert (document["schema"], document["host"]) == (1, "lab1")
    assert running == {
        "id": "79a4b4bca157",
        "what": "smoke-attention-cp311",
        "state": "running",
        "attempt": 2,
        "started": 1795248465.4,
        "ended": None,
        "exit": None,
        "cancelled": False,
        "directory": r"C:\b\79a4b4bca157",
        "way": "breakaway",
    }
    assert (ended["ended"], ended["exit"]) == (1795248465.4 + 3725, 3)
    assert "\x1b" not in json.dumps(hostile)
    assert len(json.dumps(hostile)) < 2000
    assert jobs.as_json(line())["jobs"] == []


def test_no_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    jobs.show(line())
    assert capsys.readouterr().out == "no jobs on lab1\n"
    unmade = line(RUNNING)
    unmade.plan.host.unmade = lambda: "not yet"
    jobs.show(unmade)  # nothing is made in order to look
    assert capsys.readouterr().out == "no jobs on lab1: not yet\n"
    assert unmade.session.asked == []


def test_what_a_host_says_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    jobs.show(line(HOSTILE))
    said = capsys.readouterr().out
    assert "\x1b]0" not in said
    assert "\n::error" not in said
    assert "[red]" in "".join(said.split())
    assert len(said) < 5000


@pytest.mark.parametrize(
    "damage",
    [
        {"started": 1e300},
        {"started": "x"},
        {"result": [1]},
        {"attempt": -1},
        {"state": "[bold]"},
        {"state": "ended"},
        {"id": None},
        {"directory": 3},
    ],
)
def test_a_damaged_job_hides_no_other(
    damage: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.show(line(RUNNING | damage, ENDED))
    said = capsys.readouterr().out
    assert "invalid job state" in said
    assert "79ffffffffff" in said


def test_a_job_is_named_by_the_beginning_of_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    outcome: dict[str, Any] = {"attempt": 2, "ended": 0.0, "cancelled": True, "result": {}}
    cancelled = ENDED | {"result": outcome}
    fake = line(RUNNING, ENDED, **{"jobs.follow.cancel": cancelled})
    jobs.cancel(fake, "79a4")
    assert fake.session.asked[-1] == ("jobs.follow.cancel", {"directory": r"C:\b\79a4b4bca157"})
    assert "cancelled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "why"), [("79", "more than one job"), ("x", "no job"), ("", "no job")]
)
def test_no_such_job(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        jobs.cancel(line(RUNNING, ENDED), name)
    assert "79a4b4bca157, 79ffffffffff" in caught.value.hint


def test_following(capsys: pytest.CaptureFixture[str]) -> None:
    items = [b"one\ntw", b"", b"o\n\x1b[2Jthree\n", ENDED]
    fake = line(ENDED, **{"jobs.follow.follow": items})
    jobs.follow(fake, "79f")
    said = capsys.readouterr().out
    assert [line[2:] for line in said.splitlines()[:3]] == ["one", "two", "three"]
    assert said.endswith("79ffffffffff: ended, exit 3\n")
