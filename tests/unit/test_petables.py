"""The tables of Windows binaries, against pefile's reading of them, and false ones."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pefile
import pytest
from pes import dll

from pipelines.wheels.pe import read_pe

_RVA, _RAW = 0x1000, 0x400


def test_as_pefile_reads_it() -> None:
    imports = {"Own.dll": ["f", "#7", "?g@@YAXXZ"], "c10.dll": ["a" * 4000]}
    late = {"Late.dll": ["h", "#3"]}
    data = dll(imports, ["PyInit__C", "b", "a"], late=late)
    facts, pe = read_pe(data), pefile.PE(data=data)
    for name, found in (("IMPORT", facts.needs), ("DELAY_IMPORT", facts.late)):
        rows = getattr(pe, f"DIRECTORY_ENTRY_{name}")
        theirs = {
            (row.dll.decode().lower(), one.name.decode() if one.name else f"#{one.ordinal}")
            for row in rows
            for one in row.imports
            if one.name is None or len(one.name) < 500  # as much as pefile reads
        }
        assert theirs == {one for one in found or () if len(one[1]) < 500}
    assert ("c10.dll", "a" * 4000) in (facts.needs or ())
    theirs_out = {one.name.decode() for one in pe.DIRECTORY_ENTRY_EXPORT.symbols}
    assert facts.exports == frozenset(theirs_out | {"#1", "#2", "#3"})
    assert facts.imports == ("Own.dll", "c10.dll")
    assert facts.inits == ("PyInit__C",)


def test_of_32_bits() -> None:
    """Its names are behind addresses of 32 bits, and may be numbers there."""
    data = bytearray(dll({"own.dll": ["abc", "#7"]}))
    pe = pefile.PE(data=bytes(data))
    (row,) = pe.DIRECTORY_ENTRY_IMPORT
    at = row.struct.OriginalFirstThunk - _RVA + _RAW
    first, second = struct.unpack_from("<QQ", data, at)
    struct.pack_into("<III", data, at, first, 1 << 31 | second & 0xFFFF, 0)
    optional = struct.unpack_from("<I", data, 0x3C)[0] + 24
    struct.pack_into("<H", data, optional, 0x10B)
    # What follows the image's address is as long, but the directories stand 16 bytes earlier.
    directories = bytes(data[optional + 112 : optional + 240])
    data[optional + 92 : optional + 224] = struct.pack("<I", 16) + directories
    assert read_pe(bytes(data)).needs == (("own.dll", "#7"), ("own.dll", "abc"))


def test_late_imports_as_visual_c_6_wrote_them() -> None:
    """Addresses in memory instead of those within the image."""
    data = bytearray(dll({}, late={"own.dll": ["f"]}))
    pe = pefile.PE(data=bytes(data), fast_load=True)
    base, at = pe.OPTIONAL_HEADER.ImageBase, pe.OPTIONAL_HEADER.DATA_DIRECTORY[13].VirtualAddress
    assert base >= 1 << 32  # such an address does not fit: nothing can be read, and that is said
    struct.pack_into("<I", data, at - _RVA + _RAW, 0)
    assert read_pe(bytes(data)).late is None


def directory(number: int, address: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        optional = struct.unpack_from("<I", data, 0x3C)[0] + 24
        struct.pack_into("<I", data, optional + 112 + 8 * number, address)

    return change


def exporting(field: int, value: int) -> Callable[[bytearray], None]:
    """Another value at an offset of the table of exports."""

    def change(data: bytearray) -> None:
        pe = pefile.PE(data=bytes(data), fast_load=True)
        at = pe.OPTIONAL_HEADER.DATA_DIRECTORY[0].VirtualAddress - _RVA + _RAW
        struct.pack_into("<I", data, at + field, value)

    return change


def unsorted(data: bytearray) -> None:
    at = data.index(b"aaa\0")
    data[at : at + 3] = b"zzz"


@pytest.mark.parametrize(
    ("lie", "unread"),
    [
        (directory(0, 0x7FFF0000), {"exports"}),
        (directory(1, 0x7FFF0000), {"needs"}),
        (directory(13, 0x7FFF0000), {"late"}),
        (exporting(20, 10_000_000), {"exports"}),
        (exporting(24, 10_000_000), {"exports"}),
        (exporting(24, 4), {"exports"}),
        (exporting(20, 1), {"exports"}),
        (exporting(32, 0x7FFF0000), {"exports"}),
        (unsorted, {"exports"}),
    ],
)
def test_a_table_is_read_whole_or_not_at_all(
    lie: Callable[[bytearray], None], unread: set[str]
) -> None:
    data = bytearray(dll({"own.dll": ["f"]}, ["aaa", "bbb"], late={"other.dll": ["g"]}))
    lie(data)
    started = time.monotonic()
    facts = read_pe(bytes(data))
    assert {name for name in ("exports", "needs", "late") if getattr(facts, name) is None} == unread
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_many_tables_that_are_one() -> None:
    """Each DLL of thousands wants the same ten thousand names: as long as one would take all."""
    data = bytearray(dll({"own.dll": [f"name{n}" for n in range(10_000)]}))
    pe = pefile.PE(data=bytes(data), fast_load=True)
    at = pe.OPTIONAL_HEADER.DATA_DIRECTORY[1].VirtualAddress - _RVA + _RAW
    row = bytes(data[at : at + 20])
    many = bytes(data[:at]) + row * 20_000 + bytes(20)
    grown = bytearray(many.ljust(len(many) + -len(many) % 0x200, b"\0"))
    section = struct.unpack_from("<I", grown, 0x3C)[0] + 24 + 240
    struct.pack_into("<I", grown, section + 8, len(grown) - _RAW)
    struct.pack_into("<I", grown, section + 16, len(grown) - _RAW)
    started = time.monotonic()
    facts = read_pe(bytes(grown))
    assert facts.needs is None
    assert facts.imports == ("own.dll",)
    assert time.monotonic() - started < 5


def test_an_export_that_leads_on_is_wanted_of_another_dll() -> None:
    data = bytearray(dll({}, ["f"]))
    start, _ = struct.unpack_from("<II", data, data.index(b"PE\0\0") + 24 + 112)
    table = data.index(b".rdata") + 12
    rva, _, raw = struct.unpack_from("<III", data, table)
    (functions,) = struct.unpack_from("<I", data, raw + start - rva + 28)
    struct.pack_into("<I", data, raw + functions - rva, start + 4)
    data[raw + start - rva + 4 : raw + start - rva + 12] = b"Own.g".ljust(8, b"\0")
    assert read_pe(bytes(data)).late == (("own.dll", "g"),)
    assert read_pe(dll({}, ["f"])).late == ()
