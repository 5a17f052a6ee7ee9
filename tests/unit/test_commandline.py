"""From words to a line: flags, one session for a whole command line, and how it is left."""

from __future__ import annotations

import atexit
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from invoke.context import Context
from invoke.exceptions import Exit
from plans import Lab
from sessions import Here
from typed import flags

from pipelines.cli import lines, program
from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.cli.program import COMMANDS
from pipelines.core.errors import BuildError
from pipelines.hosts.base import Host, HostConfig, OpenOptions
from pipelines.hosts.kinds import KINDS
from pipelines.remote.inspection import tools
from pipelines.stages.line import Line

OPENED: list[Lab] = []
#: What their drivers tell.
GPUS: list[Any] = [{"capability": "9.0"}, {"capability": "8.9; odd"}, "odd", {}]


class FakeConfig(HostConfig):
    kind: Literal["fake"]

    def open(self, name: str, given: OpenOptions) -> Host:
        given.events.step("opened")
        host = Lab(Here(answers={tools.gpus: GPUS}))
        host.name = name
        OPENED.append(host)
        return host


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two hosts of a kind that only this file knows."""
    monkeypatch.setitem(KINDS, "fake", FakeConfig)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "default: {host: one}\n"
        f"hosts: {{one: {{kind: fake}}, two: {{kind: fake}}}}\nout: '{tmp_path}/out'\n"
    )
    monkeypatch.setenv("WCW_CONFIG", str(path))
    OPENED.clear()
    yield path
    lines.close_line()


class Typed:
    """What a command line did: each command with its line's host and plan, as it was then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[Line] = []
        self.plans: list[Any] = []
        self.named: list[str] = []
        for name in ("run_provision", "run_build", "run_test"):
            monkeypatch.setattr(f"pipelines.stages.line.{name}", self.seen(name))

    def seen(self, name: str) -> Any:
        def run(line: Line, **given: Any) -> None:
            self.named.append(name.removeprefix("run_"))
            self.lines.append(line)
            self.plans.append(line.plan)

        return run

    def __call__(self, text: str) -> int:
        return program.run_command_line(text.split())


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typed:
    return Typed(monkeypatch)


# -- flags -----------------------------------------------------------------------------------------


def test_flags_reach_the_plan(typed: Typed, tmp_path: Path) -> None:
    words = "--recipe flash-attn --recipe-version 2.7.4.post1 --torch 2.6 --cuda 12.6 --archs 80"
    given = f"{words} --python 3.12 --jobs 3 --minutes 14.5 --offline --wheelhouse {tmp_path}"
    assert typed(f"build {given}") == 0
    (plan,) = typed.plans
    assert plan.target.values() == {
        "host": "one",
        "recipe": "flash-attn",
        "version": "2.7.4.post1",
        "python": "3.12",
        "torch": "2.6",
        "cuda": "12.6",
        "archs": "80",
    }
    assert (plan.jobs, plan.minutes) == (3, 14.5)
    assert (plan.cache.offline, plan.cache.wheelhouse) == (True, tmp_path)


def test_a_flag_that_is_not_there_changes_nothing_of_the_file(
    typed: Typed, configured: Path
) -> None:
    configured.write_text(configured.read_text() + "offline: true\n")
    assert typed("build") == 0
    assert typed.plans[0].cache.offline


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--jobs 2.5", "--jobs 2.5: expected a whole number"),
        ("--minutes 0", "--minutes 0: expected a number above 0"),
        ("--minutes -1", "--minutes -1: expected a number above 0"),
        ("--minutes soon", "--minutes soon: expected a number above 0"),
        ("--minutes -5", "Such as --minutes 330, five and a half hours."),
    ],
)
def test_amounts_that_are_none(
    typed: Typed, flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(f"build {flags}") == 2
    assert said in capsys.readouterr().err
    assert typed.named == []


def test_every_shared_flag_holds_for_the_whole_line() -> None:
    assert flags("build --offline test") == [{"offline": True}] * 2
    assert flags("build test --wheelhouse w") == [{"wheelhouse": "w"}] * 2
    jobs, host = {"jobs": "2"}, {"host": "two"}
    assert flags("build --jobs 2 test --host two") == [jobs | host, host], "test knows no jobs"
    assert flags("build") == [{}], "nothing is left of the line before"
    assert flags("test --run a build") == [{"run": "a"}, {}], "its own flag is its own"


def test_a_flag_may_be_said_several_times() -> None:
    assert flags("report latest --also one --also two") == [
        {"run": "latest", "also": ["one", "two"]}
    ]


def test_words_without_a_flag_are_in_the_order_of_the_fields() -> None:
    assert flags("compare old new") == [{"before": "old", "after": "new"}]


def test_a_parameter_may_be_a_word_of_python() -> None:
    assert flags("test --for comfyui --with a==1") == [{"for_": "comfyui", "with_": ["a==1"]}]


def test_a_task_is_called_with_its_own_flags_and_those_of_the_line() -> None:
    seen: list[Any] = []

    @command(shared=("host", "jobs"), help={"name": "what it is called"}, many=("also",))
    def show(shared: Flags, name: str, *, also: list[str] | None = None, json: bool = False) -> int:
        """Show what it is given."""
        seen.append((shared, name, also, json))
        return 7

    assert [flag.name for flag in show.arguments] == ["host", "jobs", "name", "also", "json"]
    with pytest.raises(Exit) as left:
        show.task(Context(), name="a", also=["b"], json=True, flags={"host": "two"})
    assert left.value.code == 7
    assert seen == [({"host": "two"}, "a", ["b"], True)]


def test_each_command_says_what_it_does() -> None:
    for name, one in COMMANDS.items():
        assert one.task.__doc__, name
        assert all(flag.help for flag in one.arguments), name


@pytest.mark.parametrize(("words", "verbosity"), [("", []), ("-v", [1]), ("-v -v", [2])])
def test_as_much_is_told_as_is_asked_for(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, words: str, verbosity: list[int]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("pipelines.core.logs.configure_logging", asked.append)
    assert typed(f"build {words}") == 0
    assert asked == verbosity


# -- one line --------------------------------------------------------------------------------------


def test_a_command_line_has_one_host_and_one_session(typed: Typed) -> None:
    assert typed("provision build --archs 90 test") == 0
    assert typed.named == ["provision", "build", "test"]
    assert len(OPENED) == 1
    assert len({id(line) for line in typed.lines}) == 1
    assert {str(plan.target.archs) for plan in typed.plans} == {"90"}, "provision's as well"


def test_what_one_command_does_not_know_is_checked_before_it_runs(typed: Typed) -> None:
    assert typed("provision build --archs 77") == 2
    assert typed.named == []


def test_other_architectures_are_another_plan_on_the_same_session(typed: Typed) -> None:
    assert typed("build --archs 80 build --archs 90") == 0
    assert [str(plan.target.archs) for plan in typed.plans] == ["80", "90"]
    assert len(OPENED) == 1
    assert OPENED[0].closed == 1, "at the end"


def test_another_cell_or_host_is_another_line(typed: Typed) -> None:
    words = "build --host one --python 3.11 build --python 3.12 test --host two"
    assert typed(words) == 0
    assert [(plan.target.host, plan.target.python) for plan in typed.plans] == [
        ("one", "3.11"),
        ("one", "3.12"),
        ("two", "3.12"),
    ]
    assert [host.closed for host in OPENED] == [1, 1, 1]
    lines.close_line()
    assert [host.closed for host in OPENED] == [1, 1, 1]


# -- the host's own architectures ------------------------------------------------------------------


@pytest.mark.parametrize(("flag", "default"), [("native", ""), ("Native;75", "80"), ("", "native")])
def test_native_is_asked_of_the_host(configured: Path, flag: str, default: str) -> None:
    if default:
        text = configured.read_text().replace("host: one", f"host: one, archs: '{default}'")
        configured.write_text(text)
    line = lines.open_line({"archs": flag})
    assert str(line.plan.target.archs) == ("75;90" if "75" in flag else "90")
    assert len(OPENED) == 1, "the session that was asked is the one that builds"
    assert OPENED[0].closed == 0


def test_a_host_is_not_asked_for_nothing() -> None:
    assert str(lines.open_line({"archs": "80"}).plan.target.archs) == "80"
    assert OPENED[0].connects == 0


# -- how it is left --------------------------------------------------------------------------------


def broken() -> None:
    raise BuildError("no", hint="yes")


def interrupted() -> None:
    raise KeyboardInterrupt


def worse() -> None:
    raise Exit(code=15)


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        (broken, BuildError.exit_code, "build error: no\n→ yes\n"),
        (interrupted, 130, "Interrupted.\n"),
        (worse, 15, ""),
    ],
)
def test_a_host_is_left_whatever_happens(  # noqa: PLR0917 - what happens, and what is seen of it
    typed: Typed,
    function: Any,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipelines.stages.line.run_build", lambda line: function())
    assert typed("provision build test") == code
    assert capsys.readouterr().err == said
    assert typed.named == ["provision"], "what follows is not done"
    assert OPENED[0].closed == 1


def test_an_interrupted_run_goes_on(
    typed: Typed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(line: Line) -> None:
        assert lines.run_folder() is None
        assert line.begin_run().path == lines.run_folder()
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.stages.line.run_build", begin)
    assert typed("build") == 130
    kept = "Interrupted. Finished work is kept; the same command continues.\n"
    assert capsys.readouterr().err == kept


def test_what_a_host_does_meanwhile_is_not_in_an_answer(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("jobs --json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": 1, "host": "one", "jobs": []}
    assert err == "one: opened\n"


def test_a_host_is_left_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Any] = []
    signals: dict[int, Any] = {}
    monkeypatch.setattr(atexit, "register", ends.append)
    monkeypatch.setattr(signal, "signal", signals.__setitem__)
    lines.register_cleanup()
    lines.open_line({})
    (end,) = ends
    end()
    assert OPENED[0].closed == 1
    with pytest.raises(KeyboardInterrupt):
        signals[signal.SIGTERM](signal.SIGTERM, None)


@pytest.mark.parametrize(
    ("flag", "typed", "read", "said"),
    [
        ("python", "cp312", "3.12", False),
        ("python", "py39", "3.9", False),
        ("python", "314t,cp311", "3.14t,3.11", False),
        ("python", "3.12.4", "3.12", True),
        ("python", "3.1x", "3.1x", False),
        ("cuda", "cu128", "12.8", False),
        ("cuda", "12.8.1", "12.8", True),
        ("cuda", "13", "13", False),
        ("torch", "torch2.8", "2.8", False),
        ("torch", "2.8.0, 2.10", "2.8,2.10", True),
        ("torch", "2.8+cu128", "2.8+cu128", False),  # says two things
        ("archs", "8.9.1", "8.9.1", False),
    ],
)
def test_releases_as_people_type_them(
    flag: str, typed: str, read: str, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lines.register_cleanup()
    assert lines.request_of({flag: typed})[0].axes[flag] == read
    assert (f"--{flag} {typed}: taken as {read}" in capsys.readouterr().out) is said
