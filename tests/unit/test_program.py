"""The program: help, near matches, flags anywhere on a line, and how the unexpected is reported."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from hypothesis import given
from hypothesis import strategies as st
from invoke.exceptions import Exit
from typed import calls, flags

import pipelines
from pipelines.cli.program import COMMANDS, run_command_line
from pipelines.core.errors import LIKELY, UNKNOWN, ConfigError, StorageError, UnexpectedError
from pipelines.core.hosttext import remember_secret

ROOT = Path(__file__).parents[2]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, own_directory: None) -> None:
    (tmp_path / "pipeline.yaml").write_text("hosts: {sandbox: {kind: sandbox}}\n", "utf-8")


def start(*words: str, cwd: Path = ROOT, **env: str) -> tuple[int, str, str]:
    """Another process: its exit code, standard output and error; never a traceback."""
    kept = {k: v for k, v in os.environ.items() if k not in ("WCW_CONFIG", "GITHUB_ACTIONS")}
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**kept, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


# -- help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["--list"], ["-l"]])
def test_help_of_the_program(words: list[str], capsys: Captured) -> None:
    assert run_command_line(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("Usage: wcw COMMAND")
    assert said.index("\n  provision ") < said.index("\n  build ") < said.index("\n  lock ")
    assert "\n  host.stop " in said
    assert "-q, --quiet" in said
    assert "echo" not in said


@pytest.mark.parametrize(
    "words",
    ["build -h", "build --help", "--help build", "-h build", "build --jobs 2 -h", "test build -h"],
)
def test_help_of_a_command(words: str, capsys: Captured) -> None:
    assert run_command_line(words.split()) == 0
    said = capsys.readouterr().out
    assert said.startswith("Usage: wcw build [FLAGS]\n\nBuild the wheel")
    assert "-r, --recipe VALUE" in said
    assert "what to build" in said
    assert "      --host VALUE" in said, "-h is help"


@pytest.mark.parametrize("command", ["wheelhouse", "compare", "report", "diagnose"])
def test_help_is_not_taken_for_a_word_that_is_missing(command: str, capsys: Captured) -> None:
    assert run_command_line([command, "--help"]) == 0
    assert f"Usage: wcw {command} " in capsys.readouterr().out


def test_version(capsys: Captured) -> None:
    for word in ("--version", "-V", "version"):
        assert run_command_line([word]) == 0
        assert capsys.readouterr().out == f"windows-cuda-wheels {pipelines.__version__}\n"


@pytest.mark.parametrize("line", ["plan", "build --dry-run", "provision build test", "doctor"])
def test_the_example_is_not_built_in_place_of_a_project(
    line: str, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "pipeline.yaml").unlink()
    assert run_command_line(line.split()) == ConfigError.exit_code
    said = capsys.readouterr().err
    assert "there is no pipeline.yaml here" in said
    assert "wcw init" in said
    assert [*tmp_path.iterdir()] == []


def test_help_as_a_command(capsys: Captured) -> None:
    assert run_command_line(["help", "build"]) == 0
    assert "Usage: wcw build " in capsys.readouterr().out
    assert run_command_line(["help"]) == 0
    assert "Usage: wcw COMMAND" in capsys.readouterr().out


# -- words that are none ---------------------------------------------------------------------------


WRONG = {
    "buidl": ("unknown command 'buidl'", "Did you mean 'build'?"),
    "provision buidl": ("unknown command 'buidl'", "Did you mean 'build'?"),
    "host": ("unknown command 'host'", "host start, host stop"),
    "sandbox": ("unknown command 'sandbox'", "'host stop'"),
    "build flash-attn": ("'flash-attn' is a recipe", "wcw build --recipe flash-attn"),
    "plan Flash_Attn": ("'Flash_Attn' is a recipe", "wcw plan --recipe flash-attn"),
    "audit": ("audit: WHEEL is missing", "wcw audit WHEEL"),
    "build -recipe gsplat": ("unknown flag '-recipe'", "Did you mean '--recipe'?"),
    "plan --cuda-version 12.8": ("unknown flag '--cuda-version'", "Did you mean '--cuda'?"),
    "plan --archs RTX 4090": ("'4090' is no command", "--archs 'RTX 4090'"),
    "build --python 3.11 3.13": ("'3.13' is no command", "--python '3.11 3.13'"),
    "build --recipe": ("--recipe: a value is missing", "a name from"),
    "nonsense": ("unknown command 'nonsense'", "→ Type: wcw --help"),
    "build --ofline": ("unknown flag '--ofline' for build", "Did you mean '--offline'?"),
    "build --hots x": ("unknown flag '--hots' for build", "Did you mean '--hosts'?"),
    "test --follow x": ("unknown flag '--follow' for test", "It is a flag of: jobs."),
    "--echo build": ("unknown flag '--echo'", "Type: wcw --help"),
    "--pty build": ("unknown flag '--pty'", "Type: wcw --help"),
    "wheelhouse --ofline": ("unknown flag '--ofline' for wheelhouse", "'--offline'"),
    "--dry build": ("--dry: there is no such flag", "build --dry-run"),
    "build --dry": ("--dry: there is no such flag", "build --dry-run"),
    "-R build": ("-R: there is no such flag", "build --dry-run"),
    "build --cuda": ("--cuda: a value is missing", "Such as --cuda VALUE"),
    "build --cuda --offline": ("--cuda: a value is missing", ""),
    "build --cuda 12.8 --cuda 13.0": ("--cuda is given twice", "Leave one of them out."),
    "test --gpu=bridge": ("'bridge' is not a command, and --gpu takes no value", "test --help"),
    "test --gpu all": ("'all' is not a command, and --gpu takes no value", "test --help"),
    "test --gpu biuld": ("unknown command 'biuld'", "Did you mean 'build'?"),
    "compare one": ("compare: AFTER is missing", "Type: wcw compare BEFORE AFTER"),
    "build -- x": ("--: there is no program", "Leave it out."),
    "--jobs 2": ("no command was given", "wcw --help"),
    "test --jobs 2": ("--jobs: test takes no such flag", "Leave it out"),
    "provision --archs 80": ("--archs: provision takes no such flag", "Leave it out"),
    "--jobs 2 build --jobs 4": ("--jobs 2: the command that it belongs to has another value", ""),
    "--print-completion-script cmd": ('shell "cmd" not supported', "bash, fish, zsh"),
    "plan --json --format gha": ("--json and --format gha exclude each other", "Omit one"),
    "provision --dry-run cache": ("--dry-run is given for provision, but cache would", "two lines"),
}


@pytest.mark.parametrize(("line", "said"), WRONG.items())
def test_words_that_are_none(line: str, said: tuple[str, str], capsys: Captured) -> None:
    assert run_command_line(line.split()) == ConfigError.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("configuration error: ")
    assert said[0] in err
    assert said[1] in err


TYPED = [
    *COMMANDS,
    *(
        "host",
        "image",
        "start",
        "x",
        "a=b",
        "-",
        "-1",
        "=",
        "--x",
        "-vq",
        "-j2",
        "-oj2",
        "--jobs=2",
    ),
    *("--archs=", "--gpu=x", "--select=-x", "--recipe=--gpu", "--verbose", "-q"),
    *(f"--{flag.names[0]}" for one in COMMANDS.values() for flag in one.arguments),
]


@given(words=st.lists(st.sampled_from(TYPED), max_size=7))
def test_invoke_reads_whatever_was_not_refused(words: list[str]) -> None:
    """Its own errors would come out with another exit code."""
    with contextlib.suppress(ConfigError, Exit):
        calls(words)


# -- flags anywhere --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "provision build test --jobs 2",
        "provision build --jobs 2 test",
        "provision --jobs 2 build test",
        "--jobs 2 provision build test",
        "-j 2 provision build test",
    ],
)
def test_a_flag_of_the_line_may_stand_anywhere_on_it(line: str) -> None:
    assert flags(line) == [{}, {"jobs": "2"}, {}]


def test_flags_of_the_line_reach_all_that_take_them() -> None:
    assert flags("--offline provision build test") == [{"offline": True}] * 3
    assert flags("provision build test --minutes 330 --archs 80") == [
        {},
        {"minutes": "330", "archs": "80"},
        {"archs": "80"},
    ]
    assert flags("--host a build test build --jobs 3") == [
        {"host": "a", "jobs": "3"},
        {"host": "a"},
        {"host": "a", "jobs": "3"},
    ]


def test_a_flag_beside_an_own_one_is_not_lost() -> None:
    with pytest.raises(ConfigError, match="has another value"):
        calls("--host a build --host b")
    assert flags("--host a build --host a") == [{"host": "a"}]


def test_what_is_typed_twice_is_done_twice(capsys: Captured) -> None:
    """Such as ``host start host stop host start``, or doctor before and after provision."""
    run_command_line(["runs"])
    once = capsys.readouterr().out
    assert run_command_line(["runs", "runs"]) == 0
    assert once
    assert capsys.readouterr().out == 2 * once


def test_a_line_is_shown_as_a_whole_or_not_at_all() -> None:
    assert flags("provision --dry-run") == [{"dry_run": True}]
    with pytest.raises(ConfigError, match="cache would really run"):
        calls("provision --dry-run cache")


@pytest.mark.parametrize(
    "line", ["-v report x", "report x --verbose", "report -v x", "report -qv x"]
)
def test_every_command_can_tell_more(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("pipelines.core.logs.configure_logging", asked.append)
    run_command_line(line.split())
    assert asked == [1]


def test_quiet(capsys: Captured) -> None:
    assert run_command_line(["plan", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert run_command_line(["plan", "--python", "three", "-q"]) == ConfigError.exit_code
    assert capsys.readouterr().err.startswith("configuration error: ")


# -- completion ------------------------------------------------------------------------------------


def completed(capsys: Captured, *typed: str) -> list[str]:
    assert run_command_line(["--complete", "--", *typed]) == 0
    return capsys.readouterr().out.split()


def test_completion(capsys: Captured) -> None:
    assert {"build", "provision", "host.stop"} <= {*completed(capsys, "wcw", "bui")}
    assert {"--archs", "--jobs"} <= {*completed(capsys, "./wcw", "build", "--ar")}
    assert "--follow" in completed(capsys, "wcw", "jobs", "--fo")
    assert "--follow" not in completed(capsys, "wcw", "build", "--fo")
    assert completed(capsys, "wcw", "build", "--host") == [], "the shell offers files"
    assert "--jobs" in completed(capsys, "wcw", "build", "--recipe", "'a", "--jo")


@pytest.mark.parametrize(
    "words", ["--complete", "--complete --", "--complete x", "--complete -- x"]
)
def test_completion_of_no_line(words: str, capsys: Captured) -> None:
    assert run_command_line(words.split()) == 0
    assert "build" in capsys.readouterr().out.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: Captured) -> None:
    assert run_command_line(["--print-completion-script", shell]) == 0
    said = capsys.readouterr().out
    assert "--complete -- " in said
    assert "complete_wcw" in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_in_bash(tmp_path: Path) -> None:
    (tmp_path / "wcw").write_text(f'#!/bin/sh\nexec {sys.executable} -m pipelines "$@"\n')
    (tmp_path / "wcw").chmod(0o755)
    script = (
        "source <(wcw --print-completion-script bash); COMP_WORDS=(wcw provision bui);"
        "_complete_wcw wcw bui; echo ${COMPREPLY[@]}"
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert start("bash", "-c", script, PATH=path) == (0, "build\n", "")


# -- what programs read ----------------------------------------------------------------------------


def test_a_plan(capsys: Captured) -> None:
    assert run_command_line(["plan", "--json", "--python", "3.11"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["cells"]
    assert out.isascii()
    assert err == ""
    assert run_command_line(["plan", "--format", "json", "--python", "3.11"]) == 0
    assert capsys.readouterr().out == out


def test_a_diagnosis(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "build.log"
    log.write_text("FAILED: a.o\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n")
    assert run_command_line(["diagnose", str(log), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.keys() == {"schema", "log", "cause", "ended", "facts", "others"}
    assert document["cause"]["line"] == 2
    assert "gpu architecture" in document["cause"]["text"]
    log.write_text("all is well\n")
    assert run_command_line(["diagnose", "--json", str(log)]) == UNKNOWN
    assert json.loads(capsys.readouterr().out)["cause"] is None


def test_an_unknown_failure_is_shown_with_its_lines(tmp_path: Path, capsys: Captured) -> None:
    log, report = tmp_path / "build.log", tmp_path / "issue.txt"
    log.write_text("one\ntwo\nAn odd Error: it broke in C:\\Users\\jane\\x\nfour\n")
    assert run_command_line(["diagnose", str(log), "--report", str(report)]) == UNKNOWN
    out = capsys.readouterr().out
    assert all(line in out for line in ("one", "two", "it broke", "four", "tool-error"))
    assert "jane" not in report.read_text()
    assert "it broke" in report.read_text()
    log.write_text("error: [WinError 2] x\n")
    assert run_command_line(["diagnose", str(log)]) == LIKELY
    assert (
        run_command_line(["diagnose", str(log), "--report", str(tmp_path)])
        == StorageError.exit_code
    )
    log.write_text("first\n\nand last\n")
    capsys.readouterr()
    assert run_command_line(["diagnose", str(log)]) == UNKNOWN
    assert "and last" in capsys.readouterr().out


def test_a_comparison(tmp_path: Path, capsys: Captured) -> None:
    good, bad = samples.good(tmp_path / "a"), samples.failed_build(tmp_path / "b")
    assert run_command_line(["compare", str(good.path), str(bad.path), "--json"]) == 15
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["before"], data["after"]) == (1, good.id, bad.id)
    assert data["worse"] == sum(one["judgement"] == "worse" for one in data["differences"]) > 0


@pytest.mark.parametrize("line", ["jobs --json --cancel x", "cache --json --prune"])
def test_what_does_something_has_no_json(line: str, capsys: Captured) -> None:
    assert run_command_line(line.split()) == ConfigError.exit_code
    assert "--json" in capsys.readouterr().err


# -- the unexpected --------------------------------------------------------------------------------


class Odd(Exception):  # noqa: N818 - it is unforeseen
    pass


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """``compare`` ends in something unforeseen."""

    def fail(*_: object, **__: object) -> int:
        remember_secret("correct-horse")
        raise Odd("it is\nodd: correct-horse")

    monkeypatch.setattr("pipelines.cli.compare.run_compare", fail)


@pytest.mark.usefixtures("odd")
def test_the_unexpected_is_a_line_and_a_file(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["compare", "a", "b"]) == UnexpectedError.exit_code == 70
    out, err = capsys.readouterr()
    (file,) = (tmp_path / "cache/windows-cuda-wheels/errors").iterdir()
    assert out == ""
    assert err.startswith("unexpected error: this should not happen: Odd: it is odd: ***\n→ ")
    assert str(file) in err
    assert "report" in err
    assert "Traceback" not in err
    kept = file.read_text("utf-8")
    assert kept.startswith("Traceback")
    assert "run_compare" in kept
    assert "correct-horse" not in kept


@pytest.mark.usefixtures("odd")
def test_with_v_the_trace_is_shown(capsys: Captured) -> None:
    try:
        assert run_command_line(["compare", "a", "b", "-v"]) == 70
    finally:
        from pipelines.core.logs import configure_logging

        configure_logging(0)
    err = capsys.readouterr().err
    assert "run_compare" in err
    assert "correct-horse" not in err


@pytest.mark.usefixtures("odd")
def test_the_trace_of_a_run_is_in_its_directory(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.cli.exit.run_folder", lambda: tmp_path / "run")
    assert run_command_line(["compare", "a", "b"]) == 70
    assert [*(tmp_path / "run").iterdir()]
    assert not (tmp_path / "cache").exists()
    assert str(tmp_path / "run") in capsys.readouterr().err


@pytest.mark.usefixtures("odd")
def test_where_nothing_can_be_written(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "cache"))
    assert run_command_line(["compare", "a", "b"]) == 70
    assert "could not be written" in capsys.readouterr().err


def test_endless_recursion(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def deeper(depth: int) -> int:  # with *arguments, Debian 13's Python 3.13.5 itself is killed
        return deeper(depth + 1)

    monkeypatch.setattr("pipelines.cli.compare.run_compare", lambda *_, **__: deeper(0))
    assert run_command_line(["compare", "a", "b"]) == 70
    assert "RecursionError" in capsys.readouterr().err


def test_closing_fails_as_well(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def fail() -> None:
        raise Odd("while closing")

    monkeypatch.setattr("pipelines.cli.program.close_line", fail)
    assert run_command_line(["compare", "a", "b"]) == ConfigError.exit_code, (
        "the first error counts"
    )
    assert run_command_line(["plan", "--python", "3.11"]) == 70
    assert capsys.readouterr().err.count("while closing") == 2


@pytest.mark.parametrize(
    "damage", [b"", b"not a database" * 100, b"SQLite format 3\0" + b"\0" * 99]
)
@pytest.mark.parametrize("command", [["test", "--run"], ["report"], ["compare", "."]])
def test_a_damaged_record(
    tmp_path: Path, damage: bytes, command: list[str], capsys: Captured
) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "record.sqlite").write_bytes(damage)
    (tmp_path / "record.sqlite").write_bytes(damage)
    assert run_command_line([*command, str(folder)]) == ConfigError.exit_code
    err = capsys.readouterr().err
    assert "has no readable record" in err
    assert "Free some space" not in err


@pytest.mark.parametrize("place", ["README.md", "README.md/below", "/proc/x"])
def test_a_wheelhouse_where_none_can_be(tmp_path: Path, place: str, capsys: Captured) -> None:
    (tmp_path / "README.md").touch()
    assert run_command_line(["wheelhouse", place]) == 11
    assert f"storage error: cannot create {place}" in capsys.readouterr().err


# -- its starts ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_answer_that_is_not_whole_is_an_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    script = '"$0" -m pipelines plan --json --python 3.11 >/dev/full'
    code, _, err = start("sh", "-c", script, sys.executable)
    assert code == 11
    assert err.startswith("storage error: standard output could not be written: No space left")


@pytest.mark.slow
def test_a_reader_who_has_had_enough() -> None:
    script = 'set -o pipefail; "$0" -m pipelines plan | head -1'
    code, out, err = start("bash", "-c", script, sys.executable)
    assert (code, err) == (0, "")
    assert out.startswith("smoke-attention")


def shadowed(tmp_path: Path, name: str, code: str) -> str:
    """A path on which importing ``name`` does what ``code`` says."""
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / f"{name}.py").write_text(code)
    return str(tmp_path / "shadow")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_interrupted_while_it_starts(tmp_path: Path) -> None:
    code = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
    path = shadowed(tmp_path, "pydantic", code)
    assert start(sys.executable, "-m", "pipelines", "plan", PYTHONPATH=path) == (130, "", "")
    assert start(sys.executable, "-m", "invoke", "plan", PYTHONPATH=path) == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["pipelines", "invoke"])
def test_an_invoke_of_another_environment(tmp_path: Path, module: str) -> None:
    path = shadowed(tmp_path, "pydantic", "raise ModuleNotFoundError('no', name='pydantic')")
    code, out, err = start(sys.executable, "-m", module, "--list", PYTHONPATH=path)
    assert (code, out) == (4, "")
    assert "has no pydantic" in err
    assert "scripts/setup" in err


@pytest.mark.slow
@pytest.mark.parametrize("module", ["pipelines", "invoke"])
def test_invoke_is_the_same_program(module: str) -> None:
    code, said, _ = start(sys.executable, "-m", module, "build", "-h")
    assert code == 0
    assert said.startswith("Usage: wcw build")
    code, out, err = start(sys.executable, "-m", module, "--dry", "build")
    assert (code, out) == (2, "")
    assert "build --dry-run" in err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a shell's script")
def test_the_script_of_a_checkout(tmp_path: Path) -> None:
    """Moved, linked, called from wherever: it runs its own environment and its own code."""
    checkout = tmp_path / "Mein Büro & Söhne"
    (checkout / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "wcw", checkout)
    (tmp_path / "linked").symlink_to(checkout / "wcw")
    code, _, err = start(str(tmp_path / "linked"), "build")
    assert code == 4, "without a Python"
    assert f"Type: '{checkout}/scripts/setup'" in err
    (checkout / ".venv/bin").rmdir()
    (checkout / ".venv").rmdir()
    (checkout / ".venv").symlink_to(sys.prefix)
    (checkout / "pipelines").symlink_to(ROOT / "pipelines")
    ended: Any = start(str(tmp_path / "linked"), "--version", cwd=tmp_path, PATH="/usr/bin:/bin")
    assert ended == (0, f"windows-cuda-wheels {pipelines.__version__}\n", "")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("image build --python 3.11", ["image.build"]),
        ("-v host stop --force", ["host.stop"]),
        ("host.stop", ["host.stop"]),
        ("provision --host image build", ["provision", "build"]),
        ("provision --host=image build", ["provision", "build"]),
        ("diagnose build", ["diagnose"]),
    ],
)
def test_two_words_may_be_one_command(typed: str, meant: list[str]) -> None:
    assert [name for name, _ in calls(typed)] == meant


@pytest.mark.parametrize(
    "words", [["plan", "--recipe", "x" * 3000], ["compare", "x" * 3000, "y"], ["audit", "x" * 3000]]
)
def test_what_is_too_long_for_a_file_is_no_fault_of_the_program(words: list[str]) -> None:
    assert run_command_line(words) == ConfigError.exit_code


def test_compiled_files_are_written_as_python_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """invoke's program sets it for the whole process."""
    for said in (True, False):
        monkeypatch.setattr(sys, "dont_write_bytecode", said)
        assert run_command_line(["--version"]) == 0
        assert run_command_line(["hosts", "--json"]) == 0
        assert sys.dont_write_bytecode is said
