"""``invoke init``: what is found in a repository, what is written, and what is refused."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pipelines.cli.program import run_command_line
from pipelines.core.errors import ConfigError, StorageError
from pipelines.plan.config.model import load_config
from pipelines.recipe.load import load_recipe
from pipelines.recipe.suite import suite_of
from pipelines.scaffold import writer
from pipelines.scaffold.choices import api_of, relevant_questions
from pipelines.scaffold.cmake import parse_cmake_commands
from pipelines.scaffold.detect import detect_project, public_names
from pipelines.scaffold.knowledge import knowledge_note
from pipelines.scaffold.writer import compare_with_existing, write_scaffold_files
from pipelines.toolchain.lock import load_lock

TORCH_SETUP = """
import os
from setuptools import setup, find_packages
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
open("RAN", "w").write("setup.py was run")
VERSION = "1.2" + ".3"
if os.environ.get("FORCE_CUDA"):
    pass
setup(
    name="Two.Words",
    version=VERSION,
    license="MIT",
    python_requires=">=3.10,<3.14",
    install_requires=["torch", "numpy>=1.20", "nowhere-pinned"],
    packages=find_packages(),
    ext_modules=[CUDAExtension("two_words._C", ["src/a.cpp", "src/k.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
"""
#: A Windows machine that the pipeline provisions, as GitHub's runner is.
RUNNER = """
hosts:
  runner:
    kind: winrm
    endpoint: https://runner.example.org:5986/wsman
    username: u
    password_env: RUNNER_PASSWORD
"""
CMAKE = """
cmake_minimum_required(VERSION 3.24) # project(no LANGUAGES C)
#[[ project(neither) ]]
set(TARGET_NAME _core)
project(fine VERSION 2.0 LANGUAGES CXX CUDA)
set(FINE_ARCHS "80-real;90" CACHE STRING "which")
set(CMAKE_CUDA_ARCHITECTURES ${FINE_ARCHS})
if(UNKNOWN AND (A OR B))
  add_subdirectory(more)
endif()
nanobind_add_module(${TARGET_NAME} NB_STATIC bind.cpp)
install(TARGETS ${TARGET_NAME} LIBRARY DESTINATION fine)
"""
PYPROJECT = """
[build-system]
requires = ["scikit-build-core>=0.10", "nanobind"]
build-backend = "scikit_build_core.build"
[project]
name = "fine"
version = "2.0"
requires-python = ">=3.11"
dependencies = ['typing-extensions; sys_platform == "linux"']
classifiers = ["License :: OSI Approved :: MIT License"]
"""


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def torch_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = files(
        tmp_path / "repository",
        {
            "setup.py": TORCH_SETUP,
            "two_words/__init__.py": "from ._C import go\nfrom os import path\ndef own(): ...\n",
            "src/a.cpp": "#include <torch/extension.h>\n",
            "src/k.cu": "__global__ void k() {}\n",
            "tests/other.cu": "__global__ void t() {}\n",
        },
    )
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def cmake_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = files(
        tmp_path / "repository",
        {
            "pyproject.toml": PYPROJECT,
            "CMakeLists.txt": CMAKE,
            "more/CMakeLists.txt": "set_source_files_properties(k.cpp PROPERTIES LANGUAGE CUDA)\n",
            "fine/__init__.py": '"""Sums.\n\n>>> 1 + 1\n2\n"""\n__all__ = ["sums"]\n',
            "bind.cpp": "#include <nanobind/nanobind.h>\n#include <vector>\n",
            "k.cu": "#include <vector>\n",
        },
    )
    monkeypatch.chdir(made)
    return made


def everything(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_setup_py_is_read_and_not_run(torch_project: Path) -> None:
    found = detect_project(torch_project)
    told = found.facts
    assert (told.name, told.version, told.license) == ("Two.Words", "1.2.3", "MIT")
    assert told.requires_python == ">=3.10,<3.14"
    assert told.extensions == ("two_words._C",)
    assert told.cuda
    assert told.torch
    assert told.variables == ("FORCE_CUDA",)
    assert found.units == ("src/k.cu",)
    assert found.public == {"two_words": ("go", "own")}
    assert api_of(found)[0] == "torch"
    assert not (torch_project / "RAN").exists()


def test_cmake_is_read_with_its_variables(cmake_project: Path) -> None:
    found = detect_project(cmake_project)
    told = found.facts
    assert (told.name, told.version, told.license) == ("fine", "2.0", "MIT")
    assert told.extensions == ("fine._core",)
    assert told.bindings == {"nanobind"}
    assert told.arch_define == "FINE_ARCHS"
    assert told.cuda_sources == ("k.cpp",)
    assert found.units == ("k.cu",)  # there is no k.cpp
    assert found.examples == ("fine",)
    assert api_of(found)[0] == "cxx"


RUNS = "from setuptools import setup\nsetup({})\n"
#: Key of pyproject.toml -> keyword of setup.py, field, and what it says.
FIELDS = {
    "version": ("version", "version", "1.2"),
    "license": ("license", "license", "MIT"),
    "requires-python": ("python_requires", "requires_python", ">=3.10"),
    "dependencies": ("install_requires", "requires", ("numpy",)),
}


@pytest.mark.parametrize("key", FIELDS)
def test_what_pyproject_leaves_to_the_build_may_stand_in_setup_py(key: str, tmp_path: Path) -> None:
    """Of each field alone; a doubt about one is none about another."""
    keyword, field, value = FIELDS[key]
    project = f'[project]\nname = "one"\ndynamic = ["{key}"]\n'
    doubt = f"pyproject.toml: {key} is computed at build time"
    for setup, says, doubts in (
        (f"{keyword}={value!r}", value, ()),
        (
            f"{keyword}=made()",
            type(value)(),
            (doubt, f"setup.py: {keyword} is computed at build time"),
        ),
        ("zip_safe=False", type(value)(), (doubt,)),
    ):
        texts = {"pyproject.toml": project, "setup.py": RUNS.format(setup)}
        told = detect_project(files(tmp_path, texts)).facts
        assert (getattr(told, field), told.doubts) == (says, doubts), setup
        assert told.later == ()  # nothing of it is asked twice


@pytest.mark.parametrize("key", FIELDS)
def test_what_setup_py_makes_may_stand_in_pyproject(key: str, tmp_path: Path) -> None:
    keyword, field, value = FIELDS[key]
    said = list(value) if isinstance(value, tuple) else value
    project = f'[project]\nname = "one"\n{key} = {json.dumps(said)}\n'
    texts = {"pyproject.toml": project, "setup.py": RUNS.format(f"{keyword}=made()")}
    told = detect_project(files(tmp_path, texts)).facts
    assert (getattr(told, field), told.doubts) == (value, ())


@pytest.mark.parametrize("key", ["version", "dependencies"])
def test_where_setuptools_reads_it_setup_py_does_not_count(key: str, tmp_path: Path) -> None:
    """What setuptools 81 does with such a repository: it reads the file that is named."""
    keyword, field, value = FIELDS[key]
    read = f"[tool.setuptools.dynamic]\n{key} = {{file = 'there.txt'}}\n"
    project = f'[project]\nname = "one"\ndynamic = ["{key}"]\n{read}'
    setup = {"setup.py": RUNS.format(f"{keyword}={value!r}")}
    told = detect_project(files(tmp_path, {"pyproject.toml": project, **setup})).facts
    doubts = (f"pyproject.toml: {key} is computed at build time",)
    assert (getattr(told, field), told.doubts) == (type(value)(), doubts)
    # Of a key that is not dynamic such a table says nothing.
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "one"\n{read}')
    assert getattr(detect_project(tmp_path).facts, field) == value


def test_what_a_module_beside_setup_py_leaves_open_is_no_doubt(tmp_path: Path) -> None:
    """It is another package's, or a part of setup.py's own."""
    texts = {
        "setup.py": "import beside\n" + RUNS.format("version='1.2'"),
        "beside.py": RUNS.format("license=made()"),
    }
    assert detect_project(files(tmp_path, texts)).facts.doubts == ()


LATER = '[project]\nname = "one"\ndynamic = ["version"]\n'
SAID = '[project]\nname = "one"\nversion = "1.3"\n'
CORE = '[build-system]\nbuild-backend = "scikit_build_core.build"\n'
OTHER = "project(one VERSION 9.9 LANGUAGES CUDA)\n"
BUILT = "pyproject.toml: version is computed at build time"


@pytest.mark.parametrize(
    ("texts", "version", "doubts"),
    [
        ({"pyproject.toml": LATER}, "", (BUILT,)),
        (
            {
                "pyproject.toml": LATER + "[tool.setuptools_scm]\n",
                "setup.py": RUNS.format("version='0.1'"),
            },
            "",
            (BUILT,),
        ),
        # CMake's is no package's: it may be that of the library inside.
        ({"pyproject.toml": CORE + LATER, "CMakeLists.txt": OTHER}, "", (BUILT,)),
        ({"pyproject.toml": CORE + SAID, "CMakeLists.txt": OTHER}, "1.3", ()),
    ],
)
def test_a_version_that_neither_setup_py_nor_cmake_can_tell(
    texts: dict[str, str], version: str, doubts: tuple[str, ...], tmp_path: Path
) -> None:
    told = detect_project(files(tmp_path, texts)).facts
    assert (told.version, told.doubts) == (version, doubts)


def test_options_of_cmake_that_are_off_switch_cuda_on(cmake_project: Path) -> None:
    options = """
    option(FINE_CUDA "use CUDA" OFF)
    option(FINE_WITH_CUDA "by default what was found" ${FOUND})
    option(USE_CUDA "it is on" ON)
    option(NO_CUDA "that would switch it off" OFF)
    option(FINE_USE_DYNAMIC_CUDA "how it is linked" OFF)
    option(FINE_CUDA_F16 "of its kernels" OFF)
    """
    files(cmake_project, {"CMakeLists.txt": CMAKE + options})
    assert run_command_line(["init", "--yes"]) == 0
    given = load_recipe("fine").environment["CMAKE_ARGS"]
    assert given == "-DFINE_CUDA=ON -DFINE_WITH_CUDA=ON -DFINE_ARCHS={archs}"


def test_cuda_of_a_library_inside_is_found_by_its_option(cmake_project: Path) -> None:
    text = 'project(fine LANGUAGES CXX)\noption(FINE_CUDA "use CUDA" OFF)\n'
    assert detect_project(files(cmake_project, {"CMakeLists.txt": text})).facts.cuda


def test_commands_of_cmake_without_comments_and_quotes() -> None:
    text = 'a("b c" d) # e()\n#[=[ f( ]] ) ]=]\nG([[h)]] (i) "j\\"k")'
    assert [*parse_cmake_commands(text)] == [("a", ["b c", "d"]), ("g", ["h)", "i", 'j\\"k'])]


@pytest.mark.parametrize(
    ("project", "here"),
    [("torch_project", sys.platform == "win32"), ("cmake_project", True)],  # a Windows builds all
)
def test_it_says_where_the_package_can_be_built(
    project: str, here: bool, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    request.getfixturevalue(project)
    assert run_command_line(["init", "--yes"]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^  (yes|no ) ", said, re.M) == ["yes" if here else "no ", "yes", "yes"]
    assert ("needs torch's C++ API" in said) is not here
    assert ("provision build test --host NAME" in said) is not here
    # As plan says of the one target that it shows.
    assert run_command_line(["plan"]) == (0 if here else 2)
    shown = capsys.readouterr().out
    assert len(re.findall(r"^cp\d", shown, re.M)) == 1
    assert "plan --select '*'" in shown


def test_on_windows_the_host_is_that_machine(
    torch_project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sandbox needs Linux."""
    monkeypatch.setattr("pipelines.scaffold.files.sys", SimpleNamespace(platform="win32"))
    assert run_command_line(["init", "--yes"]) == 0
    config = load_config()
    assert (config.default.host, config.hosts["here"].kind) == ("here", "local")
    assert [*config.hosts] == ["here"]
    assert len(re.findall(r"^  yes  ", capsys.readouterr().out, re.M)) == 3


def test_a_sandbox_that_nothing_ignores_is_no_part_of_the_sources(torch_project: Path) -> None:
    """Its drives are links out of the tree, which no source may have."""
    assert run_command_line(["init", "--yes"]) == 0
    drives = torch_project / ".wcw/sandbox/dosdevices"
    drives.mkdir(parents=True)
    (drives / "c:").symlink_to("/")
    (torch_project / ".wcw/.gitignore").unlink()
    assert run_command_line(["init", "--yes"]) == 0
    assert run_command_line(["build", "--dry-run", "--host", "sandbox"]) == 2, (
        "it needs MSVC, no more"
    )


@pytest.mark.parametrize("project", ["torch_project", "cmake_project"])
def test_what_is_written_is_what_the_pipeline_reads(
    project: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    root: Path = request.getfixturevalue(project)
    assert run_command_line(["init", "--yes"]) == 0
    settings = load_config()
    recipe = load_recipe(settings.default.recipe)
    assert recipe.smoke
    suite = suite_of(recipe)
    assert suite.own
    assert suite.origin == ".wcw of this repository"
    for name, text in suite.files.items():
        if name.startswith("own/"):
            ast.parse(text)
    workflow = yaml.safe_load((root / ".github/workflows/windows-wheels.yml").read_text())
    ignored = (root / ".wcw/.gitignore").read_text().splitlines()
    assert Path("/", workflow["env"]["WCW_CONFIG"]).parent == Path("/.wcw/out")
    assert "/out/" in ignored, "a file of the runner's would make every record not as committed"
    assert {*workflow["jobs"]} == {"build"}
    # What its job types, on a host that is provisioned: one target, and nothing is left to pin.
    steps = [step.get("run", "") for step in workflow["jobs"]["build"]["steps"]]
    (typed,) = re.findall(r"^wcw provision build test (.*) --minutes 290$", "".join(steps), re.M)
    monkeypatch.setenv("WCW_CONFIG", str(root / "runner.yaml"))
    (root / "runner.yaml").write_text(RUNNER, "utf-8")
    assert run_command_line(["plan", *shlex.split(typed)]) == 0
    monkeypatch.delenv("WCW_CONFIG")
    assert not (root / "RAN").exists()


def test_the_workflow_installs_what_was_named_and_nothing_by_its_name_alone(
    cmake_project: Path, tmp_path: Path
) -> None:
    assert run_command_line(["init", "--yes"]) == 0
    written = yaml.safe_load(
        (cmake_project / ".github/workflows/windows-wheels.yml").read_text("utf-8")
    )
    assert written["env"]["WCW_PACKAGE"] == "${{ vars.WCW_PACKAGE }}"
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho ran "$@"\n')
    python.chmod(0o755)
    for job in written["jobs"].values():
        [step] = [one for one in job["steps"] if one.get("name") == "Install the pipeline"]
        for named in ("", "git+https://example.org/a b@c0ffee"):
            done = subprocess.run(
                ["bash", "-e", "-c", step["run"]],
                env={"PATH": f"{python.parent}:{os.environ['PATH']}", "WCW_PACKAGE": named},
                capture_output=True,
                text=True,
                check=False,
            )
            if named:
                assert done.stdout.endswith(f" {named}\n")
            else:
                assert done.returncode != 0
                assert (done.stdout, "WCW_PACKAGE" in done.stderr) == ("", True)


def test_recipe_of_a_torch_package(torch_project: Path) -> None:
    assert (
        run_command_line(["init", "--archs", "86;120+PTX", "--torch", "2.10", "--python", "3.13"])
        == 0
    )
    recipe = load_recipe("two-words")
    assert recipe.torch == "2.10"
    assert recipe.api == "torch"
    assert recipe.arch_map.kind == "torch"
    assert recipe.pythons == ("3.10", "3.11", "3.12", "3.13")
    assert recipe.environment["FORCE_CUDA"] == "1"
    assert recipe.restamp
    assert {"setuptools", "ninja", "torch"} <= {*recipe.build_requires}
    assert "nowhere-pinned" not in recipe.test_requires
    text = (torch_project / ".wcw/recipes/two-words.yaml").read_text()
    assert "nowhere-pinned, which is not in the lock" in text
    assert load_config().default.python == "3.13"


def test_what_setup_py_imports_is_there_when_it_is_built(torch_project: Path) -> None:
    """A build without isolation has only what the recipe lists."""
    imports = "import bare, beside, distutils, numpy, tools.made\n"
    imports += "import nowhere_imported, nowhere_pinned\n"
    wants = "[build-system]\nrequires = ['setuptools', 'wheel', 'Nowhere.Pinned']\n"
    own = ("beside.py", "tools/__init__.py", "bare/made.py", "numpy/is_no_package.txt")
    files(torch_project, {"setup.py": imports + TORCH_SETUP, "pyproject.toml": wants})
    files(torch_project, dict.fromkeys(own, ""))
    assert run_command_line(["init", "--yes"]) == 0
    assert load_recipe("two-words").build_requires == (
        *("setuptools", "wheel", "torch", "ninja", "numpy"),
    )
    text = (torch_project / ".wcw/recipes/two-words.yaml").read_text()
    missing = re.findall(r"setup.py imports (\w+), which is not in the lock", text)
    assert missing == ["nowhere_imported"]


@pytest.mark.parametrize(
    ("requirement", "flags", "noted"),
    [
        ("setuptools<2", [], True),
        ("setuptools>=61", [], False),
        ("torch==2.4.0", [], True),
        ("torch>=2.10.0,<2.11", [], False),
        ("torch>=2.10.0,<2.11", ["--torch", "2.11"], True),
        ("torch<2", ["--torch", "1.13"], False),  # no release of the lock
        ("torch @ https://example.org/torch.whl", [], False),
    ],
)
def test_a_requirement_that_no_version_of_the_lock_satisfies(
    requirement: str, flags: list[str], noted: bool, torch_project: Path
) -> None:
    """A build without isolation does not look at it."""
    files(torch_project, {"pyproject.toml": f"[build-system]\nrequires = [{requirement!r}]\n"})
    assert run_command_line(["init", "--yes", *flags]) == 0
    text = (torch_project / ".wcw/recipes/two-words.yaml").read_text()
    assert (f"the build requires {requirement}, but the lock has " in text) is noted


@pytest.mark.parametrize("runs", ["cmake", "ls"])
def test_a_setup_py_that_runs_cmake_has_it(runs: str, torch_project: Path) -> None:
    command = f"import subprocess\nsubprocess.run([{runs!r}, '--build', '.'])\n"
    files(torch_project, {"setup.py": TORCH_SETUP + command})
    assert run_command_line(["init", "--yes"]) == 0
    assert ("cmake" in load_recipe("two-words").build_requires) is (runs == "cmake")


@pytest.mark.parametrize(("requirement", "noted"), [("setuptools_scm>=8", True), ("wheel", False)])
def test_a_version_that_git_tells_is_doubted(
    requirement: str, noted: bool, torch_project: Path
) -> None:
    """What is packed has no ``.git``, so that such a build ends before it compiles anything."""
    files(torch_project, {"pyproject.toml": f"[build-system]\nrequires = [{requirement!r}]\n"})
    assert run_command_line(["init", "--yes"]) == 0
    text = (torch_project / ".wcw/recipes/two-words.yaml").read_text()
    assert (knowledge_note("version-of-git") in text) is noted


@pytest.mark.parametrize("backend", ["hatchling.build", "own_backend"])
def test_kernels_that_nothing_seems_to_compile_are_doubted(
    backend: str, cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = knowledge_note("not-compiled", build="pyproject.toml", units=1)
    assert run_command_line(["init", "--yes"]) == 0
    assert said not in " ".join(capsys.readouterr().out.split())
    text = PYPROJECT.replace("scikit_build_core.build", backend)
    files(cmake_project, {"pyproject.toml": text})
    assert run_command_line(["init", "--yes", "--force"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("says", "package"),
    [
        ('[tool.setuptools]\npackages = ["named", "named.more"]\n', "named"),
        ('[tool.setuptools.packages.find]\ninclude = ["named*"]\n', "named"),
        ('[tool.setuptools.packages.find]\ninclude = ["named", "named.*"]\n', "named"),
        ("", "outer"),
    ],
)
def test_the_package_that_is_tested_is_the_one_that_is_built(
    says: str, package: str, tmp_path: Path
) -> None:
    """Also where the project has another name, and others below it."""
    text = f"[project]\nname = 'another'\nversion = '1'\n{says}"
    inits = dict.fromkeys((f"{n}/__init__.py" for n in ("a/inner", "outer", "python/named")), "")
    assert [*detect_project(files(tmp_path, {"pyproject.toml": text, **inits})).public] == [package]


@pytest.mark.parametrize(
    ("says", "tag", "first"),
    [
        ('[tool.scikit-build]\nwheel.py-api = "cp312"\n', "cp312-abi3", "3.12"),
        ('[tool.scikit-build.wheel]\npy-api = "py3"\n', "py3-none", "3.11"),
        ('[tool.distutils.bdist_wheel]\npy_limited_api = "cp311"\n', "cp311-abi3", "3.11"),
        ('[tool.scikit-build]\nwheel.py-api = ""\n', None, "3.11"),
    ],
)
def test_one_wheel_for_several_pythons(
    says: str, tag: str | None, first: str, cmake_project: Path
) -> None:
    files(cmake_project, {"pyproject.toml": PYPROJECT + says})
    assert run_command_line(["init", "--yes"]) == 0
    recipe = load_recipe("fine")
    assert recipe.wheel_tag == tag
    assert recipe.pythons[0] == first


def test_a_limited_api_that_no_python_here_has_is_named(
    cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = '[tool.scikit-build]\nwheel.py-api = "cp399"\n'
    files(cmake_project, {"pyproject.toml": PYPROJECT + says})
    assert run_command_line(["init", "--yes"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "requires-python: >=3.11, limited API: cp399" in told


def test_a_wheel_for_python_2_too_is_doubted(
    cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit wants one tag alone, after a build of minutes."""
    says = '[tool.scikit-build]\nwheel.py-api = "py2.py3"\n'
    files(cmake_project, {"pyproject.toml": PYPROJECT + says})
    assert run_command_line(["init", "--yes"]) == 0
    assert "py2.py3, but the audit refuses" in " ".join(capsys.readouterr().out.split())


def test_one_wheel_for_several_pythons_by_setup_py(torch_project: Path) -> None:
    text = TORCH_SETUP.replace(
        "packages=", 'options={"bdist_wheel": {"py_limited_api": "cp312"}},\n    packages='
    )
    files(torch_project, {"setup.py": text})
    assert run_command_line(["init", "--yes"]) == 0
    assert load_recipe("two-words").wheel_tag == "cp312-abi3"
    assert load_recipe("two-words").pythons == ("3.12", "3.13")


def test_a_second_time_nothing_is_to_do(
    cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["init", "--yes"]) == 0
    before = everything(cmake_project)
    capsys.readouterr()
    assert run_command_line(["init", "--yes"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert everything(cmake_project) == before


def test_what_differs_is_told_and_kept(
    cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = files(cmake_project, {"pipeline.yaml": "default: {host: mine}\n"})
    before = everything(own)
    assert run_command_line(["init", "--yes"]) == 2
    told = capsys.readouterr()
    assert "pipeline.yaml: existing content differs" in told.err
    assert "--force" in told.err
    assert everything(own) == before
    assert run_command_line(["init", "--yes", "--force"]) == 0
    assert load_config().default.recipe == "fine"


BROKEN = {
    "a broken setup.py": (
        {"setup.py": "setup(\nname=='x'\n  )(\n", "k.cu": ""},
        "setup.py, line",
    ),
    "Python 2": ({"setup.py": "print 'x'\n", "k.cu": ""}, "setup.py, line 1"),
    "broken TOML": ({"pyproject.toml": "[project\n", "k.cu": ""}, "pyproject.toml: invalid TOML"),
    "no project": ({"CMakeLists.txt": "project(x)", "k.cu": ""}, "is not a Python project"),
    "projects below": (
        {"b/c/pyproject.toml": "", "a/setup.py": "", "a/pyproject.toml": "", "k.cu": ""},
        "directory: a, b/c.",
    ),
    "no CUDA": ({"pyproject.toml": "[project]\nname = 'x'\nversion = '1'\n"}, "has no CUDA"),
    "a range that is none": (
        {"pyproject.toml": "[project]\nname='x'\nrequires-python='about 3'\n", "k.cu": ""},
        "'about 3' is not a version range",
    ),
    "Pythons of long ago": (
        {"pyproject.toml": "[project]\nname='x'\nrequires-python='<3.8'\n", "k.cu": ""},
        "no available Python",
    ),
    "submodules that are not there": (
        {
            "pyproject.toml": "[project]\nname='x'\nversion='1'\n",
            "k.cu": "",
            ".gitmodules": '[submodule "a"]\n\tpath = third_party/a\n\turl = x\n',
        },
        "submodules are not checked out: third_party/a",
    ),
    "a submodule that may have the CUDA": (
        {
            "pyproject.toml": "[project]\nname='x'\nversion='1'\n",
            ".gitmodules": '[submodule "a"]\n\tpath = vendor/a\n\turl = x\n',
        },
        "submodules are not checked out: vendor/a",
    ),
    "no name": ({"pyproject.toml": "[project]\nversion='1'\n", "k.cu": ""}, "--name"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, says = BROKEN[case]
    root = files(tmp_path / "it", texts)
    monkeypatch.chdir(root)
    before = everything(root)
    assert run_command_line(["init", "--yes"]) == 2
    assert says in capsys.readouterr().err
    assert everything(root) == before
    assert sorted(p.name for p in root.iterdir()) == sorted({n.split("/")[0] for n in texts})


def test_submodules_that_are_not_needed_are_left_out(
    cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files(cmake_project, {".gitmodules": '[submodule "a"]\n\tpath = deps/a\n\turl = x\n'})
    assert run_command_line(["init", "--yes", "--without-submodules"]) == 0
    assert "deps/a" in load_recipe("fine").exclude


def test_what_goes_to_the_network_while_it_is_built_is_told(
    cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CMAKE + "FetchContent_Declare(json URL https://example.org/json.tar.xz)\n"
    files(cmake_project, {"CMakeLists.txt": text})
    assert run_command_line(["init", "--yes"]) == 0
    assert "fetchcontent_declare json: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--python", "3.9"], "--python '3.9': the package is for 3.11"),
        (["--cuda", "13"], "--cuda '13': expected MAJOR.MINOR"),
        (["--archs", "sm_elephant"], "--archs"),
        (["--archs", "50"], "50"),
        (["--torch", "2.10"], "built without torch"),
        (["--name", "Not A Name"], "--name 'Not A Name'"),
        (["--nmae", "x"], "unknown flag '--nmae'"),
    ],
)
def test_answers_that_cannot_be(
    words: list[str], says: str, cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(cmake_project)
    assert run_command_line(["init", "--yes", *words]) == 2
    assert says in capsys.readouterr().err
    assert everything(cmake_project) == before


def test_texts_of_the_repository_stay_texts(
    cmake_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A description may hold what YAML, Jinja, Python or a terminal would take for something."""
    evil = 'x: [\\"{{ 7*7 }}\\"] # \\u001b[31m \\n kind: cargo'
    files(cmake_project, {"pyproject.toml": PYPROJECT + f'description = "{evil}"\n'})
    files(cmake_project, {"fine/__init__.py": '__all__ = ["a", "b\\") or exit(", "yes"]\n'})
    assert run_command_line(["init", "--yes"]) == 0
    recipe = load_recipe("fine")
    assert recipe.kind == "wheel"
    assert recipe.summary.startswith('x: ["{{ 7*7 }}"] #')
    assert "\x1b" not in capsys.readouterr().out
    (suite,) = (cmake_project / ".wcw/smoke").glob("*/*.py")
    assert 'exit("' not in suite.read_text()
    ast.parse(suite.read_text())


def test_a_directory_or_a_link_in_the_way(
    cmake_project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (cmake_project / ".github").symlink_to(outside)
    with pytest.raises(ConfigError, match=r"\.github/x: .* a link out"):
        compare_with_existing(cmake_project, {".github/x": ""})
    (cmake_project / ".github").unlink()
    (cmake_project / "pipeline.yaml").mkdir()
    assert run_command_line(["init", "--yes", "--no-workflow"]) == 2
    assert "pipeline.yaml is a directory" in capsys.readouterr().err
    assert not (cmake_project / ".wcw").exists()
    assert not [*outside.iterdir()]


@pytest.mark.parametrize("fails_at", range(4))
def test_nothing_is_replaced_before_all_is_written(
    fails_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = files(tmp_path / "it", {"b": "old", "keep/c": "other"})
    before = everything(root)
    left = iter(range(fails_at, -1, -1))

    def synced(_: int) -> None:
        if not next(left):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", synced)
    wanted = {"a": "1", "b": "2", "new/deep/d": "3", "keep/c": "4"}
    with pytest.raises(StorageError, match="No space left"):
        write_scaffold_files(root, wanted)
    assert everything(root) == before
    monkeypatch.undo()
    writer.write_scaffold_files(root, wanted)
    assert {name: data.decode() for name, data in everything(root).items()} == wanted


def stub(root: Path) -> dict[str, Any]:
    (path,) = (root / ".wcw/smoke").glob("*/test_*.py")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)  # noqa: S102 - it was just made
    return names


def wheel(root: Path, texts: dict[str, bytes]) -> SimpleNamespace:
    """As ``importlib.metadata`` has an installed distribution."""
    for name, data in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    from importlib.metadata import PackagePath

    return SimpleNamespace(
        files=[PackagePath(name) for name in texts], locate_file=lambda name: root / name
    )


def test_the_stub_fails_for_wrong_wheels(cmake_project: Path, tmp_path: Path) -> None:
    assert run_command_line(["init", "--yes"]) == 0
    there = stub(cmake_project)["test_the_wheel_has_its_compiled_files"]
    site = tmp_path / "site"
    there(wheel(site, {"fine/__init__.py": b"", "fine/_core.pyd": b"..PyInit__core.."}))
    for files_of_it in (("fine/__init__.py",), ("fine/__init__.py", "fine/_other.pyd")):
        with pytest.raises(AssertionError):
            there(wheel(site, dict.fromkeys(files_of_it, b"")))


def test_the_stub_fails_for_a_wheel_without_compiled_files(torch_project: Path) -> None:
    """Whether the sources name the modules or not."""
    setup = TORCH_SETUP.replace('"two_words._C"', 'f"two_words.{os.sep}"')
    files(torch_project, {"setup.py": setup})
    assert run_command_line(["init", "--yes"]) == 0
    names = stub(torch_project)
    assert names["EXTENSIONS"] == ()
    there = names["test_the_wheel_has_its_compiled_files"]
    with pytest.raises(AssertionError, match="no compiled file"):
        there(wheel(torch_project, {"two_words/__init__.py": b""}))
    there(wheel(torch_project, {"two_words/_C.pyd": b""}))


def test_the_stub_says_that_it_has_loaded_nothing(torch_project: Path) -> None:
    """Libraries that Python does not import may be loaded later, or never."""
    setup = TORCH_SETUP.replace('"two_words._C"', 'f"two_words.{os.sep}"')
    files(torch_project, {"setup.py": setup, "two_words/__init__.py": ""})
    assert run_command_line(["init", "--yes"]) == 0
    loaded = stub(torch_project)["test_compiled_files_are_loaded_from_the_wheel"]
    loaded.__globals__["PACKAGES"] = ()
    with pytest.raises(pytest.skip.Exception, match="none of the compiled files is a module"):
        loaded(wheel(torch_project / "site", {"two_words/kernels.dll": b"nothing of Python"}))


SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.mark.parametrize(
    ("texts", "error", "says"),
    [
        ({f"fine/_core{SUFFIX}": b"no module at all"}, ImportError, "_core"),
        ({"fine/_core.py": b"", "fine/_core.pyd": b"PyInit__core"}, AssertionError, "SourceFile"),
    ],
)
def test_the_stub_fails_for_a_module_that_is_not_the_wheels(
    texts: dict[str, bytes],
    error: type[Exception],
    says: str,
    cmake_project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that is none, or a source in place of the compiled module."""
    assert run_command_line(["init", "--yes"]) == 0
    names = stub(cmake_project)
    assert names["PACKAGES"] == ["fine"]
    site = cmake_project / "site"
    installed = wheel(site, {"fine/__init__.py": b"", **texts})
    monkeypatch.syspath_prepend(str(site))
    for name in ("fine", "fine._core"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(error, match=says):
        names["test_compiled_files_are_loaded_from_the_wheel"](installed)
    with pytest.raises(AttributeError):
        names["test_what_the_package_gives_is_there"]("fine", "sums")
    with pytest.raises(ModuleNotFoundError):
        names["test_what_the_package_gives_is_there"]("nothing_of_that_name", "x")


def test_libraries_of_operators_need_be_no_modules(
    torch_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch loads them: that the package has let it is looked at, and of the wheel's own file."""
    text = "import torch\ntorch.ops.load_library(__file__)\n"
    files(torch_project, {"two_words/__init__.py": text})
    assert detect_project(torch_project).operators
    assert run_command_line(["init", "--yes"]) == 0
    loads = stub(torch_project)["test_compiled_files_are_loaded_from_the_wheel"]
    site = tmp_path / "site"
    installed = wheel(site, {"two_words/__init__.py": b"", "two_words/_C.so": b"no PyInit"})
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "two_words", raising=False)
    torch = SimpleNamespace(ops=SimpleNamespace(loaded_libraries={"/elsewhere/_C.so"}))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(AssertionError, match="loaded no library of its own"):
        loads(installed)
    torch.ops.loaded_libraries.add(str(site / "two_words/_C.so"))
    loads(installed)


def test_what_a_package_gives_is_read_where_it_is_written_out(tmp_path: Path) -> None:
    path = tmp_path / "__init__.py"
    path.write_text("from .a import b as c\nfrom .d import *\n__all__ = [f'x{y}', 'kept']\n")
    assert public_names(path) == ("kept",)
    path.write_text("def broken(:\n")
    assert public_names(path) == ()


def test_in_git_it_is_the_files_that_git_lists(cmake_project: Path) -> None:
    files(cmake_project, {".gitignore": "ignored/\n", "ignored/more.cu": ""})
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert detect_project(cmake_project).units == ("k.cu",)
    assert detect_project(cmake_project).by == "as git lists them"


def test_without_a_terminal_it_says_what_was_taken(
    cmake_project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    assert run_command_line(["init", "--cuda", "13.0"]) == 0
    told = capsys.readouterr().out
    assert "defaults used (no terminal)" in told
    assert "--python '3.11'" in told
    assert "--cuda '13.0'" not in told


@pytest.mark.parametrize(("variable", "ptx"), [("VECADD_ARCHS", False), ("DEBUG", True)])
def test_a_list_of_numbers_gets_no_ptx(variable: str, ptx: bool, tmp_path: Path) -> None:
    """A package that reads its own variable would pass compute_120+PTX on to nvcc."""
    setup = f"import os\nfrom setuptools import setup\nGPUS = os.environ['{variable}']\nsetup()\n"
    project = detect_project(files(tmp_path, {"setup.py": setup, "k.cu": ""}))
    (archs,) = [one for one in relevant_questions(project, load_lock()) if one.key == "archs"]
    assert archs.default.endswith("+PTX") is ptx
