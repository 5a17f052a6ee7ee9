"""The command line as it is typed: exit codes, messages, hints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typed import flags

from pipelines.cli.options import program_arguments
from pipelines.cli.program import COMMANDS, run_command_line
from pipelines.core import errors as pipeline_errors
from pipelines.core.errors import TimeUpError

ROOT = Path(__file__).parents[2]
WINRM = (
    "default: {host: lab}\n"
    "hosts:\n"
    "  lab: {kind: winrm, endpoint: 'https://lab.invalid:5986/wsman', username: u,"
    " password_env: WCW_TEST_PW}\n"
)


def invoke(*words: str, **env: str) -> tuple[int, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("WCW_CONFIG", "GITHUB_ACTIONS")}
    run = subprocess.run(
        [sys.executable, "-m", "invoke", *words],
        cwd=ROOT,
        env={**kept, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in run.stdout
    return run.returncode, run.stdout


@pytest.mark.slow
def test_list() -> None:
    code, said = invoke("--list")
    assert code == 0
    for name in ("provision", "build", "test", "host.start", "host.remove"):
        assert f"  {name} " in said


BAD = {
    "build --host sandbx": "Did you mean 'sandbox'",
    "build --recipe smoke-atention": "Did you mean 'smoke-attention'",
    "build --archs 77": "the nearest valid one is 75",
    "test --python three": "Say 3.11.",
    "build --jobs many": "expected a whole number",
    "build --jobs 0": "expected 1 to 512",
    "provision build test --archs 77": "the nearest valid one is 75",
    "cache --days many": "expected a number above 0",
    "cache --days 3": "--days is for --prune",
    "jobs --follow a --cancel a": "--follow and --cancel are given",
    "cache --prune --days 0": "expected a number above 0",
    "cache --prune --days=-1": "expected a number above 0",
    "cache --prune --days nan": "expected a number above 0",
}


#: What people and their scripts have learnt: a letter that comes to mean another flag harms them.
LETTERS = {
    "r": "recipe",
    "p": "python",
    "t": "torch",
    "c": "cuda",
    "a": "archs",
    "j": "jobs",
    "m": "minutes",
    "o": "offline",
    "w": "wheelhouse",
    "v": "verbose",
    "q": "quiet",
    "h": "help",
    "V": "version",
    "l": "list",
}


def test_a_letter_means_the_same_with_every_command() -> None:
    arguments = [
        *program_arguments(),
        *(flag for one in COMMANDS.values() for flag in one.arguments),
    ]
    taken = {(letter, flag.name) for flag in arguments for letter in flag.nicknames}
    assert sorted(taken) == sorted(LETTERS.items())


def test_the_help_of_plan_says_that_there_may_be_several_values() -> None:
    said, one = (
        {flag.name: flag.help or "" for flag in COMMANDS[name].arguments}
        for name in ("plan", "build")
    )
    assert all("separated by commas" in said[axis] for axis in ("python", "torch", "cuda"))
    assert "|" in said["archs"]
    assert "commas" not in one["python"]


def typed(*words: str) -> int:
    """The exit code of a command line that is run in this process: a new one takes half a second.

    ``invoke`` above does the whole of it.
    """
    return run_command_line(words)


@pytest.mark.parametrize(("line", "said"), BAD.items())
def test_bad_flags(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(*line.split()) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("configuration error: ")
    assert "→" in errors
    assert said in errors


def test_another_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(WINRM + "colour: red\n")
    monkeypatch.setenv("WCW_CONFIG", str(path))
    assert typed("provision") == 2
    assert f"{path}: colour: unknown key" in capsys.readouterr().err


CLASSES = [
    kind
    for kind in vars(pipeline_errors).values()
    if isinstance(kind, type) and issubclass(kind, pipeline_errors.PipelineError)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_what_a_task_leaves_with(
    kind: type[pipeline_errors.PipelineError],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise kind("what happened", hint="what to do")

    monkeypatch.setattr("pipelines.stages.line.run_build", fail)
    assert typed("build") == kind.exit_code
    label = kind.title if kind is TimeUpError else f"{kind.title} error"
    assert capsys.readouterr().err == f"{label}: what happened\n→ what to do\n"


@pytest.mark.slow
def test_no_password(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(WINRM)
    code, said = invoke("doctor", WCW_CONFIG=str(path), WCW_TEST_PW="")
    assert code == 14
    assert "is not set" in said
    assert "export WCW_TEST_PW" in said


def test_a_flag_holds_for_the_whole_line() -> None:
    for line in (
        "provision --python 3.13 build test",
        "provision build test --python 3.13",
        "provision build --python 3.13 test",
    ):
        assert flags(line) == [{"python": "3.13"}] * 3
    assert flags("provision build --archs 75 test") == [
        {},  # provision knows no architectures
        {"archs": "75"},
        {"archs": "75"},
    ]
    assert flags("build --python 3.11 build --python 3.13 test") == [
        {"python": "3.11"},
        {"python": "3.13"},
        {"python": "3.13"},
    ]
