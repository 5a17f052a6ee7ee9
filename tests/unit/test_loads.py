"""Whether a wheel would load with given DLLs, and where their exports come from."""

from __future__ import annotations

import pickle
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import requests
from foreign_wheels import foreign
from loopback import listening
from pes import dll

from pipelines.audit import lookup
from pipelines.audit.loads import OTHERS, OWN, Loads, look_up_imports
from pipelines.audit.lookup import cuda_exports, msvc_runtime_exports, torch_exports
from pipelines.audit.ranges import NoRangesError, RangedFile, open_ranged
from pipelines.core.errors import ConfigError, LockError
from pipelines.core.files import sha256_of
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.wheels.exports import reader
from pipelines.wheels.exports.cache import CacheEntry, entry_path
from pipelines.wheels.exports.reader import read_archive
from pipelines.wheels.exports.table import ExportTable
from pipelines.wheels.libraries import is_torch_dll
from pipelines.wheels.metadata import inspect_wheel

MANGLED = "?toScalarType@TypeMeta@caffe2@@QEAA?AW4ScalarType@c10@@XZ"
CPU = {"c10": ["a", MANGLED], "torch_cpu": ["b"]}


def cache_at(room: Path) -> Cache:
    return Cache(load_lock(), room / "cache")


def torch(
    room: Path,
    dlls: Mapping[str, Sequence[str]] = CPU,
    version: str = "2.8.0",
    tag: str = "cp311-cp311-win_amd64",
) -> Path:
    files = {f"torch/lib/{name}.dll": dll({}, names) for name, names in dlls.items()}
    return foreign(room, "torch", version, tag, files=files)


def judged(
    room: Path,
    tables: Sequence[ExportTable],
    imports: Mapping[str, Sequence[str]],
    late: Mapping[str, Sequence[str]] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> dict[str, Loads]:
    files = {"pkg/_C.pyd": dll(imports, late=late), **(files or {})}
    path = foreign(room, "pkg", "1.0", "cp311-cp311-win_amd64", files=files)
    return {one.against: one for one in look_up_imports(inspect_wheel(path).binaries, tables)}


def test_which_torch_a_wheel_loads_with(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    old = torch_exports(str(torch(tmp_path, {"c10": ["a", MANGLED]}, "2.7.0")), cache)
    new = torch_exports(str(torch(tmp_path, {"c10": ["a"]}, "2.8.0")), cache)
    assert [old.against, new.against] == ["torch 2.7.0 (cp311)", "torch 2.8.0 (cp311)"]
    imports = {"c10.dll": ["a", MANGLED], "KERNEL32.dll": ["Sleep"]}
    tables = pickle.loads(pickle.dumps((old, new)))  # noqa: S301  as to another process
    found = judged(tmp_path, tables, imports)
    assert found[old.against] == Loads(against=old.against, sha256=old.sha256, checked=2)
    assert found[old.against].verdict == "ok"
    (lack,) = found[new.against].missing
    assert found[new.against].verdict == "error"
    assert (lack.binary, lack.library, lack.symbol) == ("pkg/_C.pyd", "c10.dll", MANGLED)
    assert "caffe2::TypeMeta::toScalarType(void)" in lack.demangled
    assert found[OTHERS].unknown == ("kernel32.dll: part of Windows, Python or the driver",)
    assert found[OTHERS].verdict == "unknown"


def test_what_a_build_without_cuda_has_not_is_not_checked(tmp_path: Path) -> None:
    imports = {"c10.dll": ["a"], "c10_cuda.dll": ["x"], "torch_gone.dll": ["y"]}
    cache = cache_at(tmp_path)
    cpu = torch_exports(str(torch(tmp_path)), cache)
    found = judged(tmp_path, [cpu], imports)[cpu.against]
    assert [one.library for one in found.missing] == ["torch_gone.dll"]
    assert found.unknown == ("c10_cuda.dll: not in torch 2.8.0 (cp311), a build without CUDA",)
    cuda = {**CPU, "torch_cuda": ["z"], "c10_cuda": ["w"]}
    whole = torch_exports(str(torch(tmp_path, cuda, "2.8.0+cu128")), cache)
    found = judged(tmp_path, [whole], imports)[whole.against]
    assert whole.against == "torch 2.8.0+cu128 (cp311)"
    assert [one.symbol for one in found.missing] == ["x", "y"]
    assert not found.unknown


def test_nothing_looked_up_is_not_ok(tmp_path: Path) -> None:
    cpu = torch_exports(str(torch(tmp_path)), cache_at(tmp_path))
    found = judged(tmp_path, [cpu], {"torch_cuda.dll": ["x"]})
    assert found[cpu.against].verdict == "unknown"
    assert cpu.against not in judged(tmp_path, [cpu], {"KERNEL32.dll": ["Sleep"]})
    broken = judged(tmp_path, [cpu], {"c10.dll": ["a"]}, files={"pkg/_D.pyd": b"MZ"})
    assert broken[cpu.against].verdict == "unknown"
    assert broken[cpu.against].unknown == ("pkg/_D.pyd: could not be read",)


def test_what_is_called_late_is_told_so(tmp_path: Path) -> None:
    cpu = torch_exports(str(torch(tmp_path)), cache_at(tmp_path))
    found = judged(tmp_path, [cpu], {"c10.dll": ["a"]}, late={"torch_cpu.dll": ["b", "#9"]})
    (lack,) = found[cpu.against].missing
    assert (lack.symbol, lack.delayed, found[cpu.against].checked) == ("#9", True, 3)


def test_a_wheels_own_dlls_come_first(tmp_path: Path) -> None:
    cpu = torch_exports(str(torch(tmp_path)), cache_at(tmp_path))
    own = {"pkg/mine.dll": dll({}, ["mine"])}
    found = judged(tmp_path, [cpu], {"mine.dll": ["a"]}, files=own)
    assert [one.symbol for one in found[OWN].missing] == ["a"]
    assert cpu.against not in found
    # What is loaded already, as torch's are, is not looked for.
    own = {"pkg/c10.dll": dll({}, ["gone"])}
    found = judged(tmp_path, [cpu], {"c10.dll": ["gone"]}, files=own)
    assert [one.symbol for one in found[cpu.against].missing] == ["gone"]
    # It is unknown which of two runtimes is loaded.
    runtime = {"pkg/msvcp140.dll": dll({}, ["a"])}
    found = judged(tmp_path, [cpu], {"MSVCP140.dll": ["a"]}, files=runtime)
    assert found[OWN].verdict == "unknown"


def test_a_directory_is_read_as_it_is_now(tmp_path: Path) -> None:
    cache, lib = cache_at(tmp_path), tmp_path / "site" / "torch" / "lib"
    lib.mkdir(parents=True)
    (lib.parent / "version.py").write_text("__version__ = '2.9.1+cu130'\ndebug = False\n")
    (lib / "c10.dll").write_bytes(dll({}, ["a"]))
    (lib / "torch_cuda.dll").write_bytes(dll({}, ["b"]))
    for folder in (tmp_path / "site", lib.parent, lib):
        table = torch_exports(str(folder), cache)
        assert table.against.startswith("torch 2.9.1+cu130 in ")
        assert table.look({"c10.dll"})[0] == {"c10.dll": frozenset({"a", "#1"})}
    (lib / "c10.dll").write_bytes(dll({}, ["c"]))
    assert torch_exports(str(lib), cache).look({"c10.dll"})[0] == {
        "c10.dll": frozenset({"c", "#1"})
    }
    assert table.look({"c10.dll"})[0] == {"c10.dll": frozenset({"a", "#1"})}
    (lib / "c10.dll").write_bytes(b"MZ")
    exports, why = torch_exports(str(lib), cache).look({"c10.dll"})
    assert exports == {"c10.dll": None}
    assert "not readable" in why["c10.dll"]


@pytest.mark.parametrize(
    "files",
    [
        {"torch/lib/c10.dll": dll({}, ["a"]).replace(b"PE\0\0\x64\x86", b"PE\0\0\x64\xaa")},
        {"torch/lib/c10.dll": dll({}, ["b"]), "torch/other/C10.dll": dll({}, ["a"])},
    ],
)
def test_a_dll_that_may_not_be_what_is_loaded_is_not_read(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    path = foreign(tmp_path, "torch", "2.8.0", "cp311-cp311-win_amd64", files=files)
    table = torch_exports(str(path), cache_at(tmp_path))
    assert judged(tmp_path, [table], {"c10.dll": ["a"]})[table.against].verdict == "unknown"


@pytest.mark.parametrize("asked", ["2.x", "here/is/none", "torch-2.8.0-cp311.whl", "."])
def test_what_names_no_torch(tmp_path: Path, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="--torch"):
        torch_exports(asked, cache_at(tmp_path))


def test_another_package_is_no_torch(tmp_path: Path) -> None:
    files = {"torch/lib/c10.dll": dll({}, ["a"])}
    path = foreign(tmp_path, "torchvision", "2.8.0", "cp311-cp311-win_amd64", files=files)
    with pytest.raises(ConfigError, match="torchvision"):
        torch_exports(str(path), cache_at(tmp_path))


def test_what_was_fetched_in_parts_gives_way_to_the_wheel_itself(tmp_path: Path) -> None:
    cache, real = cache_at(tmp_path), torch(tmp_path)
    false = torch(tmp_path / "false", {"c10": ["else"]})
    with zipfile.ZipFile(false) as archive:  # what a server has sent as parts of the other
        read_archive(archive, real.name, sha256_of(real), is_torch_dll, cache.root, whole=False)
    table = torch_exports(str(real), cache)
    assert table.look({"c10.dll"})[0] == {"c10.dll": frozenset({"a", MANGLED, "#1", "#2"})}
    assert CacheEntry(table.path).head.whole


def renamed(path: Path) -> Path:
    return path.rename(path.with_name(path.name.replace("2.8.0", "2.9.0")))


def refolded(path: Path) -> Path:
    """Another version in the names of the file and of its .dist-info, and nowhere else."""
    other = renamed(path)
    with zipfile.ZipFile(other) as source:
        members = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(other, "w") as target:
        for name, data in members.items():
            target.writestr(name.replace("2.8.0", "2.9.0"), data)
    return other


def swapped(path: Path) -> Path:
    """A DLL of another wheel, with the RECORD of this one."""
    other = path.with_name("other.zip")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            data = dll({}, ["else"]) if name.endswith("c10.dll") else source.read(name)
            target.writestr(name, data)
    return other.replace(path)


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-40])
    return path


def of_linux(path: Path) -> Path:
    return path.rename(path.with_name(path.name.replace("win_amd64", "manylinux_2_28_x86_64")))


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (renamed, "contains torch 2.8.0"),
        (refolded, "contains torch 2.8.0"),
        (swapped, "RECORD"),
        (cut, "cannot be read"),
        (of_linux, "it is not for Windows"),
    ],
)
def test_a_wheel_that_lies(tmp_path: Path, lie: Callable[[Path], Path], said: str) -> None:
    path = lie(torch(tmp_path))
    with pytest.raises(LockError, match=said):
        torch_exports(str(path), cache_at(tmp_path))
    assert not [*(tmp_path / "cache").rglob("*.exports")]


def test_a_member_without_a_name_is_no_dll(tmp_path: Path) -> None:
    wheel = torch(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("./", b"")
    assert torch_exports(str(wheel), cache_at(tmp_path)).look({"c10.dll"})[0]["c10.dll"]


def test_files_are_not_left_out_of_a_torch_that_has_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_FILES", 3)
    with pytest.raises(LockError, match="more than 3 files"):
        torch_exports(str(torch(tmp_path)), cache_at(tmp_path))


def test_a_damaged_file_of_the_cache_is_made_anew(tmp_path: Path) -> None:
    cache, wheel = cache_at(tmp_path), torch(tmp_path)
    table = torch_exports(str(wheel), cache)
    good = table.path.read_bytes()
    for at in (3, 70, len(good) - 5):
        table.path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        found = judged(tmp_path, [table], {"c10.dll": ["a"]})[table.against]
        assert (found.verdict, found.checked) == ("unknown", 0)
        assert "is damaged" in found.unknown[0]
        assert torch_exports(str(wheel), cache) == table
        assert table.path.read_bytes() == good
    table.path.write_bytes(good[:50])
    with pytest.raises(LockError, match="is damaged"):
        CacheEntry(table.path)
    assert torch_exports(str(wheel), cache).look({"c10.dll"})[0]["c10.dll"]


def test_the_file_of_another_torch_in_its_place(tmp_path: Path) -> None:
    cache, wheel = cache_at(tmp_path), torch(tmp_path)
    other = torch_exports(str(torch(tmp_path, {"c10": ["else"]}, "2.9.0")), cache)
    table = torch_exports(str(wheel), cache)
    shutil.copyfile(other.path, table.path)
    with pytest.raises(LockError, match=f"sha256 {other.sha256}"):
        table.look({"c10.dll"})
    assert torch_exports(str(wheel), cache).look({"c10.dll"})[0] == {
        "c10.dll": frozenset({"a", MANGLED, "#1", "#2"})
    }


class Files(BaseHTTPRequestHandler):
    """Gives parts of files, unless it is to lie."""

    root: Path
    lie = ""

    def do_GET(self) -> None:
        data = (self.root / self.path.rpartition("/")[2]).read_bytes()
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found is None or self.lie == "whole":
            self._send(200, data, {})
            return
        first, last = int(found[1]), min(int(found[2]), len(data) - 1)
        later = first > 0
        total = len(data) + (7 if self.lie == "grows" and later else 0)
        said = first + (1 if self.lie == "elsewhere" and later else 0)
        part = data[first : last + 1]
        if self.lie == "more" and later:
            part += b"x" * 99
        if self.lie == "bytes" and later:
            part = bytes(len(part))
        if self.lie == "less" and later:
            part = part[:-1]
        length = len(part) + (9 if self.lie == "breaks" and later else 0)
        head = {"Content-Range": f"bytes {said}-{last}/{total}", "Content-Length": str(length)}
        self._send(206, part, head)

    def _send(self, code: int, data: bytes, head: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **head}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def server(root: Path, lie: str = "") -> AbstractContextManager[str]:
    return listening(type("Handler", (Files,), {"root": root, "lie": lie}))


def big(room: Path) -> Path:
    """A wheel most of which is not needed."""
    files = {"torch/lib/c10.dll": dll({}, ["a"]), "torch/other.bin": bytes(40 << 20)}
    return foreign(room, "torch", "2.8.0", "cp311-cp311-win_amd64", files=files)


def test_only_parts_of_a_wheel_are_fetched(tmp_path: Path) -> None:
    wheel = big(tmp_path)
    with server(tmp_path) as url, requests.Session() as client:
        part = open_ranged(client, f"{url}/{wheel.name}")
        with part, zipfile.ZipFile(part) as archive:
            kept = read_archive(archive, wheel.name, "0" * 64, is_torch_dll, tmp_path, whole=False)
            assert isinstance(part.raw, RangedFile)
            assert part.raw.fetched < 20 << 20 < wheel.stat().st_size
    assert kept.names("c10.dll") == frozenset({"a", "#1"})
    assert (kept.head.version, kept.head.whole) == ("2.8.0", False)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("elsewhere", "bytes"),
        ("grows", "changed"),
        ("more", r"received \d+"),
        ("bytes", "cannot be fetched: Bad magic number"),
        ("less", r"received \d+"),
        ("breaks", "IncompleteRead"),
    ],
)
def test_a_server_that_lies(
    tmp_path: Path, lie: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = torch(tmp_path)
    with server(tmp_path, lie) as url:
        listed(monkeypatch, [wheel], url)
        with pytest.raises(LockError, match=said):
            torch_exports("2.8.0", cache_at(tmp_path))
    assert not [*(tmp_path / "cache").rglob("*.exports")]


def listed(monkeypatch: pytest.MonkeyPatch, wheels: Sequence[Path], url: str) -> list[str]:
    """An index with these; what is asked of it."""
    asked: list[str] = []

    def offers(_: str, project: str) -> list[Offer]:
        asked.append(project)
        place = "https://files.example"
        return [Offer(one.name, f"{place}/{one.name}", sha256_of(one)) for one in wheels]

    def opened(client: requests.Session, place: str) -> object:
        return open_ranged(client, place.replace("https://files.example", url))

    monkeypatch.setattr(lookup, "list_wheel_offers", offers)
    monkeypatch.setattr(lookup, "open_ranged", opened)
    return asked


def test_a_release_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = [
        torch(tmp_path, {"c10": [f"of_{tag}"]}, tag=f"{tag}-win_amd64")
        for tag in ("cp310-cp310", "cp313-cp313", "cp314-cp314t")
    ]
    wheels += [torch(tmp_path, version="2.8.0", tag="cp313-cp313-manylinux_2_28_x86_64")]
    cache = cache_at(tmp_path)
    with server(tmp_path) as url:
        asked = listed(monkeypatch, wheels, url)
        newest = torch_exports("2.8.0", cache)
        assert newest.against == "torch 2.8.0 (cp313)"
        assert newest.look({"c10.dll"})[0] == {"c10.dll": frozenset({"of_cp313-cp313", "#1"})}
        assert torch_exports("2.8", cache) == newest
        assert newest.stated
        assert asked == ["torch"]
        monkeypatch.setenv("UV_DEFAULT_INDEX", "https://other.example/simple/")
        assert torch_exports("2.8", cache) == newest
        assert asked == ["torch", "torch"], "another index may mean another one by that name"
        assert torch_exports("2.8.0", cache, python="3.10").against == "torch 2.8.0 (cp310)"
        assert torch_exports("2.8.0", cache, python="3.14t").against == "torch 2.8.0 (cp314t)"
        with pytest.raises(LockError, match=r"for Python 3\.13t"):
            torch_exports("2.8.0", cache, python="3.13t")
        with pytest.raises(LockError, match=r"no wheel for Windows for Python 3\.11"):
            torch_exports("2.8.0", cache, python="3.11")
        with pytest.raises(LockError, match="no wheel for Windows"):
            torch_exports("2.8.1", cache)
    offline = Cache(load_lock(), cache.root, offline=True)
    assert torch_exports("2.8.0", offline, python="3.13") == newest
    with pytest.raises(LockError, match="--offline"):
        torch_exports("2.9.0", offline)


@pytest.mark.parametrize(
    "other",
    [
        {"version": "2.7.0"},
        {"tag": "cp310-cp310-win_amd64"},
    ],
)
def test_an_index_that_calls_a_wheel_that_is_here_by_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    """Its names are kept already: the archive is not read again, and its version not compared."""
    cache = cache_at(tmp_path)
    wheel = torch(tmp_path, **other)  # type: ignore[arg-type]
    torch_exports(str(wheel), cache)
    offer = Offer(
        "torch-2.8.0-cp311-cp311-win_amd64.whl", "https://files.example/x", sha256_of(wheel)
    )
    monkeypatch.setattr(lookup, "list_wheel_offers", lambda *_: [offer])
    with pytest.raises(LockError, match=f"states the sha256 of {wheel.name}"):
        torch_exports("2.8.0", cache)
    assert not CacheEntry(torch_exports(str(wheel), cache).path).head.listed


def test_an_index_whose_address_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://me:hunter2@h:port/simple")
    with pytest.raises(ConfigError, match="index") as caught:
        torch_exports("2.8.0", cache_at(tmp_path))
    assert "hunter2" not in caught.value.message


def test_of_several_builds_one_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = [torch(tmp_path, version=f"2.8.0+{build}") for build in ("cu126", "cu128")]
    cache = cache_at(tmp_path)
    torch_exports(str(wheels[1]), cache)  # is kept, and is not what 2.8.0 alone means
    with server(tmp_path) as url:
        listed(monkeypatch, wheels, url)
        with pytest.raises(ConfigError, match=r"2\.8\.0\+cu126, 2\.8\.0\+cu128"):
            torch_exports("2.8.0", cache)
        assert torch_exports("2.8.0+cu126", cache).against == "torch 2.8.0+cu126 (cp311)"


def test_a_server_without_parts_gives_the_wheel_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = torch(tmp_path)
    with server(tmp_path, "whole") as url, requests.Session() as client:
        with pytest.raises(NoRangesError):
            open_ranged(client, f"{url}/{wheel.name}")
        listed(monkeypatch, [wheel], url)
        monkeypatch.setattr(lookup, "obtain_offer", lambda *_: wheel)
        table = torch_exports("2.8.0", cache_at(tmp_path))
    assert CacheEntry(table.path).head.whole


def test_nvidias_newest_of_a_major_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def runtime(version: str, *names: str, project: str = "nvidia_cuda_runtime_cu12") -> Path:
        files = {"nvidia/bin/cudart64_12.dll": dll({}, names), "nvidia/bin/x.dll": dll({}, [])}
        return foreign(tmp_path, project, version, "py3-none-win_amd64", files=files)

    wheels = [runtime("12.9.79", "a", "b"), runtime("12.4.127", "a")]
    cache = cache_at(tmp_path)
    with server(tmp_path) as url:
        listed(monkeypatch, wheels, url)
        (table,) = cuda_exports({"cudart64_12.dll", "kernel32.dll"}, "12", cache)
    (again,) = cuda_exports({"cudart64_12.dll"}, "12", Cache(load_lock(), cache.root, offline=True))
    with monkeypatch.context() as other:  # which may mean others by these names
        other.setenv("UV_DEFAULT_INDEX", "https://other.example/simple/")
        asked = listed(other, [], url)
        with pytest.raises(LockError, match="no wheel"):
            cuda_exports({"cudart64_12.dll"}, "12", cache)
        assert asked == ["nvidia-cuda-runtime-cu12"]
    assert table.against == again.against == "nvidia-cuda-runtime-cu12 12.9.79"
    found = judged(tmp_path, [table], {"cudart64_12.dll": ["b", "c"]})[table.against]
    assert [one.symbol for one in found.missing] == ["c"]
    assert cuda_exports({"kernel32.dll"}, "12", cache) == ()


def test_msvcs_run_time_is_the_pinned_one(tmp_path: Path) -> None:
    lock = load_lock()
    id_ = next(one for one, tool in lock.tools.items() if tool.name == "msvc-runtime")
    files = {"msvc_runtime-14.44.data/data/vcruntime140.dll": dll({}, ["memcpy"])}
    wheel = foreign(tmp_path, "msvc_runtime", "14.44", "cp311-cp311-win_amd64", files=files)
    pin = {"file": wheel.name, "sha256": sha256_of(wheel), "size": wheel.stat().st_size}
    source = lock.tools[id_].sources[0].model_copy(update=pin)
    tool = lock.tools[id_].model_copy(update={"sources": (source,)})
    pinned = lock.model_copy(update={"tools": {**lock.tools, id_: tool}})
    cache = Cache(pinned, tmp_path / "cache", wheelhouse=tmp_path, offline=True)
    table = msvc_runtime_exports(cache)
    assert entry_path(cache.root, tool.sha256) == table.path
    imports = {"VCRUNTIME140.dll": ["memcpy", "memcmp"], "MSVCP140.dll": ["f"]}
    found = judged(tmp_path, [table], imports)[table.against]
    assert [one.symbol for one in found.missing] == ["memcmp"]
    assert found.unknown == (f"msvcp140.dll: not read from {table.against}",)
