"""A matrix in one command: its cells one after another, one report, one exit code."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from plans import Lab, at_desk
from sessions import Here
from wheels import packed_here

from pipelines.cli import program
from pipelines.core.errors import (
    AuthError,
    BuildError,
    ConfigError,
    HostError,
    PipelineError,
    SmokeError,
    StorageError,
    TimeUpError,
)
from pipelines.core.units import GIB
from pipelines.hosts.base import Host, HostConfig, OpenOptions
from pipelines.hosts.kinds import KINDS
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.record.results import RunFacts
from pipelines.record.run import Run
from pipelines.remote import builder, limits
from pipelines.stages.line import Line, run_build, run_test
from pipelines.stages.matrix import Cell, CellsError, Matrix


def good(tmp_path: Path) -> Callable[..., Iterator[Any]]:
    """A build that leaves the wheel that is asked for."""

    def job(spec: dict[str, Any]) -> Iterator[Any]:
        yield b"[1/1] unit\n"
        yield {"exit": 0, "wheels": [builder.left(packed_here(tmp_path, spec))]}

    return job


def bad(spec: dict[str, Any]) -> Iterator[Any]:
    yield b"no such header\n"
    yield {"exit": 1}


def matrix(tmp_path: Path, *jobs: Callable[..., Any], minutes: float | None = None) -> Matrix:
    """A cell a job, called a, b, c, each with a session of its own."""
    made = [at_desk(tmp_path, job)[0] for job in jobs]
    return Matrix([Cell(name, line) for name, line in zip("abc", made, strict=False)], {}, minutes)


def raising(*errors: PipelineError | None) -> Callable[[Line], None]:
    """A step that ends so, cell after cell."""
    left = iter(errors)

    def step(line: Line) -> None:
        if error := next(left):
            raise error

    return step


# -- one after another -----------------------------------------------------------------------------


def test_a_cell_that_fails_ends_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = matrix(tmp_path, good(tmp_path), bad, good(tmp_path))
    cells.each(run_build)
    said = capsys.readouterr()
    assert "cell 1 of 3: a: not tested, " in said.out
    assert "cell 2 of 3: b: failed, " in said.out
    assert "cell 3 of 3: c: not tested, " in said.out
    assert "no such header" in said.err, "why, when it comes"
    assert [type(cell.error) for cell in cells.cells] == [type(None), BuildError, type(None)]
    assert len({cell.line.run.path for cell in cells.cells}) == 3, "each is a run of its own"
    with pytest.raises(CellsError, match=r"1 of 3 cells failed: b \(build\)") as caught:
        cells.require_all()
    assert caught.value.exit_code == BuildError.exit_code


def test_one_report_tells_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = matrix(tmp_path, good(tmp_path), bad)
    cells.each(run_build)
    capsys.readouterr()
    cells.tell()
    said = capsys.readouterr().out
    out = tmp_path / "out"
    page = (out / "report.html").read_text()
    summary = (out / "summary.md").read_text()
    for cell in cells.cells:
        assert cell.line.run.id in said
        assert cell.line.run.id in page
    assert "failed" in summary
    junit = ET.parse(out / "junit.xml").getroot()  # noqa: S314 - ours
    assert int(junit.get("failures", "0")) + int(junit.get("errors", "0")) >= 1
    one = [ET.parse(c.line.run.path / "junit.xml").getroot() for c in cells.cells]  # noqa: S314
    assert int(junit.get("tests", "0")) == sum(int(each.get("tests", "0")) for each in one)
    cells.tell()
    assert capsys.readouterr().out == "", "once"


def test_without_a_report_of_all_it_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of an earlier matrix may be there: whoever reads it takes it for this one's."""

    def full(*_: object) -> Path:
        raise StorageError("the disk is full")

    monkeypatch.setattr("pipelines.stages.matrix.write_summary_pages", full)
    cells = matrix(tmp_path, good(tmp_path))
    cells.each(run_build)
    cells.tell()
    with pytest.raises(StorageError, match="full"):
        cells.require_all()


def test_what_failed_is_not_gone_on_with(tmp_path: Path) -> None:
    cells = matrix(tmp_path, good(tmp_path), bad)
    cells.each(run_build)
    tested: list[Line] = []
    cells.each(tested.append)
    assert tested == [cells.cells[0].line]


def test_the_worst_decides_how_it_is_left(tmp_path: Path) -> None:
    cells = matrix(tmp_path, bad, bad, bad)
    cells.each(raising(SmokeError("s"), BuildError("b"), TimeUpError("t")))
    with pytest.raises(CellsError, match="3 of 3 cells failed") as caught:
        cells.require_all()
    assert caught.value.exit_code == SmokeError.exit_code
    late = matrix(tmp_path, bad)
    late.each(raising(TimeUpError("t")))
    with pytest.raises(CellsError) as caught:
        late.require_all()
    assert caught.value.exit_code == TimeUpError.exit_code


def test_what_is_built_is_not_built_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = matrix(tmp_path, good(tmp_path))
    cells.each(run_build)
    assert "nothing was rebuilt" not in capsys.readouterr().out
    cells.each(run_build)
    assert "nothing was rebuilt, its inputs are those of an earlier build" in (
        capsys.readouterr().out
    )


def test_ctrl_c_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(spec: dict[str, Any]) -> Iterator[Any]:
        yield b"[1/2] unit\n"
        raise KeyboardInterrupt

    cells = matrix(tmp_path, good(tmp_path), interrupted, good(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        cells.each(run_build)
    cells.tell()
    said = capsys.readouterr().out
    assert "one report for 3 cells" in said
    assert "c: not started" in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert cells.cells[0].line.run.id in page
    assert "interrupted" in page
    assert "not started" in page


# -- time, hosts -----------------------------------------------------------------------------------


def test_the_minutes_are_for_all_cells_together(tmp_path: Path) -> None:
    given: list[float | None] = []

    def step(line: Line) -> None:
        given.append(line.plan.minutes)

    cells = matrix(tmp_path, bad, bad, minutes=10)
    cells.each(step)
    assert all(minutes is not None and 9 < minutes <= 10 for minutes in given)
    over = matrix(tmp_path, bad, bad, minutes=-1e-9)
    given.clear()
    over.each(step)
    assert given == []
    assert all(isinstance(cell.error, TimeUpError) for cell in over.cells)
    begun = matrix(tmp_path, bad, minutes=-1e-9)
    begun.cells[0].line.begin_run()
    begun.each(step)
    assert given == [1 / 60], "a cell that has begun goes on to its end"


class Gone(Lab):
    """A host that is lost with its first connection."""

    def connect(self) -> Any:
        if self.connects:
            raise HostError("no route")
        return super().connect()


def sharing(tmp_path: Path, host: Host) -> Matrix:
    """Two cells with one session."""
    cells = matrix(tmp_path, bad, bad)
    first, second = cells.cells
    first.line.session.host = host
    first.line.session.connect()
    second.line.session = first.line.session
    return cells


def test_a_host_that_is_lost_is_lost_to_all_its_cells(tmp_path: Path) -> None:
    cells = sharing(tmp_path, Gone(Here()))
    cells.each(raising(HostError("it went away"), None))
    assert "was not continued" in str(cells.cells[1].error)


@pytest.mark.parametrize(
    ("error", "failed", "connects"),
    [(HostError("nonsense"), [True, False], 2), (AuthError("no"), [True, True], 1)],
    ids=["a host that comes back goes on", "a refused sign-in is not tried again"],
)
def test_what_the_first_cell_says_of_the_second(
    tmp_path: Path, error: HostError, failed: list[bool], connects: int
) -> None:
    host = Lab(Here())
    cells = sharing(tmp_path, host)
    cells.each(raising(error, None))
    assert [bool(cell.error) for cell in cells.cells] == failed
    assert host.connects == connects


def test_the_run_of_another_cell_is_not_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = matrix(tmp_path, bad)
    (cell,) = cells.cells
    other = cell.line.plan.target.model_copy(update={"python": "3.9"})
    Run.create(cell.line.plan.out, RunFacts(target=other)).close()
    cells.each(run_test)
    assert isinstance(cell.error, ConfigError)
    assert not cell.line.begun
    cells.tell()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Python</dt><dd>3.9" not in page
    assert f"is for python 3.9, not {cell.line.plan.target.python}" in page
    assert "✗ failed" in capsys.readouterr().out


def test_a_cell_of_which_no_run_began_is_in_every_report(tmp_path: Path) -> None:
    cells = matrix(tmp_path, good(tmp_path), bad)

    def step(line: Line) -> None:
        if line is cells.cells[1].line:
            raise ConfigError("no such thing", hint="Mend it.")
        run_build(line)

    cells.each(step)
    assert not cells.cells[1].line.begun
    cells.tell()
    out = tmp_path / "out"
    junit = ET.parse(out / "junit.xml").getroot()  # noqa: S314 - ours
    assert int(junit.get("errors", "0")) == 1
    for name in ("report.html", "summary.md", "junit.xml"):
        assert "no such thing" in (out / name).read_text()
    assert "0 of 2 runs passed" in (out / "summary.md").read_text()


def test_nothing_of_an_earlier_matrix_stands_for_one_that_did_not_begin(tmp_path: Path) -> None:
    cells = matrix(tmp_path, good(tmp_path))
    cells.each(run_build)
    cells.tell()
    cells.close()
    again = matrix(tmp_path, bad)
    again.each(raising(ConfigError("no such thing")))
    again.tell()
    for name in ("report.html", "summary.md", "junit.xml"):
        assert "no such thing" in (tmp_path / "out" / name).read_text()


# -- as it is typed --------------------------------------------------------------------------------

OPENED: list[Lab] = []


class FakeConfig(HostConfig):
    kind: Literal["fake"]

    def open(self, name: str, given: OpenOptions) -> Host:
        host = Lab(Here())
        host.name = name
        OPENED.append(host)
        return host


class Typed:
    """What a command line did, cell by cell."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, BuildPlan]] = []
        self.fails: set[tuple[str, str]] = set()
        """Command and cell."""
        for name in ("run_provision", "run_build", "run_test"):
            monkeypatch.setattr(f"pipelines.stages.line.{name}", self.seen(name))

    def seen(self, name: str) -> Any:
        def run(line: Line, **_: Any) -> None:
            command = name.removeprefix("run_")
            self.done.append((command, line.plan))
            if (command, line.plan.target.cell) in self.fails:
                raise BuildError("no")

        return run

    @property
    def cells(self) -> list[str]:
        return [f"{name} {plan.target.cell}" for name, plan in self.done]

    def __call__(self, *words: str) -> int:
        return program.run_command_line(words)


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.setitem(KINDS, "fake", FakeConfig)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"default: {{host: one}}\nhosts: {{one: {{kind: fake}}}}\nout: '{tmp_path}/out'\n"
    )
    monkeypatch.setenv("WCW_CONFIG", str(path))
    monkeypatch.setattr(limits, "memory", lambda _: 16 * GIB)
    OPENED.clear()
    return Typed(monkeypatch)


def test_all_cells_are_built_then_tested(typed: Typed) -> None:
    assert typed("build", "test", "--select", "cp31[12]-*") == 0
    assert typed.cells == [
        "build cp311-cu130",
        "build cp312-cu130",
        "test cp311-cu130",
        "test cp312-cu130",
    ]
    assert len(OPENED) == 2, "a host of each Python"


def test_cells_that_share_a_python_share_a_session(typed: Typed) -> None:
    words = ("--python", "3.11", "--archs", "80|90", "--jobs", "3")
    assert typed("build", "--select", "*", *words) == 0
    assert [str(plan.target.archs) for _, plan in typed.done] == ["80", "90"]
    assert [plan.jobs for _, plan in typed.done] == [3, 3]
    assert len(OPENED) == 1


def test_a_cell_that_cannot_be_is_left_out_before_the_first_begins(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("build", "--select", "*", "--python", "3.11", "--cuda", "13.0,12.1") == 0
    said = capsys.readouterr().out
    assert typed.cells == ["build cp311-cu130"]
    assert "skipped cp311-cu121: " in said


def test_one_run_is_not_that_of_several_cells(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("build", "test", "--select", "*", "--run", "latest") == 2
    assert "--run names one run" in capsys.readouterr().err
    assert typed.done == [], "nothing was built before that was said"


def test_a_cell_that_is_named_is_not_left_out(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--python", "3.11", "--cuda", "13.0,12.1")
    assert typed("build", "--select", "cp311-cu130,cp311-cu121", *words) == 2
    assert "cp311-cu121 cannot be built: " in capsys.readouterr().err
    assert typed.done == [], "nothing was begun"


@pytest.mark.parametrize("said", ["", " ", ","])
def test_a_selection_of_nothing_is_not_one_of_everything(typed: Typed, said: str) -> None:
    assert typed("build", "--select", said) == 2
    assert typed("plan", f"--select={said}") == 2
    assert typed.done == []


@pytest.mark.parametrize(
    "flag", ["--archs", "--cuda", "--python", "--host", "-r", "--wheelhouse", "--for"]
)
def test_an_empty_value_is_not_the_default(
    typed: Typed, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("build", flag, "") == 2
    said = capsys.readouterr().err
    assert "its value is empty" in said
    assert flag in said or flag == "-r"
    assert typed.done == []


def test_nothing_that_can_be_built(typed: Typed, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("build", "--select", "*", "--python", "3.11", "--cuda", "12.1") == 2
    assert "none of 1 cells can be built" in capsys.readouterr().err
    assert typed("build", "--select", "cp27-*") == 2
    assert "no cell is called 'cp27-*'" in capsys.readouterr().err
    assert typed.done == []


def test_a_failure_decides_the_exit_code_and_is_not_tested(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    typed.fails = {("build", "cp311-cu130")}
    assert typed("build", "test", "--select", "cp31[12]-*") == BuildError.exit_code
    assert typed.cells == ["build cp311-cu130", "build cp312-cu130", "test cp312-cu130"]
    assert "matrix error: 1 of 2 cells failed: cp311-cu130 (build)" in capsys.readouterr().err


def test_a_single_cell_is_none(typed: Typed) -> None:
    assert typed("build", "test") == 0
    assert typed.cells == ["build cp311-cu130", "test cp311-cu130"]


# -- the verdict of one run ------------------------------------------------------------------------


def test_there_is_one_verdict_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, _ = at_desk(tmp_path, good(tmp_path))
    run_build(line)
    assert "not tested" not in capsys.readouterr().out
    line.tell()
    said = capsys.readouterr().out
    assert said.count("◐ not tested") == 1
    assert f"run {line.run.id}\n" in said
    line.tell()
    assert capsys.readouterr().out == ""


def test_a_test_takes_the_latest_run_of_its_own_cell(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path, good(tmp_path))
    mine = run_build(line)
    line.run.close()
    other, _ = at_desk(tmp_path, good(tmp_path))
    cell = other.plan.target.model_copy(update={"cuda": "12.8"})
    other.plan.__dict__["target"] = cell
    assert other.begin_run().path != mine
    again, _ = at_desk(tmp_path, good(tmp_path))
    assert again.run.path == mine
    with pytest.raises(PipelineError) as caught:
        run_test(again)  # there is no suite on this host: what matters is that it is this run
    assert "is for cuda" not in caught.value.message
