"""Which files of a directory here are packed: what git lists, or rules; links; what is forced."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from plans import recipe_of

from pipelines.core.checkout import Checkout
from pipelines.core.errors import ConfigError
from pipelines.recipe.origin import PathSource
from pipelines.recipe.sourcetree import SourceTree
from pipelines.recipe.worktree import Listing, list_project_files
from pipelines.toolchain.lock import Cache, ToolchainLock

#: What tools leave in a project, and what it is made of.
MADE = (
    *(".venv/pyvenv.cfg", ".venv/lib/x.py", "env311/pyvenv.cfg", "env311/x.py"),
    *("conda/conda-meta/history", "conda/x.py", "build/lib/x.py", "dist/x.whl"),
    *("mypkg.egg-info/PKG-INFO", "mypkg/__pycache__/x.pyc", ".mypy_cache/x", ".pytest_cache/x"),
    *(".ruff_cache/x", "node_modules/x/setup.py", ".tox/x", ".nox/x", ".eggs/x"),
    *(".sandbox/py3.11/x.dll", "out/20261123-a/record.sqlite", "out/20261123-a/build.log"),
)
OWN = ("csrc/build/kernel.cu", "mypkg/__init__.py", "mypkg/dist/__init__.py", "setup.py")


def write(tree: Path, *names: str) -> Path:
    for name in names:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tree


def git(tree: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *words], cwd=tree, capture_output=True, check=True)


def commit(tree: Path, *names: str, ignore: str = "") -> Path:
    """A checkout at ``tree`` in which these files are tracked."""
    write(tree, *names)
    git(tree, "init", "--quiet")
    (tree / ".gitignore").write_text(ignore)
    git(tree, "add", "--force", ".gitignore", *names)
    git(tree, "commit", "--quiet", "-m", "x")
    return tree


def names(tree: Path, **changes: Any) -> list[str]:
    return [name for name in list_project_files(tree, **changes).files if name != ".gitignore"]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(ToolchainLock(version=1, tools={}), root=tmp_path / "cache", offline=True)


def test_without_git_what_tools_make_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, *OWN, *MADE, "mypkg/out/latest/x.py")
    (tmp_path / ".venv/lib64").symlink_to("/usr/lib")
    (tmp_path / "out/latest").symlink_to("20261123-a")
    found = list_project_files(tmp_path)
    assert [*found.files] == sorted([*OWN, "mypkg/out/latest/x.py"])
    assert "no git checkout" in found.by


def test_a_directory_beside_a_checkout_is_not_in_it(tmp_path: Path) -> None:
    commit(tmp_path / "checkout", "pipeline.yaml")
    write(tmp_path / "mine", *OWN)
    found = list_project_files(tmp_path / "checkout" / ".." / "mine")
    assert [*found.files] == sorted(OWN)
    assert "no git checkout" in found.by


def test_in_a_checkout_what_git_ignores_is_left_out(tmp_path: Path) -> None:
    commit(tmp_path, *OWN, ignore="*.log\n/secret/\n")
    write(tmp_path, "a.log", "secret/key", "new.cu", *MADE)
    (tmp_path / ".venv/lib64").symlink_to("/usr/lib")
    (tmp_path / "out/latest").symlink_to("20261123-a")
    found = list_project_files(tmp_path)
    assert [*found.files] == sorted((".gitignore", "new.cu", *OWN))
    assert found.by == "as git lists them"


def test_what_is_tracked_is_never_left_out(tmp_path: Path) -> None:
    """Whatever it is called, and whatever .gitignore says."""
    tracked = ("setup.py", "build/gen.py", "dist/x.cu", "a.log")
    commit(tmp_path, *tracked, ignore="*.log\n")
    assert names(tmp_path) == sorted(tracked)
    (tmp_path / "a.log").unlink()
    assert "a.log" not in names(tmp_path), "it is not there any more"


def test_a_directory_below_the_top_of_a_checkout(tmp_path: Path) -> None:
    commit(tmp_path, "setup.py", "sub/setup.py", "sub/ü k.cu", ignore="*.o\n")
    write(tmp_path, "sub/k.o")
    assert names(tmp_path / "sub") == ["setup.py", "ü k.cu"]


def test_a_project_in_what_another_one_ignores(tmp_path: Path) -> None:
    commit(tmp_path, "setup.py", ignore=".venv\n")
    write(tmp_path, ".venv/lib/example/setup.py")
    found = list_project_files(tmp_path / ".venv/lib/example")
    assert [*found.files] == ["setup.py"]
    assert "ignores it" in found.by


def test_submodules_and_repositories_within(tmp_path: Path) -> None:
    commit(tmp_path / "inner", "k.cu")
    tree = commit(tmp_path / "outer", "setup.py")
    for place in ("dep", "absent"):
        git(tree, "submodule", "add", str(tmp_path / "inner"), place)
    git(tree, "commit", "--quiet", "-m", "y")
    git(tree, "submodule", "deinit", "--force", "absent")
    write(tree, "dep/new.cu", "dep/build.o")
    (tree / "dep/.gitignore").write_text("*.o\n")
    commit(tree / "cloned", "c.cu")
    found = list_project_files(tree)
    assert {"setup.py", "dep/k.cu", "dep/new.cu", "cloned/c.cu"} < found.files.keys()
    assert "dep/build.o" not in found.files
    assert not [name for name in found.files if "/.git/" in name or name.endswith("/.git")]
    assert found.empty == ("absent",)
    assert list_project_files(tree, exclude=["absent"]).empty == ()


def test_a_hook_s_variables_mislead_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path / "other", "other.py")
    commit(tmp_path / "own", "setup.py", "a.log", ignore="*.log\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other/.git/index"))
    assert names(tmp_path / "own") == ["a.log", "setup.py"]


def test_without_the_program_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path, "setup.py", ignore="*.log\n")
    write(tmp_path, "a.log", ".venv/pyvenv.cfg")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = list_project_files(tmp_path / ".")
    assert [*found.files] == [".gitignore", "a.log", "setup.py"]
    assert "git is not installed" in found.by


def test_a_checkout_that_git_cannot_read(tmp_path: Path) -> None:
    commit(tmp_path, "setup.py")
    (tmp_path / ".git/HEAD").unlink()
    with pytest.raises(ConfigError, match=r"git ls-files in .* failed: fatal"):
        list_project_files(tmp_path)


def test_what_is_not_as_committed(tmp_path: Path, cache: Cache) -> None:
    """Also in submodules, which may be at another commit, and in repositories that are new."""
    inner, tree = tmp_path / "inner", tmp_path / "tree"
    commit(inner, "a")

    def checkout(**keys: Any) -> Checkout:
        found = SourceTree(recipe_of(tree, **keys), cache).pack().checkout
        assert found is not None
        return found

    write(tree, "setup.py")
    assert SourceTree(recipe_of(tree), cache).pack().checkout is None
    git(tree, "init", "--quiet")
    assert checkout() == Checkout(commit="", changed=("setup.py",), count=1)
    git(tree, "submodule", "add", str(inner), "deps/inner")
    commit(tree, "setup.py", "old.cu", "gone.cu", ignore="*.log\n")
    assert (len(checkout().commit), checkout().count) == (40, 0)
    git(tree, "mv", "old.cu", "new.cu")
    (tree / "gone.cu").unlink()
    write(tree, "a.log")
    (tree / "deps/inner/a").write_text("2")
    commit(tree / "cloned", "c.cu")
    assert {*checkout().changed} == {"new.cu", "gone.cu", "deps/inner", "deps/inner/a", "cloned"}
    assert {*checkout(exclude=("deps", "gone.cu")).changed} == {"new.cu", "cloned"}
    git(tree / "deps/inner", "commit", "--quiet", "-am", "y")
    assert {*checkout(exclude=("*.cu", "cloned")).changed} == {"deps/inner"}


def test_what_is_packed_is_the_commit_that_is_named(tmp_path: Path, cache: Cache) -> None:
    """Not what was there when the build was judged, before its host was made ready."""
    commit(tmp_path, "setup.py")
    source = SourceTree(recipe_of(tmp_path), cache)
    assert source.names() == (".gitignore", "setup.py")
    commit(tmp_path, "new.cu")
    packed = source.pack()
    assert packed.checkout is not None
    assert packed.checkout.count == 0
    with tarfile.open(fileobj=io.BytesIO(packed.data)) as archive:
        assert set(archive.getnames()) == {".gitignore", "new.cu", "setup.py"}
    assert source.names() == (".gitignore", "new.cu", "setup.py")


# -- include and exclude ---------------------------------------------------------------------------


def test_what_git_ignores_can_be_forced(tmp_path: Path) -> None:
    commit(tmp_path, "setup.py", ignore="/csrc/generated/\n/build/\n")
    write(tmp_path, "csrc/generated/a.cu", "csrc/generated/b.txt", "build/c.cu")
    assert names(tmp_path) == ["setup.py"]
    globs = ["csrc/generated/*.cu", "build"]
    assert names(tmp_path, include=globs) == ["build/c.cu", "csrc/generated/a.cu", "setup.py"]
    assert names(tmp_path, include=globs, exclude=["build"])[:1] == ["csrc/generated/a.cu"]
    with pytest.raises(ConfigError, match=r"include: 'csrc/gen/\*' names no file"):
        list_project_files(tmp_path, include=["csrc/gen/*"])


@pytest.mark.parametrize("glob", ["big", "big/", "big/*"])
def test_a_directory_is_excluded_by_its_name(tmp_path: Path, glob: str) -> None:
    write(tmp_path, "setup.py", "big/a", "big/b/c", "bigger/a")
    assert names(tmp_path, exclude=[glob]) == ["bigger/a", "setup.py"]


# -- links -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkout", [True, False])
@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("/etc/hostname", "is a link out of the tree, to /etc/hostname"),
        ("..", "is a link out of the tree"),
        ("nowhere", "a link to nowhere, which does not exist"),
        ("odd", "a link to odd, which does not exist"),
        (".", "is a link to a directory, ."),
        ("empty", "is a link to a directory, empty"),
    ],
)
def test_links_that_cannot_be_packed(tmp_path: Path, to: str, said: str, *, checkout: bool) -> None:
    tree = tmp_path / "tree"
    make = commit if checkout else write
    make(tree, "setup.py", "csrc/k.cu")
    (tree / "empty").mkdir()
    (tree / "odd").symlink_to(to)
    with pytest.raises(ConfigError) as caught:
        list_project_files(tree)
    assert said in caught.value.message
    assert 'exclude: ["odd"]' in caught.value.hint
    assert ("copy" in caught.value.hint) == ("not exist" not in said)
    assert names(tree, exclude=["odd"]) == ["csrc/k.cu", "setup.py"], "the fix works"


def test_a_link_within_the_tree_is_the_file(tmp_path: Path) -> None:
    commit(tmp_path, "setup.py", "a.cu")
    (tmp_path / "b.cu").symlink_to("a.cu")
    assert list_project_files(tmp_path).files["b.cu"].read_text() == "a.cu"


@pytest.mark.parametrize("checkout", [True, False])
def test_a_link_to_a_directory_of_the_tree_is_its_files(tmp_path: Path, *, checkout: bool) -> None:
    make = commit if checkout else write
    make(tmp_path, "setup.py", "deps/x/a.h", "deps/x/in/b.h", "deps/xx.h", "own/setup.h")
    (tmp_path / "own/x").symlink_to("../deps/x")
    linked = ["own/x/a.h", "own/x/in/b.h"]
    listed = list_project_files(tmp_path)
    assert [name for name in listed.files if name.startswith("own/x")] == linked
    assert listed.files["own/x/in/b.h"].read_text() == "deps/x/in/b.h"
    assert "own/x/a.h" not in names(tmp_path, exclude=["own/x"])
    assert list_project_files(tmp_path, exclude=["own/x", "own/x/a.h"]).idle == ("own/x/a.h",)
    # A file that is left out does not come in by the link: its changes would not be recorded.
    less = list_project_files(tmp_path, exclude=["deps/x/a.h", "own/x/in/*"])
    assert ([name for name in less.files if name.startswith("own/x")], less.idle) == ([], ())
    with pytest.raises(ConfigError, match="is a link to a directory"):
        list_project_files(tmp_path, exclude=["deps"])
    # Links within the directory, and to one that contains them, could go on without an end.
    for place, to in (("deps/x/more", "in"), ("deps/x/in/up", "..")):
        (tmp_path / place).symlink_to(to)
        with pytest.raises(ConfigError, match="is a link to a directory"):
            list_project_files(tmp_path)
        (tmp_path / place).unlink()


# -- as a source -----------------------------------------------------------------------------------


def test_the_archive_depends_on_what_is_packed_alone(
    tmp_path: Path, cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = commit(tmp_path / "tree", "setup.py", "k.cu", ignore="*.o\n")
    recipe = recipe_of(tree)
    first = SourceTree(recipe, cache).pack().data
    said = " ".join(capsys.readouterr().out.split())
    assert "source: 3 files, 16 B of" in said
    assert "as git lists them" in said
    write(tree, "k.o", ".venv/pyvenv.cfg", "build/lib/x.py", "mypkg.egg-info/PKG-INFO")
    os.utime(tree / "k.cu", (1, 1))
    (tree / "k.cu").chmod(0o755)
    assert SourceTree(recipe, cache).pack().data == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert archive.getnames() == [".gitignore", "k.cu", "setup.py"]
    assert SourceTree(recipe, cache).names() == (".gitignore", "k.cu", "setup.py")
    write(tree, "new.cu")
    assert SourceTree(recipe, cache).pack().data != first


def test_a_file_that_is_deleted_once_it_was_listed(
    tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = write(tmp_path / "tree", "setup.py", "k.cu")

    def listed(*given: Any) -> Listing:
        found = list_project_files(*given)
        (tree / "k.cu").unlink()
        return found

    monkeypatch.setattr("pipelines.recipe.sourcetree.list_project_files", listed)
    with pytest.raises(ConfigError, match=r"k\.cu cannot be read: No such file"):
        SourceTree(recipe_of(tree), cache).pack()


def test_an_empty_submodule_is_said(
    tmp_path: Path, cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(tmp_path / "inner", "k.cu")
    tree = commit(tmp_path / "tree", "setup.py")
    git(tree, "submodule", "add", str(tmp_path / "inner"), "dep")
    git(tree, "submodule", "deinit", "--force", "dep")
    SourceTree(recipe_of(tree), cache).pack()
    assert "note: the submodule dep is empty: git submodule update" in capsys.readouterr().out


def test_a_directory_that_is_not_there_or_no_project(tmp_path: Path, cache: Cache) -> None:
    with pytest.raises(ConfigError, match=r"source\.path: there is no directory"):
        SourceTree(recipe_of(tmp_path / "missing"), cache).names()
    write(tmp_path / "tree", "readme")
    with pytest.raises(ConfigError, match="is not a source tree"):
        SourceTree(recipe_of(tmp_path / "tree"), cache).names()
    forced = recipe_of(tmp_path / "tree", exclude=("setup.py",))
    write(tmp_path / "tree", "setup.py")
    with pytest.raises(ConfigError, match="is not a source tree"):
        SourceTree(forced, cache).names()
    source = PathSource(path=str(tmp_path / "tree"), include=("gone",))
    with pytest.raises(ConfigError, match="names no file"):
        SourceTree(recipe_of(tmp_path / "tree", source=source), cache).names()
