"""Any binaries, with bytes changed anywhere: read, compared and reported, never a crash."""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from fatbins import ELF, PTX, container
from pes import stand_in

from pipelines.remote.pestamps import settled
from pipelines.wheels.differences import _binaries
from pipelines.wheels.portions import binary_portions

WHOLE = stand_in(tail=container((ELF, "90", 32), (PTX, "90", 32)))
HEADERS = 0x400
NOW = time.time()
cases = settings(
    max_examples=10_000, deadline=None, suppress_health_check=[*HealthCheck], database=None
)
changes = st.lists(
    st.tuples(
        st.integers(0, HEADERS), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
    ),
    max_size=12,
)


def damaged(where: list[tuple[int, int]], cut: int) -> bytes:
    made = bytearray(WHOLE)
    for at, value in where:
        made[at] = value
    return bytes(made[: len(made) - cut])


@cases
@given(changes, st.integers(0, len(WHOLE)) | st.just(0))
def test_stamps_of_a_damaged_binary(where: list[tuple[int, int]], cut: int) -> None:
    data = damaged(where, cut)
    made, told = settled(data, NOW, 1704067200)
    assert len(made) == len(data)
    assert made == data or told, "what is changed is named"
    again, _ = settled(made, NOW, 1704067200)
    assert again == made


@cases
@given(changes, st.integers(0, 400))
def test_a_damaged_binary_is_compared(where: list[tuple[int, int]], cut: int) -> None:
    data = damaged(where, cut)
    assert all(0 <= one.start < one.end <= len(data) or not data for one in binary_portions(data))
    told = list(_binaries(WHOLE, data))
    assert bool(told) == (data != WHOLE), "a byte that no section has is told as well"


@cases
@given(st.binary(max_size=300), st.sampled_from([b"MZ", b"\x7fELF\x02\x01\x01", b""]))
def test_what_only_begins_like_one(data: bytes, begin: bytes) -> None:
    whole = begin + data
    assert binary_portions(whole)
    settled(whole, NOW, 1704067200)
    settled(b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0" + whole, NOW, 1704067200)
    assert list(_binaries(whole, whole + b"x"))
