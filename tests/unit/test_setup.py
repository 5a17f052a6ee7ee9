"""``scripts/setup`` where it may not install: it says exactly what to type."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pipelines.core.paths import PACKAGE

TOOLS = ("sh", "dirname", "cksum", "tr", "mktemp", "tail", "rm", "env", "cat", "sort", "chmod")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout on a machine with a few tools, a user who is not root, and no venv module."""
    (tmp_path / "scripts").mkdir()
    for name in ("setup", "apt-install"):
        shutil.copy(PACKAGE.parent / "scripts" / name, tmp_path / "scripts")
    shutil.copy(PACKAGE.parent / "requirements.lock", tmp_path)
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    program(tmp_path, "id", "echo 1000")
    program(tmp_path, "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    return tmp_path


def program(machine: Path, name: str, code: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)


def setup(machine: Path) -> str:
    """Run the script, which must fail with the code of set-up errors and make nothing."""
    done = subprocess.run(
        ["scripts/setup"],
        cwd=machine,
        env={"PATH": str(machine / "bin"), "TMPDIR": os.environ.get("TMPDIR", "/tmp")},  # noqa: S108
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4, done
    assert not (machine / ".venv").exists()
    return done.stderr


def test_no_apt(machine: Path) -> None:
    said = setup(machine)
    assert "no apt-get here" in said
    assert "python3-venv" in said


def test_not_root(machine: Path) -> None:
    program(machine, "apt-get", "exit 77")
    said = setup(machine)
    assert "Type: sudo apt-get update && sudo apt-get install --no-install-recommends" in said
    assert said.rstrip().endswith("python3-venv")


def test_apt_fails(machine: Path) -> None:
    program(machine, "id", "echo 0")
    program(machine, "apt-get", "echo E: no network >&2; exit 100")
    said = setup(machine)
    assert "E: no network" in said
    assert "Type: sudo apt-get update" in said


def test_no_python(machine: Path) -> None:
    (machine / "bin/python3").unlink()
    assert "Type: sudo apt-get install python3" in setup(machine)


def test_old_python(machine: Path) -> None:
    program(machine, "python3", 'case "$2" in *version_info*) exit 1;; -V) echo 3.9;; esac')
    assert "Python 3.11 or newer is needed" in setup(machine)


def test_a_newer_python_by_its_name(machine: Path) -> None:
    """As on Ubuntu 22.04 and RHEL 9, where python3 is an older one."""
    program(machine, "python3", 'case "$2" in *version_info*) exit 1;; -V) echo 3.9;; esac')
    program(machine, "python3.12", 'case "$2" in *ensurepip*) exit 1;; esac')
    assert "python3.12-venv" in setup(machine)


#: Stands for python3: an environment that it makes writes down what is done with it.
MAKES = """case "$*" in
*"-m venv"*)
    echo "$*" >>made
    /bin/rm -rf .venv && /bin/mkdir -p .venv/bin
    for name in python uv; do
        echo "#!/bin/sh" >.venv/bin/$name
        echo "case \\$* in *'config list') echo \\$PIP; exit;; esac" >>.venv/bin/$name
        echo "case \\$2 in '') exit \\${DEAD:-0};; *) echo \\$0 >>made;; esac" >>.venv/bin/$name
        /bin/chmod +x .venv/bin/$name
    done;;
esac"""


def test_the_environment_is_made_where_the_checkout_is(machine: Path, tmp_path: Path) -> None:
    """Its programs name their Python by its whole path: moved, none of them would start."""
    shutil.copy(PACKAGE.parent / "requirements.lock", machine / "requirements-uv.lock")

    def made(place: Path, **variables: str) -> list[str]:
        program(place, "python3", MAKES)
        (place / "made").write_text("")
        done = subprocess.run(
            ["scripts/setup"],
            cwd=place,
            env={"PATH": str(place / "bin"), **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done
        return (place / "made").read_text().splitlines()

    anew = ["-m venv --clear .venv", ".venv/bin/python", ".venv/bin/uv"]
    first = tmp_path / "my checkout"
    first.mkdir()
    for name in ("scripts", "bin", "requirements.lock", "requirements-uv.lock"):
        (machine / name).rename(first / name)
    assert made(first) == anew
    assert made(first) == []
    first.rename(tmp_path / "moved")
    assert made(tmp_path / "moved") == anew
    assert made(tmp_path / "moved") == []
    assert made(tmp_path / "moved", DEAD="1") == anew, "its Python is gone"
    (tmp_path / "moved/requirements.lock").write_text("changed")
    assert made(tmp_path / "moved") == anew[1:]
    (tmp_path / "moved/requirements.lock").write_text("changed again")
    mirror = "global.index-url='https://mirror.example/simple'"
    assert made(tmp_path / "moved", PIP=mirror) == [".venv/bin/python"] * 2, "uv would not ask it"
