"""Repacked wheels, and the times in Windows binaries that are replaced meanwhile."""

from __future__ import annotations

import os
import struct
import time
import zipfile
from pathlib import Path

import pefile
import pytest
from pes import stand_in
from wheels import FILES, INFO, record, wheel

from pipelines.remote import pestamps, repack
from pipelines.remote.pestamps import Image, settled
from pipelines.wheels.metadata import inspect_wheel

EPOCH = 1704067200
NOW = time.time()
MODULE = "pkg/_C.cp311-win_amd64.pyd"
_ROOM = 0x400  # where there is nothing in the binary of with_debug
_HEADER = 8  # bytes of the PE header before its stamp


def stamped(stamp: int, data: bytes | None = None) -> bytes:
    """A binary with that time in its header."""
    made = bytearray(data or stand_in())
    struct.pack_into("<I", made, Image(bytes(made)).header + _HEADER, stamp)
    return bytes(made)


def with_debug(*entries: tuple[int, int, bytes]) -> bytes:
    """A binary with debug entries: stamp, type and data, which stand before its section."""
    made = bytearray(stand_in(before=0x800))
    image = Image(bytes(made))
    _, start, length, raw = image._sections[0]
    behind = length - 28 * len(entries) - 28  # of what is in the section
    struct.pack_into("<II", made, image._tables + 8 * 6, start + behind, 28 * len(entries))
    rows, data = bytearray(), bytearray()
    for stamp, kind, text in entries:
        rows += struct.pack("<IIHHIIII", 0, stamp, 0, 0, kind, len(text), 0, _ROOM + len(data))
        data += text
    made[raw + behind : raw + behind + len(rows)] = rows
    made[_ROOM : _ROOM + len(data)] = data
    return bytes(made)


def packed(room: Path, *, year: int, backwards: bool, files: dict[str, bytes]) -> Path:
    """A wheel as another day would have it: other times, another order, other modes."""
    room.mkdir()
    path = room / "pkg-1.0+cu130-cp311-cp311-win_amd64.whl"
    names = sorted(files, reverse=backwards)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if backwards else zipfile.ZIP_DEFLATED) as a:
        for name in names:
            info = zipfile.ZipInfo(name, (year, 2, 3, 4, 5, 6))
            info.create_system, info.external_attr = 3, (0o640 if backwards else 0o664) << 16
            a.writestr(info, files[name])
        a.writestr(f"{INFO}/RECORD", record({name: files[name] for name in names}))
    return path


def test_what_is_in_it_decides_the_bytes(tmp_path: Path) -> None:
    one = packed(tmp_path / "1", year=2024, backwards=False, files=FILES)
    other = packed(tmp_path / "2", year=2031, backwards=True, files=FILES)
    assert one.read_bytes() != other.read_bytes()
    for path in (one, other):
        repack.repack(path, NOW, EPOCH)
    assert one.read_bytes() == other.read_bytes()
    facts = inspect_wheel(one)
    assert facts.record.true
    assert facts.names_agree
    with zipfile.ZipFile(one) as archive:
        assert archive.namelist()[-1] == f"{INFO}/RECORD"
        assert {info.date_time for info in archive.infolist()} == {(2024, 1, 1, 0, 0, 0)}
        assert {n: archive.read(n) for n in FILES} == FILES


def test_a_program_stays_one(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("pkg/run.sh")
        info.create_system, info.external_attr = 3, 0o100711 << 16
        archive.writestr(info, b"#!/bin/sh\n")
    repack.repack(path, NOW, EPOCH)
    with zipfile.ZipFile(path) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert modes.pop("pkg/run.sh") == 0o100755
    assert set(modes.values()) == {0o100644}


def test_what_this_build_linked_gets_another_time(tmp_path: Path) -> None:
    wheels = []
    for n, stamp in enumerate((NOW, NOW + 9)):
        files = FILES | {MODULE: stamped(int(stamp))}
        wheels.append(packed(tmp_path / str(n), year=2024, backwards=False, files=files))
    told = [repack.repack(path, NOW - 1, EPOCH) for path in wheels]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    assert told[0][0] == f"{MODULE}: timestamp of the header replaced"
    assert inspect_wheel(wheels[0]).record.true


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: files.pop(f"{INFO}/RECORD"), "no RECORD"),
        (lambda files: files.update({f"{INFO}/RECORD.jws": b"{}"}), "a signed one"),
    ],
)
def test_what_cannot_be_packed_anew_is_left(tmp_path: Path, change: object, said: str) -> None:
    files = dict(FILES) | {f"{INFO}/RECORD": b""}
    change(files)  # type: ignore[operator]
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=said):
        repack.repack(path, NOW, EPOCH)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208


def test_two_files_of_one_name_are_not_made_one(tmp_path: Path) -> None:
    path = wheel(tmp_path, FILES)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("pkg/__init__.py", b"another")
    with pytest.raises(ValueError, match="duplicate name"):
        repack.repack(path, NOW, EPOCH)


# -- times in binaries -----------------------------------------------------------------------------


def test_an_older_binary_keeps_its_time() -> None:
    old = stamped(int(NOW) - 3600)
    assert settled(old, NOW, EPOCH) == (old, [])
    assert pestamps.checksum(b"") == 0


def test_a_hash_in_place_of_a_time_is_left() -> None:
    made = with_debug((int(NOW), 16, b""))
    assert settled(stamped(int(NOW), made), NOW, EPOCH) == (stamped(int(NOW), made), [])


def test_every_stamp_of_this_build_is_replaced() -> None:
    made = stamped(int(NOW), with_debug((int(NOW), 13, b""), (int(NOW) - 99, 13, b"")))
    data, told = settled(made, NOW, EPOCH)
    stamps = {name: struct.unpack_from("<I", data, at)[0] for name, at in Image(data).stamps()}
    assert stamps == {"header": EPOCH, "exports": 0, "debug entry 0": EPOCH} | {
        "debug entry 1": int(NOW) - 99
    }
    assert told == ["timestamp of the header replaced", "timestamp of the debug entry 0 replaced"]


def test_debug_information_is_named() -> None:
    text = b"RSDS" + bytes(20) + rb"C:\Users\me\x.pdb" + b"\0"
    made = stamped(int(NOW), with_debug((0, 2, text)))
    _, told = settled(made, NOW, EPOCH)
    assert told[-1].startswith(r"names C:\Users\me\x.pdb")


def test_the_checksum_is_right_again() -> None:
    made = bytearray(stamped(int(NOW)) + b"odd")
    where = Image(bytes(made)).optional + 64
    struct.pack_into("<I", made, where, pefile.PE(data=bytes(made)).generate_checksum())
    data, _ = settled(bytes(made), NOW, EPOCH)
    assert pefile.PE(data=data).verify_checksum()
    none, _ = settled(stamped(int(NOW)), NOW, EPOCH)
    assert none[where : where + 4] == bytes(4), "there was none, and there is none"


def test_a_signed_binary_is_left_and_named() -> None:
    made = bytearray(stamped(int(NOW)) + b"signature")
    image = Image(bytes(made))
    struct.pack_into("<II", made, image._tables + 8 * 4, len(made) - 9, 9)
    data, told = settled(bytes(made), NOW, EPOCH)
    assert data == bytes(made)
    assert told == ["unchanged: it is signed, and its timestamps are of this build"]


def test_resources_that_turn_in_a_circle_end() -> None:
    made = bytearray(stamped(int(NOW), with_debug()))
    image = Image(bytes(made))
    _, start, _, raw = image._sections[0]
    struct.pack_into("<II", made, image._tables + 8 * 2, start, 64)
    struct.pack_into("<IIHHHHII", made, raw, 0, int(NOW), 0, 0, 0, 1, 7, 1 << 31)
    names = [name for name, _ in Image(bytes(made)).stamps()]
    assert names.count("resources 0") == 1
    assert "resources 1" not in names


@pytest.mark.parametrize("cut", [0, 2, 63, 0x80, 0x90, 0x100, 0x180])
def test_what_is_no_whole_binary_is_left_and_named(cut: int) -> None:
    data, told = settled(stamped(int(NOW))[:cut], NOW, EPOCH)
    assert len(data) == cut
    assert told
    assert told[0].startswith("unchanged: ")


def without_local(room: Path, metadata: bytes | None = None) -> Path:
    """A wheel of a package whose build takes no local version, with a directory of data."""
    room.mkdir()
    path = room / "pkg-1.0-cp311-cp311-win_amd64.whl"
    said = metadata or b"Metadata-Version: 2.4\r\nName: pkg\r\nVersion: 1.0\r\n\r\nVersion: 9\r\n"
    tag = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-win_amd64\n"
    files = {
        "pkg/__init__.py": b"__version__ = '1.0'\n",
        MODULE: stand_in(),
        "pkg-1.0.data/scripts/run": b"#!python\n",
        "pkg-1.0.dist-info/METADATA": said,
        "pkg-1.0.dist-info/WHEEL": tag,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(
            "pkg-1.0.dist-info/RECORD", record(files).replace(INFO.encode(), b"pkg-1.0.dist-info")
        )
    return path


def test_a_local_version_is_put_in_everywhere(tmp_path: Path) -> None:
    old = without_local(tmp_path / "a")
    told = repack.repack(old, None, EPOCH, local="cu130torch2.11.sandbox")
    (made,) = old.parent.iterdir()
    assert made.name == "pkg-1.0+cu130torch2.11.sandbox-cp311-cp311-win_amd64.whl"
    assert f"{old.name} is now {made.name}" in told
    facts = inspect_wheel(made)
    assert facts.names_agree
    assert facts.record.true
    assert str(facts.version) == facts.metadata_version == "1.0+cu130torch2.11.sandbox"
    with zipfile.ZipFile(made) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        text = archive.read(f"{facts.dist_info}/METADATA")
    stem = "pkg-1.0+cu130torch2.11.sandbox"
    assert tops == {"pkg", f"{stem}.data", f"{stem}.dist-info"}
    assert text.endswith(b"Version: 1.0+cu130torch2.11.sandbox\r\n\r\nVersion: 9\r\n")


@pytest.mark.parametrize("said", [b"1.0+cu128", b"1.0+x"])
def test_a_version_that_has_a_local_part_is_left_alone(tmp_path: Path, said: bytes) -> None:
    old = without_local(tmp_path / "a", b"Name: pkg\nVersion: " + said + b"\n\n")
    with pytest.raises(ValueError, match=r"cannot be appended"):
        repack.repack(old, None, EPOCH, local="cu130")
    assert [path.name for path in old.parent.glob("*.whl")] == [old.name]


def test_a_description_that_begins_as_a_version_does_is_none(tmp_path: Path) -> None:
    old = without_local(tmp_path / "a", b"Name: pkg\n\nVersion: 1.0\n")
    with pytest.raises(ValueError, match="no version"):
        repack.repack(old, None, EPOCH, local="cu130")
