"""``scripts/setup`` where it may not install: it says exactly what to type."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pipelines.paths import PACKAGE

TOOLS = ("sh", "dirname", "sha256sum", "cut", "mktemp", "tail", "rm", "env")


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
