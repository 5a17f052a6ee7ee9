"""What runs a script of the user's with a wheel that others have built."""

from __future__ import annotations

from pathlib import Path

import pytest
from smoke_runs import Outcome, run, wheel

from pipelines.recipe.suite import suite_of_given
from pipelines.reports.figures import extract_figures

pytestmark = pytest.mark.faults


def ran(folder: Path, code: str, **environment: str) -> Outcome:
    script = folder / "numbers.py"
    script.write_text(code)
    made = wheel(folder, "demo", {"demo/__init__.py": b"", "demo/inner.py": b""})
    expect = {"distribution": "demo", "version": "1.0", "platform": None, "given": True}
    return run(folder, suite_of_given(script).files, made, expect, environment)


def test_its_numbers_are_figures_and_nothing_else_is(tmp_path: Path) -> None:
    code = r"""
import demo
print("a = 1")
print("mean value = -2.5e-3")
print("a = 2")
print(" b = 3")
print("c = 4 seconds")
print("d = 1")
print("d = nan")
print("e=5")
print("\x1b[31mf = 6\x1b[0m")
print("g = 7".encode("utf-16-le").decode("latin-1"))
"""
    done = ran(tmp_path, code)
    case = done.case("test_script")
    assert case.outcome == "passed", case.detail
    told = {
        one.subject: one.value for one in extract_figures(done.suite.properties, done.suite.cases)
    }
    assert told == {"a": 2.0, "mean value": -0.0025, "f": 6.0, "g": 7.0}
    assert case.properties["script.d"] == "nan", "the 1 that it was does not stay"
    assert "c = 4 seconds" in case.properties["output"]
    assert done.suite.properties["script"] == "numbers.py"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('first'); raise SystemExit(3)", "exited with code 3: first"),
        ("raise ValueError('odd')", "exited with code 1: ValueError: odd"),
        ("import os; os.abort()", "was ended by signal 6"),
        ("", ""),
    ],
)
def test_how_it_ends_is_the_verdict(tmp_path: Path, code: str, said: str) -> None:
    case = ran(tmp_path, code).case("test_script")
    assert case.outcome == ("failed" if said else "passed")
    assert said in case.message + case.detail


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    code = "import time; print('begun'); time.sleep(100)"
    case = ran(tmp_path, code, SMOKE_CASE_SECONDS="23").case("test_script")
    assert case.outcome == "failed"
    assert "numbers.py hung for 3 s: begun" in case.message + case.detail


def test_output_without_an_end_is_bounded(tmp_path: Path) -> None:
    code = "for n in range(30000): print('x' * 100)\nprint('y' * 3_000_000)\nprint('z = 1')"
    case = ran(tmp_path, code).case("test_script")
    assert case.outcome == "passed"
    assert len(case.properties["output"]) <= 6000
    assert case.properties["script.z"] == "1"
