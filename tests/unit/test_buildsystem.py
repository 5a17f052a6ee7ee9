"""What a package wants of the environment that builds it, read from wherever its source is."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from pipelines.core.errors import ConfigError
from pipelines.recipe.buildsystem import build_requires
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import FileSource, PathSource
from pipelines.toolchain.lock import Cache, load_lock

WANTS = """[build-system]
requires = ["setuptools>=77", "wheel; python_version < '3.12'", "ninja; sys_platform == 'win32'"]
"""


def packed(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def released(cache: Cache, files: dict[str, str], *, here: bool = True) -> Recipe:
    """A recipe whose source distribution holds ``files``."""
    data = packed({f"mine-1.0/{name}": text for name, text in files.items()})
    sha256 = hashlib.sha256(data).hexdigest()
    source = FileSource(
        file="mine-1.0.tar.gz", url="https://files.example/mine", sha256=sha256, size=len(data)
    )
    if here:
        place = cache.place(source.file, sha256)
        place.parent.mkdir(parents=True)
        place.write_bytes(data)
    return load_recipe("smoke-attention").model_copy(update={"source": source, "version": "1.0"})


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(load_lock(), tmp_path / "cache")


def asked(recipe: Recipe, cache: Cache, python: str = "3.11", *, windows: bool = True) -> list[str]:
    return [str(one).partition(";")[0] for one in build_requires(recipe, cache, python, windows)]


def test_what_a_source_distribution_asks_for(cache: Cache) -> None:
    other = "[build-system]\nrequires = ['another']\n"
    recipe = released(cache, {"a/pyproject.toml": other, "pyproject.toml": WANTS})
    assert asked(recipe, cache) == ["setuptools>=77", "wheel", "ninja"]
    assert asked(recipe, cache, "3.12") == ["setuptools>=77", "ninja"]
    assert asked(recipe, cache, windows=False) == ["setuptools>=77", "wheel"]


def test_what_a_directory_asks_for(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "pyproject.toml").write_text(WANTS)
    source = PathSource(path=str(tmp_path))
    recipe = load_recipe("smoke-attention").model_copy(update={"source": source})
    assert asked(recipe, cache) == ["setuptools>=77", "wheel", "ninja"]


def test_nothing_is_asked_for(cache: Cache) -> None:
    assert asked(released(cache, {"pyproject.toml": WANTS}, here=False), cache) == []
    assert asked(released(cache, {"setup.py": "", "a/pyproject.toml": WANTS}), cache) == []


@pytest.mark.parametrize(
    "text",
    ["[build-system", "[build-system]\nrequires = 5\n", "[build-system]\nrequires = ['a b c']\n"],
)
def test_what_cannot_be_read_is_said(cache: Cache, text: str) -> None:
    recipe = released(cache, {"pyproject.toml": text})
    with pytest.raises(ConfigError, match=r"build-system\.requires in pyproject\.toml") as caught:
        build_requires(recipe, cache, "3.11", windows=True)
    assert "--recipe-version" in caught.value.hint
