"""Third-party packages, from their source distribution by `init` to a tested wheel.

Pinned like everything that is fetched; in a git repository of their own, as their authors have
them. No line of them is changed.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pipelines.wheels.fatbin import inventory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from foreign_packages import Foreign, program, repository

PACKAGES = (
    Foreign(
        name="fusedtok",
        version="2.5.0",
        file="fusedtok-2.5.0.tar.gz",
        sha256="49afb4f4a36b2fa00e2543299881fef66852683e3311e8adefa026d334cc5a5c",
        size=975355,
        found=("scikit-build-core, CMakeLists.txt, without torch", "pybind11", "11 units"),
        module="fusedtok/_fusedtok.cp311-win_amd64.pyd",
    ),
)


@pytest.fixture(params=PACKAGES, ids=lambda package: package.name)
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Foreign, Path]]:
    """One in its repository; what was made of a sandbox there is removed afterwards."""
    package: Foreign = request.param
    folder = repository(package, tmp_path)
    yield package, folder
    program(folder, "host.remove", "--force")


def test_from_init_to_a_tested_wheel(theirs: tuple[Foreign, Path]) -> None:
    package, folder = theirs
    code, said = program(folder, "init", "--yes", "--archs", "80", "--no-workflow")
    assert code == 0, said
    assert [text for text in package.found if text not in said] == []
    code, said = program(folder, "provision", "build", "test")
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
    assert own["test_the_wheel_has_its_compiled_files"] == []
    assert own["test_compiled_files_are_loaded_from_the_wheel"] == []
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
    code, said = program(folder, "test", "--wheel", str(wrong), "--script", str(suite))
    assert code != 0, said[-3000:]


FETCHING = {
    "pyproject.toml": (
        "[build-system]\nrequires = ['scikit-build-core']\n"
        "build-backend = 'scikit_build_core.build'\n"
        "[project]\nname = 'fetching'\nversion = '1'\n"
    ),
    "CMakeLists.txt": (
        "cmake_minimum_required(VERSION 3.24)\nproject(fetching LANGUAGES CXX CUDA)\n"
        "include(FetchContent)\n"
        "FetchContent_Declare(json GIT_REPOSITORY https://127.0.0.1:9/json.git GIT_TAG v3)\n"
        "FetchContent_MakeAvailable(json)\n"
    ),
    "kernel.cu": "__global__ void kernel() {}\n",
}


def test_one_that_needs_a_network_while_it_is_built(tmp_path: Path) -> None:
    """`init` says so before, the build's diagnosis afterwards; there is no wheel."""
    for name, text in FETCHING.items():
        (tmp_path / name).write_text(text)
    code, said = program(tmp_path, "init", "--yes", "--archs", "80", "--no-workflow")
    assert code == 0, said
    assert "fetchcontent_declare json: builds have no network" in said
    try:
        code, said = program(tmp_path, "provision", "build")
        assert code == 8, said[-3000:]
        assert "fetches something while it is built" in " ".join(said.split())
        assert "-DFETCHCONTENT_SOURCE_DIR_<NAME>" in said
        assert not [*tmp_path.glob(".wcw/out/*/wheels/*.whl")]
    finally:
        program(tmp_path, "host.remove", "--force")
