"""New directories: on Windows those below a drive's root are protected, once, before they fill."""

from __future__ import annotations

import sys
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace

import pytest

from pipelines.remote import protected_dirs


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("C:\\", False),
        (r"C:\b", True),
        (r"\\?\C:\b", True),
        (r"C:\b\c", False),
        (r"\\?\C:\b\c", False),
    ],
)
def test_what_is_below_the_root_of_a_drive(path: str, root: bool) -> None:
    assert protected_dirs.below_root(PureWindowsPath(path)) == root


def test_only_what_is_new_below_the_root_is_protected_and_before_it_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected: list[Path] = []

    def protect(folder: Path, *, readable: bool) -> None:
        assert folder.is_dir()
        assert not list(folder.iterdir())
        protected.append(folder)

    monkeypatch.setattr(protected_dirs, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(protected_dirs, "below_root", lambda folder: folder.parent == tmp_path)
    monkeypatch.setattr(protected_dirs, "protect", protect)
    for _ in range(2):
        protected_dirs.make(tmp_path / "b/c/d")
    protected_dirs.make(tmp_path / "b/c/e")
    assert protected == [tmp_path / "b"]
    assert (tmp_path / "b/c/e").is_dir()


def test_directories_are_made_and_made_again(tmp_path: Path) -> None:
    for _ in range(2):
        protected_dirs.make(tmp_path / "a/b/c")
    assert (tmp_path / "a/b/c").is_dir()


def test_rights_are_asked_for_by_number_not_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def capture(command: list[str], *, timeout: float) -> tuple[int, str]:
        asked.append(command)
        return (0, '"host\\bürger","S-1-5-21-1-2-3-1001"') if "whoami" in command[0] else (0, "")

    monkeypatch.setattr(protected_dirs, "capture", capture)
    protected_dirs.protect(tmp_path, readable=True)
    (command,) = (c for c in asked if c[0] == "icacls.exe")
    assert command[1:4] == [str(tmp_path), "/inheritance:r", "/grant:r"]
    assert "*S-1-5-21-1-2-3-1001:(OI)(CI)F" in command
    assert "*S-1-5-32-545:(OI)(CI)RX" in command


def test_what_cannot_be_protected_is_not_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    monkeypatch.setattr(protected_dirs, "capture", lambda command, timeout: (1332, "No mapping"))
    with pytest.raises(OSError, match="1332"):
        protected_dirs.protect(folder, readable=True)
    assert not folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="asks Windows")
def test_nothing_is_asked_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protected_dirs, "protect", lambda *_: pytest.fail("not on this system"))
    protected_dirs.make(tmp_path / "x")
