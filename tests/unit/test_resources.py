"""resources.yaml: what is wanted of a host, with the lock's pins."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.config import load_recipe
from pipelines.errors import ConfigError, LockError
from pipelines.lock import ToolchainLock, load_lock
from pipelines.plan.resources import RESOURCES_FILE, load_resources, wanted_resources


def test_the_shipped_file_loads() -> None:
    made = load_resources()
    ids = [resource.id for resource in made.resources]
    assert len(set(ids)) == len(ids)
    assert all(resource.why for resource in made.resources)
    assert {r.kind for r in made.resources} == {
        *("registry", "directory", "environment", "archive", "files", "packages")
    }


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: registry", "kind: service", "service"),
        ("  temp: C:\\t", "  temq: C:\\t", "layout.temq: unknown key"),
        ("    proof: uv.exe\n", "", "proof"),
        ("  - id: uv\n", "  - id: uv\n    colour: red\n", "colour: unknown key"),
        ("resources:\n", "resources: [\n", "resources.yaml"),
    ],
)
def test_wrong_files(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = RESOURCES_FILE.read_text()
    assert old in text
    path = tmp_path / "resources.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_resources(path)
    assert said in caught.value.message
    assert caught.value.advice


def test_pins_come_from_the_lock() -> None:
    lock, recipe = load_lock(), load_recipe("smoke-attention")
    wanted = {w.id: w for w in wanted_resources(load_resources(), recipe, lock)}
    for archive in wanted["CUDA compiler"].spec["archives"]:
        tool = lock.tool(archive["name"])
        assert (archive["version"], archive["sha256"]) == (tool.version, tool.sha256)
        assert wanted["CUDA compiler"].uploads[archive["name"]] == archive["file"]
        assert archive["file"].endswith(tool.file)
    (uv,) = wanted["uv"].spec["archives"]
    assert uv["strip"] == f"uv-{lock.tool('uv').version}.data/scripts"
    files = wanted["wheels"].spec["files"]
    assert [f["name"] for f in files] == [*recipe.build_requires, *recipe.test_requires]
    assert wanted["build tools"].spec["packages"] == {
        name: lock.tool(name).version for name in recipe.build_requires
    }
    assert "tools" not in wanted["uv"].spec
    for row in wanted.values():
        assert row.summary
        assert "{" not in row.summary
        assert set(row.uploads) <= set(lock.tools)


def test_a_tool_named_twice_is_one() -> None:
    recipe = load_recipe("smoke-attention")
    recipe = recipe.model_copy(update={"test_requires": (*recipe.build_requires, "pytest")})
    wanted = {w.id: w for w in wanted_resources(load_resources(), recipe, load_lock())}
    names = [f["name"] for f in wanted["wheels"].spec["files"]]
    assert names == [*recipe.build_requires, "pytest"]


def test_a_tool_that_is_not_pinned() -> None:
    empty = ToolchainLock(version=1, tools={})
    with pytest.raises(LockError, match="no tool"):
        wanted_resources(load_resources(), load_recipe("smoke-attention"), empty)
