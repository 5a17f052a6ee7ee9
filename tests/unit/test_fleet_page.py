"""A fleet's accounts, page, JUnit and summary: they add up, and hold nothing that anyone forged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from defusedxml.ElementTree import parse
from fleet_shown import BEGAN, GONE, cell, hard, history, machine

from pipelines.fleet import page, results
from pipelines.fleet.accounts import account
from pipelines.fleet.model import (
    Finished,
    FleetHistory,
    Span,
    Stand,
    Stretch,
    Work,
)

H = 3600.0


def work(key: str, stand: Stand = "done", **keys: object) -> Finished:
    given = {"key": key, "kind": "cell", "cell": key.partition("/")[0], "core_seconds": 1}
    made = Work.model_validate(given | {"width": 16} | keys)
    return Finished(work=made, stand=stand, queued=BEGAN)


def span(key: str, host: str, begin: float, end: float | None, **keys: object) -> Span:
    given = {"key": key, "kind": "cell", "host": host, "began": BEGAN + begin, "outcome": "done"}
    return Span.model_validate(given | {"ended": None if end is None else BEGAN + end} | keys)


def test_works_that_share_a_host_share_its_price() -> None:
    spans = (
        span("a", "lab1", 0, 2 * H),
        span("b", "lab1", H, 3 * H),
        span("c", "lab1", 4 * H, 5 * H),
    )
    told = account(
        FleetHistory(
            name="f",
            began=BEGAN,
            machines=(machine(1, price=2.0), machine(2, price=9.0)),
            works=tuple(work(key) for key in "abc"),
            spans=spans,
        )
    )
    lab1, lab2 = told.hosts
    assert (lab1.busy, lab1.paid, lab1.cost) == (4 * H, 5 * H, 10.0)
    assert (lab2.busy, lab2.paid, lab2.cost) == (0, 0, 0)  # it never did anything
    assert [one.cost for one in told.cells] == [3.0, 3.0, 2.0]
    assert told.idle_cost == 2.0
    assert sum(one.cost for one in told.cells) + told.idle_cost == told.cost
    assert lab1.utilisation == pytest.approx(5 / 10)  # of two slots for five hours
    assert told.utilisation == pytest.approx(5 / 20)
    # Five hours of a slot, which has 8 of the 16 cores.
    assert told.alone is not None
    assert told.alone.seconds == pytest.approx(2.5 * H)


def test_a_host_that_is_given_back_is_not_paid_for() -> None:
    made = machine(1, price=1.0, made=True)
    stretches = (
        Stretch(host="lab1", standing="starting", began=BEGAN, ended=BEGAN + H),
        Stretch(host="lab1", standing="off", began=BEGAN + 2 * H, ended=BEGAN + 6 * H),
        Stretch(host="lab1", standing="lost", began=BEGAN + 7 * H, ended=BEGAN + 8 * H),
    )
    spans = (span("a", "lab1", H, 2 * H), span("b", "lab1", 6 * H, 7 * H, outcome="lost"))
    told = account(
        FleetHistory(
            name="f",
            began=BEGAN,
            machines=(made,),
            works=(work("a"), work("b", "waiting")),
            spans=spans,
            stretches=stretches,
        )
    )
    (host,) = told.hosts
    assert (host.paid, host.starting, host.away) == (3 * H, H, H)
    assert (host.cost, told.idle_cost, told.lost_cost) == (3.0, 1.0, 1.0)
    assert told.seconds == 8 * H


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_are_the_whole(seed: int) -> None:
    told = account(history(9, 150, seed=seed))
    assert sum(one.cost for one in told.cells) + told.idle_cost == pytest.approx(told.cost)
    assert all(0 <= host.utilisation <= 1 for host in told.hosts)
    assert all(host.busy <= host.paid <= told.seconds for host in told.hosts)
    assert 0 < told.lost_cost < told.cost
    assert told.alone is not None
    assert told.alone.seconds > told.seconds


def test_clocks_that_run_backwards() -> None:
    told = account(hard())
    assert told.seconds >= 0
    assert all(host.busy >= 0 and host.cost >= 0 for host in told.hosts)
    assert all(one.host_seconds >= 0 and one.waited >= 0 for one in told.cells)
    early = span("a", "lab1", -3 * H, -H)
    before = FleetHistory(name="f", began=BEGAN, machines=(machine(1),), spans=(early,))
    assert account(before).seconds == 3 * H
    assert account(before).began == BEGAN - 3 * H
    huge = before.model_copy(update={"began": 1e300})
    assert "at an unknown time" not in page.render(before)
    assert page.when(1e300) == "at an unknown time"
    assert "<svg" in page.render(huge)


def test_nothing_to_do() -> None:
    empty = FleetHistory(name="f", began=BEGAN, ended=BEGAN)
    made = page.render(empty)
    assert "Nothing to do" in made
    assert "There was nothing to do." in made
    assert account(empty).alone is None
    assert results.suite(empty).cases == ()
    assert results.summary(empty).startswith("## Nothing to do")


def test_what_did_not_end_well_is_said_first() -> None:
    told = history(4, 40)
    made = page.render(told)
    assert "38 of 40 cells done" in made
    assert made.index("quarantined") < made.index("Hosts over time")
    assert GONE.message in made
    assert GONE.advice in made
    assert "its clock is 61 min ahead" in made
    assert made.index('<span aria-hidden="true">✗</span> failed') < made.index(
        '<span aria-hidden="true">✓</span> done'
    )
    every = history(4, 40).works
    good = told.model_copy(
        update={"works": tuple(one.model_copy(update={"stand": "done"}) for one in every)}
    )
    assert "All 40 cells done" in page.render(good)


def test_a_cell_is_as_good_as_its_worst_work() -> None:
    told = FleetHistory(
        name="f",
        began=BEGAN,
        works=(work("a"), work("a/test", "waiting", kind="test"), work("b"), work("c", "blocked")),
    )
    stands = {one.cell: one.stand for one in page.cells(account(told))}
    assert stands == {"a": "waiting", "b": "done", "c": "blocked"}
    outcomes = {one.name: one.outcome for one in results.suite(told).cases}
    assert outcomes == {"a": "passed", "a/test": "skipped", "b": "passed", "c": "error"}


def test_two_hundred_hosts_fit_a_page() -> None:
    made = page.render(history(200, 5000))
    assert len(made.encode()) < 2_000_000
    assert "600 of 5000 cells" in made
    assert made.count('class="name"') == 200
    assert made.count("<rect") > 1000
    assert 'class="k0" d="M' in made  # the shortest are one path
    assert made == page.render(history(200, 5000))


def test_nobody_writes_into_the_page() -> None:
    made = page.render(hard())
    assert "<script" not in made
    assert not re.search("[\x00-\x08\x1b\u202e]", made)
    assert "NaN" not in made
    document = results.suite(hard())
    assert document.cases[0].outcome == "failed"
    said = results.summary(hard())
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
        works=tuple(work(key) for key in "abcd"),
        spans=(
            span("a", "lab1", 0, 1, run=str(own)),
            span("b", "lab1", 0, 1, run=str(foreign)),
            span("c", "lab1", 0, 1, run=str(link)),
            span("d", "lab1", 0, 1, run="\0"),
        ),
    )
    links = {one.cell: one.page for one in page.cells(account(told), folder)}
    assert links == {"a": "../a%20run/report.html", "b": "", "c": "", "d": ""}
    assert 'href="../a%20run/report.html"' in page.render(told, folder)


def test_files_and_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = history(4, 40)
    made = results.write(told, tmp_path)
    assert made.read_text("utf-8") == page.render(told, tmp_path)
    root = parse(tmp_path / "junit.xml").getroot()
    assert root is not None
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("40", "1", "1")
    step = tmp_path / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    results.tell_github(told)
    said = step.read_text("utf-8")
    assert said == (tmp_path / "summary.md").read_text("utf-8")
    assert said.startswith("## 38 of 40 cells done")
    rows = [row for row in said.splitlines() if row.startswith("| flash")]
    assert len(rows) == 40
    assert "❌ failed" in rows[0]
    assert cell(39).replace("-", "\\-").replace(".", ".") in rows[0]
