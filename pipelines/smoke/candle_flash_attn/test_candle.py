"""The crate's own tests, one case each, each in a process of its own.

They compare the kernels with candle's plain attention on the same GPU and with fixed numbers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import smoke_suite
from smoke_facts import Expected, ended

_SECONDS = 120


def _expected() -> Expected:
    path = os.environ.get("SMOKE_EXPECT")
    document: Expected = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return document


def call(program: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output; a hang is an exit code of its own kind."""
    try:
        done = subprocess.run(
            [str(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        return 124, said.decode(errors="replace") if isinstance(said, bytes) else said
    return done.returncode, done.stdout


def listed(program: Path) -> list[str]:
    """The names of its tests; none if it does not start."""
    code, text = call(program, "--list", "--format", "terse")
    return re.findall(r"^(\S+): test$", text, re.MULTILINE) if code == 0 else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case for each test of each program, or one that says that there is none."""
    if "test" in metafunc.fixturenames:
        pairs = [
            (program, name)
            for program in smoke_suite.files(_expected())
            for name in listed(program) or [""]
        ]
        names = [f"{program.name}-{name}" for program, name in pairs]
        metafunc.parametrize(("program", "test"), pairs or [(None, "")], ids=names or ["none"])


def test_of_the_crate(program: Path | None, test: str, request: pytest.FixtureRequest) -> None:
    """It passes: the exit code and its own summary say so."""
    if program is None:
        where = _expected().get("artifacts") or "no artifacts directory was named"
        pytest.skip(f"no test program {smoke_suite.PROGRAM}* was built ({where})")
    if not test:
        code, text = call(program, "--list", "--format", "terse")
        pytest.fail(
            f"{program.name} lists no test: it {ended(code)}: {text[-2000:]}", pytrace=False
        )
    request.getfixturevalue("gpu")
    code, text = call(program, "--exact", test, "--nocapture", "--test-threads", "1")
    print(text)
    if code or "test result: ok. 1 passed" not in text:
        pytest.fail(f"{test} {ended(code)}: {text.strip()[-500:]}", pytrace=False)
