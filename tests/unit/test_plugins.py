"""Recipes, suites, resources, signatures and pins of the user's repository and of packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.cli.program import run_command_line
from pipelines.core import plugins
from pipelines.core.errors import ConfigError, LockError
from pipelines.diagnosis import load_catalogue
from pipelines.plan.provisioning.resources import load_resources
from pipelines.recipe.found import taken_from
from pipelines.recipe.load import load_recipe, recipe_file, recipe_names, shown_file
from pipelines.recipe.suite import suite_of
from pipelines.toolchain.lock import load_lock

RECIPE = """
name: {name}
summary: {says}
kind: wheel
license: MIT
source: {{path: .}}
pythons: ["3.11"]
cuda: "13.0"
archs: "80"
build_requires: [setuptools]
smoke: {suite}
"""
SIGNATURE = """
signatures:
  - id: {id}
    regex: 'no elephants here'
    needles: [no elephants]
    sample: no elephants here
    cause: {says}
    hint: bring one
    evidence_note: made up
"""
RESOURCE = """
resources:
  - {{id: {id}, kind: directory, path: 'C:\\elephants', why: {says}}}
"""

Package = Callable[..., Path]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "setup.py").write_text("")
    (root / "pipeline.yaml").write_text("hosts: {}\n")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Makes an installed distribution whose entry point names a directory of it."""
    monkeypatch.setattr(plugins, "_of_packages", plugins._of_packages.__wrapped__)

    def make(name: str, value: str | None = None) -> Path:
        site = tmp_path / f"site-{name}"
        folder = site / name / "wheels"
        folder.mkdir(parents=True)
        (site / name / "__init__.py").write_text("raise SystemExit('the package was run')\n")
        info = site / f"{name}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        line = f"{name}-wheels = {value or f'{name}.wheels'}"
        (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{line}\n")
        monkeypatch.syspath_prepend(str(site))
        return folder

    return make


def put(folder: Path, name: str, says: str = "mine", suite: str = "mine") -> None:
    (folder / "recipes").mkdir(parents=True, exist_ok=True)
    text = RECIPE.format(name=name, says=says, suite=suite)
    (folder / "recipes" / f"{name}.yaml").write_text(text)
    (folder / "smoke" / suite).mkdir(parents=True, exist_ok=True)
    (folder / "smoke" / suite / "test_it.py").write_text(f"SAYS = {says!r}\ndef test(): ...\n")


def test_the_repository_comes_first_then_packages_then_what_is_built_in(
    repository: Path, package: Package
) -> None:
    assert recipe_file("smoke-attention").says == plugins.BUILT_IN
    put(package("pony"), "smoke-attention", "of the package")
    assert load_recipe("smoke-attention").summary == "of the package"
    assert recipe_file("smoke-attention").says == "pony-wheels of pony 1.5"
    put(repository / ".wcw", "smoke-attention", "of the repository")
    recipe = load_recipe("smoke-attention")
    assert recipe.summary == "of the repository"
    suite = suite_of(recipe)
    assert suite.origin == ".wcw of this repository"
    assert "of the repository" in suite.files["own/test_it.py"]
    assert taken_from(recipe) == {
        "recipe": ".wcw of this repository",
        "smoke suite": ".wcw of this repository",
        "resources": "built in",
        "signatures": "built in",
    }
    assert "flash-attn" in recipe_names()


def test_a_plan_names_the_file_that_it_goes_by(
    repository: Path, package: Package, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the repository may shadow one that is built in, and have other limits."""
    (repository / "pipeline.yaml").unlink()
    ours = repository / ".wcw"
    for folder, file in (
        (None, "pipelines/recipes/smoke-attention.yaml"),
        (package("pony"), "recipes/smoke-attention.yaml, pony-wheels of pony 1.5"),
        (ours, ".wcw/recipes/smoke-attention.yaml"),
    ):
        if folder is not None:
            put(folder, "smoke-attention")
        assert run_command_line(["plan", "--recipe", "smoke-attention", "--python", "3.9"]) == 2
        first, _, rest = " ".join(capsys.readouterr().out.split()).partition(" on ")
        assert shown_file("smoke-attention") == file
        assert (file in first) is (folder is not None), first
        assert file in rest


def test_two_packages_with_one_name_are_refused_unless_the_repository_has_it(
    repository: Path, package: Package
) -> None:
    put(package("pony"), "thing")
    put(package("zebra"), "thing")
    with pytest.raises(ConfigError, match=r"recipe thing: two packages .* pony 1\.5 and .*zebra"):
        load_recipe("thing")
    put(repository / ".wcw", "thing", "ours")
    assert load_recipe("thing").summary == "ours"


def test_an_unknown_recipe_or_suite_names_the_nearest_wherever_it_is(repository: Path) -> None:
    put(repository / ".wcw", "elephant", suite="trunk")
    with pytest.raises(ConfigError, match="unknown recipe 'elefant'") as caught:
        load_recipe("elefant")
    assert "Did you mean 'elephant'?" in caught.value.hint
    path = repository / ".wcw/recipes/elephant.yaml"
    path.write_text(path.read_text().replace("smoke: trunk", "smoke: trunks"))
    with pytest.raises(ConfigError, match=r"no suite 'trunks'; did you mean 'trunk'\?"):
        load_recipe("elephant")
    path.write_text(path.read_text().replace("license:", "licence:"))
    with pytest.raises(ConfigError, match="licence: unknown key; did you mean 'license'") as caught:
        load_recipe("elephant")
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    "value", ["pony.elephants", "../pony", "nowhere_at_all.x", "pony wheels", "__main__"]
)
def test_an_entry_point_that_names_no_directory(
    value: str, repository: Path, package: Package
) -> None:
    package("pony", value)
    with pytest.raises(ConfigError, match=r"pony 1\.5: its entry point"):
        load_recipe("smoke-attention")


def test_signatures_of_the_repository_are_found_first(repository: Path, package: Package) -> None:
    (repository / ".wcw").mkdir()
    own = repository / ".wcw/signatures.yaml"
    own.write_text(SIGNATURE.format(id="oom-edg", says="ours"))
    found = load_catalogue()
    assert found.by_id["oom-edg"].cause == "ours"
    assert len(found.signatures) > 50
    (package("pony") / "signatures.yaml").write_text(SIGNATURE.format(id="more", says="theirs"))
    assert load_catalogue().by_id["more"].cause == "theirs"
    (package("zebra") / "signatures.yaml").write_text(SIGNATURE.format(id="more", says="other"))
    with pytest.raises(ConfigError, match="signature 'more': two packages have one"):
        load_catalogue()
    own.write_text("signatures: [{id: x}]\n")
    with pytest.raises(ConfigError, match=r"\.wcw/signatures\.yaml"):
        load_catalogue()


def test_resources_of_the_repository_replace_and_add(repository: Path, package: Package) -> None:
    before = {one.id for one in load_resources().resources}
    (repository / ".wcw").mkdir()
    own = repository / ".wcw/resources.yaml"
    own.write_text(RESOURCE.format(id="elephants", says="ours"))
    assert {one.id for one in load_resources().resources} == before | {"elephants"}
    own.write_text(RESOURCE.format(id="build root", says="ours"))
    made = load_resources()
    assert next(one for one in made.resources if one.id == "build root").why == "ours"
    assert len(made.resources) == len(before)
    (package("pony") / "resources.yaml").write_text(RESOURCE.format(id="a", says="x"))
    (package("zebra") / "resources.yaml").write_text(RESOURCE.format(id="a", says="y"))
    with pytest.raises(ConfigError, match="resource 'a': two packages have one"):
        load_resources()


LOCK = """
version: 1
unpinned: []
tools:
  elephants:
    version: 1.0.0
    sources:
      - {{pypi: elephants==1.0.0, file: elephants-1.0.0-py3-none-any.whl, sha256: {sha}, size: 7}}
"""


def test_pins_of_the_repository_stand_beside_those_built_in(repository: Path) -> None:
    shipped = load_lock()
    (repository / ".wcw").mkdir()
    path = repository / ".wcw/toolchain.lock.yaml"
    path.write_text(LOCK.format(sha="a" * 64))
    made = load_lock()
    assert made.tool("elephants").sha256 == "a" * 64
    assert {*made.tools} == {*shipped.tools, "elephants"}
    path.write_text(LOCK.format(sha="b" * 64).replace("elephants:", "einops:", 1))
    assert load_lock().tool("einops").sha256 == "b" * 64
    assert len(load_lock().tools) == len(shipped.tools)
    path.write_text(LOCK.format(sha="b" * 63))
    with pytest.raises(LockError, match=r"\.wcw/toolchain\.lock\.yaml"):
        load_lock()
