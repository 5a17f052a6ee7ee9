"""A good flash-attn wheel passes its suite; wheels broken on purpose fail it, for their reason.

``SMOKE_TEST_WHEEL`` is the good wheel, ``SMOKE_TEST_PYTHON`` a Python with torch, pytest and
pytest-xdist (this one if it is not set).
"""

from __future__ import annotations

import os
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest
from broken_wheels import break_wheel
from run_suite import run

_SECONDS = 180.0  # of the good suite, on one GPU


@dataclass(frozen=True)
class Report:
    """Case name -> ``passed``, ``skipped`` or ``failed``, and what it said."""

    outcomes: dict[str, str]
    messages: dict[str, str]
    properties: dict[str, str]
    seconds: float

    def of(self, outcome: str) -> list[str]:
        return [name for name, each in self.outcomes.items() if each == outcome]


def read(path: Path, seconds: float) -> Report:
    outcomes, messages = {}, {}
    root = ET.parse(path).getroot()  # noqa: S314  written by the run above
    for case in root.iter("testcase"):
        name = case.get("name", "")
        found = [e for e in case if e.tag in ("failure", "error", "skipped")]
        outcomes[name] = (
            "passed" if not found else "skipped" if found[0].tag == "skipped" else "failed"
        )
        messages[name] = " ".join(element.get("message", "") for element in found)
    rows = root.iterfind("testsuite/properties/property")
    properties = {row.get("name", ""): row.get("value", "") for row in rows}
    return Report(outcomes, messages, properties, seconds)


@pytest.fixture(scope="module")
def good() -> Path:
    told = os.environ.get("SMOKE_TEST_WHEEL")
    if not told:
        pytest.skip("SMOKE_TEST_WHEEL names no wheel")
    return Path(told).resolve()


def report_of(wheel: Path, out: Path, **environment: str) -> Report:
    began = time.monotonic()
    python = os.environ.get("SMOKE_TEST_PYTHON", sys.executable)
    result = run("flash_attn", wheel, out, python=python, environment=environment)
    log = (out / "smoke.log").read_text("utf-8", "replace")
    assert result["junit"], log[-3000:]
    return read(out / "smoke.xml", time.monotonic() - began)


def test_the_good_wheel_passes_in_time(good: Path, tmp_path: Path) -> None:
    report = report_of(good, tmp_path)
    failed = {name: report.messages[name] for name in report.of("failed")}
    assert not failed
    assert report.properties["has.backward.hdim256"] == "yes"
    assert report.properties["module_loading"] == "lazy"
    assert float(report.properties["memory.growth_4096_to_8192"]) < 2.5
    assert report.seconds < _SECONDS


def test_too_little_memory_falls_back_to_a_smaller_batch(good: Path, tmp_path: Path) -> None:
    report = report_of(good, tmp_path, SMOKE_GPU_MEMORY_MIB="2000")
    assert not report.of("failed")
    assert "out of GPU memory" in (tmp_path / "smoke.xml").read_text()


def test_wrong_arch(good: Path, tmp_path: Path) -> None:
    report = report_of(break_wheel(good, tmp_path, "wrong_arch"), tmp_path)
    assert report.of("failed") == ["test_device_code_for_every_gpu"]
    said = report.messages["test_device_code_for_every_gpu"]
    assert "SASS for 75" in said
    assert report.properties["gpu0_name"] in said


def test_wrong_torch(good: Path, tmp_path: Path) -> None:
    report = report_of(break_wheel(good, tmp_path, "wrong_torch"), tmp_path)
    assert report.of("failed") == ["test_package_imports_in_a_fresh_interpreter"]
    said = report.messages["test_package_imports_in_a_fresh_interpreter"]
    assert "undefined symbol" in said
    assert "torchChuckFail" in said


def test_no_backward(good: Path, tmp_path: Path) -> None:
    report = report_of(break_wheel(good, tmp_path, "no_backward"), tmp_path)
    assert report.properties["has.forward.hdim64"] == "yes"
    assert "does not support backward" in report.properties["has.backward.hdim64"]
    assert "test_head_dimension[64]" in report.of("failed")
    assert "test_forward_is_deterministic[fp16-64]" in report.of("passed")


def test_one_crash_takes_nothing_with_it(good: Path, tmp_path: Path) -> None:
    report = report_of(break_wheel(good, tmp_path, "crashing"), tmp_path)
    failed = report.of("failed")
    assert failed
    assert any("SIGSEGV" in report.messages[name] for name in failed)
    # Head dimension 160 alone crashes: whatever else ran has passed.
    assert all("160" in name for name in failed), failed
    assert len(report.of("passed")) > 200


def test_a_hang_ends(good: Path, tmp_path: Path) -> None:
    report = report_of(break_wheel(good, tmp_path, "hanging"), tmp_path, SMOKE_CASE_SECONDS="40")
    failed = report.of("failed")
    assert failed
    assert all("160" in name and "hung" in report.messages[name] for name in failed)


def test_wrong_numbers(good: Path, tmp_path: Path) -> None:
    """Two per cent off: no import test and no look at finite values would see it."""
    report = report_of(break_wheel(good, tmp_path, "wrong_numbers"), tmp_path)
    failed = report.of("failed")
    assert len([name for name in failed if name.startswith("test_forward_and_backward[fp16")]) == 36
