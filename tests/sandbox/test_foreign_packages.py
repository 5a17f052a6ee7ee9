"""Packages that nobody here wrote, from their source distribution by `init` to a tested wheel.

Pinned like everything that is fetched; in a git repository of their own, as their authors have
them. No line of them is changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pipelines.toolchain import hashed
from pipelines.toolchain.sources import Source, download
from pipelines.wheels.fatbin import inventory

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[2]
_MINUTES = 12


@dataclass(frozen=True)
class Foreign:
    """A source distribution on the package index, and what is known of it."""

    name: str
    version: str
    file: str
    sha256: str
    size: int
    found: tuple[str, ...]
    """What `init` must say of it."""
    module: str
    """The extension module that its wheel must have."""


PACKAGES = (
    Foreign(
        name="custc",
        version="0.1.0",
        file="custc-0.1.0.tar.gz",
        sha256="b992a21d68174d7622f37df805dcfc7b0f72c31ed0a26960b1d1c5526f43d13c",
        size=1251200,
        found=("scikit-build-core, CMakeLists.txt, without torch", "pybind11", "custc._core"),
        module="custc/_core.cp311-win_amd64.pyd",
    ),
)


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of the program in ``folder``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_MINUTES * 60,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(params=PACKAGES, ids=lambda package: package.name)
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Foreign, Path]]:
    """Its sources, committed; what was made of a sandbox there is removed afterwards."""
    package: Foreign = request.param
    source = Source.model_validate(
        {
            "pypi": f"{package.name}=={package.version}",
            "file": package.file,
            "sha256": package.sha256,
            "size": package.size,
        }
    )
    archive = tmp_path / package.file
    download(source, archive, lambda *_: None)
    hashed.verify(archive, source)
    with tarfile.open(archive) as members:
        members.extractall(tmp_path, filter="data")
    folder = tmp_path / package.file.removesuffix(".tar.gz")
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "theirs"]):
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    yield package, folder
    run(folder, "sandbox.teardown", "--force")


def test_from_init_to_a_tested_wheel(repository: tuple[Foreign, Path]) -> None:
    package, folder = repository
    code, said = run(folder, "init", "--yes", "--archs", "80", "--no-workflow")
    assert code == 0, said
    assert [text for text in package.found if text not in said] == []
    code, said = run(folder, "provision", "build", "test")
    assert code == 0, said[-6000:]
    latest = folder / ".wcw/out/latest"
    manifest: dict[str, Any] = json.loads((latest / "manifest.json").read_text())
    assert manifest["inputs"]["taken_from"]["recipe"] == ".wcw of this repository"
    assert manifest["inputs"]["taken_from"]["smoke suite"] == ".wcw of this repository"
    assert manifest["inputs"]["checkout"]["count"] == 0
    (wheel,) = (latest / "wheels").glob("*.whl")
    assert ".sandbox" in wheel.name
    with zipfile.ZipFile(wheel) as inside:
        assert package.module in inside.namelist()
        module = inside.read(package.module)
    assert inventory(module).sass == {"80"}
    cases = {
        (one.get("classname", "").rpartition(".")[2], one.get("name")): [child.tag for child in one]
        for one in ElementTree.parse(latest / "smoke.xml").iter("testcase")  # noqa: S314 - ours
    }
    own = {name: tags for (where, name), tags in cases.items() if where == f"test_{package.name}"}
    assert own["test_the_wheel_has_its_extension_modules"] == []
    assert own["test_extension_modules_are_loaded_from_the_wheel"] == []
    assert own["test_numbers_on_a_gpu"] == ["skipped"]
    assert sum(tags == [] for tags in own.values()) > 3
    _a_wrong_one_fails(folder, wheel)


def _a_wrong_one_fails(folder: Path, wheel: Path) -> None:
    """The same wheel without its compiled module does not pass these tests."""
    wrong = folder.parent / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(wrong, "w") as new:
        for name in old.namelist():
            if not name.endswith(".pyd"):
                new.writestr(name, old.read(name))
    suite = next((folder / ".wcw/smoke").iterdir())
    code, said = run(folder, "test", "--wheel", str(wrong), "--script", str(suite))
    assert code != 0, said[-3000:]
