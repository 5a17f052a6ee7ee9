"""A Windows with PowerShell for these tests, skipped where there is none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from windows import Here, InWine, Shell, Windows, powershell_folder
from windows_programs import install, knob

from pipelines.hosts.base import Silent
from pipelines.toolchain.lock import Cache, load_lock


@pytest.fixture(scope="session")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    if os.name == "nt":
        yield Here()
        return
    from pipelines.hosts.sandbox import image, powershell
    from pipelines.hosts.sandbox.wine import Prefix

    folder = powershell_folder()
    prefix = Prefix(tmp_path_factory.mktemp("windows") / "prefix")
    made = image.make_image(Cache(load_lock()), "3.11", Silent().step)
    image.copy_image(made, prefix.path)
    powershell.install_powershell(prefix, folder)
    disk = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    if mounted:  # before the start: later on Windows would not know the drive
        (prefix.path / "dosdevices/s:").symlink_to(disk)
    prefix.boot()
    yield InWine(prefix)
    prefix.halt()
    if mounted:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture(scope="session")
def shell(windows: Windows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """For scripts that need no process of their own."""
    folder = str(tmp_path_factory.mktemp("scripts")) if os.name == "nt" else r"C:\scripts"
    shell = Shell(windows, folder)
    yield shell
    shell.close()


@pytest.fixture(scope="session")
def changeable(windows: Windows) -> InWine:
    if not isinstance(windows, InWine):
        pytest.skip("it would change the Windows that the tests run on")
    install(windows, "sc", "shutdown", "tar", "curl", "tzutil")
    return windows


@pytest.fixture
def wine(changeable: InWine) -> InWine:
    """One that may be changed, with the programs that Wine does not have; none was run so far."""
    knob(changeable)
    changeable.path(r"C:\scripts\ran.txt").unlink(missing_ok=True)
    return changeable


@pytest.fixture
def place(windows: Windows, tmp_path: Path) -> str:
    """An empty directory there."""
    there = str(tmp_path) if os.name == "nt" else rf"C:\t\{tmp_path.name}"
    windows.path(there).mkdir(parents=True, exist_ok=True)
    return there
