"""No file of the project, and none that it makes, has a name that Windows cannot have."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from pipelines.core.errors import ConfigError
from pipelines.core.model import FileName, Name
from pipelines.recipe.sourcetree import pack_source_tree
from pipelines.remote.safe_paths import tree_faults

ROOT = Path(__file__).parents[2]

DEVICES = [
    *("con", "PRN", "Aux", "nul", "CONIN$", "conout$"),
    *(f"{port}{digit}" for port in ("com", "LPT") for digit in "0123456789\u00b9\u00b2\u00b3"),
]
BAD = [
    *DEVICES,
    *(f"{name}.{end}" for name in DEVICES for end in ("ps1", "tar.gz")),
    *(f"a{mark}b" for mark in '<>:"|?*\\\x01\n'),
    *("ends-in-a-dot.", "ends-in-a-blank ", "...", "nul .txt"),
]


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if name]


def test_every_tracked_file_can_be_checked_out_on_windows() -> None:
    names = tracked()
    assert len(names) > 1000
    assert not tree_faults(names)


@pytest.mark.slow
def test_wheel_and_sdist_can_be_unpacked_on_windows(built_wheel: Path, tmp_path: Path) -> None:
    for name in filter(lambda name: (ROOT / name).is_file(), tracked()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", "made"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    (sdist,) = (tmp_path / "made").iterdir()
    with tarfile.open(sdist) as packed, zipfile.ZipFile(built_wheel) as wheel:
        files = [member.name for member in packed if member.isfile()]
        for names in (files, wheel.namelist()):
            assert len(names) > 500
            assert not tree_faults(names)


@pytest.mark.parametrize("folder", ["", "images/oem/"])
@pytest.mark.parametrize("name", BAD)
def test_one_bad_name_is_found(name: str, folder: str) -> None:
    names = ["README.md", f"{folder}{name}", f"{folder}{name}x/y", "images/oem/z.ps1"]
    assert f"{folder}{name}" in tree_faults(names)
    if name in DEVICES:
        assert f"{name}/x" in tree_faults([f"{name}/x"])
        assert f"{name}/" in tree_faults([f"{name}/"])


@pytest.mark.parametrize(
    "names",
    [
        ["docs/README.md", "docs/Readme.md"],
        ["Docs/a.md", "docs/A.md"],
        ["\u00dc.py", "\u00fc.py"],
        ["build", "Build/x.c"],
        ["a/b/c", "A/B"],
    ],
)
def test_two_names_that_are_one_on_windows_are_found(names: list[str]) -> None:
    assert tree_faults(names)
    assert tree_faults(reversed(names))


@pytest.mark.parametrize(
    "names",
    [
        ["console.c", "com.c", "com10", "lpt", "nulls/aux_.h", "icon", ".con", "auxiliary.py"],
        ["Include/a.h", "include/b.h"],  # one directory on Windows, and no file is lost
        ["a/", "a/b", "a/b.c"],
        ["stra\u00dfe", "strasse"],
        ["a", "a"],
    ],
)
def test_ordinary_names_are_fine(names: list[str]) -> None:
    assert not tree_faults(names)


def test_a_source_tree_is_refused_before_it_is_sent() -> None:
    members = [("setup.py", b""), ("csrc/aux.h", b""), ("csrc/Op.cu", b""), ("csrc/op.cu", b"")]
    with pytest.raises(ConfigError) as refused:
        pack_source_tree(members, where="tree")
    for named in ("csrc/aux.h", "csrc/Op.cu", "csrc/op.cu"):
        assert named in str(refused.value)
    assert pack_source_tree(members, ["csrc/*"], where="tree"), "what is left out is not sent"


@pytest.mark.parametrize("kind", [Name, FileName])
@pytest.mark.parametrize("name", ["aux", "nul", "com1", "lpt9"])
def test_names_that_become_files_on_a_host(kind: Any, name: str) -> None:
    """Recipes, hosts and pinned files."""
    with pytest.raises(ValidationError, match="device"):
        TypeAdapter(kind).validate_python(name)
    assert TypeAdapter(kind).validate_python(f"{name}x") == f"{name}x"
