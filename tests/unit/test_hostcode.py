"""Code of a Windows binary that can run and finds its device code; each rule on bytes made here."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fatbins import ELF, container

from pipelines.wheels import hostcode
from pipelines.wheels.fatbin import inventory
from pipelines.wheels.hostcode import read_host
from pipelines.wheels.pe import PeFacts, Section

BASE, PAGE = 0x180000000, 0x1000
CODE = container((ELF, "80", 8))
NAMES = ("text", "rdata", "pdata", "xdata", "nv_fatb", "nvFatBi")


class Made:
    """A binary of six sections, each a page of the file and of memory."""

    def __init__(self) -> None:
        functions = [(PAGE + 64 * n, PAGE + 64 * n + 60, 4 * PAGE) for n in range(8)]
        handle = struct.pack("<IIQQ", 0x466243B1, 1, BASE + 5 * PAGE, 0)
        self.parts = {
            "text": bytearray(b"\x48\x8b" * (PAGE // 2)),
            "rdata": bytearray(b"\0_Z4kernPf\0_Z4kerni\0"),
            "pdata": bytearray(b"".join(struct.pack("<III", *row) for row in functions)),
            "xdata": bytearray(b"\1"),
            "nv_fatb": bytearray(CODE),
            "nvFatBi": bytearray(handle),
        }
        self.machine = 0x8664
        self.facts: dict[str, Any] = {}

    def said(self, kernels: tuple[bytes, ...] = (b"_Z4kernPf", b"_Z4kerni")) -> list[str]:
        data = bytes(PAGE) + b"".join(bytes(self.parts[n]).ljust(PAGE, b"\0") for n in NAMES)
        sections = tuple(
            Section(f".{n}", at * PAGE, len(self.parts[n]), at * PAGE, PAGE, n == "text")
            for at, n in enumerate(NAMES, 1)
        )
        pe = PeFacts(
            self.machine,
            (),
            base=BASE,
            sections=sections,
            functions=(3 * PAGE, len(self.parts["pdata"])),
            **self.facts,
        )
        return [*read_host(data, pe, inventory(data), frozenset(kernels))]


def test_whole_code() -> None:
    assert Made().said() == []


def _fill(part: str, at: int, size: int, byte: int = 0) -> Callable[[Made], None]:
    def change(made: Made) -> None:
        made.parts[part][at : at + size] = bytes([byte]) * size

    return change


@pytest.mark.parametrize(
    "change",
    [
        _fill("text", 0, PAGE),
        _fill("text", 0, PAGE, 0xCC),
        _fill("text", 128, 60),
        _fill("text", 150, 33, 0xFF),
        _fill("text", 150, 33, 0xCC),
        _fill("pdata", 0, 96),
        _fill("pdata", 0, 96, 0xFF),
        _fill("pdata", 4, 4, 0x7F),
        _fill("pdata", 8, 4, 0x7E),
        _fill("xdata", 0, 1),
        _fill("rdata", 0, 20),
        _fill("nvFatBi", 0, 4),
        _fill("nvFatBi", 8, 1, 8),
        _fill("nv_fatb", 0, 4),
    ],
)
def test_code_that_was_overwritten(change: Callable[[Made], None]) -> None:
    made = Made()
    change(made)
    assert made.said()
    made.machine = 0xAA64  # of ARM64 the tables are others
    assert made.said() == []


def test_padding_and_tables_are_no_faults() -> None:
    """Between functions anything may lie, in them tables for jumps; some rows are of nothing."""
    made = Made()
    _fill("text", 8 * 64, PAGE - 8 * 64, 0xCC)(made)
    _fill("text", 3 * 64 + 20, 35)(made)
    _fill("pdata", 0, 12)(made)
    assert made.said() == []


def test_exports_that_lead_to_no_code() -> None:
    whole = PeFacts(0x8664, (), exports=frozenset({"f"}), called=1)
    made, called = Made(), replace(whole, called=0)
    for pe, faults in ((whole, 0), (called, 0)):  # without device code it may be data alone
        assert len([*read_host(b"", pe, inventory(b""), frozenset())]) == faults
    made.facts = {"exports": frozenset({"f"}), "called": 0}
    assert len(made.said()) == 1
    made.facts["called"] = 1
    assert made.said() == []


def test_a_container_without_a_handle() -> None:
    made = Made()
    made.parts["nv_fatb"] += CODE
    assert len(made.said()) == 1


def test_one_kernel_in_thousands_may_have_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was instantiated, and is never called."""
    kernels = (b"_Z4kernPf", b"_Z4kerni", b"gone")
    assert len(Made().said(kernels)) == 1
    monkeypatch.setattr(hostcode, "_UNNAMED", 2)
    assert Made().said(kernels) == []


def test_a_table_that_is_not_in_the_file() -> None:
    pe = PeFacts(0x8664, (), functions=(0x9000, 24), sections=())
    assert len([*read_host(b"x" * 100, pe, inventory(b""), frozenset())]) == 1
    assert len([*read_host(b"", replace(pe, functions=(0, 5)), inventory(b""), frozenset())]) == 1


def test_names_that_never_end_cost_little() -> None:
    whole = bytes(PAGE * 2) + b"a" * (8 << 20) + CODE
    pe = PeFacts(
        0x8664,
        (),
        sections=(
            Section(".rdata", PAGE, 8 << 20, 2 * PAGE, 8 << 20, False),
            Section(".nvFatBi", 4096 * PAGE, 0, 0, 0, False),
        ),
    )
    began = time.process_time()
    assert len([*read_host(whole, pe, inventory(whole), frozenset({b"k"}))]) == 1
    assert time.process_time() - began < 2


def test_sections_that_share_the_file() -> None:
    """Each would be searched: two thousand of them, of 4 GiB."""
    pe = PeFacts(0x8664, (), sections=(Section(".text", PAGE, 90, 0, 90, True),) * 2)
    assert len([*read_host(b"x" * 100, pe, inventory(b""), frozenset())]) == 1
