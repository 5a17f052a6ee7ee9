"""``invoke runs``: what there is, so that runs can be distinguished; and freeing their space."""

from __future__ import annotations

import io
import json
import shutil
import time
from pathlib import Path

import pytest
import report_samples as samples
from rich.console import Console

from pipelines.cli import program
from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.target import Target
from pipelines.record.results import RunFacts
from pipelines.record.run import Run
from pipelines.reports import runs as listing
from pipelines.reports.runs import remove_runs, runs_in, to_remove

DAY = 86400.0


def run(out: Path, *, days: float = 0.0, archs: str = "80", cuda: str = "12.8") -> Run:
    """A run that began so long ago, and was left by its process."""
    facts = RunFacts(
        target=Target(
            host="h", recipe="demo", python="3.11", cuda=cuda, archs=parse_arch_list(archs)
        )
    )
    made = Run.create(out, facts)
    made.close()
    if not days:
        return made
    began = time.strftime("%Y%m%d-%H%M%S", time.gmtime(time.time() - days * DAY))
    there = out / f"{began}-{made.id[16:]}"
    made.path.rename(there)
    (out / "latest").unlink(missing_ok=True)
    return Run(there)


def typed(*words: str) -> int:
    return program.run_command_line(["runs", *words])


def test_runs_are_told_apart(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(out, cuda="12.8", archs="80"), run(out, cuda="13.0", archs="80"), run(out, archs="90+PTX")
    assert typed() == 0
    said = [row.split() for row in capsys.readouterr().out.splitlines()[1:4]]
    assert len({row[0][16:] + row[1] for row in said}) == 3
    assert [row[1] for row in said].count("90+PTX") == 1
    assert "cu130" in "".join(row[0] for row in said)


def test_the_latest_is_first_and_each_says_what_became_of_it(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = samples.good(out), samples.failed_build(out)
    for one in (first, second):
        one.close()
    assert typed("--json") == 0
    told = json.loads(capsys.readouterr().out)["runs"]
    assert [row["run"] for row in told] == sorted([first.id, second.id], reverse=True)
    by_name = {row["run"]: row for row in told}
    good = by_name[first.id]
    assert (good["verdict"], by_name[second.id]["verdict"]) == ("passed", "failed")
    assert good["recipe"] == "flash-attn"
    assert good["archs"] == "80;86;89;90"
    assert good["seconds"] > 0
    sizes = [path.stat().st_size for path in first.path.rglob("*") if path.is_file()]
    assert good["bytes"] == pytest.approx(sum(sizes), rel=0.2)
    assert [row["latest"] for row in told].count(True) == 1


def test_nothing_wraps_in_80_columns(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.good(out)
    screen = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(listing, "console", screen)
    without = listing.print_run_table(runs_in(out))
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert runs_in(out)[0].path.name in lines[1], "whole: it is typed"
    assert set(without) <= {"evidence", "took", "size"}


def test_a_damaged_record_hides_no_other(out: Path) -> None:
    whole, damaged = run(out, cuda="12.8"), run(out, cuda="13.0")
    (damaged.path / "record.sqlite").write_bytes(b"no database")
    told = {one.path.name: one.brief for one in runs_in(out)}
    assert told[damaged.id].verdict == "unfinished"
    assert "no readable record" in told[damaged.id].headline
    assert told[whole.id].facts.target.cuda == "12.8"


def test_a_name_that_is_no_time(out: Path) -> None:
    odd = run(out)
    odd.path.rename(out / "20269999-996161-odd")
    (out / "latest").unlink(missing_ok=True)
    (one,) = runs_in(out)
    assert abs(one.began - time.time()) < 60


def test_none(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed() == 0
    assert capsys.readouterr().out.startswith("0 runs")
    assert typed("--json") == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "runs": []}


# -- giving room back ------------------------------------------------------------------------------


def names(runs: list[listing.PastRun]) -> set[str]:
    return {one.path.name for one in runs}


def test_old_ones_go_and_what_is_freed_is_said(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = run(out, days=20), run(out)
    (old.path / "wheels").mkdir()
    (old.path / "wheels" / "a.whl").write_bytes(bytes(3 << 20))
    assert typed("--prune", "--dry-run") == 0
    said = capsys.readouterr().out
    assert old.id in said
    assert new.id not in said
    assert "1 run would be removed, 3.0 MiB to be freed" in said
    assert old.path.exists()
    assert typed("--prune") == 0
    assert "1 run removed, 3.0 MiB freed" in capsys.readouterr().out
    assert not old.path.exists()
    assert Run.open(out).id == new.id


def test_days_and_a_number(out: Path) -> None:
    ages = (30, 20, 10, 1)
    made = {age: run(out, days=age).id for age in ages} | {0: run(out).id}
    there = runs_in(out)
    assert names(to_remove(there, days=15)) == {made[30], made[20]}
    assert names(to_remove(there, keep=2)) == {made[30], made[20], made[10]}
    assert names(to_remove(there, days=15, keep=4)) == {made[30]}
    assert names(to_remove(there, keep=0)) == {made[age] for age in ages}, "never the latest"
    ahead = run(out, days=-1).id  # the clock was wrong
    run(out)
    assert ahead in names(to_remove(runs_in(out), keep=0))


def test_the_only_one_stays(out: Path) -> None:
    run(out, days=100)
    assert to_remove(runs_in(out), days=1) == []


def test_what_latest_means_stays_however_old(out: Path) -> None:
    old, new = run(out, days=50), run(out, days=40)
    (out / "latest").symlink_to(old.id)  # it was taken up again
    assert names(to_remove(runs_in(out), days=1)) == {new.id}


def test_one_that_a_command_is_at_stays(out: Path) -> None:
    old = run(out, days=50)
    run(out)
    seen = runs_in(out)
    assert old.hold()
    try:
        assert [one.running for one in runs_in(out)] == [False, True]
        assert to_remove(runs_in(out), days=1) == []
        assert remove_runs(to_remove(seen, days=1)) == [], "it has begun since it was looked for"
        assert (old.path / "record.sqlite").exists()
    finally:
        old.close()
    assert names(remove_runs(to_remove(seen, days=1))) == {old.id}


def test_a_run_is_held_while_it_is_tested(tmp_path: Path) -> None:
    from plans import at_desk

    from pipelines.core.errors import BuildError
    from pipelines.stages.line import run_test

    line, _ = at_desk(tmp_path)
    Run.create(line.plan.out, line.plan.facts).close()
    with pytest.raises(BuildError, match="has no wheel that passed"):
        run_test(line)
    assert [one.running for one in runs_in(line.plan.out)] == [True]
    line.close()
    assert [one.running for one in runs_in(line.plan.out)] == [False]


def test_copies_and_other_things_are_left_alone(out: Path) -> None:
    old = run(out, days=50)
    run(out)
    shutil.copytree(old.path, out / "evidence")
    (out / "provision").mkdir()
    remove_runs(to_remove(runs_in(out), days=1))
    assert {path.name for path in out.iterdir()} >= {"evidence", "provision", "latest"}
    assert (out / "evidence" / "record.sqlite").is_file()


def test_what_was_ended_while_removing_is_no_run(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = run(out, days=50)
    run(out)
    (old.path / "wheels").mkdir()

    def killed(path: Path, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove_runs(to_remove(runs_in(out), days=1))
    assert names(runs_in(out)).isdisjoint({old.id})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--keep", "3"), "Add --prune"),
        (("--prune", "--keep=-1"), "--keep -1: expected 0 or more"),
        (("--prune", "--keep", "few"), "--keep few: expected a whole number"),
        (("--prune", "--days", "0"), "--days 0: expected a number above 0"),
    ],
)
def test_flags_that_mean_nothing(
    out: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    old = run(out, days=50)
    assert typed(*words) == 2
    assert said in capsys.readouterr().err
    assert old.path.is_dir()


@pytest.mark.slow
def test_one_damaged_record_stops_nothing(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any byte of an old one's schema: it is named, and the others are as they were."""
    old, new = run(out, days=2), run(out)
    record = old.path / "record.sqlite"
    whole = record.read_bytes()
    page = [at for at in range(4096) if whole[at]]
    states = set()
    for number, at in enumerate(page):
        value = (0, 0xF7, whole[at] ^ 1)[number % 3]
        record.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        rows = runs_in(out)
        assert [row.path.name for row in rows] == [new.path.name, old.path.name]
        states.add(rows[1].brief.headline)
        assert Run.cut_off_of(out, new.facts()) is None
    assert len(states) > 1
    assert program.run_command_line(["runs"]) == 0
    assert old.id in capsys.readouterr().out
