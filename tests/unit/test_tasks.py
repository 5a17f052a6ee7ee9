"""The command line as it is typed: exit codes, messages, hints."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from invoke.parser import Parser

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
        timeout=30,
        check=False,
    )
    assert "Traceback" not in run.stdout
    return run.returncode, run.stdout


def test_list() -> None:
    code, said = invoke("--list")
    assert code == 0
    for name in ("provision", "build", "test", "sandbox.start", "sandbox.teardown"):
        assert f"  {name} " in said


BAD = {
    "build --host sandbx": "Did you mean 'sandbox'",
    "build --recipe smoke-atention": "Did you mean 'smoke-attention'",
    "build --archs 77": "the nearest valid one is 75",
    "test --python three": "Say 3.11.",
    "build --jobs many": "expected a whole number",
    "build --jobs 0": "expected 1 to 512",
    "provision build test --archs 77": "the nearest valid one is 75",
}


def test_bad_flags() -> None:
    with ThreadPoolExecutor(len(BAD)) as pool:  # side by side: each takes half a second
        results = list(pool.map(lambda words: invoke(*words.split()), BAD))
    for said, (code, output) in zip(BAD.values(), results, strict=True):
        assert code == 2
        assert output.startswith("configuration error: ")
        assert "→" in output
        assert said in output


def test_another_configuration(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(WINRM + "colour: red\n")
    code, said = invoke("provision", WCW_CONFIG=str(path))
    assert code == 2
    assert f"{path}: colour: unknown key" in said


def test_no_password(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(WINRM)
    code, said = invoke("provision", WCW_CONFIG=str(path), WCW_TEST_PW="")
    assert code == 2
    assert "WCW_TEST_PW" in said
    assert "export WCW_TEST_PW" in said


def flags(*line: str) -> list[dict[str, Any]]:
    """What each task of the command line is called with."""
    sys.path.insert(0, str(ROOT))
    try:
        tasks = importlib.import_module("tasks")
    finally:
        sys.path.remove(str(ROOT))
    contexts = Parser(contexts=tasks.namespace.to_contexts()).parse_argv(list(line))
    executor = tasks.OneOrder(tasks.namespace)
    return [
        {key: value for key, value in call.kwargs.items() if value}
        for call in executor.normalize(contexts)
    ]


def test_a_flag_holds_for_the_whole_line() -> None:
    for line in (
        "provision --python 3.13 build test",
        "provision build test --python 3.13",
        "provision build --python 3.13 test",
    ):
        assert flags(*line.split()) == [{"python": "3.13"}] * 3
    assert flags(*["provision", "build", "--archs", "75", "test"]) == [
        {},  # provision knows no architectures
        {"archs": "75"},
        {"archs": "75"},
    ]
    assert flags(*["build", "--python", "3.11", "build", "--python", "3.13", "test"]) == [
        {"python": "3.11"},
        {"python": "3.13"},
        {"python": "3.13"},
    ]
