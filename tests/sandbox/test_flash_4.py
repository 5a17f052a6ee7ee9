"""The recipe flash-attn-4 in the sandbox: on Windows' Python, with the DSL that compiles it there.

As it is released it is installed on Windows and not imported: it and quack-kernels lock files with
fcntl, which Python has on POSIX alone. Its kernels are compiled here and not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
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

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
from broken_wheels import Members, changed_wheel

INIT = "flash_attn/cute/__init__.py"
KERNELS = ("test_compile.py", "test_flash_4.py")


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The line, from nothing to a wheel that was tested."""
    base = tmp_path_factory.mktemp("flash-4")
    with line_below(base, recipe="flash-attn-4", torch="2.10", archs="90") as line:
        run_build(line)
        run_test(line)
        yield line


def test_the_wheel_says_that_it_is_another_one_than_the_index_has(tested: Line) -> None:
    wheel = wheel_of(tested)
    assert wheel.name == "flash_attn_4-4.0.0b36+windows.sandbox-py3-none-any.whl"
    (bill,) = (text for _, text in inspect_wheel(wheel).sboms if text)
    (source,) = (one for one in json.loads(bill)["components"] if "pedigree" in one)
    (patch,) = source["pedigree"]["patches"]
    text = base64.b64decode(patch["diff"]["text"]["content"])
    assert [hashlib.sha256(text).hexdigest()] == [p.sha256 for p in tested.plan.recipe.patches]


def test_its_kernels_are_compiled_by_windows_own_compiler(tested: Line) -> None:
    done = tested.run.result(SmokeResult)
    assert done is not None
    read, why = read_smoke(tested.run.path, done)
    assert read is not None, why
    cases = {(one.classname.rpartition(".")[2], one.name): one.outcome for one in read.cases}
    for of, name in (
        ("test_environment", "test_package_imports_in_a_fresh_interpreter"),
        ("test_compile", "test_kernels_for_hopper"),
        ("test_compile", "test_another_process_waits_for_the_cache"),
    ):
        assert cases[of, name] == "passed"
    on_a_gpu = {outcome for (of, _), outcome in cases.items() if of == "test_flash_4"}
    assert on_a_gpu == {"skipped"}


def as_released(members: Members) -> None:
    """Without what the patch puts in."""
    before = members[INIT]
    members[INIT] = before.replace(b'if sys.platform == "win32":', b"if False:")
    assert members[INIT] != before


def test_as_it_is_released_it_is_installed_and_not_imported(tested: Line, tmp_path: Path) -> None:
    audit = tested.run.result(AuditResult)
    assert audit is not None
    plan = tested.plan
    released = changed_wheel(wheel_of(tested), tmp_path, as_released)
    folder = plan.layout.join(plan.layout.build_root, "released")
    sent = plan.layout.join(f"{folder}-wheel", released.name)
    tested.session.call(files.make_dirs, path=f"{folder}-wheel")
    tested.session.put(released, sent)
    suite = suite_of(plan.recipe).files
    kept = {name: text for name, text in suite.items() if name not in {*KERNELS}}
    spec = suite_spec(plan, folder, sent, kept, suite_expectations(plan, audit.files[0]))
    told = tested.session.stream(tester.run_suite, spec=spec)
    (ended,) = [event for event in told if isinstance(event, dict)]
    assert ended["exit"] == 1
    junit = ended["junit"]
    assert junit
    tested.session.get(junit, tmp_path / "junit.xml")
    cases = read_pytest((tmp_path / "junit.xml").read_bytes()).cases
    failed = {one.name: one.message for one in cases if one.outcome == "failed"}
    said = failed["test_package_imports_in_a_fresh_interpreter"]
    assert "No module named 'fcntl'" in said
