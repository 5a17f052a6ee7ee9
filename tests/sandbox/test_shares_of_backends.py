"""Wheels in shares by the back ends of others: CMake, scikit-build-core, meson-python, setuptools.

Linux wheels in an environment with the back ends' newest releases: what is shown is that their
starts of ninja are seen.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from sharebuilds import LACKING, Builds, wheels, without_wheels

pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"not there: {', '.join(LACKING)}")
#: What a line says of a unit that is compiled now.
BUILT = re.compile(r"Building CXX object|Compiling C\+\+ object")
PACKAGES = ("scikit-build-core", "meson-python", "cmake", "ninja", "setuptools", "pip")
#: A library with a generated header that all wait for, a program that is not shipped, a module with
#: position in it, and one more of the sources with another flag.
CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(mine LANGUAGES CXX)
add_custom_command(OUTPUT made.h COMMAND ${CMAKE_COMMAND} -E copy
  ${CMAKE_CURRENT_SOURCE_DIR}/made.h.in made.h DEPENDS made.h.in)
add_custom_target(header DEPENDS made.h)
include_directories(${CMAKE_CURRENT_BINARY_DIR})
add_library(part STATIC "a b.cpp" c.cpp)
set_target_properties(part PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_executable(never_shipped EXCLUDE_FROM_ALL main.cpp)
add_library(other OBJECT c.cpp)
target_compile_definitions(other PRIVATE OTHER)
set_target_properties(other PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_library(mine MODULE d.cpp e.cpp $<TARGET_OBJECTS:other>)
target_link_libraries(mine PRIVATE part)
foreach(each part other mine)
  add_dependencies(${each} header)
endforeach()
install(TARGETS mine DESTINATION mine)
"""
SKBUILD = """
[build-system]
requires = []
build-backend = "scikit_build_core.build"
[project]
name = "mine"
version = "1"
"""
MESON = """
project('mine', 'cpp', default_options: ['buildtype=release'])
py = import('python').find_installation()
part = static_library('part', 'c.cpp', cpp_args: ['-DOTHER', '-DMADE=2'], pic: true)
py.extension_module('mine', 'd.cpp', 'e.cpp', cpp_args: '-DMADE=2', link_with: part, install: true)
"""
MESONPY = '[build-system]\nrequires = []\nbuild-backend = "mesonpy"\n'
MESONPY += '[project]\nname = "mine"\nversion = "1"\n'
SETUP = """
import pathlib, subprocess
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
class CMakeBuild(build_ext):
    def build_extension(self, ext):
        where = pathlib.Path(self.build_temp).absolute()
        where.mkdir(parents=True, exist_ok=True)
        subprocess.check_call(["cmake", "-S", ".", "-B", str(where), "-GNinja",
                               "-DCMAKE_BUILD_TYPE=Release"])
        prefix = pathlib.Path(self.build_lib).absolute()
        subprocess.check_call(["cmake", "--build", ".", "-j2"], cwd=where)
        subprocess.check_call(["cmake", "--install", str(where), "--prefix", str(prefix)])
setup(name="mine", version="1", packages=[], ext_modules=[Extension("mine", [])],
      cmdclass={"build_ext": CMakeBuild})
"""
PROJECTS = {
    "scikit-build-core": ({"CMakeLists.txt": CMAKE, "pyproject.toml": SKBUILD}, 5),
    "meson-python": ({"meson.build": MESON, "pyproject.toml": MESONPY}, 3),
    "setup.py": ({"CMakeLists.txt": CMAKE, "setup.py": SETUP}, 5),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("environment") / "venv"
    uv, python = str(Path(sys.executable).with_name("uv")), place / "bin/python"
    for words in (
        ["venv", "--quiet", "--python", sys.executable, str(place)],
        ["pip", "install", "--quiet", "--system-certs", "--python", str(python), *PACKAGES],
    ):
        subprocess.run([uv, *words], check=True)
    return python


def tree(place: Path, files: dict[str, str]) -> Path:
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text)
    (place / "made.h.in").write_text("#define MADE 2\n")
    header = '#ifndef MADE\n#include "made.h"\n#endif\n'
    twice = "#ifdef OTHER\n#define c other_c\n#define c_at other_at\n#endif\n"
    for name in ("a b", "c", "d", "e"):
        one = name[0]
        code = f"int {one}() {{ return MADE; }}\nconst char *{one}_at() {{ return __FILE__; }}\n"
        (place / f"{name}.cpp").write_text(header + (twice if one == "c" else "") + code)
    (place / "main.cpp").write_text("#error nobody asked for it\n")
    return place


@pytest.fixture(params=PROJECTS)
def builds(request: pytest.FixtureRequest, environment: Path, tmp_path: Path) -> tuple[Builds, int]:
    files, count = PROJECTS[request.param]
    made = Builds(tmp_path, tree(tmp_path / "tree", files), str(environment))
    made.environment |= {"CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    return made, count


def test_the_wheel_is_the_one_that_is_built_whole(builds: tuple[Builds, int]) -> None:
    made, count = builds
    whole = made.run("whole")
    assert whole["exit"] == 0, made.log
    assert whole["timeline"]["units"], "ninja's log is where it is looked for"
    shutil.rmtree(made.room / "whole")
    for shares in (1, 3):
        objects = made.shares(shares)
        assert without_wheels(made.room)
        assert len({row["unit"] for row in objects}) == count == len(objects), made.log
        linked = made.link(objects, f"link{shares}")
        assert wheels(linked) == wheels(whole), made.log
        assert len(linked["placed"]) == count
        assert linked["compiled"] == []
        assert not BUILT.search(made.log), made.log
        shutil.rmtree(made.room / f"link{shares}")


def test_a_share_that_goes_on_and_a_link_that_lacks_some(builds: tuple[Builds, int]) -> None:
    made, count = builds
    whole = made.run("whole")
    shutil.rmtree(made.room / "whole")
    objects = made.shares(2)
    again = made.share(1, 2)
    assert again["exit"] == 0, made.log
    assert {row["sha256"] for row in again["objects"]} <= {row["sha256"] for row in objects}
    assert not BUILT.search(made.log), made.log
    for _ in range(2):  # the second one goes on from the first
        linked = made.link(objects[1:])
        assert wheels(linked) == wheels(whole), made.log
        assert (len(linked["placed"]), len(linked["compiled"])) == (count - 1, 1)


def test_an_ordinary_build_tells_its_units_and_goes_on(builds: tuple[Builds, int]) -> None:
    """In no fixed place, and in no temporary directory either."""
    made, count = builds
    made.fixed = False
    whole = made.run("whole")
    assert whole["exit"] == 0, made.log
    assert len(whole["timeline"]["units"]) == count
    assert BUILT.search(made.log), made.log
    assert made.run("whole")["exit"] == 0, made.log
    assert not BUILT.search(made.log), made.log
