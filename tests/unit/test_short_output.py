"""What is right takes a line; what is not, or was requested with -v, is shown one by one."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import Lab, at_desk, line_for, plan_for, wanting
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from sessions import Here
from wheels import packed_here

from pipelines.core import console as consoles
from pipelines.core import logs
from pipelines.core.tables import Trimming, print_columns
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.recipe.load import load_recipe
from pipelines.remote import builder
from pipelines.remote import provision as remote
from pipelines.remote.jobs import follow as remote_follow
from pipelines.stages import jobs
from pipelines.stages.detached import Listed, validate_job_state
from pipelines.stages.line import PROVISION, Line, run_build, run_provision
from pipelines.stages.pace import Pace


@pytest.fixture
def detailed() -> Iterator[None]:
    logs.configure_logging(1)
    yield
    logs.configure_logging(0)
    logging.getLogger(logs.ROOT).setLevel(logging.NOTSET)


# -- provisioning ----------------------------------------------------------------------------------


def machine(tmp_path: Path, **found: bool) -> Line:
    """A host with these resources, as they are wanted or not."""
    there = dict(found)

    def row(name: str) -> dict[str, Any]:
        return {"ok": there[name], "found": f"{name} found", "plan": f"make {name}", "error": ""}

    def apply(spec: dict[str, Any], marker: str) -> dict[str, Any]:
        there[spec["name"]] = True
        return row(spec["name"]) | {"reboot": "", "hint": "", "logs": []}

    answers: dict[Callable[..., Any], Any] = {
        remote.check_all: lambda specs: [row(spec["name"]) for spec in specs],
        remote.apply_one: apply,
    }
    line = line_for(plan_for(tmp_path, Lab(Here(answers=answers))))
    resources = [
        DesiredResource(name, "", {"kind": "directory", "name": name}, {}, f"{name} wanted")
        for name in found
    ]
    wanting(line, *resources)
    line.begin_run()
    return line


def test_a_host_that_is_as_wanted_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = machine(tmp_path, first=True, second=True)
    line.do(PROVISION)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Provision lab"
    assert said[1].startswith("2 resources, 0 changed, ")
    assert len(said) == 2
    run_provision(line, dry_run=True)
    assert capsys.readouterr().out.splitlines()[1:] == ["2 resources, 0 would change"]


def test_only_what_differed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = machine(tmp_path, first=True, second=False)
    run_provision(line, dry_run=True)
    said = capsys.readouterr().out
    assert "make second" in said
    assert "first" not in said
    line.do(PROVISION)
    said = capsys.readouterr().out
    assert "second wanted" in said
    assert "first" not in said
    assert "2 resources, 1 changed, " in said


@pytest.mark.usefixtures("detailed")
def test_everything_is_told_when_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(tmp_path, first=True, second=True).do(PROVISION)
    said = capsys.readouterr().out
    assert "first wanted" in said
    assert "second wanted" in said


# -- a build that is there -------------------------------------------------------------------------


@pytest.fixture
def known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    """A line whose build was made by an earlier command, which showed all of it."""

    def job(spec: dict[str, Any]) -> Iterator[Any]:
        yield b"compiling\n[1/1] unit\n"
        yield {"exit": 0, "wheels": [builder.left(packed_here(tmp_path, spec))]}

    line, session = at_desk(tmp_path, job)
    run_build(line)
    said = capsys.readouterr().out
    assert "│ compiling" in said
    assert "device code" in said
    again = session._follow

    def retold(directory: str, attempt: int, offset: int) -> Iterator[Any]:
        yield b"compiling\n[1/1] unit\n"[offset:]
        yield from again(directory, attempt, offset)

    session.answers[remote_follow.follow] = retold
    return line


def test_a_build_that_is_there_is_not_told_again(
    known: Line, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_build(known)
    said = capsys.readouterr().out
    assert "│" not in said
    assert "nothing was rebuilt: the wheel is from an earlier build" in said
    assert " checks ok\n" in said
    assert "device code" not in said
    assert "compiling" in (path / "build.log").read_text(), "it is kept all the same"


@pytest.mark.usefixtures("detailed")
def test_a_build_that_is_there_is_told_again_when_that_is_asked_for(
    known: Line, capsys: pytest.CaptureFixture[str]
) -> None:
    run_build(known)
    said = capsys.readouterr().out
    assert "│ compiling" in said
    assert "device code" in said


def test_a_build_says_how_long_it_will_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a screen, in the bar; before that in a line."""
    drawn: list[str] = []

    def job(spec: dict[str, Any]) -> Iterator[Any]:
        yield b"[1/5] unit\n"
        yield {"exit": 1}

    class Seen(Pace):
        def __str__(self) -> str:
            drawn.append(f"{self.done}/{self.total} {super().__str__()}")
            return drawn[-1]

    monkeypatch.setattr("pipelines.stages.pace.Pace", Seen)
    screen = Console(file=io.StringIO(), width=400, force_terminal=True)
    monkeypatch.setattr(consoles, "console", screen)
    line, _ = at_desk(tmp_path, job)
    costs = load_recipe("smoke-attention").costs
    slow = tuple(cost.model_copy(update={"unit_seconds": 3600.0}) for cost in costs)
    line.plan = replace(line.plan, recipe=line.plan.recipe.model_copy(update={"costs": slow}))
    line.plan.__dict__["wanted"] = ()
    with pytest.raises(Exception, match="status 1"):
        run_build(line)
    said = screen.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "estimate" in said
    assert any(text.startswith("1/5 about ") and text.endswith(" left") for text in drawn)


def test_the_bar_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(consoles, "console", screen)
    with consoles.units_progress() as progress:
        progress.add_task(
            "compile units", total=73, completed=42, unit="u.cu", left="about 3 h 57 min left"
        )
        said = "".join(segment.text for segment in screen.render(progress.get_renderable()))
    assert "42/73" in said
    assert "about 3 h 57 min left" in said
    assert "u.cu" in said


# -- tables ----------------------------------------------------------------------------------------


def table() -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("one")
    made.add_column("two")
    made.add_row("a", "[red]longer than the others[/red]")
    made.add_row("b", "")
    made.add_row("c", "short")
    return made


@pytest.mark.parametrize("colours", [None, "truecolor"])
def test_no_line_ends_with_blanks(colours: Any) -> None:
    screen = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=colours)
    screen.print(Group(Text("title"), table()))
    before = screen.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert any(line.endswith(" ") for line in before.splitlines()), "or this shows nothing"
    screen = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=colours)
    screen.push_render_hook(Trimming())
    screen.print(Group(Text("title"), table()), soft_wrap=True)
    screen.print(table())
    after = screen.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    plain = Text.from_ansi(after).plain.splitlines()
    assert plain == ["title", *(rows := ["one  two", "a    longer than the others", "b"]),
                     "c    short", *rows, "c    short"]  # fmt: skip
    assert all(line == line.rstrip() for line in plain)


def test_the_consoles_trim() -> None:
    for one in (consoles.console, consoles.errors):
        with one.capture() as captured:
            one.print(table())
        said = captured.get().splitlines()
        assert len(said) == 4
        assert all(line == line.rstrip() for line in said)


def test_in_a_wide_pipe_a_table_is_as_wide_as_it_must_be() -> None:
    pipe = Console(file=io.StringIO(), width=200, color_system=None, soft_wrap=True)
    print_columns(pipe, [{"run": "one", "size": "2 B"}])
    assert pipe.file.getvalue().splitlines()[1].startswith("one  2 B")  # type: ignore[attr-defined]


def test_jobs_fit_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "flash-attn-2.8.3.post2-cp312-torch2.8-cu128"
    listed = {
        "id": "smoke-1234567890ab",
        "directory": r"C:\b\smoke-1234567890ab",
        "title": f"20261122-001931-{name}",
        "state": "ended",
        "attempt": 1,
        "started": 1795248465.4,
        "way": "breakaway",
        "result": {"attempt": 1, "ended": 1795248500.0, "cancelled": False, "result": {"exit": 0}},
    }
    one = validate_job_state("lab", listed, Listed)
    screen = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    screen.push_render_hook(Trimming())
    monkeypatch.setattr(jobs, "console", screen)
    monkeypatch.setattr(jobs, "_valid_host_jobs", lambda line: [one])
    jobs.show(line=None)  # type: ignore[arg-type]  # it is not looked at
    rows = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert len(rows) == 2
    assert all(len(row) <= 80 for row in rows)
    assert capsys.readouterr().out.startswith("Columns hidden to fit: way, try, started")
    assert name in rows[1]
    assert "ended, exit 0" in rows[1]


def test_the_wheel_comes_first_with_its_whole_path(
    known: Line, capsys: pytest.CaptureFixture[str]
) -> None:
    run_build(known)
    capsys.readouterr()
    known.tell()
    first = capsys.readouterr().out.splitlines()[0]
    assert Path(first).is_absolute()
    assert first == str(next((known.run.path / "wheels").glob("*.whl")))
