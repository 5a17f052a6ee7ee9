"""Patches of recipes: applied to the letter, or not at all."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.errors import ConfigError
from pipelines.recipe import patches
from pipelines.recipe.checks import check_surroundings
from pipelines.recipe.load import VARIES, load_recipe, load_versions, recipe_names
from pipelines.recipe.model import Patch, Recipe
from pipelines.recipe.sourcetree import SourceTree
from pipelines.toolchain.lock import Cache, load_lock

OLD = {
    "setup.py": "import os\nA = 1\nB = 2\nC = 3\nD = 4\nE = 5\nF = 6\nG = 7\nH = 8\nI = 9\n",
    "src/k.cu": "int a;\nint b;",
    "README": "as it is\n",
}
NEW = {
    "setup.py": "import os\nA = 1\nB = 22\nC = 3\nD = 4\nE = 5\nF = 6\nG = 7\nI = 9\nJ = 10\n",
    "src/k.cu": "int a;\nlong b;\n",
}


def diff(old: dict[str, str], new: dict[str, str], tmp_path: Path) -> str:
    """As git writes it."""
    for folder, files in (("a", {**old}), ("b", {**old, **new})):
        for name, text in files.items():
            path = tmp_path / "diff" / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, newline="")
    command = ["git", "diff", "--no-index", "--no-prefix", "-U2", "a", "b"]
    done = subprocess.run(
        command, cwd=tmp_path / "diff", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stdout


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pipeline.yaml").write_text("hosts: {}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sdist(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"x-1/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def patch(project: Path, text: str, name: str = "one.patch") -> dict[str, str]:
    (project / name).write_text(text, newline="")
    return {
        "file": name,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "source": "https://example.org/pull/1",
        "license": "MIT",
        "why": "it does not compile",
    }


def recipe(data: bytes, *rows: dict[str, str], **more: Any) -> Recipe:
    source = {
        "url": "https://x.invalid/x-1.tar.gz",
        "file": "x-1.tar.gz",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "also": more.pop("also", {}),
    }
    made = {
        "name": "x",
        "summary": "x",
        "kind": "wheel",
        "license": "MIT",
        "version": "1",
        "source": source,
        "pythons": ["3.11"],
        "cuda": "13.0",
        "archs": "90",
        "build_requires": ["setuptools"],
        "patches": [*rows],
    }
    return Recipe.model_validate(made | more)


def tree(
    project: Path, files: dict[str, str], *rows: dict[str, str], **more: Any
) -> dict[str, str]:
    """The files of the source as they are sent."""
    data = sdist(files)
    cache, made = Cache(load_lock(), project / "cache", offline=True), recipe(data, *rows, **more)
    place = cache.place("x-1.tar.gz", hashlib.sha256(data).hexdigest())
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    with tarfile.open(fileobj=io.BytesIO(SourceTree(made, cache).pack().data)) as archive:
        return {
            one.name: (archive.extractfile(one) or io.BytesIO()).read().decode() for one in archive
        }


def test_what_git_has_written_is_applied(project: Path) -> None:
    got = tree(project, OLD, patch(project, diff(OLD, NEW, project)))
    assert got == OLD | NEW


def test_files_of_windows_keep_their_ends(project: Path) -> None:
    windows = {name: text.replace("\n", "\r\n") for name, text in OLD.items()}
    got = tree(project, windows, patch(project, diff(OLD, NEW, project)))
    assert got == windows | {name: text.replace("\n", "\r\n") for name, text in NEW.items()}


def test_lines_that_no_patch_names_stay_as_they_are(project: Path) -> None:
    """A form feed ends no line, ends of both kinds may be but where it changes."""
    old = {"setup.py": "import os\n\f\nA = '\u2028\x1c'\n" + OLD["setup.py"]}
    new = {"setup.py": old["setup.py"].replace("B = 2", "B = 22")}
    made = patch(project, diff(old, new, project))
    assert tree(project, old, made) == new
    head = {"setup.py": old["setup.py"].replace("import os\n\f", "import os\r\n\f")}
    assert tree(project, head, made)["setup.py"] == head["setup.py"].replace("B = 2", "B = 22")
    near = {"setup.py": old["setup.py"].replace("B = 2\n", "B = 2\r\n")}
    with pytest.raises(ConfigError, match=r"setup\.py has mixed line endings at line"):
        tree(project, near, made)


def test_one_after_the_other(project: Path) -> None:
    second = {"setup.py": NEW["setup.py"].replace("B = 22", "B = 222")}
    rows = (
        patch(project, diff(OLD, NEW, project)),
        patch(project, diff(OLD | NEW, second, project), "two.patch"),
    )
    assert tree(project, OLD, *rows)["setup.py"] == second["setup.py"]
    with pytest.raises(ConfigError, match=r"two\.patch does not fit setup\.py at line 1"):
        tree(project, OLD, *reversed(rows))


def test_many_files_as_git_applies_them(project: Path) -> None:
    """Against an implementation that is not ours."""
    old = {f"f{n}.h": "".join(f"line {i * n}\n" for i in range(60)) for n in range(1, 9)}
    new = {
        name: "".join(
            "" if i % 17 == n else f"new {i}\n{line}" if i % 11 == n else line
            for i, line in enumerate(text.splitlines(keepends=True))
        )
        for n, (name, text) in enumerate(old.items())
    }
    old["setup.py"] = "x\n"
    assert tree(project, old, patch(project, diff(old, new, project))) == old | new


@pytest.mark.parametrize(
    ("was", "now"),
    [("B = 2", "B = 3"), ("import os\n", "import os\n\n"), ("D = 4", "D  = 4"), ("I = 9\n", "")],
)
def test_a_source_that_is_another_one_is_refused(project: Path, was: str, now: str) -> None:
    """No line is looked for elsewhere: what is nearly it may be another thing."""
    row = patch(project, diff(OLD, NEW, project))
    other = OLD | {"setup.py": OLD["setup.py"].replace(was, now)}
    with pytest.raises(ConfigError, match=r"recipe x 1: one\.patch does not fit setup\.py at line"):
        tree(project, other, row)


def test_a_file_that_is_not_there_is_refused(project: Path) -> None:
    row = patch(project, diff(OLD, NEW, project))
    less = {name: text for name, text in OLD.items() if name != "src/k.cu"}
    with pytest.raises(ConfigError, match=r"the source has no src/k\.cu, which its patches change"):
        tree(project, less, row)


def test_a_file_that_is_left_out_can_be_patched_too(project: Path) -> None:
    """Whether it is sent decides nothing about whether the patch fits."""
    got = tree(project, OLD, patch(project, diff(OLD, NEW, project)), exclude=["src/*"])
    assert got == {"setup.py": NEW["setup.py"], "README": OLD["README"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", "no line in it begins with ---"),
        ("--- a/setup.py", "it ends within a change"),
        ("--- a/setup.py\n+++ b/setup.py\n@@ -1,3 +1,2 @@\n-a\n+b\n", "begins with none of"),
        ("--- a/setup.py\nhello\n", "line 2 does not begin with"),
        ("--- a/setup.py\n+++ b/setup.py\n", "setup.py has no change"),
        ("--- a/setup.py\n+++ b/other.py\n@@ -1 +1 @@\n-a\n+b\n", "makes, removes or renames"),
        ("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+b\n", "makes, removes or renames"),
        ("--- a/setup.py\n+++ b/setup.py\n@@ -1,2 +1 @@\n-a\n+b\n", "begins with none of"),
        ("--- a/setup.py\n+++ b/setup.py\n@@ -1 +1 @@\n-a\n-c\n+b\n", "does not match its header"),
        ("@@ -1 +1 @@\n-a\n+b\n", "line 1 belongs to no file"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n" * 2, "x is in it twice"),
    ],
)
def test_what_is_no_patch(project: Path, text: str, said: str) -> None:
    row = Patch.model_validate(patch(project, text))
    with pytest.raises(ConfigError) as caught:
        patches.read_patch(row)
    assert said in caught.value.message
    assert "one.patch" in caught.value.message


def test_a_recipe_with_a_wrong_hash_is_refused_before_anything_begins(project: Path) -> None:
    row = patch(project, diff(OLD, NEW, project))
    made = recipe(sdist(OLD), row)
    check_surroundings(made, "recipes/x.yaml")
    (project / "one.patch").write_text((project / "one.patch").read_text().replace("long", "char"))
    with pytest.raises(ConfigError, match=r"^recipes/x\.yaml: patches: .*one\.patch has sha256"):
        check_surroundings(made, "recipes/x.yaml")
    with pytest.raises(ConfigError, match="the recipe pins"):
        tree(project, OLD, row)


def test_a_file_that_there_is_not_names_the_nearest(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "SHIPPED", project / "recipes")
    there = project / "recipes/patches/x/msvc.patch"
    there.parent.mkdir(parents=True)
    there.write_text(diff(OLD, NEW, project))
    row = patch(project, there.read_text()) | {"file": "patches/x/mvsc.patch"}
    with pytest.raises(ConfigError, match="there is no file") as caught:
        check_surroundings(recipe(sdist(OLD), row), "recipes/x.yaml")
    assert "'patches/x/msvc.patch'" in caught.value.message
    assert tree(project, OLD, row | {"file": "patches/x/msvc.patch"}) == OLD | NEW


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sha256": "abc"}, "sha256"),
        ({"source": "from a friend"}, "source"),
        ({"license": ""}, "license"),
        ({"file": "../one.patch"}, "file"),
        ({"sha265": "0" * 64}, "sha265"),
    ],
)
def test_wrong_keys(project: Path, change: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        recipe(sdist(OLD), patch(project, "x") | change)


def test_a_directory_here_is_changed_by_hand(project: Path) -> None:
    with pytest.raises(ValueError, match="patches: only for a source that is pinned"):
        recipe(sdist(OLD), patch(project, "x"), source={"path": "mine"}, version="")


def test_every_shipped_patch_belongs_to_a_recipe_and_is_what_it_pins() -> None:
    assert "patches" in VARIES
    used = set()
    for name in recipe_names():
        for made in load_versions(name).values():
            for one in made.patches:
                assert patches.read_patch(one), one.file
                used.add(patches.patch_file(one))
        load_recipe(name)
    assert used == {*patches.SHIPPED.glob("patches/*/*")}


# -- directories of ours that are added to an archive ----------------------------------------------


def test_a_directory_is_added_at_the_top_and_below(project: Path) -> None:
    for name in ("ours/setup.py", "ours/csrc/api.cpp", "more/b.h"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    files = {"setup.py": "theirs", "csrc/a.cu": "a", "old/b.h": "theirs"}
    # A glob is for the archive: what is added has the same names.
    got = tree(project, files, also={".": "ours", "old": "more"}, exclude=["setup.py", "old/*"])
    assert got == {
        "setup.py": "ours/setup.py",
        "csrc/a.cu": "a",
        "csrc/api.cpp": "ours/csrc/api.cpp",
        "old/b.h": "more/b.h",
    }


def test_a_patch_is_for_the_archive_alone(project: Path) -> None:
    (project / "ours").mkdir()
    (project / "ours/new.py").write_text("import os\n")
    got = tree(project, OLD, patch(project, diff(OLD, NEW, project)), also={".": "ours"})
    assert got == {**OLD, **NEW, "new.py": "import os\n"}


def test_a_file_of_the_archive_is_not_replaced_unsaid(project: Path) -> None:
    (project / "ours").mkdir()
    (project / "ours/setup.py").write_text("ours")
    with pytest.raises(ConfigError, match=r"x-1\.tar\.gz has a setup\.py of its own"):
        tree(project, {"setup.py": "theirs"}, also={".": "ours"})


def test_two_directories_with_one_file_are_refused(project: Path) -> None:
    for name in ("one", "two"):
        (project / name / "x").mkdir(parents=True)
        (project / name / "x/a.h").write_text(name)
    with pytest.raises(ConfigError, match=r"has a x/a\.h of its own"):
        tree(project, {"setup.py": ""}, also={".": "one", "x": "two/x"})


def test_a_directory_that_is_not_there_is_found_before_anything_starts(project: Path) -> None:
    made = recipe(sdist(OLD), also={"kernels": "nowhere"}, verify="import x")
    with pytest.raises(ConfigError, match="nowhere"):
        check_surroundings(made, "recipe x")
