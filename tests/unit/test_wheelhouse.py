"""A wheelhouse has what the pipeline itself needs, from a checkout and where it is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.errors import LockError, SetupError
from pipelines.core.paths import CHECKOUT
from pipelines.toolchain import wheelhouse


class Pip:
    """Notes the command lines, and leaves a wheel where pip would."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.lines: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.lines.append(command)
        folder = Path(command[command.index("--dest") + 1])
        (folder / f"w{len(self.lines)}.whl").touch()
        return subprocess.CompletedProcess(command, self.code, "", "one\ntwo\nthree\nno route\n")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    made = Pip()
    monkeypatch.setattr("pipelines.toolchain.wheelhouse.subprocess.run", made)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1")
    return made


def distribution(folder: Path, name: str, *requires: str) -> None:
    """An installed distribution of version 1, as pip would leave it."""
    info = folder / f"{name.replace('-', '_')}-1.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def test_a_checkout_takes_its_locks_with_their_hashes(pip: Pip, tmp_path: Path) -> None:
    assert wheelhouse.gather_controller(tmp_path) == 2
    for line, name in zip(pip.lines, ("requirements-uv.lock", "requirements.lock"), strict=True):
        assert line[:4] == [sys.executable, "-m", "pip", "download"]
        assert "--require-hashes" in line
        assert "--platform" not in line
        assert CHECKOUT is not None
        assert line[-2:] == ["--requirement", str(CHECKOUT / name)]
        assert (CHECKOUT / name).is_file()


def test_for_another_python(pip: Pip, tmp_path: Path) -> None:
    wheelhouse.gather_controller(tmp_path, "3.13")
    for line in pip.lines:
        assert line[line.index("--python-version") + 1] == "3.13"
        assert "manylinux_2_28_x86_64" in line


def test_where_it_is_installed_it_takes_what_is_there(
    pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, "wcw-test", "A_1", "wcw-b[fast]>=1 ; extra == 'dev'")
    distribution(
        tmp_path, "a-1", "wcw.b[fast]; python_version > '3'", "never; python_version < '3'"
    )
    distribution(tmp_path, "wcw-b", "a.1", "wcw-c; extra == 'fast'", "wcw-d; extra == 'slow'")
    distribution(tmp_path, "wcw-c", "wcw-test")
    monkeypatch.syspath_prepend(tmp_path)
    assert [*wheelhouse.installed_requirements("wcw-test")] == ["a-1==1", "wcw-b==1", "wcw-c==1"]
    monkeypatch.setattr(wheelhouse, "CHECKOUT", None)
    monkeypatch.setattr(wheelhouse.installed_requirements, "__defaults__", ("wcw-test",))
    folder = tmp_path / "house"
    folder.mkdir()
    assert wheelhouse.gather_controller(folder) == 1
    assert pip.lines[0][-3:] == ["a-1==1", "wcw-b==1", "wcw-c==1"]
    assert "--no-deps" in pip.lines[0]
    assert "--require-hashes" not in pip.lines[0]


def test_a_torn_installation_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "wcw-test", "wcw-gone")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LockError, match="wcw-gone is not installed here"):
        [*wheelhouse.installed_requirements("wcw-test")]


def test_what_pip_says_is_told(pip: Pip, tmp_path: Path) -> None:
    pip.code = 1
    with pytest.raises(
        LockError, match=r"requirements-uv\.lock: two \| three \| no route"
    ) as caught:
        wheelhouse.gather_controller(tmp_path)
    assert caught.value.hint


def test_without_pip(pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(SetupError, match="has no pip") as caught:
        wheelhouse.gather_controller(tmp_path)
    assert "ensurepip" in caught.value.hint
    assert pip.lines == []
