"""The GPU bridge's files: what it exports, how it is kept, how it gets into a Windows."""

from __future__ import annotations

import _ctypes
import errno
import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipelines.core.errors import HostError, StorageError
from pipelines.hosts.sandbox import bridged
from pipelines.hosts.sandbox.bridge import building, installing
from pipelines.hosts.sandbox.making import FILES, read_verified_seal, seal_directory
from pipelines.hosts.sandbox.wine import SEAL, Prefix, Wine
from pipelines.toolchain.lock import Cache, load_lock

LISTS = building.SOURCE
NAMES = {name: (LISTS / name).read_text().split() for name in ("cuda-names.txt", "nvml-names.txt")}
CALLS = re.findall(r"^CALL\((\w+),", (LISTS / "calls.def").read_text(), re.M)
#: A library of Linux, and none of a driver.
LIBRARY = Path(_ctypes.__file__)
FILES_OF_ONE = (
    *("x86_64-windows/nvcuda.dll", "x86_64-windows/nvml.dll"),
    *("x86_64-unix/nvcuda.so", "x86_64-unix/nvml.so"),
    *("system32/nvcuda.dll", "system32/nvml.dll", "system32/nvcudart_hybrid64.dll"),
)


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    path = tmp_path / "prefix"
    (path / "drive_c/windows/system32").mkdir(parents=True)
    (path / SEAL).write_text(json.dumps({"python": "3.11", "image": "image-3.11"}))
    for name in ("system.reg", "user.reg", "userdef.reg"):
        (path / name).write_text("WINE REGISTRY Version 2\n")
    return Prefix(path, Wine(path, path, path, path, "wine-8.0"))


class Compiler:
    """Makes files where :func:`building.ensure_bridge` would compile them."""

    def __init__(self) -> None:
        self.made = 0
        self.fails: Exception | None = None
        self.exports: Mapping[str, list[str]] = {}

    def __call__(
        self, prefix: Prefix, wheel: Path, exports: Mapping[str, list[str]], scratch: Path
    ) -> None:
        self.made += 1
        self.exports = exports
        time.sleep(0.05)
        for name in FILES_OF_ONE:
            (scratch / name).parent.mkdir(exist_ok=True)
            (scratch / name).write_text(name)
        if self.fails:
            raise self.fails
        seal_directory(scratch)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(building, "compile_bridge", made)
    monkeypatch.setattr(building, "image_key", lambda cache, python: f"image-{python}")
    return made


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    made = Cache(load_lock(), tmp_path / "cache", offline=True)
    monkeypatch.setattr(made, "fetch", lambda name: tmp_path / name)
    return made


def build(prefix: Prefix, cache: Cache, *libraries: Path) -> Path:
    return building.ensure_bridge(prefix, cache, libraries, lambda text: None)


# -- the lists -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "begin"), [("cuda-names.txt", "cu"), ("nvml-names.txt", "nvml")])
def test_names_are_sorted_and_each_is_there_once(name: str, begin: str) -> None:
    assert NAMES[name] == sorted({*NAMES[name]})
    assert all(re.fullmatch(rf"{begin}[A-Z]\w+", found) for found in NAMES[name])


def test_every_variant_of_a_function_that_needs_more_than_a_copy_is_listed() -> None:
    """Of ``cuLaunchHostFunc`` also ``cuLaunchHostFunc_ptsz``."""
    assert not [name for name, count in Counter(CALLS).items() if count > 1]
    stems = {re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", name) for name in CALLS}
    for name in NAMES["cuda-names.txt"]:
        stem = re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", name)
        assert stem not in stems or name in CALLS, name


def test_tables_are_known_by_their_uuid() -> None:
    text = (LISTS / "tables.def").read_text()
    known = re.findall(r'^KNOWN\("([^"]*)"', text, re.M)
    words = re.findall(r'^WORD\("([^"]*)"', text, re.M)
    assert all(re.fullmatch(r"[0-9a-f]{32}", uuid) for uuid in known)
    assert len({*known}) == len(known)
    assert {*words} < {*known}


# -- what is exported ------------------------------------------------------------------------------


def test_what_this_machines_driver_has_is_exported_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    has = {
        "libcuda.so.1": {"cuInit", "cuNewOfToday", "__internal", "cu-odd", "cu\u00dcmlaut"},
        "libnvidia-ml.so.1": {"nvmlInit_v2", "nvmlNew", "cuNot"},
    }
    monkeypatch.setattr(building, "exported_functions", lambda path: has[path.name])
    found = building.bridge_exports([tmp_path / name for name in has])
    assert found["nvcuda"] == sorted({*NAMES["cuda-names.txt"], "cuNewOfToday"})
    assert found["nvml"] == sorted({*NAMES["nvml-names.txt"], "nvmlNew"})
    assert building.bridge_exports([]) == {
        "nvcuda": NAMES["cuda-names.txt"],
        "nvml": NAMES["nvml-names.txt"],
    }


def test_a_library_of_something_else_is_refused() -> None:
    assert "PyInit__ctypes" in building.exported_functions(LIBRARY)
    with pytest.raises(HostError, match="not cuInit or nvmlInit_v2") as caught:
        building.bridge_exports([LIBRARY])
    assert "nvidia-smi" in caught.value.hint


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    text, cut, gone = tmp_path / "text.so", tmp_path / "cut.so", tmp_path / "gone.so"
    text.write_text("no library" * 100)
    whole = LIBRARY.read_bytes()
    cut.write_bytes(whole[:5000])
    other = tmp_path / "arm.so"
    other.write_bytes(whole[:18] + b"\xb7\x00" + whole[20:])
    for path, said in (
        (text, "not a readable ELF file"),
        (cut, "not a readable ELF file"),
        (gone, "No such file"),
        (other, "ET_DYN for EM_AARCH64"),
    ):
        with pytest.raises(HostError, match=said) as caught:
            building.exported_functions(path)
        assert str(path) in caught.value.message


# -- kept ------------------------------------------------------------------------------------------


def test_two_at_once_make_one(prefix: Prefix, cache: Cache, compiler: Compiler) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(build(prefix, cache))) for _ in "1234"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len({*found}), compiler.made) == (4, 1, 1)
    assert build(prefix, cache) == found[0]
    assert compiler.made == 1
    assert found[0].parent == cache.root / "bridges"


@pytest.mark.parametrize("what", ["changed", "missing", "unlisted", "emptied", "no list"])
def test_what_is_damaged_is_made_anew(
    prefix: Prefix, cache: Cache, compiler: Compiler, what: str
) -> None:
    made = build(prefix, cache)
    good = read_verified_seal(made)
    file = made / "system32/nvcudart_hybrid64.dll"
    if what == "changed":
        file.write_text("another")
    elif what == "missing":
        file.unlink()
    elif what == "unlisted":
        (made / FILES).write_text(json.dumps({"system32/nvcuda.dll": "0" * 64}))
    elif what == "emptied":
        (made / FILES).write_text("")
    else:
        (made / FILES).unlink()
    assert read_verified_seal(made) is None
    assert build(prefix, cache) == made
    assert compiler.made == 2
    assert read_verified_seal(made) == good


def test_what_a_killed_one_has_left_is_removed(
    prefix: Prefix, cache: Cache, compiler: Compiler
) -> None:
    made = build(prefix, cache)
    shutil.copytree(made, left := made.with_name(f".{made.name}.abcd"))
    other = made.with_name(".0123456789abcdef.efgh")  # somebody else's, who may be at work
    other.mkdir()
    shutil.rmtree(made)
    assert build(prefix, cache) == made
    assert (left.exists(), other.exists()) == (False, True)


def test_another_input_is_another_bridge(
    prefix: Prefix,
    cache: Cache,
    compiler: Compiler,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    places = [build(prefix, cache)]
    monkeypatch.setattr(building, "exported_functions", lambda path: {"cuInit", "cuNewOfToday"})
    places.append(build(prefix, cache, tmp_path / "libcuda.so.1"))
    assert "cuNewOfToday" in compiler.exports["nvcuda"]
    source = shutil.copytree(building.SOURCE, tmp_path / "source")
    monkeypatch.setattr(building, "SOURCE", source)
    assert build(prefix, cache) == places[0]
    (source / "linux/thunks.c").write_text("/* another */")
    places.append(build(prefix, cache))
    (prefix.path / SEAL).write_text(json.dumps({"python": "3.11", "image": "older"}))
    places.append(build(prefix, cache))
    assert len({*places}) == len(places) == compiler.made == 4
    assert places[3].name != building.current_bridge_key(cache, "3.11", []), (
        "not filed as today's made it"
    )
    (prefix.path / SEAL).write_text(json.dumps({"python": "3.11", "image": "image-3.11"}))
    assert build(prefix, cache).name == building.current_bridge_key(cache, "3.11", [])


def test_what_failed_leaves_nothing(prefix: Prefix, cache: Cache, compiler: Compiler) -> None:
    compiler.fails = HostError("zig.exe exited with 1")
    with pytest.raises(HostError, match="exited with 1"):
        build(prefix, cache)
    compiler.fails = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StorageError, match=r"cannot write to .*bridges: No space"):
        build(prefix, cache)
    assert not [path for path in (cache.root / "bridges").iterdir() if path.is_dir()]
    compiler.fails = None
    assert read_verified_seal(build(prefix, cache))


# -- installed -------------------------------------------------------------------------------------


def test_it_is_put_into_a_windows(
    prefix: Prefix, cache: Cache, compiler: Compiler, tmp_path: Path
) -> None:
    made = build(prefix, cache)
    system = prefix.drive / "windows/system32"
    (system / "nvcuda.dll").symlink_to("/usr/lib/wine/nvcuda.dll")  # as a sealed prefix has them
    assert "WINEDLLPATH" not in prefix.environment()
    installing.install_bridge(made, prefix, None)
    for name in FILES_OF_ONE:
        folder, file = name.split("/")
        where = system if folder == "system32" else prefix.path / "bridge" / folder
        assert (where / file).read_text() == name
    home = prefix.path / "bridge"
    wanted = {"WINEDLLPATH": str(home), "WCW_BRIDGE_LOG": str(home / "warnings.log")}
    assert bridged.bridge_environment(prefix.path) == wanted
    assert wanted.items() < prefix.environment().items()
    installing.install_bridge(made, prefix, tmp_path / "lib")
    assert prefix.environment()["LD_LIBRARY_PATH"] == str(tmp_path / "lib")


def test_what_differs_is_replaced_and_the_rest_is_left(
    prefix: Prefix, cache: Cache, compiler: Compiler
) -> None:
    made = build(prefix, cache)
    installing.install_bridge(made, prefix, None)
    system = prefix.drive / "windows/system32"
    before = {path.name: path.stat().st_ino for path in system.iterdir()}
    (system / "nvcuda.dll").write_text("another")
    (prefix.path / "bridge/warnings.log").write_text("x: old\n")
    installing.install_bridge(made, prefix, None)
    after = {path.name: path.stat().st_ino for path in system.iterdir()}
    assert (system / "nvcuda.dll").read_text() == "system32/nvcuda.dll"
    assert {name for name in after if after[name] != before[name]} == {"nvcuda.dll"}
    assert bridged.bridge_warnings(prefix.path) == ()


def test_what_a_program_has_put_beside_it_is_removed(
    prefix: Prefix, cache: Cache, compiler: Compiler, tmp_path: Path
) -> None:
    """Wine takes its own DLLs from where the bridge is before it takes them from where it is."""
    made = build(prefix, cache)
    home = prefix.path / "bridge"
    installing.install_bridge(made, prefix, None)
    (home / "x86_64-windows/kernel32.dll").write_text("another")
    (home / "x86_64-unix/ntdll.so").symlink_to("/somewhere/ntdll.so")
    (home / "i386-windows").symlink_to(tmp_path)
    (tmp_path / "kept").touch()
    installing.install_bridge(made, prefix, None)
    there = {path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir()}
    wanted = {name for name in FILES_OF_ONE if not name.startswith("system32")}
    assert there == {*wanted, "installed.json"}
    shutil.move(home, tmp_path / "elsewhere")
    home.symlink_to(tmp_path / "elsewhere")
    installing.install_bridge(made, prefix, None)
    assert not home.is_symlink()
    assert (tmp_path / "kept").exists()


def test_a_bridge_that_is_not_whole_is_not_installed(
    prefix: Prefix, cache: Cache, compiler: Compiler
) -> None:
    made = build(prefix, cache)
    (made / "x86_64-unix/nvml.so").write_text("another")
    with pytest.raises(HostError, match="is damaged"):
        installing.install_bridge(made, prefix, None)
    assert bridged.bridge_environment(prefix.path) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", "\0"])
def test_a_note_that_cannot_be_read_is_an_error(prefix: Prefix, text: str) -> None:
    note = prefix.path / "bridge/installed.json"
    note.parent.mkdir()
    note.write_text(text)
    with pytest.raises(HostError, match=r"installed\.json cannot be read"):
        prefix.environment()


def test_warnings_are_harmless_and_bounded(prefix: Prefix) -> None:
    assert bridged.bridge_warnings(prefix.path) == ()
    log = prefix.path / "bridge/warnings.log"
    log.parent.mkdir()
    log.write_bytes(b"a: one\x1b[31m\xff\n\na: two\na: two\n")
    first, second = bridged.bridge_warnings(prefix.path)
    assert first == "a: one\ufffd"
    assert second == "a: two"
    log.write_text("".join(f"a: {n} {'x' * 1000}\n" for n in range(10_000)))
    found = bridged.bridge_warnings(prefix.path)
    assert 51 <= len(found) <= 52
    assert found[-1].endswith("more")
    assert max(map(len, found)) < 500
