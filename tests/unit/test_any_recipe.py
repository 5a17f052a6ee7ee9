"""What holds for every recipe, shipped or added: it is loaded, judged, built up to the fetch."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from plans import changed, line_for, plan_for
from recipefiles import DOCUMENTED, ROOT, SHIPPED, written

from pipelines.cli.plan import run_plan
from pipelines.core.console import console
from pipelines.core.errors import ConfigError, LockError
from pipelines.core.units import GIB
from pipelines.core.yamlfile import read_yaml
from pipelines.doctor.run import run_diagnosis
from pipelines.plan.config.model import Config
from pipelines.plan.config.schema import recipe_schema
from pipelines.plan.matrix.buildplan import Request
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.recipe import load
from pipelines.stages.buildspec import environment_of
from pipelines.stages.line import run_build
from pipelines.stages.preflight import refuse_unbuildable

ADDED = ("mine", DOCUMENTED, "costly")


@pytest.fixture(autouse=True)
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if they all lay in pipelines/recipes, in a project that has what ``mine`` is made of."""
    project = tmp_path / "project"
    (project / "mine").mkdir(parents=True)
    (project / "mine/setup.py").write_text("")
    (project / "pipeline.yaml").write_text("hosts: {}\n")
    monkeypatch.chdir(project)
    folder = written(tmp_path / "recipes")
    monkeypatch.setattr(load, "RECIPES", folder)
    return folder


@pytest.mark.parametrize("name", [*SHIPPED, *ADDED])
def test_every_version_is_found_by_its_name(name: str) -> None:
    versions = load.load_versions(name)
    assert load.load_recipe(name) == next(iter(versions.values()))
    for version, recipe in versions.items():
        assert recipe.version == version
        assert load.load_recipe(name, version=version or None) == recipe


@pytest.mark.parametrize("name", [*SHIPPED, *ADDED])
def test_every_recipe_has_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lab = {"kind": "winrm", "endpoint": "https://lab/wsman", "username": "u", "password_env": "W"}
    settings = Config.model_validate({"default": {"host": "lab"}, "hosts": {"lab": lab}})
    with console.capture() as captured:
        facts = HostFacts(16, 64 * GIB)
        code = run_plan(settings, Request(axes={"recipe": name}), facts=facts)
    assert code == 0
    assert "cells can be built" in captured.get()


@pytest.mark.parametrize("name", [*SHIPPED, *ADDED])
def test_every_recipe_has_verdicts(tmp_path: Path, name: str) -> None:
    plan = plan_for(tmp_path, recipe=name, python="3.11")
    outcome = run_diagnosis(plan, None)
    assert outcome.purpose is not None
    assert outcome.purpose.target.recipe == name
    assert outcome.findings


def test_the_documented_example_builds_up_to_the_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for axes in ({}, {"version": "1.7.0"}):
        plan = plan_for(tmp_path, recipe=DOCUMENTED, python="3.12", **axes)
        assert plan.target.id == "my-conv1d-1.7.0-cp312-torch2.8-cu128"
        assert environment_of(plan, 4)["CAUSAL_CONV1D_LOCAL_VERSION"] == "cu128torch2.8"
        with pytest.raises(LockError, match=r"my-conv1d.* is not here, and nothing is fetched"):
            run_build(line_for(plan))
    with pytest.raises(ConfigError, match=r"unknown version '1\.7'") as caught:
        plan_for(tmp_path, recipe=DOCUMENTED, version="1.7")
    assert "Did you mean '1.7.0'?" in caught.value.hint


def test_a_small_recipe_is_enough(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, recipe="mine", python="3.11")
    assert plan.recipe.local_version == "cu{cuda}{stamp}"
    refuse_unbuildable(changed(plan))
    with tarfile.open(fileobj=io.BytesIO(plan.source.pack().data)) as archive:
        assert archive.getnames() == ["setup.py"]


@pytest.mark.parametrize("name", [*SHIPPED, *ADDED])
def test_the_schema_knows_every_key_that_is_used(recipes: Path, name: str) -> None:
    schema = recipe_schema()
    known = schema["properties"]
    below = known["versions"]["additionalProperties"]["properties"]
    text = read_yaml(recipes / f"{name}.yaml")
    assert text.keys() <= known.keys()
    assert text.keys() >= {*schema["required"]}
    for keys in text.get("versions", {}).values():
        assert keys.keys() <= below.keys()
    assert schema["additionalProperties"] is False


@pytest.mark.slow
def test_a_recipe_that_is_added_breaks_no_test(tmp_path: Path, recipes: Path) -> None:
    """The tests of recipes, in a copy of the tree with two recipes more, as somebody would have."""
    tree = tmp_path / "tree"
    for name in ("pipelines", "tests/unit", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    own = ("conftest.py", "under_wine.py", "under_wine.yaml")
    for name in ("pyproject.toml", "pipeline.yaml", *(f"tests/{one}" for one in own)):
        shutil.copy(ROOT / name, tree / name)
    for name in ("mine", DOCUMENTED):
        shutil.copy(recipes / f"{name}.yaml", tree / "pipelines/recipes")
    shutil.copytree(Path("mine"), tree / "mine")
    tests = [f"tests/unit/{name}.py" for name in ("test_recipes", "test_caches")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
