"""The service of a sandbox and its Windows: what marks a crash, what is checked after one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipelines.core.errors import HostError
from pipelines.core.paths import PACKAGE
from pipelines.hosts.sandbox import daemon, health, wine
from pipelines.hosts.sandbox.daemon import Windows
from pipelines.hosts.sandbox.state import IN_USE, DamagedSandboxError
from pipelines.hosts.sandbox.wine import SEAL, Prefix

HEADER = "WINE REGISTRY Version 2\n"


class Wine(Prefix):
    """A prefix whose wineserver is a process that sleeps."""

    def __init__(self, path: Path, wine: None) -> None:
        assert wine is None
        self.path = path
        self.did: list[str] = []
        self.fails = ""
        self.server: subprocess.Popen[bytes] | None = None

    def boot(self, *, first: bool = False, timeout: float = 180) -> None:
        self._do("boot")
        self.server = subprocess.Popen(["/bin/sleep", "60"])

    def run(self, arguments: object, *, timeout: float = 120, cwd: Path | None = None) -> str:
        self._do("run")
        return ""

    def watch(self) -> subprocess.Popen[bytes]:
        assert self.server is not None
        return self.server

    def halt(self) -> None:
        self.did.append("halt")
        if self.server:
            self.server.kill()
            self.server.wait()

    def _do(self, what: str) -> None:
        self.did.append(what)
        if self.fails == what:
            raise HostError(f"{what} failed")


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Windows:
    monkeypatch.setattr(daemon, "Prefix", Wine)
    whole(tmp_path / "prefix")
    (tmp_path / "run").mkdir()
    return Windows(tmp_path, threading.Event())


def whole(path: Path) -> None:
    path.mkdir()
    (path / SEAL).write_text(json.dumps({"python": "3.11"}))
    for name in ("system.reg", "user.reg", "userdef.reg"):
        (path / name).write_text(HEADER)


def crashed(windows: Windows, home: Path) -> Windows:
    (home / "run" / IN_USE).touch()
    return Windows(home, windows.ended)


def did(windows: Windows) -> list[str]:
    assert isinstance(windows.prefix, Wine)
    return windows.prefix.did


def test_an_end_in_good_order_leaves_no_mark(windows: Windows, tmp_path: Path) -> None:
    windows.boot()
    assert (tmp_path / "run" / IN_USE).exists()
    windows.require()
    windows.halt()
    assert not (tmp_path / "run" / IN_USE).exists()
    assert did(windows) == ["boot", "halt"], "nothing is left of one that ended in good order"


def test_it_ends_with_its_wineserver(windows: Windows, tmp_path: Path) -> None:
    windows.boot()
    assert not windows.ended.is_set()
    assert isinstance(windows.prefix, Wine)
    assert windows.prefix.server
    windows.prefix.server.kill()
    assert windows.ended.wait(10)
    with pytest.raises(HostError, match="wineserver was killed"):
        windows.require()
    windows.halt()
    assert (tmp_path / "run" / IN_USE).exists(), "the next one looks whether the prefix is whole"


def test_nothing_of_its_clients_is_imported_before_windows_boots() -> None:
    never = {"spnego", "rich", "pydantic", "yaml"}
    code = f"import sys, pipelines.hosts.sandbox.daemon; print({never} & {{*sys.modules}})"
    said = subprocess.check_output([sys.executable, "-c", code], cwd=PACKAGE.parent)
    assert said == b"set()\n"


def test_it_has_the_wine_that_it_is_given(tmp_path: Path) -> None:
    whole(tmp_path / "prefix")
    programs = tmp_path / "wine64", tmp_path / "wineserver"
    given = wine.Wine(*programs, tmp_path, tmp_path, "wine-10.0", ("env",))
    assert wine.Wine.of(given.packed()) == given
    command = [sys.executable, "-m", "pipelines.hosts.sandbox.daemon", str(tmp_path)]
    command += ["--wine", given.packed()]
    with subprocess.Popen(command, cwd=PACKAGE.parent, stderr=subprocess.PIPE) as service:
        _, said = service.communicate(timeout=60)
    assert f"{given.server} -p exited with 127" in json.loads(said)["error"]


def test_after_a_crash_the_rest_is_ended_and_the_prefix_checked(
    windows: Windows, tmp_path: Path
) -> None:
    windows = crashed(windows, tmp_path)
    windows.boot()
    assert did(windows) == ["halt", "boot", "run"]
    windows.halt()
    assert not (tmp_path / "run" / IN_USE).exists()


@pytest.mark.parametrize("fails", ["boot", "run"])
def test_a_prefix_that_does_not_come_up_after_a_crash(
    windows: Windows, tmp_path: Path, fails: str
) -> None:
    windows = crashed(windows, tmp_path)
    assert isinstance(windows.prefix, Wine)
    windows.prefix.fails = fails
    with pytest.raises(DamagedSandboxError, match=f"damaged: {fails} failed") as caught:
        windows.boot()
    assert "invoke provision" in caught.value.hint
    windows.halt()
    assert (tmp_path / "run" / IN_USE).exists(), "it is not taken for whole the next time"


def test_a_windows_that_does_not_start_is_no_damage(windows: Windows, tmp_path: Path) -> None:
    """A full disk, most likely."""
    assert isinstance(windows.prefix, Wine)
    windows.prefix.fails = "boot"
    with pytest.raises(HostError, match="boot failed") as caught:
        windows.boot()
    assert not isinstance(caught.value, DamagedSandboxError)
    windows.halt()
    assert not (tmp_path / "run" / IN_USE).exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (SEAL, None, SEAL),
        (SEAL, "", SEAL),
        (SEAL, "[]", SEAL),
        ("system.reg", None, "system.reg: No such file"),
        ("user.reg", "", "user.reg is not a registry"),
        ("userdef.reg", "\0" * 50, "userdef.reg is not a registry"),
    ],
)
def test_files_that_are_not_whole(
    windows: Windows, tmp_path: Path, name: str, content: str | None, said: str
) -> None:
    assert health.check_files(windows.prefix) == "3.11"
    path = tmp_path / "prefix" / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(DamagedSandboxError, match=said):
        windows.boot()
    assert did(windows) == [], "Wine would make new ones"
