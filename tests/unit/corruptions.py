"""Ways to spoil a wheel where a GPU, a processor, Python or pip uses it, with RECORD made true.

Each takes chance and the members, and gives the members, or a whole zip as bytes; ``None``: there
is nothing of that kind in this wheel.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable

import lz4.block
from backports import zstd

from pipelines.wheels.fatbin import (
    ELF,
    FLAG_LZ4,
    FLAG_ZSTD,
    PTX,
    Entry,
    container_entries,
    inventory,
)
from pipelines.wheels.pe import PeFacts, read_pe

Members = dict[str, bytes]
Corruption = Callable[[random.Random, Members], "Members | bytes | None"]
FILLERS = (b"\0", b"\xff")


def packed(members: Members) -> bytes:
    """A zip of them whose RECORD is true."""
    (record,) = [name for name in members if name.endswith(".dist-info/RECORD")]
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    for name, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([name, "", ""] if name == record else [name, f"sha256={digest}", len(data)])
    whole = members | {record: text.getvalue().encode()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:  # stored: packing would take most of the time
        for name, data in whole.items():
            archive.writestr(name, data)
    return file.getvalue()


def module_of(chance: random.Random, members: Members) -> str:
    """One of the binaries with device code."""
    return chance.choice(
        [n for n, d in members.items() if inventory(d).containers and ".so" not in n]
    )


def entry_of(
    chance: random.Random, data: bytes, kind: int, flags: int | None = None
) -> Entry | None:
    """Any entry of that kind, packed in one of these ways; ``None`` where none is."""
    units = list(inventory(data).containers)
    chance.shuffle(units)
    for unit in units:
        found = [
            one
            for one in container_entries(data, unit)
            if one.kind == kind
            and (flags is None or bool(one.flags & flags) or one.flags & flags == flags)
        ]
        if found:
            return chance.choice(found)
    return None


def texts_of(cubin: bytes) -> list[tuple[int, int]]:
    """Where the machine code of each kernel is."""
    (at,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<2H", cubin, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + 64 * n) for n in range(count)]
    texts = cubin[rows[names][4] :]
    return [(r[4], r[5]) for r in rows if texts[r[0] :].startswith(b".text.") and r[5]]


def unpacked(data: bytes, one: Entry) -> bytes:
    body = data[one.body : one.body + one.packed] if one.packed else data[one.body : one.end]
    if one.flags & FLAG_LZ4:
        return bytes(lz4.block.decompress(body, uncompressed_size=one.unpacked))
    return bytes(zstd.decompress(body)) if one.flags & FLAG_ZSTD else body


def replaced(data: bytes, one: Entry, body: bytes) -> bytes | None:
    """With another payload and a header that is true of it; ``None`` where it has no room."""
    piece = body
    if one.flags & FLAG_LZ4:
        piece = lz4.block.compress(body, mode="high_compression", store_size=False)
    elif one.flags & FLAG_ZSTD:
        piece = zstd.compress(body, 19)
    room = one.end - one.body
    if len(piece) > room or (not one.packed and len(piece) != room):
        return None
    made = bytearray(data)
    left = (room - len(piece)) // 8 * 8  # the padding behind it is short: its header grows
    made[one.body : one.end] = (bytes(left) + piece).ljust(room, b"\0")
    if one.packed:
        struct.pack_into(
            "<IQI", made, one.start + 4, one.body - one.start + left, room - left, len(piece)
        )
        struct.pack_into("<Q", made, one.start + 56, len(body))
    return bytes(made)


def spoiled(data: bytes, start: int, size: int, filler: bytes) -> bytes:
    return data[:start] + (filler * size)[:size] + data[start + size :]


# -- device code -----------------------------------------------------------------------------------


def _device(change: Callable[[random.Random, bytes], bytes | None]) -> Corruption:
    def made(chance: random.Random, members: Members) -> Members | None:
        name = module_of(chance, members)
        data = change(chance, members[name])
        return None if data is None or data == members[name] else members | {name: data}

    return made


def zero_entry(chance: random.Random, data: bytes) -> bytes | None:
    one = entry_of(chance, data, chance.choice((ELF, PTX)))
    return one and spoiled(data, one.body, one.end - one.body, chance.choice(FILLERS))


def zero_kernel(chance: random.Random, data: bytes) -> bytes | None:
    """A stretch of one kernel's instructions, of any cubin."""
    one = entry_of(chance, data, ELF)
    if one is None:
        return None
    cubin = unpacked(data, one)
    if not (texts := texts_of(cubin)):
        return None
    start, size = chance.choice(texts)
    first = start + chance.randrange(0, max(size - 32, 1))
    body = spoiled(
        cubin,
        first,
        min(chance.choice((32, 256, size)), start + size - first),
        chance.choice(FILLERS),
    )
    if one.packed:  # as the same bytes would be after packing them again, or else damaged as packed
        again = replaced(data, one, body)
        return again or spoiled(data, one.body + one.packed // 2, one.packed // 4, b"\0")
    return replaced(data, one, body)


def cut_entry(chance: random.Random, data: bytes) -> bytes | None:
    """The second half of it is nothing."""
    one = entry_of(chance, data, chance.choice((ELF, PTX)))
    if one is None:
        return None
    half = (one.end - one.body) // 2
    return spoiled(data, one.body + half, one.end - one.body - half, b"\0")


def relabel(chance: random.Random, data: bytes) -> bytes | None:
    """Another architecture in its header."""
    one = entry_of(chance, data, chance.choice((ELF, PTX)))
    if one is None:
        return None
    other = chance.choice(
        [a for a in (50, 60, 70, 75, 80, 86, 89, 90, 100, 120) if str(a) != one.arch]
    )
    made = bytearray(data)
    struct.pack_into("<I", made, one.start + 28, other)
    return bytes(made)


def rekind(chance: random.Random, data: bytes) -> bytes | None:
    """PTX that is said to be SASS, and the other way round."""
    one = entry_of(chance, data, chance.choice((ELF, PTX)))
    if one is None:
        return None
    made = bytearray(data)
    struct.pack_into("<H", made, one.start, ELF if one.kind == PTX else PTX)
    return bytes(made)


def swap(chance: random.Random, data: bytes) -> bytes | None:
    """The labels of two entries of one container."""
    units = [container_entries(data, u) for u in inventory(data).containers]
    units = [[e for e in rows if e.kind == ELF] for rows in units]
    units = [rows for rows in units if len({e.arch for e in rows}) > 1]
    if not units:
        return None
    rows = chance.choice(units)
    one = chance.choice(rows)
    other = chance.choice([e for e in rows if e.arch != one.arch])
    made = bytearray(data)
    for first, second in ((one, other), (other, one)):
        made[first.start + 28 : first.start + 32] = data[second.start + 28 : second.start + 32]
    return bytes(made)


def move(chance: random.Random, data: bytes) -> bytes | None:
    """A payload some bytes further on."""
    one = entry_of(chance, data, chance.choice((ELF, PTX)))
    if one is None:
        return None
    by = chance.choice((1, 8, 16, 64))
    body = data[one.body : one.end]
    return data[: one.body] + (bytes(by) + body)[: len(body)] + data[one.end :]


def other_target(chance: random.Random, data: bytes) -> bytes | None:
    """PTX for another architecture than its label, packed again."""
    one = entry_of(chance, data, PTX)
    if one is None:
        return None
    text = unpacked(data, one)
    return replaced(
        data, one, text.replace(b".target sm_" + one.arch.encode(), b".target sm_35", 1)
    )


def half_ptx(chance: random.Random, data: bytes) -> bytes | None:
    """PTX that ends within its last function, of the same length, packed again."""
    one = entry_of(chance, data, PTX)
    if one is None:
        return None
    text = unpacked(data, one)
    last = text.rfind(b"}")
    return None if last < 0 else replaced(data, one, text[:last] + b" " + text[last + 1 :])


def lost_container(chance: random.Random, data: bytes) -> bytes | None:
    """A container that is none any more: its magic, or its size."""
    unit = chance.choice(inventory(data).containers)
    made = bytearray(data)
    if chance.random() < 0.5:
        made[unit.offset : unit.offset + 4] = bytes(4)
    else:
        struct.pack_into(
            "<Q", made, unit.offset + 8, struct.unpack_from("<Q", data, unit.offset + 8)[0] // 2
        )
    return bytes(made)


# -- code of the host ------------------------------------------------------------------------------


def _host(change: Callable[[random.Random, bytes, PeFacts], bytes | None]) -> Corruption:
    def made(chance: random.Random, members: Members) -> Members | None:
        name = module_of(chance, members)
        data = change(chance, members[name], read_pe(members[name]))
        return None if data is None or data == members[name] else members | {name: data}

    return made


def place(pe: PeFacts, address: int) -> int:
    (at,) = [
        one.at + address - one.address
        for one in pe.sections
        if one.address <= address < one.address + one.raw
    ]
    return at


def zero_function(chance: random.Random, data: bytes, pe: PeFacts) -> bytes | None:
    address, size = pe.functions
    at = place(pe, address)
    rows = [r for r in struct.iter_unpack("<III", data[at : at + size]) if r[1] - r[0] >= 64]
    if not rows:
        return None
    begin, end, _ = chance.choice(rows)
    return spoiled(data, place(pe, begin), end - begin, chance.choice((*FILLERS, b"\xcc")))


def zero_code(chance: random.Random, data: bytes, pe: PeFacts) -> bytes | None:
    one = next(one for one in pe.sections if one.executed)
    return spoiled(data, one.at, one.raw, chance.choice((*FILLERS, b"\xcc")))


def zero_section(chance: random.Random, data: bytes, pe: PeFacts) -> bytes | None:
    """One that the loader or the run-time reads: imports, functions, handles."""
    wanted = [one for one in pe.sections if one.name in (".pdata", ".rdata", ".nvFatBi", ".idata")]
    one = chance.choice(wanted)
    return spoiled(data, one.at, min(one.raw, one.size), chance.choice(FILLERS))


def other_handle(chance: random.Random, data: bytes, pe: PeFacts) -> bytes | None:
    """A handle that leads somewhere else."""
    one = next(one for one in pe.sections if one.name == ".nvFatBi")
    number = chance.randrange(one.size // 24)
    made = bytearray(data)
    at = one.at + 24 * number + 8
    struct.pack_into(
        "<Q", made, at, struct.unpack_from("<Q", data, at)[0] + chance.choice((8, 4096))
    )
    return bytes(made)


def no_names(chance: random.Random, data: bytes, pe: PeFacts) -> bytes | None:
    """The names under which the host asks for its kernels."""
    one = next(one for one in pe.sections if one.name == ".rdata")
    at, found = data.find(b"\0_Z", one.at, one.at + one.raw), bytearray(data)
    while at >= 0:
        end = data.index(b"\0", at + 1)
        found[at:end] = bytes(end - at)
        at = data.find(b"\0_Z", end, one.at + one.raw)
    return bytes(found)


def init_elsewhere(chance: random.Random, data: bytes, pe: PeFacts) -> bytes | None:
    """Exports that lead to where no code is."""
    at = data.index(b"PE\0\0") + 24 + 112
    (exports,) = struct.unpack_from("<I", data, at)
    (count,) = struct.unpack_from("<I", data, place(pe, exports) + 20)
    (table,) = struct.unpack_from("<I", data, place(pe, exports) + 28)
    other = next(one for one in pe.sections if not one.executed)
    made = bytearray(data)
    for number in range(count):
        struct.pack_into("<I", made, place(pe, table) + 4 * number, other.address)
    return bytes(made)


def cut_module(chance: random.Random, data: bytes, _: PeFacts) -> bytes | None:
    return data[: chance.randrange(len(data) // 4, len(data) - 4096)]


# -- the package -----------------------------------------------------------------------------------


def zero_source(chance: random.Random, members: Members) -> Members | None:
    names = [n for n, d in members.items() if n.endswith(".py") and d]
    if not names:
        return None
    name = chance.choice(names)
    data = members[name]
    size = chance.choice((1, 16, len(data)))
    at = chance.randrange(max(len(data) - size, 1))
    return members | {name: spoiled(data, at, min(size, len(data) - at), b"\0")}


def swapped_members(chance: random.Random, members: Members) -> Members | None:
    """A module with the bytes of a file of Python, and the other way round."""
    module = module_of(chance, members)
    sources = [n for n, d in members.items() if n.endswith(".py") and d]
    if not sources:
        return None
    source = chance.choice(sources)
    return members | {module: members[source], source: members[module]}


def overwritten(chance: random.Random, members: Members) -> Members | None:
    """A second file for a place, by a scheme of .data."""
    info = next(n for n in members if n.endswith("/RECORD")).partition(".dist-info")[0]
    name = chance.choice([n for n in members if ".dist-info/" not in n])
    scheme = chance.choice(("purelib", "platlib", "data/Lib/site-packages"))
    return members | {
        f"{info}.data/{scheme}/{chance.choice((name, name.upper()))}": b"raise SystemExit\n"
    }


def other_words(chance: random.Random, members: Members) -> Members | None:
    """METADATA or WHEEL of another name, version or tag."""
    meta = next(n for n in members if n.endswith(".dist-info/METADATA"))
    wheel = meta.replace("METADATA", "WHEEL")
    name, old, new = chance.choice(
        [
            (meta, b"\nName: ", b"\nName: x"),
            (meta, b"\nVersion: ", b"\nVersion: 9"),
            (wheel, b"\nTag: ", b"\nTag: cp39-"),
        ]
    )
    return members | {name: members[name].replace(old, new, 1)}


# -- the zip ---------------------------------------------------------------------------------------


def prefixed(chance: random.Random, members: Members) -> bytes:
    return chance.choice(
        (b"#!/bin/sh\n", packed({"x/RECORD": b"", "x.dist-info/RECORD": b""}))
    ) + packed(members)


def suffixed(chance: random.Random, members: Members) -> bytes:
    return packed(members) + chance.choice((b"\0", b"\n" * 100))


def commented(_: random.Random, members: Members) -> bytes:
    whole = packed(members)
    return whole[:-2] + b"\5\0hello"


def two_names(chance: random.Random, members: Members) -> bytes:
    """A local header with another name, or an extra field with one."""
    name = chance.choice([n for n in members if not n.endswith("RECORD")]).encode()
    whole = packed(members)
    other = name[:-1] + b"_"
    at = whole.index(name)
    return whole[:at] + other + whole[at + len(name) :]


def unicode_path(chance: random.Random, members: Members) -> bytes:
    """The field 0x7075, by which newer Pythons name a member."""
    name = chance.choice([n for n in members if not n.endswith("RECORD")])
    whole = io.BytesIO(packed(members))
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(made := io.BytesIO(), "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == name:
                body = b"\1" + struct.pack("<I", zlib.crc32(name.encode())) + b"sitecustomize.py"
                info.extra = struct.pack("<2H", 0x7075, len(body)) + body
            new.writestr(info, data)
    return made.getvalue()


def hidden(chance: random.Random, members: Members) -> bytes:
    """A member that only a reader from the front sees: its row of the directory is gone."""
    whole = packed(members | {"sitecustomize.py": b"raise SystemExit\n"})
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        rows = archive.infolist()
        start = archive.start_dir
    length, at = 0, start
    for row in rows[:-1]:
        length += 46 + len(row.filename.encode()) + len(row.extra)
    end = whole[-22:]
    count = len(rows) - 1
    del at, chance
    return (
        whole[:start]
        + whole[start : start + length]
        + end[:8]
        + struct.pack("<2H2L", count, count, length, start)
        + end[20:]
    )


CORRUPTIONS: dict[str, Corruption] = {
    **{
        one.__name__: _device(one)
        for one in (
            *(zero_entry, zero_kernel, cut_entry, relabel, rekind, swap, move),
            *(other_target, half_ptx, lost_container),
        )
    },
    **{
        one.__name__: _host(one)
        for one in (
            *(zero_function, zero_code, zero_section, other_handle, no_names),
            *(init_elsewhere, cut_module),
        )
    },
    **{
        one.__name__: one
        for one in (
            *(zero_source, swapped_members, overwritten, other_words),
            *(prefixed, suffixed, commented, two_names, unicode_path, hidden),
        )
    },
}
