"""A case that ends the interpreter is one failed case: shown with real crashes, no GPU needed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from smoke_runs import EXPECT, Outcome, run, shipped, wheel

from pipelines.remote import tester

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX"),
]

SUITE = """
TORCH = False
MODULES = ("demo",)
def facts(*, gpu):
    return {"demo": "1"}
def lost():
    import demo
    return demo.lost
"""
CRASHES = """
import ctypes, os, time
import pytest
def test_before(): pass
def test_segfault(): ctypes.string_at(0)
def test_between(record_suite): record_suite("has.between", "yes")
def test_abort(): os.abort()
def test_exit(): os._exit(5)
def test_hang(): time.sleep(600)
def test_hang_with_the_lock(): ctypes.PyDLL(None).sleep(600)
def test_fails(): assert 1 == 2
def test_loses_the_gpu():
    import demo
    demo.lost = True
    raise RuntimeError("an illegal memory access was encountered")
def test_after(pytestconfig):
    import demo
    assert not demo.lost
"""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("crash")
    suite = shipped() | {"smoke_suite.py": SUITE, "test_z.py": CRASHES}
    made = wheel(folder, "demo", {"demo.py": b"lost = False\n"})
    return run(folder, suite, made, EXPECT, {"SMOKE_CASE_SECONDS": "3"})


def test_the_others_go_on(crashed: Outcome) -> None:
    passed = crashed.outcomes("passed")
    assert {"test_before", "test_between", "test_after"} <= set(passed)
    assert crashed.result["exit"] == 1
    assert crashed.result["step"] == "pytest"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_segfault", f"signal {int(signal.SIGSEGV)} (SIGSEGV)"),
        ("test_abort", f"signal {int(signal.SIGABRT)} (SIGABRT)"),
        ("test_exit", "exited with code 5"),
        ("test_hang", "hung: no end after 3 s"),
        ("test_hang_with_the_lock", "hung: no end after 3 s"),
        ("test_fails", "assert 1 == 2"),
    ],
)
def test_each_end_is_a_failure_with_its_reason(crashed: Outcome, name: str, reason: str) -> None:
    case = crashed.case(name)
    assert case.outcome == "failed"
    assert reason in case.message


def test_a_lost_gpu_gets_a_new_process(crashed: Outcome) -> None:
    failed = [case for case in crashed.suite.cases if case.name == "test_loses_the_gpu"]
    assert failed
    assert all(case.outcome in ("failed", "error") for case in failed)
    said = " ".join(case.message for case in failed)
    assert "illegal memory access" in said or "context was lost" in said


def test_the_stack_of_a_crash_and_of_a_hang_are_in_the_log(crashed: Outcome) -> None:
    assert "Fatal Python error: Segmentation fault" in crashed.log
    assert "Timeout (0:00:03)!" in crashed.log


def test_the_reason_for_no_gpu_and_facts_are_properties(crashed: Outcome) -> None:
    properties = crashed.suite.properties
    assert "no NVIDIA driver" in properties["gpu_unavailable"]
    assert properties["python"] == sys.version.split()[0]
    assert properties["has.between"] == "yes"
    assert properties["demo"] == "1"
    assert not any("suite:" in name for case in crashed.suite.cases for name in case.properties)


def test_only_the_wheel_was_installed(crashed: Outcome) -> None:
    """``packages`` are the environment's own business when it is used as it is."""
    assert crashed.case("test_metadata_has_the_expected_name_and_version").outcome == "passed"
    site = next(Path(str(crashed.result["junit"])).parent.glob("venv/lib/*/site-packages"))
    assert {path.name for path in site.iterdir() if path.suffix != ".pth"} == {
        "demo.py",
        "demo-1.0.dist-info",
        "__pycache__",
    }


def test_always_crashing_ends_soon_and_time_runs_out(tmp_path: Path) -> None:
    text = "import os, pytest\n@pytest.mark.parametrize('n', range(40))\n"
    suite = {name: text for name, text in shipped().items() if not name.startswith("test_")}
    suite |= {
        "smoke_suite.py": SUITE,
        "test_z.py": text + "def test_abort(n): os.abort()\n",
    }
    made = wheel(tmp_path, "demo", {"demo.py": b"lost = False\n"})
    outcome = run(tmp_path, suite, made, EXPECT)
    assert len(outcome.outcomes("failed", "error")) == 8
    skipped = [case for case in outcome.suite.cases if case.outcome == "skipped"]
    assert len(skipped) == 32
    assert {case.message for case in skipped} == {"not run: 8 cases before it ended their process"}


def test_too_little_time_is_a_finished_report(tmp_path: Path) -> None:
    suite = {name: text for name, text in shipped().items() if not name.startswith("test_")}
    text = "import time, pytest\n@pytest.mark.parametrize('n', range(5))\n"
    suite |= {"smoke_suite.py": SUITE, "test_z.py": text + "def test_slow(n): time.sleep(2)\n"}
    made = wheel(tmp_path, "demo", {"demo.py": b"lost = False\n"})
    outcome = run(tmp_path, suite, made, EXPECT, {"SMOKE_SECONDS": "3"})
    late = outcome.outcomes("failed", "error")
    assert 1 <= len(late) <= 4
    assert "not run: the suite's 3 s are used up" in outcome.case(late[-1]).message


def test_the_given_environment_is_untouched(crashed: Outcome) -> None:
    assert crashed.result["junit"]
    assert importlib.util.find_spec("demo") is None


@pytest.mark.parametrize("installer", ["", "uv"])
@pytest.mark.parametrize("system", [False, True])
def test_what_is_installed_how(tmp_path: Path, system: bool, installer: str) -> None:
    spec: Any = {
        "installer": installer,
        "python": "/opt/python",
        "wheel": "/x.whl",
        "packages": ["/w/pytest-9.2.0-py3-none-any.whl"],
        "system": system,
    }
    steps = dict(
        tester._smoke_test_steps(spec, tmp_path, tmp_path / "suite", tmp_path / "junit.xml")
    )
    assert list(steps) == ["venv", "install", "pytest"]
    assert ("uv" in steps["venv"]) == (installer == "uv" and not system)
    install = steps["install"]
    assert install[0] == ("uv" if installer else str(tmp_path / "venv/bin/python"))
    assert "--no-index" in install
    assert ("--no-deps" in install) == system
    assert ("/w/pytest-9.2.0-py3-none-any.whl" in install) == (not system)
    assert "--find-links" not in install  # what other builds left on the host is not seen


def test_no_wheel_means_nothing_to_install(tmp_path: Path) -> None:
    spec: Any = {
        "installer": "",
        "python": "/o/python",
        "wheel": "",
        "packages": [],
        "system": True,
    }
    steps = dict(tester._smoke_test_steps(spec, tmp_path, tmp_path, tmp_path))
    assert list(steps) == ["venv", "pytest"]


@pytest.mark.skipif(not shutil.which("uv", path=Path(sys.executable).parent), reason="needs uv")
def test_uv_installs_over_a_given_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only with these: a host's own variables for uv do not reach it."""
    (tmp_path / "bounds.txt").write_text("demo==2.0\n")
    monkeypatch.setenv("UV_CONSTRAINT", str(tmp_path / "bounds.txt"))
    made = wheel(tmp_path, "demo", {"demo.py": b"lost = False\n"})
    suite = {name: text for name, text in shipped().items() if not name.startswith("test_e")}
    uv = str(shutil.which("uv", path=Path(sys.executable).parent))
    outcome = run(tmp_path, suite | {"smoke_suite.py": SUITE}, made, EXPECT, installer=uv)
    assert outcome.outcomes("failed", "error") == []
    assert len(outcome.outcomes("passed")) == 3


def test_an_environment_without_pip(tmp_path: Path) -> None:
    """As uv makes them: the wheel is installed all the same."""
    given = tmp_path / "given"
    command = [sys.executable, "-m", "venv", "--without-pip", str(given)]
    subprocess.run(command, check=True)
    python = given / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    spec: tester.Spec = {
        "directory": str(tmp_path / "t"),
        "installer": "",
        "python": str(python),
        "system": True,
        "wheel": str(wheel(tmp_path, "demo", {"demo.py": b""})),
        "packages": [],
        "suite": {},
        "expect": {},
        "environment": {},
        "timeout": 120.0,
    }
    *log, last = tester.run_suite(spec)
    assert isinstance(last, dict)
    assert last["step"] == "pytest", log  # which it has not


TOOLKIT = ("CUDA_PATH", "CUDA_HOME", "CUDA_PATH_V13_0")


@pytest.mark.parametrize("system", [True, False])
def test_whose_environment_it_is_chooses_neither_tests_nor_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: bool
) -> None:
    """PYTEST_ADDOPTS=-k would leave cases out; an environment that is used as it is has its own.

    No toolkit is seen either: what is found must be in the wheel, or in what it requires.
    """
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONPATH", "KEPT", *TOOLKIT):
        monkeypatch.setenv(name, "said")
    seen: list[set[str]] = []

    def stream(_: object, **given: Any) -> Iterator[dict[str, object]]:
        if env := given.get("env"):
            seen.append({name for name, value in env.items() if value == "said"})
            assert not {*TOOLKIT} & env.keys()  # not even empty
        yield {"exit": 1, "timed_out": False}

    monkeypatch.setattr("pipelines.remote.process.stream", stream)
    spec: tester.Spec = {
        "directory": str(tmp_path / "t"),
        "installer": "",
        "python": sys.executable,
        "system": system,
        "wheel": "",
        "packages": [],
        "suite": {},
        "expect": {},
        "environment": {},
        "timeout": 120.0,
    }
    [*tester.run_suite(spec)]
    assert seen == [{"KEPT", *(["PYTHONPATH"] if system else [])}]
