"""The sandbox's slot for MSVC: a whole tree is taken, half of one never; and what is fetched."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msvc_trees as trees
import pytest
import requests
import yaml
from pydantic import ValidationError
from test_pinning import Rerouted

from pipelines.config.model import Config
from pipelines.core.errors import ConfigError, HostError, LockError, SetupError
from pipelines.doctor.run import purpose_of
from pipelines.hosts.base import Silent
from pipelines.hosts.live import LiveSession
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.sandbox.msvc import fetch, installing, manifest, pinning, pins
from pipelines.hosts.sandbox.msvc.finder import find, identity
from pipelines.hosts.sandbox.msvc.pins import Pins
from pipelines.hosts.sandbox.msvc.slot import Slot
from pipelines.hosts.sandbox.msvc.unpack import Target, unpack_vsix
from pipelines.hosts.sandbox.msvc.vcvars import vcvars
from pipelines.matrix.buildplan import BuildPlan, Request, resolve
from pipelines.stages.buildspec import environment_of
from pipelines.stages.line import Line, run_provision
from pipelines.toolchain import sources
from pipelines.toolchain.lock import Cache, Tool, load_lock

TOOLS, KITS = f"VC/Tools/MSVC/{trees.TOOLSET}", "Windows Kits/10"
LICENCE = "https://licence.invalid/build-tools"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return trees.write(tmp_path / "vs", trees.files())


# -- the finder ------------------------------------------------------------------------------------


def test_a_whole_tree(tree: Path) -> None:
    found = find(tree)
    assert (found.version, found.sdk) == (trees.TOOLSET, trees.SDK)
    assert (found.compiler, found.maker) == ("14.44.35211.0", trees.MICROSOFT)
    assert [path.name for path in found.include] == ["include", "ucrt", "um", "shared"]
    assert [path.parent.name for path in found.lib] == ["lib", "ucrt", "um"]
    assert str(found) == ("MSVC 14.44.35207 (cl.exe 14.44.35211.0), Windows SDK 10.0.26100.0")


def test_msvc_wines_names(tree: Path) -> None:
    """It writes ``vc`` and ``kits`` and links the names of before."""
    (tree / "VC/Tools").rename(tree / "VC/tools")
    (tree / "VC/tools/MSVC").rename(tree / "VC/tools/msvc")
    (tree / "VC").rename(tree / "vc")
    (tree / "Windows Kits").rename(tree / "kits")
    (tree / "kits/10/Include").rename(tree / "kits/10/include")
    assert find(tree).version == trees.TOOLSET
    for link, name in (("VC", "vc"), ("Windows Kits", "kits"), ("vc/Tools", "tools")):
        (tree / link).symlink_to(name)
    assert find(tree).sdk == trees.SDK


#: What is taken away, or put there, and what is then said.
HALVES: dict[str, tuple[Callable[[Path], object], str]] = {
    "not there": (shutil.rmtree, "is not a directory"),
    "empty": (lambda p: (p / "VC").rename(p / "x"), "no VC/Tools/MSVC"),
    "without an SDK": (lambda p: shutil.rmtree(p / "Windows Kits"), "no Windows SDK"),
    "without a version": (lambda p: (p / TOOLS).rename(p / "x"), "has toolset none"),
    "without a compiler": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/cl.exe").unlink(),
        "no cl.exe for x64",
    ),
    "x86 alone": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64").rename(p / TOOLS / "bin/Hostx64/x86"),
        "no cl.exe for x64",
    ),
    "a pass": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/c2.dll").unlink(),
        r"is incomplete: it has no c2\.dll \(bin\)",
    ),
    "without headers": (lambda p: shutil.rmtree(p / TOOLS / "include"), r"vector \(include\)"),
    "a file cut off": (
        lambda p: (p / KITS / "Lib" / trees.SDK / "um/x64/kernel32.Lib").write_bytes(b""),
        r"kernel32\.lib \(um lib\)",
    ),
    "another cl.exe": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/cl.exe").write_bytes(trees.program("14.38.1.0")),
        r"cl\.exe of version 14\.38\.1\.0, but the directory is named 14\.44\.35207",
    ),
    "no program": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/cl.exe").write_bytes(b"#!/bin/sh\n"),
        "not a 64-bit Windows program",
    ),
    "for ARM": (
        lambda p: (p / TOOLS / "bin/Hostx64/x64/cl.exe").write_bytes(trees.program(machine=0xAA64)),
        "its machine is 0xaa64",
    ),
}


@pytest.mark.parametrize("lie", HALVES)
def test_half_a_tree_is_refused(tree: Path, lie: str) -> None:
    change, says = HALVES[lie]
    change(tree)
    with pytest.raises(ConfigError, match=says) as caught:
        find(tree)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["msvcprt.lib", "msvcrt.lib", "vcruntime.lib"])
def test_without_the_store_package(tree: Path, name: str) -> None:
    (tree / TOOLS / "lib/x64" / name).unlink()
    with pytest.raises(ConfigError, match=r"CRT\.x64\.Store"):
        find(tree)


def test_a_tree_of_xwin(tmp_path: Path) -> None:
    trees.write(tmp_path / "a", {"crt/include/vector": b"//", "sdk/include/ucrt/stdio.h": b"//"})
    with pytest.raises(ConfigError, match=r"xwin tree.*without cl\.exe"):
        find(tmp_path / "a")


def test_two_versions(tree: Path) -> None:
    trees.write(tree, trees.files("14.38.33130", "10.0.22621.0", "14.38.33145.0"))
    with pytest.raises(ConfigError, match=r"2 versions of the toolset: 14\.38.*14\.44") as caught:
        find(tree)
    assert "msvc_version: 14.44.35207" in caught.value.hint
    with pytest.raises(ConfigError, match=r"2 versions of the Windows SDK"):
        find(tree, version="14.44")
    found = find(tree, version="14.38", sdk="10.0.26100")
    assert (found.version, found.sdk) == ("14.38.33130", trees.SDK)
    with pytest.raises(ConfigError, match=r"has toolset 14\.38\.33130, 14\.44\.35207, not 14\.4$"):
        find(tree, version="14.4", sdk="10.0.26100")


@pytest.mark.parametrize("name", ["VC/Tools/MSVC", "Windows Kits/10/Include"])
def test_a_file_in_place_of_a_folder(tree: Path, name: str) -> None:
    shutil.rmtree(tree / name)
    (tree / name).write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        find(tree)


# -- what is made of it ----------------------------------------------------------------------------


def test_the_tree_in_a_windows(tree: Path, tmp_path: Path) -> None:
    drive = tmp_path / "prefix/drive_c"
    trees.write(drive, {"VS/VC/Tools/MSVC/14.40.33807/bin/Hostx64/x64/cl.exe": b"the stand-in"})
    for _ in range(2):
        installing.install(find(tree), tmp_path / "prefix")
    there = find(drive / "VS")
    assert (there.version, there.sdk, there.maker) == (trees.TOOLSET, trees.SDK, trees.MICROSOFT)
    names = {path.name for path in there.bin.iterdir()}
    assert {"cl.exe", "c2.dll", "1033"} <= names
    assert "vctip.exe" not in names
    assert (tree / TOOLS / "bin/Hostx64/x64/vctip.exe").exists(), "the user's own stays as it is"
    assert [path.name for path in (drive / "VS/VC/Tools/MSVC").iterdir()] == [trees.TOOLSET]
    for _ in range(2):
        installing.remove(tmp_path / "prefix")
        assert (drive / "VS/VC/Tools/MSVC/14.40.33807/bin/Hostx64/x64/cl.exe").is_file()
    assert [path.name for path in drive.iterdir()] == ["VS"]
    installing.install(find(tree), tmp_path / "prefix")
    assert (drive / "VS/VC/Auxiliary/Build/vcvarsall.bat").is_file()


def test_a_sandbox_that_runs_with_another_tree(tree: Path, tmp_path: Path) -> None:
    """Of the same version, from another place; of another version; none."""
    cache = Cache(load_lock(), tmp_path / "cache")
    (tmp_path / "prefix/drive_c/VS").mkdir(parents=True)
    mine = Slot(msvc=str(tree))
    with pytest.raises(HostError, match="different compiler"):
        mine.check(cache, tmp_path / "prefix")
    mine.install(cache, tmp_path / "prefix", Silent())
    mine.check(cache, tmp_path / "prefix")
    same = trees.write(tmp_path / "same", trees.files())
    new = trees.write(tmp_path / "new", trees.files("14.44.36000"))
    for other in (same, new):
        with pytest.raises(HostError, match="different compiler"):
            Slot(msvc=str(other)).check(cache, tmp_path / "prefix")


def test_every_directory_of_vcvars_is_there(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "prefix/drive_c/VS").mkdir(parents=True)
    installing.install(find(tree), tmp_path / "prefix")
    text = vcvars(find(tree))
    assert "DISTUTILS" not in text  # nor does Microsoft's set it, nor MSSdk
    assert "MSSdk" not in text
    paths = [
        one
        for line in text.splitlines()
        if line.startswith(("@set INCLUDE=", "@set LIB=", "@set PATH="))
        for one in line.partition("=")[2].split(";")
        if one != "%PATH%"
    ]
    assert len(paths) == 9
    for path in paths:
        here = tmp_path / "prefix/drive_c" / path.removeprefix("C:\\").replace("\\", "/")
        assert here.is_dir(), path


# -- pipeline.yaml ---------------------------------------------------------------------------------


def host(**keys: object) -> SandboxHost:
    return SandboxHost.model_validate({"kind": "sandbox", **keys})


@pytest.mark.parametrize(
    "keys",
    [
        {"accept_license": LICENCE},
        {"accept_license": LICENCE, "msvc": "/vs"},
        {"msvc_version": "14.44"},
        {"msvc": "fetch", "windows_sdk": "10.0.26100"},
        {"msvc": "fetch", "accept_license": "yes"},
        {"msvc": ""},
    ],
)
def test_keys_that_mean_nothing(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        host(**keys)


def test_what_a_sandbox_with_msvc_gives(tree: Path) -> None:
    lock = load_lock()
    plain, full = host().supply(lock), host(msvc=str(tree)).supply(lock)
    assert (full.toolset.name, full.toolset.version) == ("MSVC", trees.TOOLSET)
    assert (full.missing, full.programs, dict(full.replacements)) == ((), False, {})
    assert full.python == plain.python
    assert {"12.8", "13.0"} <= {*(full.cuda or ())}
    assert list(host(msvc=str(tree)).notes("x")) == [f"compiler: {find(tree)}"]


def test_trees_of_one_version_are_told_apart(tree: Path) -> None:
    """So that no job of one is taken for the other's: the compiler is serviced, the SDK another."""
    found = {host(msvc=str(tree)).supply(load_lock()).toolset}
    trees.write(tree, trees.files(compiler="14.44.35214.0"))
    found.add(host(msvc=str(tree)).supply(load_lock()).toolset)
    (tree / KITS / "Include" / trees.SDK).rename(tree / KITS / "Include/10.0.22621.0")
    for name in ("Lib", "bin"):
        (tree / KITS / name / trees.SDK).rename(tree / KITS / name / "10.0.22621.0")
    found.add(host(msvc=str(tree)).supply(load_lock()).toolset)
    assert len(found) == 3
    assert {one.version for one in found} == {trees.TOOLSET}


def test_a_tree_that_will_not_do_is_a_lack(tree: Path) -> None:
    (tree / TOOLS / "bin/Hostx64/x64/cl.exe").unlink()
    (lack,) = host(msvc=str(tree)).supply(load_lock()).missing
    assert "no cl.exe" in lack.actual
    assert lack.raises == "ConfigError"


def test_a_tree_of_a_user_that_there_is_not() -> None:
    (lack,) = host(msvc="~nobody-of-that-name/vs").supply(load_lock()).missing
    assert lack.actual.startswith("msvc: ~nobody-of-that-name/vs: ")


@pytest.mark.parametrize(
    ("maker", "says"), [("", "names no company"), ("A\x1b[31m & Co", "A.* & Co as its maker")]
)
def test_a_stand_in_is_not_taken_for_msvc(tree: Path, maker: str, says: str) -> None:
    """By its name alone: who forges the maker is found out by what is in the wheel."""
    program = trees.program(maker=maker)
    (tree / TOOLS / "bin/Hostx64/x64/cl.exe").write_bytes(program)
    with pytest.raises(ConfigError, match=says) as caught:
        Slot(msvc=str(tree)).require()
    assert "\x1b" not in caught.value.message


def test_a_damaged_program_is_refused_whatever_pefile_makes_of_it(tmp_path: Path) -> None:
    whole, path, chance = trees.program(), tmp_path / "cl.exe", random.Random(16)
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4, 40))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0xFF))
        path.write_bytes(data[: chance.choice((len(data), chance.randrange(len(data))))])
        try:
            version, maker = identity(path)
        except ConfigError as error:
            refused += error.message.startswith(f"{path} is not a 64-bit Windows program: ")
        else:
            assert len(version) <= 23
            assert len(maker) <= 260
    assert refused > 50


@pytest.mark.parametrize("error", [AttributeError("e_lfanew"), RecursionError(), MemoryError()])
def test_what_pefile_raises_by_accident(
    tree: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("pefile.PE.parse_data_directories", fail)
    with pytest.raises(ConfigError, match=r"cl\.exe is not a 64-bit Windows program: \w+"):
        find(tree)


# -- fetch -----------------------------------------------------------------------------------------


class Microsoft(ThreadingHTTPServer):
    """On loopback: path -> bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Microsoft

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found = self.server.files.get(self.path)
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


WANTED = pins.load_packages()


def contents() -> tuple[dict[str, dict[str, bytes]], dict[str, dict[str, bytes]]]:
    """A tree in Microsoft's packages: of Visual Studio, and installers of the SDK."""
    whole = trees.files()
    stores = ("msvcrt.lib", "msvcprt.lib", "vcruntime.lib")

    def among(*words: str) -> dict[str, bytes]:
        return {n: d for n, d in whole.items() if all(word in n for word in words)}

    libraries = among("VC/", "/lib/")
    tools, language, headers, desktop, store = WANTED.packages
    packages = {
        # Folders are written in another case in each: they are one tree all the same.
        tools: {n.replace("Hostx64", "HostX64"): d for n, d in among("VC/", "/bin/").items()},
        language: among("1033"),
        headers: among("VC/", "/include/"),
        desktop: {n: d for n, d in libraries.items() if not n.endswith(stores)},
        store: {n: d for n, d in libraries.items() if n.endswith(stores)},
    }
    installers = {
        name: {f"{KITS}/Include/x/{i}.h": b"//"} for i, name in enumerate(WANTED.sdk.files)
    }
    first, *_, last = WANTED.sdk.files
    installers[first] = among("ucrt")
    installers[last] = {n: d for n, d in among("Windows Kits/").items() if "ucrt" not in n}
    return packages, installers


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Names of payloads -> bytes: one .vsix a package, one .msi and .cab an installer."""
    if not (shutil.which("wixl") and shutil.which("msiextract")):
        pytest.skip("wixl and msiextract are not installed: apt-get install wixl msitools")
    folder = tmp_path_factory.mktemp("microsoft")
    packages, installers = contents()
    found = {f"{i}.vsix": trees.vsix(folder / f"{i}.vsix", c) for i, c in packages.items()}
    told = {name: path.read_bytes() for name, path in found.items()}
    for number, (name, files) in enumerate(installers.items()):
        told[f"{number:032}.cab"] = trees.msi(folder / name, files, f"{number:032}.cab")
        told[name] = (folder / name).read_bytes()
    return told


class Shop:
    """Microsoft as a test has it: what is published, under the addresses of the manifest."""

    def __init__(self, server: Microsoft, made: dict[str, bytes], cache: Cache) -> None:
        self.server, self.made, self.cache = server, dict(made), cache
        self.line, self.licence = "2022", LICENCE
        self.claimed: dict[str, str] = {}

    def payload(self, name: str, file: str) -> dict[str, object]:
        data = self.made[name]
        path = f"/pr/{hashlib.sha256(name.encode()).hexdigest()}/{quote(name)}"
        self.server.files[path] = data
        sha256 = self.claimed.get(name) or hashlib.sha256(data).hexdigest().upper()
        url = f"https://download.invalid{path}"
        return {"fileName": file, "url": url, "sha256": sha256, "size": len(data)}

    def publish(self) -> None:
        packages: list[dict[str, object]] = [
            {"id": name, "language": "de-DE", "payloads": []} for name in WANTED.packages
        ]
        for name in WANTED.packages:
            if f"{name}.vsix" in self.made:
                rows = [self.payload(f"{name}.vsix", "payload.vsix")]
                packages.append({"id": name, "version": "14.44.35211", "payloads": rows})
        sdk = [n for n in self.made if n.endswith((".msi", ".cab"))]
        rows = [self.payload(name, f"Installers\\{name}") for name in sdk]
        packages.append({"id": WANTED.sdk.package, "payloads": rows})
        self.server.files["/vsman"] = json.dumps({"packages": packages}).encode()
        product = {"language": "en-us", "license": self.licence}
        channel = {
            "info": {"productLineVersion": self.line, "productDisplayVersion": "17.14.41"},
            "channelItems": [
                {
                    "type": "Manifest",
                    # Microsoft's own is wrong as well.
                    "payloads": [{"url": "https://download.invalid/vsman", "sha256": "0" * 64}],
                },
                {"id": WANTED.product, "localizedResources": [product]},
            ],
        }
        self.tell_channel(json.dumps(channel).encode())

    def tell_channel(self, data: bytes) -> None:
        self.server.files["/channel"] = data
        sha256 = hashlib.sha256(data).hexdigest()
        source = {"file": "VisualStudio.chman", "url": "https://aka.invalid/channel"}
        sources_ = [source | {"sha256": sha256, "size": len(data)}]
        tool = Tool.model_validate({"version": "17.14.41", "sources": sources_})
        lock = self.cache.lock
        tools = {**lock.tools, WANTED.channel: tool}
        self.cache.lock = lock.model_copy(update={"tools": tools})

    def pins(self) -> Pins:
        self.publish()
        return manifest.ask(self.cache, WANTED)

    def tree(self, known: Pins) -> Path:
        return fetch.fetched(self.cache, known, lambda _: None, lambda *_: None).root


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: dict[str, bytes]) -> Iterator[Shop]:
    server = Microsoft()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def session() -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.mount("https://", Rerouted(server.server_port))
        return session

    monkeypatch.setattr(sources, "session", session)
    yield Shop(server, made, Cache(load_lock(), tmp_path / "cache"))
    server.shutdown()
    server.server_close()
    thread.join()


def test_from_the_manifest_to_a_tree(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    known = shop.pins()
    assert known.licence == LICENCE
    assert {p.package for p in known.payloads} == {*WANTED.packages, WANTED.sdk.package}
    root = shop.tree(known)
    found = find(root)
    assert (found.version, found.sdk, found.maker) == (trees.TOOLSET, trees.SDK, trees.MICROSOFT)
    here = {p.relative_to(root).as_posix().lower(): p for p in root.rglob("*") if p.is_file()}
    wanted = {name.lower(): data for name, data in trees.files().items() if "vctip" not in name}
    assert {name: here[name].read_bytes() for name in wanted} == wanted
    assert not [name for name in here if "vctip" in name]
    monkeypatch.setattr("pipelines.hosts.sandbox.msvc.unpack.shutil.which", lambda _: None)
    shop.server.asked.clear()
    assert shop.tree(known) == root
    assert shop.server.asked == [], "nothing is fetched or unpacked a second time"


def test_only_the_cabinets_that_are_needed(shop: Shop) -> None:
    shop.made["f" * 32 + ".cab"] = b"of another installer"
    shop.tree(shop.pins())
    assert not [path for path in shop.server.asked if "f" * 32 in path]


@pytest.mark.parametrize("change", ["cut", "other bytes", "of that time", "one more", "one less"])
def test_a_tree_that_was_changed_is_made_anew(shop: Shop, change: str) -> None:
    known = shop.pins()
    path = find(shop.tree(known)).lib[0] / "msvcprt.lib"
    killed = shop.cache.root / f"msvc/.{known.key}.x/VC"
    killed.mkdir(parents=True)
    good, time = path.read_bytes(), path.stat().st_mtime_ns
    if change == "cut":
        path.write_bytes(b"")
    elif change in ("other bytes", "of that time"):
        path.write_bytes(b"x" * len(good))
        os.utime(path, ns=(time, time) if change == "of that time" else (1, 1))
    elif change == "one more":
        path.with_name("extra.lib").write_bytes(b"x")
    else:
        path.unlink()
    assert shop.tree(known) == path.parents[6]
    assert path.read_bytes() == good
    assert not path.with_name("extra.lib").exists()
    assert not killed.exists(), "what one that was killed has left goes too"


@pytest.mark.parametrize("kind", [".vsix", ".msi", ".cab"])
def test_a_wrong_hash(shop: Shop, kind: str) -> None:
    """What comes is another file than the one that was pinned."""
    known = shop.pins()
    path, data = next((p, d) for p, d in shop.server.files.items() if p.endswith(kind))
    shop.server.files[path] = bytes([data[0] ^ 1]) + data[1:]
    with pytest.raises(LockError, match="sha256"):
        shop.tree(known)
    assert not fetch.place(shop.cache, known).exists()


def test_without_the_store_package_nothing_is_pinned(shop: Shop) -> None:
    del shop.made[f"{WANTED.packages[-1]}.vsix"]
    with pytest.raises(LockError, match=r"no file for .*CRT\.x64\.Store\.base"):
        shop.pins()


def test_visual_studio_2026(shop: Shop) -> None:
    shop.line = "18"
    with pytest.raises(LockError, match="Visual Studio 18, not 2022"):
        shop.pins()


def test_an_installer_that_is_gone(shop: Shop) -> None:
    del shop.made[WANTED.sdk.files[0]]
    with pytest.raises(LockError, match="Universal CRT"):
        shop.pins()


def test_a_cabinet_that_is_not_pinned(shop: Shop) -> None:
    known = shop.pins()
    less = tuple(p for p in known.payloads if p.file != f"{0:032}.cab")
    with pytest.raises(LockError, match=r"needs 0000.*not pinned"):
        shop.tree(known.model_copy(update={"payloads": less}))


def test_packages_that_do_not_agree(shop: Shop, tmp_path: Path) -> None:
    name = f"{TOOLS}/include/vector"
    for package in WANTED.packages[2:4]:
        both = {name: package.encode()}
        shop.made[f"{package}.vsix"] = trees.vsix(tmp_path / "x.vsix", both).read_bytes()
    with pytest.raises(LockError, match=r"different VC.*vector"):
        shop.tree(shop.pins())
    assert not [p for p in (shop.cache.root / "msvc").iterdir() if p.is_dir()]


@pytest.mark.parametrize("name", [f"{TOOLS}/../../../../../x", f"{TOOLS}//x", f"{TOOLS}/con.h"])
def test_a_name_that_leaves_the_tree(tmp_path: Path, name: str) -> None:
    archive = trees.vsix(tmp_path / "a.vsix", {name: b"x"})
    (tmp_path / "tree").mkdir()
    with pytest.raises(LockError, match="refused"):
        unpack_vsix(archive, Target(tmp_path / "tree"))
    assert not list((tmp_path / "tree").rglob("*"))


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"<html>", b"{}", b'{"info": 1}', b"[" * 100_000]
    + [
        json.dumps({"info": {"productLineVersion": "2022"}, "channelItems": c}).encode()
        for c in (1, [1], [{"type": "Manifest", "payloads": [{"url": "ftp://x"}]}])
    ],
)
def test_what_is_no_channel(shop: Shop, text: bytes) -> None:
    shop.tell_channel(text or b" ")
    with pytest.raises(LockError) as caught:
        manifest.ask(shop.cache, WANTED)
    assert caught.value.hint


@pytest.mark.parametrize("licence", ["http://x.invalid/l", "see the box", "https://x/\x1b[31m"])
def test_a_licence_that_is_no_address(shop: Shop, licence: str) -> None:
    shop.licence = licence
    with pytest.raises(LockError, match="licence") as caught:
        shop.pins()
    assert "\x1b" not in caught.value.message


def test_without_msitools(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    known = shop.pins()
    monkeypatch.setattr("pipelines.hosts.sandbox.msvc.unpack.shutil.which", lambda _: None)
    with pytest.raises(SetupError) as caught:
        shop.tree(known)
    assert "apt-get install msitools" in caught.value.hint


# -- pins and licence ------------------------------------------------------------------------------


def test_the_lock_of_this_release_has_no_pins() -> None:
    """No machine that wrote it has reached Microsoft: it says so, and how they are made."""
    with pytest.raises(LockError, match="no pins yet") as caught:
        pins.load_pins()
    assert "invoke lock --only vs-channel-2022,msvc" in caught.value.hint
    (lack,) = host(msvc="fetch", accept_license=LICENCE).supply(load_lock()).missing
    assert lack.raises == "LockError"


@pytest.mark.parametrize("licence", ["", "https://licence.invalid/other", f"{LICENCE}/"])
def test_the_licence_is_microsofts_to_name(
    shop: Shop, licence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pins, "PINS_FILE", tmp_path / "msvc.lock.yaml")
    pins.write_pins(shop.pins())
    shop.server.asked.clear()
    asked = Slot(msvc="fetch", accept_license=licence)
    with pytest.raises(ConfigError, match=f"whose license is {LICENCE}") as caught:
        asked.install(shop.cache, tmp_path / "prefix", Silent())
    assert f"accept_license: {LICENCE}" in caught.value.hint
    assert shop.server.asked == [], "nothing is fetched before"
    assert asked.missing()[0].actual == caught.value.message


def test_fetched_with_the_licence(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pins, "PINS_FILE", tmp_path / "msvc.lock.yaml")
    pins.write_pins(shop.pins())
    (tmp_path / "prefix/drive_c/VS").mkdir(parents=True)
    asked = Slot(msvc="fetch", accept_license=LICENCE)
    assert not asked.missing()
    assert asked.which() == ("14.44", pins.load_pins().key)
    tree = asked.install(shop.cache, tmp_path / "prefix", Silent())
    assert find(tmp_path / "prefix/drive_c/VS").version == tree.version == trees.TOOLSET
    asked.check(shop.cache, tmp_path / "prefix")
    shutil.rmtree(fetch.place(shop.cache, pins.load_pins()))  # as invoke cache --prune may
    with pytest.raises(HostError, match="no longer in the cache") as caught:
        asked.check(shop.cache, tmp_path / "prefix")
    assert "host stop" in caught.value.hint


@pytest.mark.parametrize("lie", ["toolset", "sdk", "payloads", "licence"])
def test_pins_of_something_else(shop: Shop, tmp_path: Path, lie: str) -> None:
    path = tmp_path / "msvc.lock.yaml"
    pins.write_pins(shop.pins(), path)
    assert pins.load_pins(path).payloads
    told = yaml.safe_load(path.read_text())
    if lie == "payloads":
        told["payloads"] = [p for p in told["payloads"] if "Store" not in p["package"]]
    elif lie == "licence":
        del told["licence"]
    else:
        told[lie] = "14.50"
    path.write_text(yaml.safe_dump(told))
    with pytest.raises(LockError):
        pins.load_pins(path)


def test_invoke_lock_writes_the_pins(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pins, "PINS_FILE", tmp_path / "msvc.lock.yaml")
    shop.publish()
    monkeypatch.setattr(pinning, "Cache", lambda _: shop.cache)
    pinning.run_pin(force=False)
    first = (tmp_path / "msvc.lock.yaml").read_bytes()
    shop.licence = "https://licence.invalid/new"
    shop.publish()
    pinning.run_pin(force=False)
    assert (tmp_path / "msvc.lock.yaml").read_bytes() == first, "what is pinned stays"
    pinning.run_pin(force=True)
    assert pins.load_pins().licence == "https://licence.invalid/new"


# -- plan, doctor and build ------------------------------------------------------------------------


def planned(tmp_path: Path, axes: dict[str, str], **keys: object) -> BuildPlan:
    config = {
        "hosts": {"vs": {"kind": "sandbox", "home": str(tmp_path / "home"), **keys}},
        "out": str(tmp_path / "out"),
        "default": {"host": "vs"},
    }
    return resolve(Config.model_validate(config), Request(axes=axes))


def test_flash_attn_is_built_as_on_windows(tree: Path, tmp_path: Path) -> None:
    plan = planned(tmp_path, {"recipe": "flash-attn"}, msvc=str(tree))
    assert [finding.actual for finding in plan.refused() if finding.failed] == []
    wanted = {one.id: one for one in plan.wanted}
    assert {"CUDA toolkit", "C++ run-time", "ninja", "build tools"} <= wanted.keys()
    # Installers are not run there, and its Python is the image's.
    assert not {"Build Tools", "C run-time", "Python", "git", "CUDA compiler"} & wanted.keys()
    assert plan.layout.python == plan.host.executable
    # c10_cuda.lib and torch_cuda.lib are in torch with CUDA alone.
    assert "torch-2.8.0+cu128-cp311-cp311-win_amd64.whl" in str(wanted["wheels"].spec)
    assert plan.host.capabilities.msvc
    assert purpose_of(plan).cxx_runtime == "14.44"
    assert not plan.host.capabilities.publishable
    assert ".sandbox.msvc" in environment_of(plan, 1)["FLASH_ATTN_LOCAL_VERSION"]


def test_without_msvc_the_same_is_refused(tmp_path: Path) -> None:
    (finding,) = planned(tmp_path, {"recipe": "flash-attn"}).refused()
    assert "which takes MSVC" in finding.actual


@pytest.mark.parametrize("cuda", ["13.0", "12.8"])
def test_a_tree_of_visual_studio_2026(tree: Path, tmp_path: Path, cuda: str) -> None:
    new = trees.write(tmp_path / "new", trees.files("14.50.35717", compiler="14.50.35717.0"))
    for root, rules in ((new, ["host-config-1950"]), (tree, [])):
        found = planned(tmp_path, {"cuda": cuda}, msvc=str(root)).refused()
        assert [finding.id for finding in found if finding.failed] == rules


def test_nothing_is_started_for_half_a_tree(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched or started")

    monkeypatch.setattr("pipelines.hosts.sandbox.host.Sandbox.connect", touched)
    monkeypatch.setattr("pipelines.toolchain.lock.Cache.fetch", touched)
    (tree / TOOLS / "lib/x64/msvcprt.lib").unlink()
    plan = planned(tmp_path, {}, msvc=str(tree))
    with pytest.raises(ConfigError, match=r"CRT\.x64\.Store"):
        run_provision(Line(plan, LiveSession(plan.host)))


def test_each_compiler_has_a_windows_of_its_own(tree: Path, tmp_path: Path) -> None:
    both = [planned(tmp_path, {}, **keys).host for keys in ({}, {"msvc": str(tree)})]
    homes = [one.home.name for one in both if isinstance(one, Sandbox)]
    assert homes == ["home-py3.11", "home-py3.11-msvc"]


def test_trees_of_old_pins_are_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "PINS_FILE", shop.cache.root / "msvc.lock.yaml")
    (shop.cache.root / "msvc/0123").mkdir(parents=True)
    assert [one.useful for one in fetch.cache_entries(shop.cache)] == [False]
    known = shop.pins()
    pins.write_pins(known)
    shop.tree(known)
    found = {one.path.name: one.useful for one in fetch.cache_entries(shop.cache)}
    assert found == {"0123": False, known.key: True}
