"""A fleet's accounts, page, JUnit and summary: they add up, and hold nothing that anyone forged."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from defusedxml.ElementTree import parse
from fleet_shown import BEGAN, GONE, cell, hard, history, machine

from pipelines.fleet import report
from pipelines.fleet.history import FleetHistory, host_accounts
from pipelines.fleet.model import Span, Task, TaskEntry, TaskState

H = 3600.0


def task(key: str, state: TaskState = "done", **keys: object) -> TaskEntry:
    given = {"key": key, "kind": "cell", "cell": key.partition("/")[0], "core_seconds": 1}
    made = Task.model_validate(given | {"width": 16} | keys)
    return TaskEntry(made, state)


def span(key: str, host: str, begin: float, end: float | None, **keys: object) -> Span:
    given = {"key": key, "kind": "cell", "host": host, "began": BEGAN + begin, "outcome": "done"}
    return Span.model_validate(given | {"ended": None if end is None else BEGAN + end} | keys)


def test_what_hosts_did() -> None:
    told = FleetHistory(
        name="f",
        began=BEGAN,
        machines=(machine(1), machine(2)),
        tasks=tuple(task(key) for key in "abc"),
        spans=(
            span("a", "lab1", 0, 2 * H),
            span("b", "lab1", H, 3 * H),
            span("c", "lab1", 4 * H, 5 * H),
        ),
    )
    lab1, lab2 = host_accounts(told)
    assert (lab1.busy, lab2.busy) == (4 * H, 0)  # lab2 never did anything
    assert lab1.utilisation == pytest.approx(5 / 10)  # of two slots for five hours
    assert report.report_of(told).utilisation == pytest.approx(5 / 20)


def test_clocks_that_run_backwards() -> None:
    told = hard()
    assert told.seconds >= 0
    assert all(one.busy >= 0 for one in host_accounts(told))
    assert all(one.seconds >= 0 for one in report.report_of(told).cells)
    early = span("a", "lab1", -3 * H, -H)
    before = FleetHistory(name="f", began=BEGAN, machines=(machine(1),), spans=(early,))
    assert before.bounds == (BEGAN - 3 * H, BEGAN)
    assert "at an unknown time" not in report.render(before)
    assert report.when(1e300) == "at an unknown time"
    assert "<svg" in report.render(dataclasses.replace(before, began=1e300))


def test_nothing_to_do() -> None:
    empty = FleetHistory(name="f", began=BEGAN, ended=BEGAN)
    made = report.render(empty)
    assert "Nothing to do" in made
    assert "There was nothing to do." in made
    assert report.suite(empty).cases == ()
    assert report.summary(empty).startswith("## Nothing to do")


def test_what_did_not_end_well_is_said_first() -> None:
    told = history(4, 40)
    made = report.render(told)
    assert "38 of 40 cells done" in made
    assert made.index("quarantined") < made.index("Hosts over time")
    assert GONE.message in made
    assert GONE.hint in made
    assert "its clock is 61 min ahead" in made
    assert made.index('<span aria-hidden="true">✗</span> failed') < made.index(
        '<span aria-hidden="true">✓</span> done'
    )
    good = dataclasses.replace(
        told, tasks=tuple(dataclasses.replace(one, state="done") for one in told.tasks)
    )
    assert "All 40 cells done" in report.render(good)


def test_a_cell_is_as_good_as_its_worst_task() -> None:
    told = FleetHistory(
        name="f",
        began=BEGAN,
        tasks=(task("a"), task("a/test", "waiting", kind="test"), task("b"), task("c", "blocked")),
    )
    states = {one.cell: one.state for one in report.report_of(told).cells}
    assert states == {"a": "waiting", "b": "done", "c": "blocked"}
    outcomes = {one.name: one.outcome for one in report.suite(told).cases}
    assert outcomes == {"a": "passed", "a/test": "skipped", "b": "passed", "c": "error"}


@pytest.mark.slow
def test_two_hundred_hosts_fit_a_page() -> None:
    made = report.render(history(200, 5000))
    assert len(made.encode()) < 2_000_000
    assert "600 of 5000 cells" in made
    assert made.count('class="name"') == 200
    assert made.count("<rect") > 1000
    assert made == report.render(history(200, 5000))


def test_nobody_writes_into_the_page() -> None:
    made = report.render(hard())
    assert "<script" not in made
    assert not re.search("[\x00-\x08\x1b\u202e]", made)
    assert "NaN" not in made
    document = report.suite(hard())
    assert document.cases[0].outcome == "failed"
    said = report.summary(hard())
    assert "<script" not in said
    assert "\x1b" not in said
    assert "\n::" not in said


def test_only_pages_beside_the_fleet_are_linked(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "fleet-1"
    own = tmp_path / "out" / "a run"
    foreign = tmp_path / "elsewhere"
    for place in (folder, own, foreign):
        place.mkdir(parents=True)
        (place / "report.html").touch()
    link = tmp_path / "out" / "link"
    link.symlink_to(foreign)
    told = FleetHistory(
        name="f",
        began=BEGAN,
        machines=(machine(1),),
        tasks=tuple(task(key) for key in "abcd"),
        spans=(
            span("a", "lab1", 0, 1, run=str(own)),
            span("b", "lab1", 0, 1, run=str(foreign)),
            span("c", "lab1", 0, 1, run=str(link)),
            span("d", "lab1", 0, 1, run="\0"),
        ),
    )
    links = {one.cell: one.page for one in report.report_of(told, folder).cells}
    assert links == {"a": "../a%20run/report.html", "b": "", "c": "", "d": ""}
    assert 'href="../a%20run/report.html"' in report.render(told, folder)


def test_files_and_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = history(4, 40)
    made = report.write(told, tmp_path)
    assert made.read_text("utf-8") == report.render(told, tmp_path)
    root = parse(tmp_path / "junit.xml").getroot()
    assert root is not None
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("40", "1", "1")
    step = tmp_path / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    report.tell_github(told)
    said = step.read_text("utf-8")
    assert said == (tmp_path / "summary.md").read_text("utf-8")
    assert said.startswith("## 38 of 40 cells done")
    rows = [row for row in said.splitlines() if row.startswith("| flash")]
    assert len(rows) == 40
    assert "❌ failed" in rows[0]
    assert cell(39).replace("-", "\\-").replace(".", ".") in rows[0]
