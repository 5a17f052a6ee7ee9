"""What is used from the cache was hashed: whatever becomes of a download, it shows."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.core import files
from pipelines.core.errors import LockError
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.sandbox import image
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.toolchain import obtaining as module
from pipelines.toolchain import sources
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock
from pipelines.toolchain.sources import Source, Step, sha256_once

DATA = b"the pinned bytes"
OTHER = DATA[:-1] + b"S"
GOOD = hashlib.sha256(DATA).hexdigest()
OLD = 1_000_000_000 * 10**9
"""Nanoseconds since the epoch."""


def cache(root: Path, sha256: str = GOOD, **given: Any) -> Cache:
    source = {"url": "https://a.invalid/f", "file": "f.whl", "sha256": sha256, "size": len(DATA)}
    tools = {"tool": {"version": "1", "sources": [source]}}
    lock = ToolchainLock.model_validate({"version": 1, "tools": tools})
    return Cache(lock, root / "cache", **given)


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was fetched, from a network that always has the pinned bytes."""
    asked: list[str] = []

    def download(source: Source, target: Path, step: Step) -> None:
        asked.append(source.file)
        target.write_bytes(DATA)

    monkeypatch.setattr(module, "download_source", download)
    return asked


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was hashed; a change is remembered at once, not only after a tick of the clock."""
    seen: list[Path] = []
    real = files.sha256_of

    def sha256_of(path: Path) -> str:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(sources, "sha256_of", sha256_of)
    monkeypatch.setattr(sources, "_TICK", -1)
    return seen


def test_a_file_is_hashed_once_for_each_state_of_it(tmp_path: Path, reads: list[Path]) -> None:
    path = tmp_path / "f"
    path.write_bytes(DATA)
    assert [sha256_once(path) for _ in range(3)] == [GOOD] * 3
    assert len(reads) == 1
    os.utime(path, ns=(OLD, OLD))
    assert [sha256_once(path) for _ in range(2)] == [GOOD] * 2
    assert len(reads) == 2


def test_a_copy_of_the_cache_is_not_believed(tmp_path: Path, reads: list[Path]) -> None:
    """As CI restores one: the same names, sizes and times, and notes that say all is well."""
    (tmp_path / "a").mkdir()
    path = tmp_path / "a/f"
    path.write_bytes(DATA)
    sha256_once(path)
    assert len(reads) == 1
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b/.f.hashed").is_file()
    sha256_once(tmp_path / "b/f")
    assert len(reads) == 2


def test_a_change_that_keeps_size_and_time_shows(tmp_path: Path, reads: list[Path]) -> None:
    path = tmp_path / "f"
    path.write_bytes(DATA)
    os.utime(path, ns=(OLD, OLD))
    assert sha256_once(path) == GOOD
    path.write_bytes(OTHER)
    os.utime(path, ns=(OLD, OLD))
    assert sha256_once(path) != GOOD


def test_what_has_just_changed_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(DATA)
    assert sha256_once(path) == GOOD
    assert not (tmp_path / ".f.hashed").exists(), "it may change again within the same tick"


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"state": 1}', '{"sha256": "0"}', "\0"])
def test_a_torn_note_is_no_answer(tmp_path: Path, note: str) -> None:
    (tmp_path / "f").write_bytes(DATA)
    (tmp_path / ".f.hashed").write_text(note)
    assert sha256_once(tmp_path / "f") == GOOD


# -- the cache -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [OTHER, DATA + b"!", b""])
def test_a_damaged_download_is_told_and_fetched_anew(
    tmp_path: Path, net: list[str], capsys: pytest.CaptureFixture[str], bad: bytes
) -> None:
    made = cache(tmp_path)
    path = made.fetch("tool")
    path.write_bytes(bad)
    made.fetch_all(["tool"])
    assert path.read_bytes() == DATA
    assert net == ["f.whl"] * 2
    said = capsys.readouterr().out
    assert f"{path} on this machine is damaged" in said
    assert "pinned" in said
    assert "host" not in said.replace(str(path), "")


def test_offline_a_damaged_download_is_an_error_with_the_cure(
    tmp_path: Path, net: list[str]
) -> None:
    path = cache(tmp_path).fetch("tool")
    path.write_bytes(OTHER)
    with pytest.raises(LockError, match=r"f\.whl is damaged") as caught:
        cache(tmp_path, offline=True).fetch("tool")
    assert str(path) in caught.value.message
    assert "--wheelhouse" in caught.value.hint
    (tmp_path / "house").mkdir()
    (tmp_path / "house/f.whl").write_bytes(DATA)
    house = cache(tmp_path, offline=True, wheelhouse=tmp_path / "house")
    assert house.fetch("tool").read_bytes() == DATA
    assert len(net) == 1


def test_every_digit_of_a_pin_counts(tmp_path: Path, net: list[str]) -> None:
    """A lock that differs in the last digit alone names another file."""
    cache(tmp_path).fetch("tool")
    other = cache(tmp_path, GOOD[:-1] + ("0" if GOOD[-1] != "0" else "1"))
    assert other.missing(["tool"]) == ["tool"]
    with pytest.raises(LockError, match=f"has sha256 {GOOD}"):
        other.fetch("tool")


def test_the_damaged_are_listed(tmp_path: Path, net: list[str]) -> None:
    made = cache(tmp_path)
    assert made.damaged(["tool"]) == {}, "what is not there is not damaged"
    path = made.fetch("tool")
    assert made.damaged(["tool"]) == {}
    path.write_bytes(OTHER)
    ((where, why),) = made.damaged(["tool"]).items()
    assert where == path
    assert GOOD in why
    assert made.missing(["tool"]) == ["tool"], "a damaged file is downloaded again"


# -- what hosts are made of ------------------------------------------------------------------------


def test_hosts_say_what_they_are_made_of(tmp_path: Path) -> None:
    """So that a wheelhouse has it: these fetch it themselves, before anything is provisioned."""
    opening = OpenOptions("3.11", Cache(load_lock(), tmp_path))
    sandbox = SandboxHost(kind="sandbox").open("s", opening)
    assert sandbox.tools == image.image_tool_names("3.11")
    bare = {"kind": "winrm", "endpoint": "https://lab/wsman", "username": "u", "password_env": "P"}
    assert WinRMHost.model_validate(bare).open("lab", opening).tools == ("cpython-3.11",)
    with_python = WinRMHost.model_validate({**bare, "bootstrap": False})
    assert with_python.open("lab", opening).tools == ()
    lock = load_lock()
    assert all(lock.tool(name).pinned for name in (*sandbox.tools, "cpython-3.11"))
