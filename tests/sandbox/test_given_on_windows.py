"""Wheels that others have built, in the Windows of the sandbox; no index is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.core.errors import SmokeError
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.record.results import PrebuiltResult, SmokeResult
from pipelines.reports.compare import compare_runs
from pipelines.reports.load import load_view
from pipelines.stages.given import run_given
from pipelines.stages.line import Line
from pipelines.toolchain.lock import Cache

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from foreign_wheels import foreign

SCRIPT = """
import ctypes, os, other, sys
print("loaded =", bool(ctypes.WinDLL("mine.dll")))
print("value = %d" % other.VALUE)
print("third = %.3f" % (1 / 3))
print("no number = x")
print("found =", any("tool" in place for place in os.environ["PATH"].split(os.pathsep)))
sys.exit(other.VALUE - 1)
"""
NEEDS = b"""
import ctypes
ctypes.WinDLL("cublas64_12.dll")
"""


@contextmanager
def line_of(line: Line, tmp_path: Path, wheel: Path) -> Iterator[Line]:
    """A line for the wheel on the same sandbox, with its requirements."""
    settings = Config.model_validate(
        {"hosts": {"sandbox": {"kind": "sandbox"}}, "out": str(tmp_path / "out"), "offline": True}
    )
    plan = resolve_build_plan(settings, Request(wheel=str(wheel)), host=line.plan.host)
    cache = Cache(line.plan.cache.lock, wheelhouse=wheel.parent, offline=False)
    for entry in cache.lock.entries_for(("pytest", "pytest-xdist"), plan.target).values():
        cache.fetch(entry)
    cache.offline = True
    made = Line(replace(plan, cache=cache), line.session)
    yield made
    made.run.close()


def test_a_wheel_with_what_it_requires_and_a_script(line: Line, tmp_path: Path) -> None:
    house = tmp_path / "house"
    wheel = foreign(house, requires=["dep; sys_platform == 'win32'", "gone; os_name == 'posix'"])
    foreign(house, "dep")
    line.session.connect()
    assert isinstance(line.plan.host, Sandbox)
    dll = next((line.plan.host.prefix / "drive_c").glob("Python*/**/libffi*.dll"))
    foreign(house, "tool", files={"tool/bin/mine.dll": dll.read_bytes(), "tool/__init__.py": b""})
    script = tmp_path / "numbers.py"
    script.write_text(SCRIPT)
    views = []
    for value in (1, 1, 3):
        foreign(house, requires=["dep"], files={"other/__init__.py": b"VALUE = %d\n" % value})
        with line_of(line, tmp_path, wheel) as own:
            if value == 1:
                run_given(own, companions=["tool==1.0"], script=str(script))
            else:
                with pytest.raises(SmokeError, match="1 of 12 smoke cases failed"):
                    run_given(own, companions=["tool==1.0"], script=str(script))
            taken, done = own.run.result(PrebuiltResult), own.run.result(SmokeResult)
            assert taken is not None
            assert taken.company is not None
            names = [one.file.partition("-")[0] for one in taken.company.packages]
            assert {"dep", "tool", "pytest", "xdist"} - {*names} <= {"xdist"}
            assert taken.company.libraries == ("tool/bin",)
            assert done is not None
            assert done.script == "numbers.py"
            views.append(load_view(own.run))
            report = (own.run.path / "smoke.xml").read_text()
            assert "found = True" in report
            assert "loaded = True" in report
    first, second, third = views
    figures = {figure.subject: figure.value for figure in first.figures}
    assert figures == {"value": 1.0, "third": 0.333}
    assert not [d for d in compare_runs(first, second).differences if d.kind == "number"]
    (other,) = [d for d in compare_runs(first, third).differences if d.kind == "number"]
    assert (other.subject, other.before, other.after) == ("value", "1", "3")
    assert third.verdict == "failed"


def test_a_library_that_lacks_is_named(line: Line, tmp_path: Path) -> None:
    wheel = foreign(tmp_path / "house", files={"other/__init__.py": NEEDS})
    with line_of(line, tmp_path, wheel) as own, pytest.raises(SmokeError) as caught:
        run_given(own)
    assert "cublas64_12.dll is in nvidia-cublas-cu12" in caught.value.hint


def test_a_file_of_pytest(line: Line, tmp_path: Path) -> None:
    wheel = foreign(tmp_path / "house")
    script = tmp_path / "test_other.py"
    script.write_text("def test_value():\n    import other\n    assert other.VALUE == 1\n")
    with line_of(line, tmp_path, wheel) as own:
        run_given(own, script=str(script))
        done = own.run.result(SmokeResult)
        assert done is not None
        assert (done.limits, done.outcomes["passed"]) == ("", 5)
