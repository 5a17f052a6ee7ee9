"""Where two wheels differ, and in which words."""

from __future__ import annotations

import struct
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from fatbins import ELF, PTX, container
from pes import stand_in
from wheels import FILES, INFO, checked, wheel

from pipelines.remote.pestamps import Image
from pipelines.wheels.differences import compare_wheels
from pipelines.wheels.portions import binary_portions

MODULE = "pkg/_C.cp311-win_amd64.pyd"


def pair(tmp_path: Path, first: dict[str, bytes], second: dict[str, bytes]) -> tuple[Path, Path]:
    for room in ("published", "rebuilt"):
        (tmp_path / room).mkdir()
    return wheel(tmp_path / "published", FILES | first), wheel(tmp_path / "rebuilt", FILES | second)


def told(tmp_path: Path, first: dict[str, bytes], second: dict[str, bytes]) -> list[str]:
    """What is reported of two different ones, without the consequences for RECORD."""
    verdict, found = compare_wheels(*map(checked, pair(tmp_path, first, second)))
    assert verdict == "different"
    assert found[0].file != f"{INFO}/RECORD"
    lines = [one.summary for one in found]
    assert any(line.startswith(f"{INFO}/RECORD: line") for line in lines)
    return [line for line in lines if "RECORD" not in line and not line.startswith("archive")]


def changed(data: bytes, *places: int) -> bytes:
    made = bytearray(data)
    for at in places:
        made[at] ^= 0xFF
    return bytes(made)


def test_the_same_bytes_are_identical(tmp_path: Path) -> None:
    one, other = pair(tmp_path, {}, {})
    other.write_bytes(one.read_bytes())
    assert compare_wheels(checked(one), checked(other)) == ("identical", [])


def test_the_same_files_packed_otherwise_are_not(tmp_path: Path) -> None:
    one, other = pair(tmp_path, {}, {})
    with zipfile.ZipFile(one) as old, zipfile.ZipFile(other, "w", zipfile.ZIP_STORED) as new:
        for info in reversed(old.infolist()):
            new.writestr(zipfile.ZipInfo(info.filename, (2001, 2, 3, 4, 5, 6)), old.read(info))
    verdict, found = compare_wheels(checked(one), checked(other))
    assert verdict == "repacked"
    lines = [row.summary for row in found]
    assert lines[0] == "archive: files in a different order"
    assert any("times of 5 files" in line for line in lines)
    assert any("compression method" in line for line in lines)


def test_what_belongs_to_no_file_is_a_difference(tmp_path: Path) -> None:
    one, other = pair(tmp_path, {}, {})
    other.write_bytes(b"#!/bin/sh\n" + one.read_bytes())  # which is a zip file all the same
    verdict, found = compare_wheels(checked(one), checked(other))
    assert verdict == "repacked"
    assert [row.summary for row in found] == ["archive: bytes outside its files"]


@pytest.mark.parametrize(
    ("first", "second", "lines"),
    [
        (b"", None, ["only in the published one"]),
        (None, b"", ["only in the rebuilt one"]),
        (b"x\ny\n", b"x\n\x1b[31mz\nw\n", ["line 2: y / z", "2 lines / 3"]),
        (b"x\ny", b"x\ny\n", ["3 bytes / 4, otherwise identical"]),
    ],
)
def test_files_and_lines_more_and_less(
    tmp_path: Path, first: bytes | None, second: bytes | None, lines: list[str]
) -> None:
    both = [{} if text is None else {"pkg/a.py": text} for text in (first, second)]
    assert told(tmp_path, *both) == [f"pkg/a.py: {line}" for line in lines]


def test_a_byte_of_code_is_told_by_its_section(tmp_path: Path) -> None:
    data = stand_in()
    (section,) = (one for one in binary_portions(data) if one.name == "section .rdata")
    found = told(tmp_path, {MODULE: data}, {MODULE: changed(data, section.start + 9)})
    size = section.end - section.start
    at = f"{section.start + 9:#x}"
    assert found == [f"{MODULE}: section .rdata: 1 of {size} bytes differ, the first at {at}"]


def test_a_stamp_is_told_as_a_time(tmp_path: Path) -> None:
    made = []
    for stamp in (0, 1704067200):
        data = bytearray(stand_in())
        struct.pack_into("<I", data, Image(bytes(data)).header + 8, stamp)
        made.append(bytes(data))
    found = told(tmp_path, {MODULE: made[0]}, {MODULE: made[1]})
    assert found[0] == (
        f"{MODULE}: stamp of the header: 0x00000000, 1970-01-01 00:00:00 / "
        "0x65920080, 2024-01-01 00:00:00"
    )
    assert found[1].startswith(f"{MODULE}: headers: ")


def test_device_code_is_told_by_its_architecture(tmp_path: Path) -> None:
    code = container((ELF, "80", 936), (ELF, "90", 936), (PTX, "90", 64))
    data = stand_in(tail=code * 2)
    at = len(data) - len(code) + 16 + 1000 + 64 + 3  # the payload of the second entry
    found = told(tmp_path, {MODULE: data}, {MODULE: changed(data, at)})
    assert found[-1] == (
        f"{MODULE}: container 2 of 2, sm_90: 1 of 1000 bytes differ, the first at {at:#x}, "
        "in after the sections"
    )
    other = container((ELF, "80", 64), (PTX, "90", 64))
    (tmp_path / "2").mkdir()
    found = told(tmp_path / "2", {MODULE: data}, {MODULE: stand_in(tail=code + other)})
    assert found[-1] == f"{MODULE}: container 2 of 2: sm_80, sm_90, compute_90 / sm_80, compute_90"
    (tmp_path / "3").mkdir()
    found = told(tmp_path / "3", {MODULE: data}, {MODULE: stand_in(tail=code)})
    assert found[-1] == f"{MODULE}: device code: 2 containers / 1"


@pytest.mark.parametrize("data", [b"MZ", b"MZ" + b"\xff" * 4096, b"\x7fELF" + b"\xff" * 200, b""])
def test_what_is_no_binary_is_compared_as_bytes(tmp_path: Path, data: bytes) -> None:
    assert [one.name for one in binary_portions(data)] == ["bytes"]
    found = told(tmp_path, {MODULE: data + b"a"}, {MODULE: data + b"b"})
    assert found == [
        f"{MODULE}: bytes: 1 of {len(data) + 1} bytes differ, the first at {len(data):#x}"
    ]


def test_a_byte_that_no_section_has_is_a_difference(tmp_path: Path) -> None:
    """The table of sections itself, at the end of an ELF file, of a real one."""
    data = Path(sys.executable).resolve().read_bytes()
    covered = binary_portions(data)
    assert len(covered) > 10
    at = next(
        n for n in range(len(data) - 1, 0, -1) if not any(p.start <= n < p.end for p in covered)
    )
    found = told(tmp_path, {"pkg/_C.so": data}, {"pkg/_C.so": changed(data, at)})
    assert found
    assert found[0].startswith("pkg/_C.so: ")


def test_only_so_many_differences_are_told_of_a_file(tmp_path: Path) -> None:
    one = container((ELF, "80", 8))
    codes = [one * 60, changed(one, 85) * 60]
    found = told(tmp_path, *({MODULE: stand_in(tail=code)} for code in codes))
    assert len(found) == 41
    assert found[-1].endswith("and 21 more")


@pytest.mark.slow
@pytest.mark.parametrize("name", [MODULE, "pkg/data.bin", "pkg/lib.so"])
def test_files_that_differ_are_not_held_in_memory(tmp_path: Path, name: str) -> None:
    data = bytes(48 << 20)
    last = bytes(len(data) - 1) + b"x"
    one, other = pair(tmp_path, {name: data}, {name: last})
    at = f"{len(data) - 1:#x}"
    wheels = checked(one), checked(other)
    del data, last
    tracemalloc.start()
    try:
        _, found = compare_wheels(*wheels)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found[0].what == f"1 of {48 << 20} bytes differ, the first at {at}"
    assert peak < 16 << 20, "as much as is compared at once, and no more"


def test_a_sum_that_lies_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are compared, not what archives state of them."""
    one, other = pair(tmp_path, {"pkg/a.py": b"x = 1\n"}, {"pkg/a.py": b"x = 2\n"})
    wheels, infos = (checked(one), checked(other)), zipfile.ZipFile.infolist

    def same_sum(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
        rows = infos(archive)
        for row in rows:
            row.CRC = 7
        return rows

    monkeypatch.setattr(zipfile.ZipFile, "infolist", same_sum)
    monkeypatch.setattr(zipfile.ZipExtFile, "_update_crc", lambda *_: None)
    verdict, found = compare_wheels(*wheels)
    assert verdict == "different"
    assert found[0].summary == "pkg/a.py: line 1: x = 1 / x = 2"
