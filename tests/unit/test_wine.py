"""A machine without Wine, or with half of it, is told what to type."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipelines.errors import ConfigError, HostError, SetupError
from pipelines.hosts.sandbox import distribution, powershell, wine
from pipelines.toolchain.lock import Cache, ToolchainLock

#: Where Debian has its DLLs.
DEBIANS = "lib/x86_64-linux-gnu/wine/x86_64-windows"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose only programs and files are those below the returned directory."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    prefixes = [str(tmp_path), *(str(tmp_path / name) for name in ("stable", "staging"))]
    monkeypatch.setattr(distribution, "_PREFIXES", prefixes)
    wine.find_wine.cache_clear()
    return tmp_path


def install(machine: Path, *, exit_code: int = 0) -> None:
    for name in ("wine64", "wineserver64"):
        program = machine / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho wine-9.0\nexit {exit_code}\n")
        program.chmod(0o755)
    libraries(machine / DEBIANS)
    (machine / "include/wine/wine/msvcrt").mkdir(parents=True)


def libraries(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "kernel32.dll").touch()


def test_found(machine: Path) -> None:
    install(machine)
    found = wine.find_wine()
    assert found.version == "wine-9.0"
    assert found.server == machine / "bin/wineserver64"


@pytest.mark.parametrize("linked", [False, True])
def test_found_where_newer_distributions_have_it(machine: Path, linked: bool) -> None:
    """Loader, server and DLLs in one folder, of which PATH knows a link to the loader at most."""
    install(machine)
    shutil.rmtree(machine / "lib")
    folder = machine / ("elsewhere" if linked else "lib/wine")
    libraries(folder / "x86_64-windows")
    (machine / "bin/wine64").rename(folder / "wine")
    (machine / "bin/wineserver64").rename(folder / "wineserver")
    if linked:
        (machine / "bin/wine").symlink_to(folder / "wine")
    found = wine.find_wine()
    assert found.server == folder / "wineserver"
    assert found.libraries == folder / "x86_64-windows"


@pytest.mark.parametrize("folder", ["lib64/wine", "lib/wine"])
def test_a_wine_of_winehq_and_files_of_the_distributions(machine: Path, folder: str) -> None:
    """Its newer packages have lib for lib64; the distribution's DLLs stay when its loader goes."""
    install(machine)
    shutil.rmtree(machine / "bin")
    winehq = machine / "staging"
    install(winehq)
    shutil.rmtree(winehq / "lib")
    libraries(winehq / folder / "x86_64-windows")
    (winehq / "bin/wineserver64").rename(winehq / "bin/wineserver")
    found = wine.find_wine()
    assert found.loader == winehq / "bin/wine64"
    assert found.server == winehq / "bin/wineserver"
    assert found.libraries == winehq / folder / "x86_64-windows"
    assert found.headers == winehq / "include/wine/wine"
    shutil.rmtree(winehq / "include")
    assert distribution.files().headers == machine / "include/wine/wine"
    (winehq / "bin/wineserver").unlink()
    assert distribution.files().server is None


@pytest.mark.parametrize(
    ("allowed", "behind"),
    [
        ("exit 0", ["setarch", "-R"]),
        ("echo 'setarch: failed to set personality'; exit 1", ["GLIBC_TUNABLES"]),
        (None, ["GLIBC_TUNABLES"]),
    ],
)
def test_what_keeps_the_heap_in_place(
    machine: Path, allowed: str | None, behind: list[str]
) -> None:
    """Docker's seccomp profile does not let a process do without random addresses."""
    install(machine)
    if allowed:
        (machine / "bin/setarch").write_text(f"#!/bin/sh\n{allowed}\n")
        (machine / "bin/setarch").chmod(0o755)
    *aside, loader = wine.find_wine().command
    assert loader == str(machine / "bin/wine64")
    assert [Path(word).name.partition("=")[0] for word in aside][-len(behind) :] == behind


def test_no_wine(machine: Path) -> None:
    assert not (machine / "bin").exists()
    with pytest.raises(SetupError, match="Wine is not installed") as caught:
        wine.find_wine()
    assert caught.value.exit_code == 4
    assert "apt-get install --no-install-recommends wine64 libwine-dev" in caught.value.advice


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("bin/wineserver64", "wineserver"),
        (f"{DEBIANS}/kernel32.dll", "64-bit DLLs"),
        ("include/wine/wine/msvcrt", "headers"),
    ],
)
def test_half_a_wine(machine: Path, lost: str, said: str) -> None:
    install(machine)
    path = machine / lost
    path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(SetupError, match=f"{said} are not installed") as caught:
        _ = wine.find_wine().headers  # which only images are made with
    assert "apt-get install" in caught.value.advice


@pytest.mark.parametrize(
    ("release", "typed"),
    [
        ({"ID": "debian"}, "apt-get install --no-install-recommends wine64 libwine-dev"),
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, "apt-get install"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt-get install"),
        ({"ID": "fedora"}, "dnf install wine-core wine-devel"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "dnf install"),
        ({"ID": "arch"}, "pacman -S --needed wine"),
        ({"ID": "opensuse-tumbleweed", "ID_LIKE": "opensuse suse"}, "zypper install wine wine-dev"),
        ({"ID": "void"}, "64-bit Wine"),
    ],
    ids=lambda value: value["ID"] if isinstance(value, dict) else "",
)
def test_advice_names_the_packages_of_the_distribution(
    machine: Path, monkeypatch: pytest.MonkeyPatch, release: dict[str, str], typed: str
) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    with pytest.raises(SetupError) as caught:
        wine.find_wine()
    assert typed in caught.value.advice
    assert [*distribution.missing(tests=True)] == ["wine", "headers", "installers", "wixl"]
    install(machine)
    assert [*distribution.missing(tests=False)] == []


@pytest.mark.parametrize(("system", "machine_"), [("Darwin", "arm64"), ("Linux", "aarch64")])
def test_a_platform_without_a_sandbox(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    system: str,
    machine_: str,
) -> None:
    install(machine)
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine_)
    with pytest.raises(SetupError, match=f"{system} on {machine_}") as caught:
        wine.find_wine()
    assert caught.value.advice == distribution.INSTEAD
    assert distribution.main() == 77
    assert distribution.INSTEAD in capsys.readouterr().err


def test_a_wine_that_does_not_run(machine: Path) -> None:
    install(machine, exit_code=3)
    with pytest.raises(SetupError, match="does not run"):
        wine.find_wine()


def test_a_start_that_does_not_end(machine: Path) -> None:
    """As with a Wine that finds no font: what hung is named, and what to install."""
    install(machine)
    found = wine.find_wine()
    found.loader.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    with pytest.raises(HostError, match="wine64 wineboot hung for 1 s") as caught:
        wine.Prefix(machine / "prefix", found).boot(timeout=1)
    assert "fonts-dejavu-core" in caught.value.advice


#: Goes on in another process every 20 ms, as a compiler's driver does; ends after 10 s.
_CHAIN = """
import os, time
for _ in range(500):
    if os.fork():
        os._exit(0)
    time.sleep(0.02)
"""


def test_halt_leaves_no_process_that_another_started_meanwhile(
    machine: Path, tmp_path: Path
) -> None:
    install(machine)
    prefix = wine.Prefix(tmp_path / "prefix")
    prefix.path.mkdir()

    def seen() -> bool:  # not in one look: a process may begin behind it
        return any(any(prefix._processes()) for _ in range(50))

    for _ in range(12):
        tag = {"WINEPREFIX": str(prefix.path)}
        subprocess.run([sys.executable, "-c", _CHAIN], env=tag, check=True)
    assert seen()
    prefix.halt()
    assert not seen()


def test_powershell_is_put_where_windows_has_it(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine)
    monkeypatch.delenv(powershell.VARIABLE, raising=False)
    names = ("pwsh.exe", "pwsh.dll", "Modules/a.psm1")
    archive = tmp_path / "PowerShell.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for name in names:
            made.writestr(name, name)
    pin = {"url": f"https://a.invalid/{archive.name}", "file": archive.name}
    source = pin | {"sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    lock = {"version": 1, "tools": {"powershell": {"version": "7", "sources": [source]}}}
    cache = Cache(ToolchainLock.model_validate(lock), tmp_path / "cache", wheelhouse=tmp_path)
    assert powershell.found(cache) is None
    cache.fetch("powershell")
    unpacked = powershell.found(cache)
    assert unpacked is not None
    assert {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*.*")} == {*names}
    folder = tmp_path / "pwsh"
    monkeypatch.setenv(powershell.VARIABLE, str(folder))
    with pytest.raises(ConfigError):
        powershell.found(cache)
    (folder / "Modules").mkdir(parents=True)
    for name in names:
        (folder / name).write_text(name)
    assert powershell.found(cache) == folder
    prefix = wine.Prefix(tmp_path / "prefix")
    place = prefix.drive / "windows/system32/WindowsPowerShell/v1.0"
    place.mkdir(parents=True)
    (place / "powershell.exe").write_text("Wine's")
    assert powershell.environment(prefix) == {}
    for _ in range(2):
        powershell.install(prefix, folder)
        assert (place / "powershell.exe").read_text() == "pwsh.exe"
        assert (place / "Modules/a.psm1").is_file()
    assert "mscoree" in prefix.environment()["WINEDLLOVERRIDES"]
    assert "mscoree" not in powershell.environment(prefix)["WINEDLLOVERRIDES"]
