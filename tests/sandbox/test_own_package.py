"""The package of docs/own-tests.md, built and tested as the page says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.core.architectures.gpus import read
from pipelines.recipe.archmap import translate
from pipelines.record.results import SmokeResult
from pipelines.stages.line import Line, run_build, run_test

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import own_package


def test_the_page_works_as_it_stands(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = own_package.make(tmp_path)
    plan = line.plan
    archs = read(recipe.archs)
    monkeypatch.setattr(line, "provisioned", None)
    monkeypatch.setattr(line, "_run", None)
    monkeypatch.setattr(line, "_untold", None)
    target = plan.target.model_copy(update={"recipe": recipe.name, "version": "", "archs": archs})
    made = translate(recipe.arch_map, archs, recipe.cuda, recipe.name)
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
