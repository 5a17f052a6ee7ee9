"""Device code is read, whatever its labels say; one rule each, on code made here."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import lz4.block
import pytest
from backports import zstd
from fatbins import ELF, LTO, PTX, cubin, entry, ptx
from hypothesis import given, settings
from hypothesis import strategies as st
from timing import cost

from pipelines.wheels import devicecode
from pipelines.wheels.devicecode import Reading, read_code, read_device_code_file
from pipelines.wheels.fatbin import FLAG_LZ4, FLAG_ZSTD, inventory

CODE = b"".join(struct.pack("<H14x", one) for one in (0x94D, *[0x918] * 7))


def of(*bodies: bytes) -> Reading:
    """What is read of a container of these entries."""
    data = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, bodies))) + b"".join(bodies)
    return read_code(data, inventory(data))


def sass(body: bytes, arch: str = "80") -> bytes:
    return entry(ELF, arch, payload=body)


def packed(flag: int, body: bytes, kind: int = ELF, *, size: int | None = None) -> bytes:
    """An entry as ``fatbinary`` packs it, which says that it has ``size`` bytes."""
    piece = zstd.compress(body) if flag == FLAG_ZSTD else lz4.block.compress(body, store_size=False)
    made = bytearray(entry(kind, "80", payload=piece.ljust(len(piece) + -len(piece) % 8, b"\0")))
    struct.pack_into("<I", made, 16, len(piece))
    struct.pack_into("<Q", made, 40, struct.unpack_from("<Q", made, 40)[0] | flag)
    struct.pack_into("<Q", made, 56, len(body) if size is None else size)
    return bytes(made)


@pytest.mark.parametrize("cuda", ["11.8", "12.8", "13.0"])
@pytest.mark.parametrize("arch", ["50", "61", "75", "90a", "100f", "120"])
def test_whole_code(cuda: str, arch: str) -> None:
    number = arch.rstrip("af")
    found = of(sass(cubin(cuda, arch), arch), entry(PTX, number))
    assert (found.damaged, found.unread, found.read) == ((), (), 2)


@pytest.mark.parametrize("cuda", ["12.8", "13.0"])
@pytest.mark.parametrize(("arch", "label"), [("90a", "90"), ("90", "90a")])
def test_features_are_part_of_the_architecture(cuda: str, arch: str, label: str) -> None:
    """Code for 90a alone on another 9.x is a crash."""
    assert len(of(sass(cubin(cuda, arch), label)).damaged) == 1


@pytest.mark.parametrize("flag", [FLAG_LZ4, FLAG_ZSTD])
@pytest.mark.parametrize(("kind", "body"), [(ELF, cubin()), (PTX, ptx())])
def test_packed_code_is_unpacked_whole(flag: int, kind: int, body: bytes) -> None:
    assert of(packed(flag, body, kind)).damaged == ()
    for size in (len(body) - 1, len(body) + 1):
        assert len(of(packed(flag, body, kind, size=size)).damaged) == 1
    cut = bytearray(packed(flag, body, kind))
    cut[-40:] = bytes(40)
    assert len(of(bytes(cut)).damaged) == 1
    longer = bytearray(packed(flag, body, kind))
    struct.pack_into("<I", longer, 16, 1)
    assert len(of(bytes(longer)).damaged) == 1


def _machine(body: bytearray) -> None:
    struct.pack_into("<H", body, 18, 62)


def _other_arch(body: bytearray) -> None:
    struct.pack_into("<I", body, 48, 75 << 8)


def _no_sections(body: bytearray) -> None:
    struct.pack_into("<Q", body, 40, len(body))


def _section_outside(body: bytearray) -> None:
    (at,) = struct.unpack_from("<Q", body, 40)
    struct.pack_into("<Q", body, at + 3 * 64 + 32, 1 << 40)


def _no_symbols(body: bytearray) -> None:
    at = body.index(struct.pack("<IBBH", 0, 0, 0, 0), 64)
    (table,) = struct.unpack_from("<Q", body, 40)
    at, size = struct.unpack_from("<QQ", body, table + 2 * 64 + 24)
    body[at : at + size] = bytes(size)


def _no_info(body: bytearray) -> None:
    at = body.index(b"info", body.index(CODE))
    body[at : at + 4] = bytes(4)


@pytest.mark.parametrize(
    "change", [_machine, _other_arch, _no_sections, _section_outside, _no_symbols, _no_info]
)
def test_a_cubin_that_is_none(change: Callable[[bytearray], None]) -> None:
    body = bytearray(cubin())
    change(body)
    assert len(of(sass(bytes(body))).damaged) == 1
    assert len(of(sass(b"\0" * len(body))).damaged) == 1
    assert len(of(sass(bytes(body)[:100])).damaged) == 1


@pytest.mark.parametrize(
    "code",
    [
        CODE[:-8],
        bytes(128),
        b"\xff" * 128,
        CODE[:48] + bytes(16) + CODE[64:],
        struct.pack("<H14x", 0x918) * 8,
        struct.pack("<H14x", 0x94D) * 8,
        b"\x5a" * 128,
    ],
    ids=["cut", "zeros", "ones", "an instruction", "no end", "no last", "rubbish"],
)
def test_code_that_was_overwritten(code: bytes) -> None:
    assert of(sass(cubin(code=CODE))).damaged == ()
    assert len(of(sass(cubin(code=code))).damaged) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\xff" * 200,
        ptx().replace(b"sm_80", b"sm_75"),
        ptx("8.7"),
        ptx().replace(b"}", b" "),
        ptx().replace(b"ret", b"r\0t"),
        ptx().replace(b".version", b"version"),
    ],
)
def test_ptx_that_is_none(body: bytes) -> None:
    assert len(of(entry(PTX, "80", payload=body)).damaged) == 1


def test_code_that_is_not_read_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(of(entry(LTO, "90")).unread) == 1
    monkeypatch.setattr(devicecode, "_MOST", 500)
    assert len(of(sass(cubin())).unread) == 1
    assert len(of(packed(FLAG_LZ4, cubin())).unread) == 1


def test_code_of_another_unit() -> None:
    """Two cubins of one container are of one source."""
    alike, other = (sass(cubin(arch=a, kernel=k), a) for a, k in (("90", "k"), ("90", "another")))
    assert of(sass(cubin()), alike).damaged == ()
    assert len(of(sass(cubin()), other).damaged) == 2


def test_any_number_of_faults_costs_little() -> None:
    bad = [sass(b"x" * 64)] * 5000
    assert len(of(*bad).damaged) <= 5000
    one = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(bad[0])) + bad[0]
    data = one * 5000
    code = inventory(data)
    assert len(read_code(data, code).damaged) < 30
    assert cost(lambda: read_code(data, code)) < cost(lambda: inventory(data)) * 8


@pytest.mark.parametrize(
    ("name", "body", "damaged"),
    [
        ("k.cubin", cubin(), False),
        ("k.ptx", ptx(), False),
        ("k.cubin", cubin()[:-64], True),
        ("k.ptx", b".version 8.0\n", True),
    ],
)
def test_files_of_device_code_alone(name: str, body: bytes, damaged: bool) -> None:
    assert bool(read_device_code_file(name, body).damaged) is damaged


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 255), st.integers(1, 8))
def test_any_bytes_are_taken(at: int, byte: int, many: int) -> None:
    data = bytearray(sass(cubin()) + entry(PTX, "80") + packed(FLAG_LZ4, cubin()))
    for number in range(many):
        data[(at * (number + 1)) % len(data)] = byte
    of(bytes(data))


@pytest.mark.parametrize(
    "body",
    [
        entry(PTX, "80", payload=b"\n" * (4 << 20)),
        entry(PTX, "80", payload=b" " * (4 << 20) + b".version\n"),
        sass(cubin(code=(b"\x5a" + bytes(22) + b"\x5a" * 9) * (1 << 16) + CODE)),
        sass(cubin(code=b"\x4d\x08" * (1 << 20))),
        sass(cubin(kernel="k" * (1 << 20))),
    ],
    ids=["lines", "blanks", "zeros over two", "nearly an end", "a name"],
)
def test_made_to_be_slow(body: bytes) -> None:
    began = time.process_time()
    of(body)
    assert time.process_time() - began < 2
