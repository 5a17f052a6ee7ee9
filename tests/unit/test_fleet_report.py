"""A fleet's page, JUnit and summary: they have what is not done, and nothing that is forged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from defusedxml.ElementTree import parse
from fleet_shown import BEGAN, GONE, HOSTILE, WRONG, cell, machine
from report_samples import failed_build, good

from pipelines.cli.report import run_report
from pipelines.core.errors import ConfigError
from pipelines.core.target import Target
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Ended, Outcome, Task, TaskState
from pipelines.record.results import ErrorResult


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.create(tmp_path / "out", "order", at=BEGAN, durable=False)
    yield made
    made.close()


def put(
    ledger: Ledger, state: TaskState, run: Path | None = None, error: ErrorResult | None = None
) -> str:
    """A cell in that state, with its attempt."""
    number = len(ledger.tasks())
    target = Target(recipe="flash-attn", version="2.8.3", python=f"3.{number}", torch="2.8")
    task = Task(key=cell(number), kind="cell", cell=cell(number), target=target, core_seconds=1)
    ledger.put([*(one.task for one in ledger.tasks()), task], [machine(1)], BEGAN)
    entry = next(one for one in ledger.tasks() if one.task.key == task.key)
    outcome: Outcome = "done" if state == "done" else "lost" if error is GONE else "failed"
    with ledger.change(BEGAN) as change:
        change.begin(task.key, 1, "lab1")
        change.end(Ended(key=task.key, host="lab1", attempt=1, outcome=outcome, run=str(run or "")))
        change.task(entry, state=state, error=error, host="lab1", attempt=1)
    return task.key


def test_what_is_not_done_is_in_every_report(ledger: Ledger) -> None:
    out = ledger.path.parent
    put(ledger, "done", good(out).path)
    put(ledger, "failed", failed_build(out).path, WRONG)
    lost = put(ledger, "quarantined", None, GONE)
    put(ledger, "waiting")
    page = run_report([str(ledger.path)])
    assert page == ledger.path / "report.html"
    text, summary = page.read_text("utf-8"), (ledger.path / "summary.md").read_text("utf-8")
    assert "1 of 4 runs passed" in text
    assert GONE.message in text
    assert lost in text
    assert summary.startswith("## 1 of 4 runs passed")
    root = parse(ledger.path / "junit.xml").getroot()
    assert root is not None
    assert int(str(root.get("errors"))) + int(str(root.get("failures"))) >= 3


def test_a_done_cell_whose_run_is_gone_or_damaged_is_not_passed(ledger: Ledger) -> None:
    put(ledger, "done", ledger.path.parent / "2026-none")
    damaged = good(ledger.path.parent).path
    put(ledger, "done", damaged)
    for file in damaged.glob("record.sqlite*"):
        file.unlink()
    (damaged / "record.sqlite").write_bytes(b"no database " * 400)
    text = run_report([str(ledger.path)]).read_text("utf-8")
    assert "its run was removed" in text
    assert "0 of 2 runs passed" in text


def test_a_good_run_of_a_task_that_failed_is_not_its_report(ledger: Ledger) -> None:
    """Such as a wheel whose test was lost: its run says nothing of that."""
    put(ledger, "blocked", good(ledger.path.parent).path, GONE)
    assert "0 of 1 runs" not in (text := run_report([str(ledger.path)]).read_text("utf-8"))
    assert "Failed" in text
    assert GONE.message in text


def test_a_ledger_names_no_run_elsewhere(ledger: Ledger, tmp_path: Path) -> None:
    run = good(tmp_path / "elsewhere").path
    (link := ledger.path.parent / "link").symlink_to(run)
    for place in (run, link):
        put(ledger, "done", place)
    text = run_report([str(ledger.path)]).read_text("utf-8")
    assert text.count("its run was removed") >= 2
    assert "../elsewhere" not in text


def test_nobody_writes_into_the_page(ledger: Ledger) -> None:
    hostile = WRONG.model_copy(update={"message": HOSTILE, "hint": HOSTILE})
    put(ledger, "failed", None, hostile)
    text = run_report([str(ledger.path)]).read_text("utf-8")
    said = (ledger.path / "summary.md").read_text("utf-8")
    for made in (text, said):
        assert "<script" not in made
        assert "\x1b" not in made
        assert "\n::" not in made


def test_nothing_to_report(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match="has no tasks"):
        run_report([str(ledger.path)])
