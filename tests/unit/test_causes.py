"""Failures by cause: one cause in many cells is one, two causes in one stage are two."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from rich.console import Console

from pipelines.record.diagnosis import DiagnosisResult
from pipelines.record.run import Run
from pipelines.reports import html as pages
from pipelines.reports import markdown, terminal
from pipelines.reports.failures import Cause, group_failure_causes, mask_cell_details
from pipelines.reports.load import load_view
from pipelines.reports.model import Case
from pipelines.reports.views import RunView, unique_run_names

CELLS: tuple[dict[str, Any], ...] = (
    {"python": "3.12", "cuda": "12.8", "torch": "2.8"},
    {"python": "3.13", "cuda": "13.0", "torch": "2.9", "host": "other"},
)


def ended(out: Path, name: str, message: str, kind: str = "", hint: str = "", **cell: Any) -> Run:
    run = Run.create(out, samples.facts(**cell))
    failed = samples.error(message, kind or "BuildError", hint)
    samples.stage(run, name, "failed", failed=failed)
    return run


def found(*runs: Run) -> tuple[tuple[Cause, ...], str]:
    views = [load_view(run) for run in runs]
    return group_failure_causes(views), pages.render(views)


def test_two_causes_in_one_stage_are_two(tmp_path: Path) -> None:
    no_index = ended(tmp_path, "provision", "index.example cannot be reached", "LockError", "Try.")
    no_pin = ended(tmp_path, "provision", "there is no pin of cython", "LockError", "Pin cython.")
    another = ended(tmp_path, "provision", "there is no pin of numpy", "LockError", "Pin numpy.")
    made, page = found(no_index, no_pin, another)
    assert {(cause.title, cause.hint, cause.runs) for cause in made} == {
        ("index.example cannot be reached", "Try.", (0,)),
        ("there is no pin of cython", "Pin cython.", (1,)),
        ("there is no pin of numpy", "Pin numpy.", (2,)),
    }
    block = page[page.index("there is no pin of cython") :].partition("</ul>")[0]
    assert "Pin cython." in block
    assert "#run-1" in block
    assert "#run-0" not in block


def test_one_cause_in_two_stages_and_cells_is_one(tmp_path: Path) -> None:
    said = "the disk of {host} is full: {path} needs 120 MiB, as {cell} has 3 of 73 units"
    first, second = CELLS
    one = said.format(host="lab", path=r"C:\b\0123456789ab\x.obj", cell="cp312")
    two = said.format(host="other", path=r"D:\w\ba9876543210\x.obj", cell="cp313")
    runs = [
        ended(tmp_path, "build", one, "StorageError", "Free some space.", **first),
        ended(tmp_path, "collect", two, "StorageError", "Free some space.", **second),
    ]
    (cause,), page = found(*runs)
    assert cause.runs == (0, 1)
    assert cause.where == ("build", "collect")
    assert page.count('<div class="failure">\n<h3>') == 1
    block = page[page.index("2 of 2 runs:") :].partition("</ul>")[0]
    assert all(f"#run-{n}" in block for n in cause.runs)


def test_a_summary_is_grouped_as_the_page_is(tmp_path: Path) -> None:
    runs = [samples.failed_build(tmp_path, **cell) for cell in CELLS]
    runs.append(ended(tmp_path, "build", "there is no pin of cython", "LockError", "Pin it."))
    said = markdown.summary([load_view(run) for run in runs])
    heads = [line for line in said.splitlines() if line.startswith("### ")]
    assert len(heads) == 2
    assert heads[0].startswith("### cudafe")
    first, second = said.partition(heads[1])[::2]
    assert "2 of 3 runs: cp312, torch 2.8, CUDA 12.8" in first
    assert "Pin it" not in first
    assert "1 of 3 runs" in second
    assert "Pin it" in second


def test_another_class_or_cure_is_another_cause(tmp_path: Path) -> None:
    runs = [
        ended(tmp_path, "build", "it ended", "BuildError", "a"),
        ended(tmp_path, "build", "it ended", "HostError", "a"),
        ended(tmp_path, "build", "it ended", "BuildError", "b"),
        ended(tmp_path, "build", "it exited with 1", "BuildError", "a"),
        ended(tmp_path, "build", "it exited with 2", "BuildError", "a"),
        ended(tmp_path, "build", "it exited with 2", "BuildError", "a"),
    ]
    assert sorted(cause.runs for cause in found(*runs)[0]) == [(0,), (1,), (2,), (3,), (4, 5)]


def test_what_is_diagnosed_is_known_by_its_rule(tmp_path: Path) -> None:
    runs = [samples.failed_build(tmp_path, **cell) for cell in CELLS]
    runs.append(ended(tmp_path, "build", "the build exited with code 1"))
    made, _ = found(*runs)
    assert [cause.runs for cause in made] == [(0, 1), (2,)]
    assert made[0].title.startswith("cudafe++ of CUDA")


def test_lines_that_no_rule_knows_are_told_apart(tmp_path: Path) -> None:
    runs = []
    for text in ("odd.cu(7): error: no x", "odd.cu(7): error: no y", "odd.cu(7): error: no y"):
        run = Run.create(tmp_path, samples.facts())
        seen = DiagnosisResult(
            id="unit-failed", is_cause=False, cause="a unit failed", hint="", line=1, text=text
        )
        failed = samples.error("it left")
        samples.stage(run, "build", "failed", result=samples.built(diagnosis=seen), failed=failed)
        runs.append(run)
    assert [cause.runs for cause in found(*runs)[0]] == [(1, 2), (0,)]


def test_cases_of_one_error_are_one_cause(tmp_path: Path) -> None:
    def smoked(*cases: Case) -> Run:
        run = samples.good(tmp_path)
        samples.smoke(run, list(cases), "failed")
        return run

    no_kernel = "RuntimeError: CUDA error: no kernel image is available"
    first = smoked(
        Case("test_a[1]", "test_x", outcome="failed", message=no_kernel),
        Case("test_b[2]", "test_x", outcome="failed", message=no_kernel),
    )
    second = smoked(
        Case("test_a[1]", "test_x", outcome="failed", message=no_kernel),
        Case("test_c", "test_x", outcome="failed", message="AssertionError: assert 1 == 2"),
        Case("test_d", "test_x", outcome="failed", message="AssertionError: assert 1 == 2"),
    )
    made, page = found(first, second)
    assert [cause.runs for cause in made] == [(0, 1), (1,), (1,)], "a claim is a test's own"
    assert "junit.xml</p>" not in page, "no hint that only points elsewhere"
    assert not [failure for failure in load_view(first).failures if failure.kind == "stage"]


def test_a_refused_wheel_is_told_by_its_checks_with_the_cure(tmp_path: Path) -> None:
    run = Run.create(tmp_path, samples.facts())
    checks = [samples.check(name, "error", "75", "80") for name in ("SASS", "PTX")]
    no = samples.error("x.whl is not it", "AuditError", "Ask for other archs.")
    samples.stage(run, "audit", "failed", result=samples.audited(*checks), failed=no)
    made, _ = found(run)
    assert [(cause.title, cause.hint) for cause in made] == [
        ("PTX of the wheel", "Ask for other archs."),
        ("SASS of the wheel", "Ask for other archs."),
    ]


def test_what_is_unfinished_has_not_failed(tmp_path: Path) -> None:
    """Its state, its words and its marks are those of something that goes on."""
    up = ended(tmp_path, "build", "ended after 5 minutes", "TimeUpError", "It goes on.")
    stopped = Run.create(tmp_path, samples.facts())
    samples.stage(stopped, "build", "interrupted", failed=samples.error("x", "Interrupted"))
    for run in (up, stopped, samples.killed(tmp_path)):
        view = load_view(run)
        assert (view.verdict, view.failures) == ("unfinished", ())
        assert "failed" not in {stage.state for stage in view.stages}
        page = pages.render([view])
        assert "✗" not in page
        assert 'id="failures"' not in page
        assert "❌" not in markdown.summary([view])
        out = io.StringIO()
        Console(file=out, width=200).print(terminal.render([view]))
        assert "✗" not in out.getvalue()
        assert f"… {view.headline}" in out.getvalue()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (r"C:\b\0123abcd4567\cuda_runtime.h is missing", "cuda_runtime.h is missing"),
        ("/root/b/1/include/Python.h: no such file", "Python.h: no such file"),
        ("flash_attn-2.8.3+cu128-cp312-cp312-win_amd64.whl is odd", "flash_attn.whl is odd"),
        ("Python 3.12 on lab, 12.8.93", "Python <python> on <host>, 12.8.93"),
        ("exited with 3221225477, 0xC0000005", "exited with 3221225477, 0xC0000005"),
        ("cp313 after 5 minutes, 99 %", "cp# after #, #"),
        ("https://example.org/a/b is gone", "https://example.org/a/b is gone"),
    ],
)
def test_words(text: str, kept: str) -> None:
    assert mask_cell_details(text, samples.facts().target) == kept


def view(run: Run, created: str = "2026-11-22T00:19:31+00:00", name: str = "") -> RunView:
    run.note(created=created)
    return load_view(run)


@pytest.mark.slow
def test_runs_have_names_of_their_own(tmp_path: Path) -> None:
    alone = [view(samples.good(tmp_path, python=said)) for said in ("3.12", "3.13")]
    assert unique_run_names(alone)[0] == "cp312, torch 2.8, CUDA 12.8, 80;86;89;90", (
        "as short as may be"
    )
    packages = [view(samples.good(tmp_path, version=said)) for said in ("2.8.3", "2.7.4")]
    assert [name.rpartition(", ")[2] for name in unique_run_names(packages)] == [
        "flash-attn 2.8.3",
        "flash-attn 2.7.4",
    ]
    times = [view(samples.good(tmp_path), f"2026-11-22T00:19:{n:02}+00:00") for n in range(18)]
    assert len(set(unique_run_names(times))) == 18
    assert unique_run_names(times)[3].endswith("2026-11-22 00:19:03")
    same = [view(samples.good(tmp_path)) for _ in range(3)]
    assert len(set(unique_run_names(same))) == 3, "even of one second"
    page = pages.render(times)
    rows = page[page.index('id="times"') :].partition("</tbody>")[0]
    assert all(f"2026-11-22 00:19:{n:02}" in rows for n in range(18))
    assert rows.count("flash-attn 2.8.3") == rows.count("CUDA 12.8") == 18
