"""The program that calls a package's build system: its own process, as on a host."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from projects import project

from pipelines.remote import buildwheel

BACKEND = """
import os, pathlib, sys
def build_wheel(out):
    pathlib.Path(out, "made.whl").write_text(os.getcwd() + "|" + repr(sys.argv))
    return "made.whl"
class inner:
    build_wheel = staticmethod(build_wheel)
"""


def run(source: Path, out: Path, **environment: str) -> str:
    out.mkdir()
    done = subprocess.run(
        [sys.executable, "-u", buildwheel.__file__, str(source), str(out)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("name", ["mine", "mine:inner"])
def test_the_backend_that_a_project_brings(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    (source / "tools").mkdir(parents=True)
    (source / "tools/mine.py").write_text(BACKEND)
    system = f'[build-system]\nrequires = []\nbuild-backend = "{name}"\nbackend-path = ["tools"]\n'
    (source / "pyproject.toml").write_text(system)
    said = run(source, tmp_path / "out")
    assert said.splitlines()[-1] == "wheel: made.whl"
    place, _, words = (tmp_path / "out/made.whl").read_text().partition("|")
    assert place == str(source)
    assert len(json.loads(words.replace("'", '"'))) == 1, "setup.py would read them"


TORCH = """
import json, pathlib
def _write_ninja_file(path, *, sources, objects, flags=()):
    pathlib.Path(path).write_text(json.dumps([sources, objects]))
"""


def torch(tmp_path: Path, text: str) -> str:
    """A stand-in for torch's private function, of which only the order of arguments matters."""
    package = tmp_path / "site/torch/utils"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "cpp_extension.py").write_text(text)
    return str(tmp_path / "site")


def ninja_backend(source: Path) -> None:
    project(
        source,
        "import os, pathlib\n"
        "from torch.utils import cpp_extension as torch\n"
        "def build_wheel(out):\n"
        "    names = ['api', 'b_slow', 'c', 'd_slow']\n"
        "    torch._write_ninja_file(os.path.join(out, 'n'),\n"
        "        sources=['/x/' + name + '.cu' for name in names],\n"
        "        objects=[name + '.o' for name in names])\n"
        "    return 'x'\n",
    )


@pytest.mark.parametrize(
    ("globs", "wanted"),
    [
        ([], ["api", "b_slow", "c", "d_slow"]),
        (["*_slow.cu"], ["b_slow", "d_slow", "api", "c"]),
        (["d_*", "*_slow.cu", "c*"], ["d_slow", "b_slow", "c", "api"]),
    ],
)
def test_slow_units_begin_first(tmp_path: Path, globs: list[str], wanted: list[str]) -> None:
    ninja_backend(tmp_path / "source")
    site = torch(tmp_path, TORCH)
    asked = {buildwheel.SLOW_FIRST: json.dumps(globs)}
    run(tmp_path / "source", tmp_path / "out", PYTHONPATH=site, **asked)
    sources, objects = json.loads((tmp_path / "out/n").read_text())
    assert sources == [f"/x/{name}.cu" for name in wanted]
    assert objects == [f"{name}.o" for name in wanted]


def test_a_torch_that_works_otherwise_is_left_alone(tmp_path: Path) -> None:
    project(tmp_path / "source", "def build_wheel(out):\n    return 'x'\n")
    site = torch(tmp_path, "# nothing private here\n")
    asked = {buildwheel.SLOW_FIRST: '["*"]'}
    assert "wheel: x" in run(tmp_path / "source", tmp_path / "out", PYTHONPATH=site, **asked)


def test_windows_names_are_ranked_too() -> None:
    assert buildwheel.rank(r"C:\b\s\csrc\flash_bwd.cu", ["x*", "flash_bwd*"]) == 1
    assert buildwheel.rank("other.cu", ["x*", "flash_bwd*"]) == 2


# -- torch at a fixed place -----------------------------------------------------------------------


def told_place(source: Path) -> None:
    """A backend that writes down where it found torch."""
    project(
        source,
        "import os, pathlib, torch\n"
        "def build_wheel(out):\n"
        "    pathlib.Path(out, 'where').write_text(os.path.dirname(torch.__file__))\n"
        "    return 'x'\n",
    )


def test_torch_is_imported_from_one_place(tmp_path: Path) -> None:
    told_place(tmp_path / "source")
    place = tmp_path / "p"
    for number in ("1", "2"):
        site = torch(tmp_path / number, TORCH)
        asked = {buildwheel.PACKAGES: str(place), "PYTHONPATH": site}
        run(tmp_path / "source", tmp_path / f"out{number}", **asked)
        assert (tmp_path / f"out{number}/where").read_text() == str(place / "torch")
        assert place.samefile(site)
        os.unlink(place)  # noqa: PTH108 - a junction too
        assert (Path(site) / "torch/utils/cpp_extension.py").read_text() == TORCH


def test_a_torch_that_is_itself_a_link(tmp_path: Path) -> None:
    told_place(tmp_path / "source")
    real, site, place = torch(tmp_path / "opt", TORCH), tmp_path / "site", tmp_path / "p"
    site.mkdir()
    if sys.platform == "win32":
        pytest.skip("a symbolic link needs a privilege")
    (site / "torch").symlink_to(Path(real, "torch"))
    asked = {buildwheel.PACKAGES: str(place), "PYTHONPATH": str(site)}
    run(tmp_path / "source", tmp_path / "out", **asked)
    assert (tmp_path / "out/where").read_text() == str(place / "torch")


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    told_place(tmp_path / "source")
    site, place = torch(tmp_path, TORCH), tmp_path / "p"
    place.mkdir()
    (place / "mine").touch()
    asked = {buildwheel.PACKAGES: str(place), "PYTHONPATH": site}
    said = run(tmp_path / "source", tmp_path / "out", **asked)
    assert "torch is used in its own location" in said
    assert (tmp_path / "out/where").read_text() == str(Path(site, "torch"))
    assert (place / "mine").exists()


def test_a_torch_that_is_not_on_the_path(tmp_path: Path) -> None:
    """As an editable installation finds it: by a finder of its own."""
    told_place(tmp_path / "source")
    hidden, site, place = torch(tmp_path, TORCH), tmp_path / "hook", tmp_path / "p"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\nfrom importlib.machinery import PathFinder\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        return PathFinder.find_spec(name, [{hidden!r}]) if name == 'torch' else None\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    asked = {buildwheel.PACKAGES: str(place), "PYTHONPATH": str(site)}
    said = run(tmp_path / "source", tmp_path / "out", **asked)
    assert "is not in sys.path" in said
    assert not os.path.lexists(place)


def test_without_torch_there_is_no_link(tmp_path: Path) -> None:
    project(tmp_path / "source", "def build_wheel(out):\n    return 'x'\n")
    if importlib.util.find_spec("torch"):
        pytest.skip("torch is installed here")
    said = run(tmp_path / "source", tmp_path / "out", **{buildwheel.PACKAGES: str(tmp_path / "p")})
    assert said.strip() == "wheel: x"
    assert not (tmp_path / "p").exists()


LISTING = """
import glob, json, os, pathlib
def build_wheel(out):
    with os.scandir("many") as found:
        scanned = [entry.name for entry in found]
    told = [os.listdir("many"), scanned, glob.glob("many/*"), [f for _, _, f in os.walk("many")][0]]
    pathlib.Path(out, "made.whl").write_text(json.dumps(told))
    return "made.whl"
"""


def test_a_reproducible_build_lists_by_name(tmp_path: Path) -> None:
    project(tmp_path / "source", LISTING)
    (tmp_path / "source/many").mkdir()
    for number in range(100):  # as good as never in order by themselves
        (tmp_path / "source/many" / f"{number * 37 % 100:02}").touch()
    run(tmp_path / "source", tmp_path / "out", **{buildwheel.FIXED: str(tmp_path)})
    listed, scanned, globbed, walked = json.loads((tmp_path / "out/made.whl").read_text())
    assert listed == scanned == walked == [f"{number:02}" for number in range(100)]
    assert [Path(one).name for one in globbed] == listed
