"""The package of docs/own-tests.md, built and tested as the page says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.core.architectures.gpus import parse_gpu_archs
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.recipe.archmap import translate_archs
from pipelines.record.results import SmokeResult
from pipelines.stages.line import Line, run_build, run_test

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import own_package

#: At the start of setup.py, and of the tests: neither sees what other builds needed.
SEES_NOTHING = """
import importlib.util, shutil
assert importlib.util.find_spec("leftover") is None, "a package of an earlier build"
assert shutil.which("leftover") is None, "a program of an earlier build"
"""


def leave_behind(prefix: Path) -> None:
    """What an earlier build's packages may have left in the Python, and in another environment."""
    for python in (prefix / "drive_c/Python311", prefix / "drive_c/b/e/00000000"):
        for name in ("Lib/site-packages/leftover.py", "Scripts/leftover.exe"):
            (python / name).parent.mkdir(parents=True, exist_ok=True)
            (python / name).touch()


def test_the_page_works_as_it_stands_and_sees_no_other_build(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = own_package.make(tmp_path)
    for path in (tmp_path / "vecadd/setup.py", *tmp_path.glob("vecadd/**/test_*.py")):
        path.write_text(SEES_NOTHING + path.read_text("utf-8"), "utf-8")
    assert line.session.facts, "it is started"
    assert isinstance(line.plan.host, Sandbox)
    leave_behind(line.plan.host.prefix)
    plan = line.plan
    archs = parse_gpu_archs(recipe.archs)
    monkeypatch.setattr(line, "provisioned", None)
    monkeypatch.setattr(line, "_run", None)
    monkeypatch.setattr(line, "_unreported", None)
    target = plan.target.model_copy(update={"recipe": recipe.name, "version": "", "archs": archs})
    made = translate_archs(recipe.arch_map, archs, recipe.cuda, recipe.name)
    mine = replace(plan, recipe=recipe, target=target, archs=made, out=tmp_path / "out")
    monkeypatch.setattr(line, "plan", mine)
    path = run_build(line)
    assert len([*path.glob("wheels/vecadd-0.1.0+cu130.sandbox-cp311-*.whl")]) == 1
    run_test(line)
    done = line.run.result(SmokeResult)
    assert done is not None
    assert done.limits == ""
    assert done.outcomes["passed"] == 9
    assert "failed" not in done.outcomes
    assert 'name="test_sums"' in (path / "smoke.xml").read_text()
