"""Wheels that are broken on purpose, in a sandbox with a GPU bridge: each fails for its reason.

The good one is built there. A case that ends the interpreter, hangs or loses the GPU's context is
one failed case: those after it run in a new process, and the sandbox goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bridged import bridged_line, kept, report_of, require_gpu_and_wine
from broken_wheels import break_wheel

from pipelines.recipe.suite import suite_of
from pipelines.record.results import AuditResult
from pipelines.remote import files, tester
from pipelines.reports.junit import read_pytest
from pipelines.reports.model import Case, Suite
from pipelines.stages.line import Line, run_build
from pipelines.stages.test import suite_expectations, suite_spec

_TOUCHED = 4  # cases with head dimension 96 and 17 queries: two dtypes, two masks


@dataclass(frozen=True)
class Built:
    """The line that a good wheel was built on, and the wheel."""

    line: Line
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    require_gpu_and_wine()
    with bridged_line(tmp_path_factory.mktemp("broken")) as line:
        (wheel,) = (run_build(line) / "wheels").glob("*.whl")
        yield Built(line, wheel)


def suite_on(built: Built, fault: str, tmp_path: Path, **environment: str) -> Suite:
    """The suite's report on the wheel with this fault; on the good one if it is empty."""
    line, wheel = built.line, built.wheel
    if fault:
        wheel = break_wheel(wheel, tmp_path, fault)
    audit = line.run.result(AuditResult)
    assert audit is not None
    expected = suite_expectations(line.plan, audit.files[0])
    directory = line.plan.layout.join(line.plan.layout.build_root, f"broken-{fault or 'not'}")
    sent = line.plan.layout.join(f"{directory}-wheel", wheel.name)
    line.session.call(files.make_dirs, path=f"{directory}-wheel")
    line.session.put(wheel, sent)
    spec = suite_spec(line.plan, directory, sent, suite_of(line.plan.recipe).files, expected)
    spec["environment"] |= environment
    out = kept(f"broken-{fault or 'not'}", tmp_path)
    ran = line.session.stream(tester.run_suite, spec=spec)
    line.session.get(report_of(ran, out / "smoke.log"), out / "smoke.xml")
    for folder in (directory, f"{directory}-wheel"):
        line.session.call(files.remove_tree, path=folder)
    suite = read_pytest((out / "smoke.xml").read_bytes())
    assert suite.properties["driver_bridge"].endswith("libcuda.so.1")
    return suite


def failed(suite: Suite) -> list[Case]:
    return [case for case in suite.cases if case.outcome in ("failed", "error")]


def passed(suite: Suite) -> int:
    return sum(case.outcome == "passed" for case in suite.cases)


def test_the_good_wheel(built: Built, tmp_path: Path) -> None:
    suite = suite_on(built, "", tmp_path)
    assert not failed(suite)
    assert passed(suite) > 140


def test_wrong_arch(built: Built, tmp_path: Path) -> None:
    """Cubins for sm_75 alone, no PTX: no case runs on a newer GPU, and one failure says why."""
    suite = suite_on(built, "wrong_arch", tmp_path)
    names = {case.name for case in failed(suite)}
    assert "test_device_code_for_every_gpu" in names
    told = next(c for c in failed(suite) if c.name == "test_device_code_for_every_gpu")
    assert suite.properties["gpu0_name"] in told.message + told.detail
    assert not any(
        case.outcome == "passed" for case in suite.cases if case.classname.endswith("test_gpu")
    )


def test_wrong_numbers(built: Built, tmp_path: Path) -> None:
    """Two per cent off in every value."""
    suite = suite_on(built, "smoke_wrong_numbers", tmp_path)
    wrong = [case for case in failed(suite) if case.name.startswith("test_matches_plain_python")]
    assert len(wrong) == 80


@pytest.mark.parametrize("fault", ["smoke_crashing", "smoke_lost_context"])
def test_what_ends_a_process_is_one_failed_case_each(
    built: Built, tmp_path: Path, fault: str
) -> None:
    suite = suite_on(built, fault, tmp_path)
    bad = failed(suite)
    assert len(bad) == _TOUCHED, [case.name for case in bad]
    assert all("96" in case.name and "17x33" in case.name for case in bad), bad
    said = "an access violation" if fault == "smoke_crashing" else "700"
    assert all(said in case.message + case.detail for case in bad), bad
    assert passed(suite) > 130


def test_a_hang_ends(built: Built, tmp_path: Path) -> None:
    suite = suite_on(built, "smoke_hanging", tmp_path, SMOKE_CASE_SECONDS="10")
    (bad,) = failed(suite)
    assert "96" in bad.name
    assert "hung" in bad.message + bad.detail
    assert passed(suite) > 140
