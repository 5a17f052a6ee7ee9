"""Third-party packages for torch: from `init` to a wheel tested on a GPU.

Environment as for ``test_recipes_on_gpu.py``; ``WCW_SDISTS`` is a directory with their source
distributions, which are fetched without it::

    export CUDA_HOME=/usr/local/cuda WCW_TORCH_PYTHON=/path/to/bin/python WCW_GPU_OUT=out
    python -m pytest -m gpu tests/gpu/test_foreign_package_on_gpu.py -s

No line of a package is changed. Its author answers by flags, and writes tests of its numbers
(``tests/gpu/packages``). Then the wheel is made wrong by 2 %, which these have to find. A machine
with torch and nvcc but without a GPU builds them too; what needs a GPU is then skipped.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from bridged import kept
from broken_wheels import Members, changed_wheel
from native import ARCHS, PYTHON, flags, installed, jobs, settings, told
from run_suite import run

from pipelines.hosts.local.host import has_driver
from pipelines.recipe.suite import suite_of_given
from pipelines.reports.junit import read_pytest
from pipelines.reports.model import Suite
from pipelines.wheels.fatbin import inventory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from foreign_packages import Foreign, program, repository

HERE = Path(__file__).parent
GPU = has_driver()
#: Text behind a module, and the test of its author's that must then fail.
FAULTS = {
    "fused-lncc": {
        "forward": (
            "fused_lncc/__init__.py",
            "import fused_lncc_cuda as _kernels\n"
            "_right = _kernels.lncc_forward\n"
            "def _off(*arguments):\n"
            "    told = _right(*arguments)\n"
            "    told[0].mul_(1.02)\n"
            "    return told\n"
            "_kernels.lncc_forward = _off\n",
            "test_each_voxel",
        ),
        "backward": (
            "fused_lncc/__init__.py",
            "_backward = _ext.lncc_backward\n"
            "_ext.lncc_backward = lambda *arguments: _backward(*arguments) * 1.02\n",
            "test_loss_and_gradient",
        ),
    },
    "torch-scatter": {
        "sums": (
            "torch_scatter/__init__.py",
            "_right = scatter_sum\n"
            "def scatter_sum(*arguments, **named):\n"
            "    return _right(*arguments, **named) * 1.02\n",
            "test_scatter",
        ),
    },
    "isoext": {
        "size": (
            "isoext/__init__.py",
            "_right = marching_cubes\n"
            "def marching_cubes(*arguments, **named):\n"
            "    corners, triangles = _right(*arguments, **named)\n"
            "    return corners * 1.02, triangles\n",
            "test_sphere",
        ),
    },
}
#: Those that compute on the processor too.
WITHOUT_A_GPU = ("torch-scatter",)


@dataclass(frozen=True)
class Package:
    """One with its author's answers."""

    foreign: Foreign
    libraries: int
    """Compiled files with code for a GPU."""
    needs: tuple[str, ...] = ()
    """Modules, besides torch and setuptools, that the environment must have."""
    torch: bool = True
    """Whether it is compiled with torch."""
    corrected: tuple[str, ...] = ()
    """Lines of the tests that `init` writes that its author would take out: faults of its own."""


PACKAGES = (
    Package(
        Foreign(
            name="fused-lncc",
            version="0.1.0",
            file="fused_lncc-0.1.0.tar.gz",
            sha256="fc937220d3cc6d7e8ba4ef50cd83be6f9d91d03a983dca23691d290805e8e508",
            size=19195,
            found=("setuptools, setup.py, with torch", "fused_lncc_cuda", "1 unit"),
            module="fused_lncc_cuda",
        ),
        libraries=1,
    ),
    Package(
        Foreign(
            name="torch-scatter",
            version="2.1.2",
            file="torch_scatter-2.1.2.tar.gz",
            sha256="69b3aa435f2424ac6a1bfb6ff702da6eb73b33ca0db38fb26989c74159258e47",
            size=108045,
            found=("setuptools, setup.py, with torch", "not detected", "3 units"),
            module="torch_scatter/_scatter_cuda",
        ),
        libraries=3,
        # Its __all__ names itself, which it is not: `from torch_scatter import *` fails as well.
        corrected=('    ("torch_scatter", "torch_scatter"),\n',),
    ),
    Package(
        Foreign(
            name="isoext",
            version="1.0.0",
            file="isoext-1.0.0.tar.gz",
            sha256="389e4a455ea0364f7fd5a82fbc5d298c7cd94cc565ccffe64e6eb0cdfd89ec0e",
            size=249906,
            found=("scikit-build-core, CMakeLists.txt, without torch", "nanobind", "19 units"),
            module="isoext/isoext_ext",
        ),
        libraries=1,
        needs=("scikit_build_core", "cmake", "nanobind", "nanobind_backend", "viser"),
        torch=False,
    ),
)


#: Package -> its repository after the build, and the run's directory.
Built = dict[str, tuple[Path, Path]]


@pytest.fixture(scope="module")
def axes() -> dict[str, str]:
    """What its author answers."""
    return installed()


@pytest.fixture(scope="module")
def built() -> Built:
    """Filled by what builds them."""
    return {}


def result(run: Path) -> Suite:
    return read_pytest((run / "smoke.xml").read_bytes())


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.foreign.name)
def test_from_init_to_a_tested_wheel(
    package: Package, axes: dict[str, str], built: Built, tmp_path: Path
) -> None:
    name, room = package.foreign.name, kept(f"packages/{package.foreign.name}", tmp_path)
    absent = f"print(*(n for n in {package.needs!r} if not importlib.util.find_spec(n)))"
    if missing := told(f"import importlib.util; {absent}"):
        pytest.skip(f"the environment has no {missing}: install it, such as from a wheelhouse")
    folder = repository(package.foreign, tmp_path)
    answers = flags(axes, torch=package.torch)
    code, said = program(folder, "init", "--yes", "--no-workflow", *answers)
    assert code == 0, said
    assert [text for text in package.foreign.found if text not in said] == []
    written = yaml.safe_load((folder / "pipeline.yaml").read_text())
    written |= settings(tmp_path) | {"out": str(room / "out")}
    written["default"] |= {"host": "here"}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(written))
    _with_numbers(folder, package)
    code, said = program(folder, "provision", "build", "test", "--jobs", jobs(), minutes=30)
    (room / "console.log").write_text(said, "utf-8")
    assert code == 0, said[-6000:]
    latest = room / "out/latest"
    manifest = json.loads((latest / "manifest.json").read_text())["inputs"]
    assert manifest["taken_from"]["recipe"] == ".wcw of this repository"
    assert manifest["checkout"]["count"] == 0
    (wheel,) = (latest / "wheels").glob("*.whl")
    found = {
        one.name: inventory(one.read_bytes()).sass for one in _compiled(wheel, tmp_path / "inside")
    }
    assert any(package.foreign.module.rpartition("/")[2] in one for one in found), found
    assert [archs for archs in found.values() if archs] == [{*ARCHS.split(";")}] * package.libraries
    suite = result(latest)
    outcomes = [case.outcome for case in suite.cases]
    assert {"failed", "error"} & {*outcomes} == set()
    if GPU and _numbers(package).is_file():
        assert int(suite.properties["gpu_cases"]) >= 10, suite.properties
    print(f"\n{name}: {wheel.name}, {len(outcomes)} cases, {suite.properties}")
    built[name] = folder, latest.resolve()


def _numbers(package: Package) -> Path:
    return HERE / "packages" / f"{package.foreign.name.replace('-', '_')}.py"


def _with_numbers(folder: Path, package: Package) -> None:
    """The written tests, with those of numbers in place of the one that says they are missing.

    Where there are none that one stays, and its skip with it.
    """
    if not _numbers(package).is_file():
        return
    (written,) = (folder / ".wcw/smoke").glob("*/test_*.py")
    text, mark, _ = written.read_text().partition("def test_numbers_on_a_gpu")
    assert mark
    for line in package.corrected:
        assert line in text
        text = text.replace(line, "")
    written.write_text(text.rstrip() + "\n")
    shutil.copy(_numbers(package), written.with_name("test_numbers.py"))


def _compiled(wheel: Path, room: Path) -> list[Path]:
    shutil.unpack_archive(wheel, room, "zip")
    return sorted(room.rglob("*.so"))


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name, faults in FAULTS.items() for fault in faults]
)
def test_a_wrong_number_is_found(name: str, fault: str, built: Built, tmp_path: Path) -> None:
    """A wheel whose results are 2 % off fails, where its author compares them."""
    if not GPU and name not in WITHOUT_A_GPU:
        pytest.skip("without a GPU its kernels cannot be run, right or wrong")
    module, text, shows_in = FAULTS[name][fault]

    def change(members: Members) -> None:
        members[module] += f"\n\n{text}".encode()

    failed = _failed(name, built, change, tmp_path)
    assert shows_in in failed, failed
    assert "test_package_imports_in_a_fresh_interpreter" not in failed, "it must import"


@pytest.mark.parametrize("name", [package.foreign.name for package in PACKAGES])
def test_one_without_its_kernels_is_found(name: str, built: Built, tmp_path: Path) -> None:
    """The tests that `init` wrote find it, without a GPU and without numbers.

    Its sources go too: one of these packages would compile them when it is imported.
    """

    def change(members: Members) -> None:
        for one in [one for one in members if one.endswith((".so", ".cu"))]:
            del members[one]

    assert "test_the_wheel_has_its_compiled_files" in _failed(name, built, change, tmp_path)


def _failed(name: str, built: Built, change: Callable[[Members], None], room: Path) -> list[str]:
    """Which tests the wheel fails after ``change``, in the environment as it is."""
    if name not in built:
        pytest.skip(f"{name} was not built, or not all of it: its wheel is not broken")
    folder, made = built[name]
    (good,) = (made / "wheels").glob("*.whl")
    wheel = changed_wheel(good, room / "wrong", change)
    (suite,) = (folder / ".wcw/smoke").iterdir()
    done = run(suite_of_given(suite).files, wheel, room / "out", python=PYTHON)
    assert done["exit"] != 0
    return sorted(
        {c.name.partition("[")[0] for c in result(room / "out").cases if c.outcome == "failed"}
    )
