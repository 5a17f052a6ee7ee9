"""Other people's wheels by their binaries: libraries, CUDA, traces of the build, damage."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from pathlib import Path

import pytest
from audited import TAG, finding, level, look, one
from fatbins import ELF, PTX, container, ptx
from foreign_wheels import foreign
from pes import msvc

from pipelines.wheels.traces import read_traces

MODULE = "other/_C.cp311-win_amd64.pyd"


def test_what_brings_a_library_and_whether_it_is_asked_for(tmp_path: Path) -> None:
    files = {MODULE: msvc(imports={"cudart64_12.dll": ["a"], "c10.dll": ["b"]})}
    found = finding(one(tmp_path, files), "libraries")
    assert found.level == "warning"
    assert "does not require" in found.hint
    assert "nvidia-cuda-runtime-cu12" in found.hint
    assert found.values == ("c10.dll", "cudart64_12.dll")
    assert level(one(tmp_path, files, requires=["torch==2.7.0"]), "libraries") == "ok"


def test_a_library_that_comes_from_nowhere(tmp_path: Path) -> None:
    files = {MODULE: msvc(imports={"mystery.dll": ["a"]})}
    found = finding(one(tmp_path, files), "libraries")
    assert found.level == "warning"
    assert "mystery.dll" in found.hint
    files["other/mystery.dll"] = msvc(exports=["a"])
    assert level(one(tmp_path, files), "libraries") == "ok"


def test_a_library_in_capitals_is_one(tmp_path: Path) -> None:
    code = container((ELF, "80", 8))
    files = {MODULE: msvc(code, imports={"own.dll": ["gone"]}), "other/OWN.DLL": msvc(code)}
    seen = one(tmp_path, files)
    assert [each.binary for each in seen.gpus.binaries] == [MODULE, "other/OWN.DLL"]
    assert "gone" in finding(seen, "imported symbols").text


def test_a_library_that_is_loaded_late_is_looked_for_as_well(tmp_path: Path) -> None:
    files = {MODULE: msvc(late={"mystery.dll": ["a"], "cudart64_12.dll": ["b"]})}
    found = finding(one(tmp_path, files), "libraries")
    assert found.level == "warning"
    assert found.values == ("cudart64_12.dll", "mystery.dll")


def test_a_table_of_libraries_that_is_read_in_part_has_not_passed(tmp_path: Path) -> None:
    data = msvc(imports={"KERNEL32.dll": ["Sleep"], "mystery.dll": ["a"]})
    found = finding(one(tmp_path, {MODULE: data.replace(b"mystery", b"\x01ystery")}), "libraries")
    assert found.level == "unknown"


@pytest.mark.parametrize(
    ("made", "dll", "version", "expected"),
    [
        ("12.8", "cudart64_12.dll", "1.0", "ok"),
        ("12.8", "cudart64_110.dll", "1.0", "error"),
        ("13.0", "cudart64_12.dll", "1.0", "error"),
        ("12.8", "KERNEL32.dll", "1.0+cu128", "ok"),
        ("12.8", "KERNEL32.dll", "1.0+cu12torch2.8", "ok"),
        ("12.8", "KERNEL32.dll", "1.0+cu126", "error"),
        ("12.8", "KERNEL32.dll", "1.0+cu118", "error"),
    ],
)
def test_one_cuda(tmp_path: Path, made: str, dll: str, version: str, expected: str) -> None:
    code = container((ELF, "89", 8), cuda=made)
    seen = one(tmp_path, {MODULE: msvc(code, imports={dll: ["a"]})}, version=version)
    assert level(seen, "CUDA") == expected
    assert seen.gpus.cuda == (made,)


def test_code_of_two_releases_in_one_binary(tmp_path: Path) -> None:
    code = container((ELF, "89", 8), cuda="12.8") + container((ELF, "89", 8), cuda="12.1")
    assert level(one(tmp_path, {MODULE: msvc(code)}), "CUDA") == "warning"


def test_a_build_without_nvcc(tmp_path: Path) -> None:
    found = finding(one(tmp_path, version="1.0+cu128"), "CUDA")
    assert (found.level, found.text) == ("warning", "no device code")
    assert level(one(tmp_path), "CUDA") == "ok"


def test_code_that_does_not_tell_is_not_passed(tmp_path: Path) -> None:
    assert level(one(tmp_path, {MODULE: msvc(container((ELF, "89", 8)))}), "CUDA") == "unknown"


def test_damaged_device_code(tmp_path: Path) -> None:
    cut = container((ELF, "89", 8), cuda="12.8", size=5000)
    seen = one(tmp_path, {MODULE: msvc(cut)}, ("RTX 4090", "89"))
    assert level(seen, "device code intact") == "error"
    spoiled = container((ELF, "89", 8), (ELF, "90", 8), cuda="12.8").replace(
        b"\x4d\x09", b"\0\0", 1
    )
    seen = one(tmp_path, {MODULE: msvc(spoiled)}, ("RTX 4090", "89"), ("H100", "90"))
    assert level(seen, "device code intact") == "error"
    assert {level(seen, f"GPU {name}") for name in ("RTX 4090", "H100")} == {"unknown"}


def test_a_module_for_another_machine(tmp_path: Path) -> None:
    data = bytearray(msvc())
    at = data.index(b"PE\0\0")
    data[at + 4 : at + 6] = struct.pack("<H", 0xAA64)
    assert level(one(tmp_path, {MODULE: bytes(data)}), "machine") == "error"
    assert level(one(tmp_path, {MODULE: msvc(), "o/a.dll": bytes(data)}), "machine") == "warning"


@pytest.mark.parametrize("size", [0, 2, 64, 0x90, 0x150, 0x300])
def test_a_binary_that_is_cut(tmp_path: Path, size: int) -> None:
    seen = one(tmp_path, {MODULE: msvc()[:size]})
    assert "error" in (level(seen, "machine"), level(seen, "binaries intact"))
    assert level(seen, "binaries intact") != "ok"


def test_a_signature_that_was_cut_off(tmp_path: Path) -> None:
    """It stands behind the last section, so all of these are whole."""
    data = bytearray(msvc())
    place = data.index(b"PE\0\0") + 24 + 112 + 8 * 4
    struct.pack_into("<II", data, place, len(data), 64)
    assert level(one(tmp_path, {MODULE: bytes(data) + bytes(64)}), "binaries intact") == "ok"
    seen = one(tmp_path, {MODULE: bytes(data) + bytes(63)})
    assert level(seen, "binaries intact") == "error"


def test_memory_that_is_in_no_file_is_not_cut_off(tmp_path: Path) -> None:
    """A section that begins nowhere, as some linkers write those that are zeros at first."""
    data = bytearray(msvc())
    head = data.index(b"PE\0\0")
    data[head + 6 : head + 8] = struct.pack("<H", 2)
    row = struct.pack("<8sIIIIIIHHI", b".bss", 1 << 24, 0x100000, 1 << 24, *[0] * 5, 0xC0000080)
    place = data.index(b".rdata") + 40
    data[place : place + 40] = row
    assert level(one(tmp_path, {MODULE: bytes(data)}), "binaries intact") == "ok"


@pytest.mark.slow
def test_a_hundred_wheels_leave_nothing_behind(tmp_path: Path) -> None:
    """What a wheel left was frozen with the next one, and never collected."""
    path = foreign(tmp_path, "other", "1.0", TAG, files={MODULE: msvc()})
    counts = []
    for _ in range(12):
        look(path)
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[-1] - counts[2] < 20


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (rb"C:\Users\anna\src\op.cu", r"C:\Users\anna\src\op.cu"),
        (b"D:/build/op.cpp", "D:/build/op.cpp"),
        (b"/home/anna/op.h", "/home/anna/op.h"),
        (b"https://example.org/op.h", ""),
        (b"file:///home/anna/op.h", ""),
        (b"not C:/op", ""),
        (b"std::a:/b.cu", ""),
        (b"C:\\", ""),
    ],
)
def test_paths_of_sources(text: bytes, path: str) -> None:
    found = read_traces(msvc(b"\0" + text + b"\0"))
    assert found.paths == ((path,) if path else ())
    assert found.complete


def test_whose_paths_they_are(tmp_path: Path) -> None:
    seen = one(tmp_path, {MODULE: msvc(b"\0C:\\Users\\anna\\op.cu\0")})
    assert level(seen, "build paths") == "warning"
    assert "anna" in finding(seen, "build paths").hint
    seen = one(tmp_path, {MODULE: msvc(b"\0C:\\Users\\runneradmin\\op.cu\0D:\\a\\x\\op.cu\0")})
    assert level(seen, "build paths") == "ok"
    assert finding(seen, "build paths").text == "2 source paths"


def test_so_many_that_not_all_are_read(tmp_path: Path) -> None:
    many = b"".join(b"\0D:\\a\\%d.cu" % number for number in range(500)) + b"\0"
    assert not read_traces(msvc(many)).complete
    assert level(one(tmp_path, {MODULE: msvc(many)}), "build paths") == "unknown"
    noise = b"A:/" * 300_000
    assert not read_traces(msvc(noise)).complete


def test_a_signature_is_told_and_not_believed(tmp_path: Path) -> None:
    data = bytearray(msvc())
    table = data.index(b"PE\0\0") + 24 + 112 + 4 * 8  # the fifth data directory
    data[table : table + 8] = struct.pack("<II", len(data), 8)
    found = finding(one(tmp_path, {MODULE: bytes(data) + b"\x08\0\0\0\0\2\2\0"}), "Authenticode")
    assert found.level == "unknown"
    assert "verified" in found.text
    assert level(one(tmp_path), "Authenticode") == "ok"


def test_the_pdb_of_a_developer() -> None:
    name = rb"C:\Users\anna\build\_C.pdb" + b"\0"
    assert read_traces(with_debug(name)).pdb == name.rstrip(b"\0").decode()


def test_debug_entries_without_end_are_not_all_read() -> None:
    tracemalloc.start()
    read_traces(with_debug(b"a", 40_000))  # 1 MB
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def with_debug(name: bytes, entries: int = 1) -> bytes:
    """A module with that PDB in each of so many entries."""
    data = bytearray(msvc())
    view = b"RSDS" + bytes(20) + name
    raw = len(data)
    size = 28 * entries
    directory = struct.pack("<IIHHIIII", 0, 0, 0, 0, 2, len(view), 0, raw + size) * entries
    # It lies behind the one section, which is made to hold it.
    section = data.index(b".rdata")
    _, rva, _, start = struct.unpack_from("<IIII", data, section + 8)
    data += directory + view
    data += bytes(-len(data) % 0x200)
    struct.pack_into("<IIII", data, section + 8, len(data) - start, rva, len(data) - start, start)
    table = data.index(b"PE\0\0") + 24 + 112 + 6 * 8
    struct.pack_into("<II", data, table, rva + raw - start, size)
    return bytes(data)


def test_a_linux_wheel_is_not_judged_by_windows_rules(tmp_path: Path) -> None:
    tag = "cp311-cp311-linux_x86_64"
    code = b"\x7fELF" + container((ELF, "80", 8), (PTX, "80", 8), cuda="12.8")
    seen = one(tmp_path, {"other/_C.cpython-311-x86_64-linux-gnu.so": code}, tag=tag)
    assert level(seen, "machine") == "unknown"
    assert finding(seen, "tags match contents").hint.startswith("WHEEL says Root-Is-Purelib")
    assert seen.gpus.sass == ("80",)


@pytest.mark.parametrize("name", ["other/kernels.bin", "other/libk.so.1", "other/tool.exe"])
def test_device_code_in_other_files_is_told_as_not_counted(tmp_path: Path, name: str) -> None:
    """So a requested GPU has no answer: it is unknown what runs there."""
    here = {MODULE: msvc(container((ELF, "89", 8)))}
    hidden = here | {name: b"x" * ((1 << 20) - 3) + container((ELF, "75", 8))}  # over two pieces
    card = ("RTX 4090", "89")
    assert one(tmp_path, here, card).failed is False
    seen = one(tmp_path, hidden, card)
    assert finding(seen, "device code elsewhere").text.endswith(name)
    assert level(seen, "device code elsewhere") == "unknown"
    assert seen.failed
    assert one(tmp_path, hidden).failed is False


def test_files_called_as_device_code_are_told_so_too(tmp_path: Path) -> None:
    files = {MODULE: msvc(container((ELF, "89", 8))), "other/k.ptx": ptx()}
    assert "k.ptx" in finding(one(tmp_path, files), "device code elsewhere").text
