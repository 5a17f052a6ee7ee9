"""``wcw init`` in repositories that are odd, broken, or made to do harm."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.cli.program import run_command_line
from pipelines.recipe.load import load_recipe
from pipelines.scaffold.detect import detect_project
from pipelines.scaffold.setuppy import read_setup
from pipelines.scaffold.writer import write_scaffold_files

PROJECT = "[project]\nname='mine'\nversion='1'\n"
CMAKE_BACKEND = (
    "[build-system]\nrequires=['scikit-build-core']\nbuild-backend='scikit_build_core.build'\n"
)
SETUP = "from setuptools import setup\nsetup(name='mine', version='1'{})\n"
GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one unit, which is the working directory."""
    made = tmp_path / "repository"
    written(made, {"pyproject.toml": PROJECT, "k.cu": ""})
    monkeypatch.chdir(made)
    return made


def written(root: Path, texts: dict[str, str | bytes]) -> None:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def everything(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


# -- what is read ---------------------------------------------------------------------------------

DOUBLED = {
    "text": "a='x' * 1\na0='xxxxxxxx'\n" + "".join(f"a{i + 1}=a{i}+a{i}\n" for i in range(60)),
    "list": "a0=['x']\n" + "".join(f"a{i + 1}=a{i}+a{i}\n" for i in range(60)),
    "formatted": "a0='xxxxxxxx'\n" + "".join(f"a{i + 1}=f'{{a{i}}}{{a{i}}}'\n" for i in range(60)),
    "nested": "a0=['x']\n"
    + "".join(f"a{i + 1}=[a{i}, a{i}]\n" for i in range(60))
    + "b=f'{a60}'\n",
}


@pytest.mark.parametrize("kind", DOUBLED)
def test_values_that_double_line_by_line_are_not_followed(kind: str, tmp_path: Path) -> None:
    """60 lines would be 9 exabytes."""
    written(tmp_path, {"setup.py": DOUBLED[kind] + SETUP.format(", description=a60")})
    told = read_setup(tmp_path / "setup.py")
    assert told.name == "mine"
    assert told.summary == ""
    assert ("summary", "setup.py: description is computed at build time") in told.later


def test_variables_of_cmake_that_double_are_not_followed(root: Path) -> None:
    lines = "".join(f'set(a{i + 1} "${{a{i}}}${{a{i}}}")\n' for i in range(60))
    text = (
        f'project(mine LANGUAGES CUDA)\nset(a0 "xxxxxxxx")\n{lines}pybind11_add_module(${{a60}})\n'
    )
    written(root, {"pyproject.toml": CMAKE_BACKEND + PROJECT, "CMakeLists.txt": text})
    found = detect_project(root).facts
    assert found.cuda
    assert "CMakeLists.txt: the name of the module" in " ".join(found.doubts)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"setup.py": b"setup(\0)"}, "setup.py: invalid Python: source code"),
        (
            {"setup.py": "x = " + "+".join(["'a'"] * 900) + "\n" + SETUP.format("")},
            "setup.py: invalid",
        ),
        ({"setup.py": "x = " + "(" * 5000}, "setup.py, line 1: invalid Python"),
        ({"pyproject.toml": "x = " + "[" * 50000}, "pyproject.toml: invalid TOML"),
        ({"pyproject.toml": "x = " + "9" * 5000}, "pyproject.toml: invalid TOML"),
        ({"pyproject.toml": b"x = '\xff'"}, "pyproject.toml: invalid TOML"),
    ],
)
def test_files_that_cannot_be_read_are_refused(
    texts: dict[str, str | bytes], says: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "setup.py" in texts:
        (root / "pyproject.toml").unlink()
    written(root, texts)
    before = everything(root)
    assert run_command_line(["init", "--yes"]) == 2
    assert says in capsys.readouterr().err
    assert everything(root) == before


def test_sources_that_are_named_and_not_there(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source distribution that was packed without them, as there are on the package index."""
    (root / "pyproject.toml").unlink()
    setup = (
        "from setuptools import setup, Extension\nHERE = ['csrc/a.cpp', 'csrc/b.cu']\n"
        "setup(name='mine', version='1', ext_modules=[\n"
        "  Extension('mine._a', [*HERE, 'csrc/made.cpp', 'k.cu'] + more),\n"
        "  Extension('mine._b', HERE),\n"
        "  Extension(name='mine._c', sources=['k.cu', 'csrc/c.cu', 'csrc/made.cpp', 'x\\0.cu'])])\n"
    )
    written(root, {"setup.py": setup, "csrc/made.cpp.in": ""})
    assert detect_project(root).absent == ("csrc/a.cpp", "csrc/b.cu", "csrc/c.cu")
    assert run_command_line(["init", "--yes"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "setup.py names missing sources: csrc/a.cpp, csrc/b.cu, csrc/c.cu" in told


def test_names_of_sources_do_nothing_to_the_terminal(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are texts of somebody's setup.py, of any length."""
    (root / "pyproject.toml").unlink()
    names = f"['k.cu', 'a\\x1b[2J.cu\\nall is well', '{'y' * 5000}', 'x.cu']"
    setup = f"setup(name='mine', version='1', ext_modules=[Extension('mine._a', {names})])\n"
    written(root, {"setup.py": f"from setuptools import setup, Extension\n{setup}"})
    assert "y" * 5000 in detect_project(root).absent  # no file can be called so
    assert run_command_line(["init", "--yes", "--exclude", "q\x1b[2J"]) == 0
    told = "".join(capsys.readouterr())
    assert "names missing sources" in told
    assert "--exclude matches nothing" in told
    assert "\x1b" not in told
    assert told.count("y") < 1000
    assert "all is well" not in [row.strip() for row in told.splitlines()]
    written(
        root,
        {
            "setup.py": f"from setuptools import setup, Extension\n{setup}".replace(
                "'x.cu'", "'../\\x1b[2J.cu'"
            )
        },
    )
    assert run_command_line(["init", "--yes", "--force"]) == 2
    told = "".join(capsys.readouterr())
    assert "sources above its directory" in told
    assert "\x1b" not in told


def test_odd_commands_of_cmake(root: Path) -> None:
    """They are CMake's to refuse."""
    text = (
        "project(mine LANGUAGES CUDA)\nset_source_files_properties(a.cpp LANGUAGE CUDA)\n"
        "add_subdirectory(\0)\nadd_subdirectory(..)\nadd_subdirectory(/etc)\nset()\ninstall(TARGETS)\n"
        "#[" + "=" * 50000 + "\n" + "[=[" * 20000
    )
    written(root, {"pyproject.toml": CMAKE_BACKEND + PROJECT, "CMakeLists.txt": text})
    assert detect_project(root).facts.cuda


@pytest.mark.skipif(os.name == "nt", reason="names of files are bytes on POSIX alone")
def test_names_and_texts_that_are_no_utf_8(root: Path) -> None:
    (root / os.fsdecode(b"\xff\xfe.cu")).touch()
    written(root, {"mine/__init__.py": b"# \xe9\ndef go(): ...\n", "a.cpp": b"#include <\xff>\n"})
    assert run_command_line(["init", "--yes"]) == 0
    assert detect_project(root).public == {"mine": ("go",)}


def test_a_file_that_must_not_be_read(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Path.open

    def refused(path: Path, *words: object, **named: object) -> object:
        if path.name == "k.cu":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *words, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refused)
    assert run_command_line(["init", "--yes"]) == 2
    told = capsys.readouterr().err
    assert "k.cu cannot be read: Permission denied" in told
    assert "--exclude" in told
    assert (
        run_command_line(["init", "--yes", "--name", "mine", "--exclude", "k.cu"]) == 2
    )  # no CUDA is left
    assert "has no CUDA" in capsys.readouterr().err


def test_a_link_out_of_the_tree_can_be_left_out(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("secret")
    (root / "data").symlink_to(tmp_path / "secret")
    assert run_command_line(["init", "--yes"]) == 2
    assert "is a link out of the tree" in (told := capsys.readouterr().err)
    assert "--exclude of init" in " ".join(told.split())
    assert not (root / "pipeline.yaml").exists()
    assert run_command_line(["init", "--yes", "--exclude", "data"]) == 0
    assert "data" in load_recipe("mine").exclude


@pytest.mark.parametrize("glob", [".5", ".inf", ".NaN", "...", "*.[md", "a\nb", "no", "~"])
def test_what_is_left_out_is_written_as_it_was_typed(
    glob: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And where it names nothing, that is said: what was meant goes to hosts."""
    assert run_command_line(["init", "--yes", "--exclude", glob]) == 0
    assert load_recipe("mine").exclude[-1] == glob
    assert "--exclude matches nothing" in capsys.readouterr().out


def test_an_exclude_that_is_empty_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["init", "--yes", "--exclude", ""]) == 2
    assert "--exclude: its value is empty" in capsys.readouterr().err
    assert not (root / "pipeline.yaml").exists()


def test_an_exclude_that_leaves_something_out_is_not_doubted(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(root, {"docs/a.md": "", "k2.cu": ""})
    assert run_command_line(["init", "--yes", "--exclude", "docs", "--exclude", "k2.*"]) == 0
    assert "leaves nothing out" not in capsys.readouterr().out


@pytest.mark.slow
def test_many_packages_take_no_time_by_their_square(root: Path) -> None:
    """4,000 of them, which took minutes while each was looked up in a list."""
    written(root, {f"p{number}/q/__init__.py": "" for number in range(4000)})
    assert len(detect_project(root).files) == 4002


# -- what is written ------------------------------------------------------------------------------


def test_a_description_may_have_any_character(root: Path) -> None:
    text = "\U0001f680 fast \u00e9 \u2028 kernels\ufeff"
    written(root, {"pyproject.toml": PROJECT + f"description='{text}'\n"})
    assert run_command_line(["init", "--yes"]) == 0
    assert load_recipe("mine").summary == "\U0001f680 fast \u00e9 kernels\ufeff"


def test_half_a_character_is_none(root: Path) -> None:
    (root / "pyproject.toml").unlink()
    written(root, {"setup.py": SETUP.format(", description='a\\ud800b', license='\\udfff'")})
    assert run_command_line(["init", "--yes"]) == 0
    assert load_recipe("mine").summary == "a?b"


def test_names_in_the_tests_are_those_of_the_sources(root: Path) -> None:
    name = "\U00010400x"  # Deseret, outside the plane that \uXXXX reaches
    written(root, {"mine/__init__.py": f"__all__ = ['{name}']\n"})
    assert run_command_line(["init", "--yes"]) == 0
    tests = (root / ".wcw/smoke/mine/test_mine.py").read_text()
    named = {node.value for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Constant)}
    assert name in named


def test_nothing_of_the_metadata_reaches_the_workflow(root: Path) -> None:
    """A runner would run it, with what it is allowed."""
    assert run_command_line(["init", "--yes", "--name", "mine"]) == 0
    harmless = (root / ".github/workflows/windows-wheels.yml").read_text()
    evil = "${{ secrets.X }}'; touch HACKED; \\u0007\\n  run: x"
    lines = [f'{key} = "{evil}"\n' for key in ("version", "description", "license")]
    written(
        root,
        {
            "pyproject.toml": f"[project]\nname = 'mine'\n{''.join(lines)}",
            "${{ x }}';touch HACKED;.cu": "",
            "k\n    run: evil.cu": "",
            "mine/__init__.py": "__all__ = ['${{ x }}']\n",
        },
    )
    assert run_command_line(["init", "--yes", "--name", "mine", "--force"]) == 0
    assert (root / ".github/workflows/windows-wheels.yml").read_text() == harmless
    recipe = yaml.safe_load((root / ".wcw/recipes/mine.yaml").read_text())
    assert {*recipe} >= {"name", "summary", "license"}
    assert "run" not in recipe


def test_a_long_name_is_cut_for_the_recipe_alone(root: Path) -> None:
    long = "cuda-kernels-for-very-many-things-that-people-do-today"
    written(root, {"pyproject.toml": f"[project]\nname='{long}'\nversion='1'\n"})
    assert run_command_line(["init", "--yes"]) == 0
    recipe = load_recipe(long[:41])
    assert recipe.distribution == long


def test_only_variables_of_architectures_are_told_them(root: Path) -> None:
    """ARCHFLAGS is of macOS: what reads it learns nothing of GPUs."""
    (root / "pyproject.toml").unlink()
    reads = "import os\nos.environ.get('ARCHFLAGS')\nos.environ.get('SEARCH_PATH')\n"
    written(root, {"setup.py": reads + SETUP.format("")})
    assert run_command_line(["init", "--yes"]) == 0
    assert load_recipe("mine").environment == {"NVCC_APPEND_FLAGS": "{gencode}"}
    written(root, {"setup.py": reads + "os.environ['MY_CUDA_ARCHS']\n" + SETUP.format("")})
    assert run_command_line(["init", "--yes", "--force"]) == 0
    assert load_recipe("mine").environment == {"MY_CUDA_ARCHS": "{archs}"}


def test_a_submodule_called_as_a_glob_leaves_out_nothing_else(root: Path) -> None:
    written(root, {".gitmodules": '[submodule "a"]\n\tpath = *\n\turl = x\n'})
    assert run_command_line(["init", "--yes", "--without-submodules"]) == 0
    assert "[*]" in load_recipe("mine").exclude


@pytest.mark.parametrize("name", [".wcw", ".wcw/recipes", ".github"])
def test_a_file_where_a_directory_is_needed(
    name: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(root, {name: "mine"})
    before = everything(root)
    assert run_command_line(["init", "--yes"]) == 2
    assert f"{name} is a file" in capsys.readouterr().err
    assert everything(root) == before


# -- where it is ----------------------------------------------------------------------------------


def test_a_part_of_a_repository_gets_no_workflow_that_nobody_reads(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run([*GIT, "init", "-q", str(root.parent)], check=True)
    assert run_command_line(["init", "--yes"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "no workflow: GitHub" in told
    assert "repository" in told
    assert not (root / ".github").exists()
    assert (root / ".wcw/recipes/mine.yaml").exists()


def test_where_it_is_in_a_repository_is_said_whole(root: Path) -> None:
    """Also where a directory's name begins with a dot."""
    inner = root / ".hidden" / "mine"
    shutil.copytree(root, inner, ignore=shutil.ignore_patterns(".hidden"))
    subprocess.run([*GIT, "init", "-q", str(root)], check=True)
    assert (detect_project(inner).inside, detect_project(root).inside) == (".hidden/mine", "")


def test_a_worktree_of_git_is_a_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*GIT, *words], check=True)
    other = root.with_name("other")
    subprocess.run([*GIT, "worktree", "add", "-q", "-b", "other", str(other)], check=True)
    monkeypatch.chdir(other)
    assert run_command_line(["init", "--yes"]) == 0
    assert detect_project(other).by == "as git lists them"
    assert (other / ".github/workflows/windows-wheels.yml").exists()
    assert not (root / "pipeline.yaml").exists()


# -- ended half way -------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from pathlib import Path
from pipelines.scaffold.writer import write_scaffold_files
real, left = os.replace, [int(sys.argv[2])]
def replace(path, target):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return real(path, target)
os.replace = replace
write_scaffold_files(Path(sys.argv[1]), {"a": "new", "deep/b": "new", "c": "new"})
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
@pytest.mark.parametrize("after", range(3))
def test_what_a_killed_init_leaves_is_completed(after: int, tmp_path: Path) -> None:
    """Each file is the old or the new one at any moment."""
    written(tmp_path, {"c": "mine"})
    command = [sys.executable, "-c", _KILLED, str(tmp_path), str(after)]
    done = subprocess.run(command, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "c").read_text() == "mine"
    wanted = {"a": "new", "deep/b": "new", "c": "new"}
    write_scaffold_files(tmp_path, wanted)
    there = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {str(path.relative_to(tmp_path)): path.read_text() for path in there} == wanted
