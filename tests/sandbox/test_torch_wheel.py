"""The recipe smoke-attention-torch in the sandbox: one wheel, two genuine releases of torch.

Its CPU half is run, on Windows' Python with Windows' torch; its CUDA half is built, audited and
loaded, and no more: there is no GPU, and a torch without CUDA would not ask for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lines import line_below, wheel_of

from pipelines.recipe.suite import suite_of
from pipelines.record.results import AuditResult, SmokeResult
from pipelines.remote import files, tester
from pipelines.reports.junit import read_pytest
from pipelines.reports.load import read_smoke
from pipelines.stages.line import Line, run_build, run_test
from pipelines.stages.test import suite_expectations, suite_spec
from pipelines.wheels.metadata import inspect_wheel

#: Why a case may be skipped where there is no GPU and torch has no CUDA; anything else is a gap.
REASONS = (
    "no NVIDIA driver (nvcuda.dll) on this host",
    "this host takes a CPU build of torch",
    "no GPU was asked for on this host",
    "this Python always has the global lock",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The line, from nothing to an audited wheel."""
    base = tmp_path_factory.mktemp("torch-wheel")
    with line_below(base, recipe="smoke-attention-torch", archs="80;90+PTX") as line:
        run_build(line)
        yield line


def test_the_wheel_is_for_every_python(built: Line) -> None:
    wheel = wheel_of(built)
    assert wheel.name.endswith("+cu130.sandbox-py3-none-win_amd64.whl")
    audit = built.run.result(AuditResult)
    assert audit is not None
    checks = {check.id: check for check in audit.files[0].checks}
    assert not any(check.failed for check in checks.values())
    assert checks["toolset"].level == "ok"
    assert checks["sass"].values == ("80", "90")
    for library in inspect_wheel(wheel).binaries:
        assert library.of_python == ()
        assert library.pe is not None
        imports = {name.lower() for name in library.pe.imports}
        assert "torch_cpu.dll" in imports
        assert not imports & {"msvcp140.dll", "torch_python.dll", "torch_cuda.dll"}
        names = [name for dll, name in library.pe.needs or () if dll == "torch_cpu.dll"]
        assert names
        assert [n for n in names if n.startswith("?")] == [], "names of C alone: the stable ABI"


def test_two_releases_of_torch_run_it(built: Line) -> None:
    run_test(built)
    done = built.run.result(SmokeResult)
    assert done is not None
    assert done.system.startswith("Wine 10.")
    assert [one.asked for one in done.torches] == ["2.10", "2.15"]
    assert [one.loaded.partition("+")[0] for one in done.torches] == ["2.10.0", "2.15.0"]
    first, second = (one.outcomes for one in done.torches)
    assert first == second
    read, why = read_smoke(built.run.path, done)
    assert read is not None, why
    left = [c for c in read.cases if c.outcome == "skipped" and not c.message.startswith(REASONS)]
    assert left == []
    for one in done.torches:
        cpu = [c for c in read.cases if c.classname == f"torch{one.asked}.test_cpu"]
        assert len(cpu) > 70
        assert {c.outcome for c in cpu} == {"passed"}


def test_a_suite_that_gets_the_other_torch_fails(built: Line, tmp_path: Path) -> None:
    """An environment of torch 2.10 in place of 2.15."""
    audit = built.run.result(AuditResult)
    assert audit is not None
    plan, wheel = built.plan, wheel_of(built)
    expected = suite_expectations(plan, audit.files[0]) | {"torch": "2.15"}
    folder = plan.layout.join(plan.layout.build_root, "other-torch")
    sent = plan.layout.join(f"{folder}-wheel", wheel.name)
    built.session.call(files.make_dirs, path=f"{folder}-wheel")
    built.session.put(wheel, sent)
    suite = suite_of(plan.recipe).files
    shared = {
        name: text for name, text in suite.items() if not re.match("test_(cpu|gpu|poi)", name)
    }
    spec = suite_spec(plan, folder, sent, shared, expected)
    (ended,) = [e for e in built.session.stream(tester.run_suite, spec=spec) if isinstance(e, dict)]
    assert ended["junit"]
    built.session.get(ended["junit"], tmp_path / "junit.xml")
    cases = read_pytest((tmp_path / "junit.xml").read_bytes()).cases
    failed = {case.name: case.message for case in cases if case.outcome == "failed"}
    assert ended["exit"] == 1
    assert (
        "torch 2.15 was asked for, and torch 2.10.0" in failed["test_torch_is_there_and_has_cuda"]
    )
    assert "test_torch_is_the_one_that_was_asked_for" in failed
