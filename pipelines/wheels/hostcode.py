"""Whether a Windows binary's own code can run, and find its device code.

Each rule held of 770 binaries for x64: those of the wheels that :mod:`pipelines.wheels.devicecode`
names, and of 35 others (torch 2.10, Qt, LLVM, OpenCV, SciPy, Rust's). Of the table of functions:
https://learn.microsoft.com/cpp/build/exception-handling-x64.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator

from pipelines.wheels.fatbin import Data, Inventory, find, forget
from pipelines.wheels.pe import X64, PeFacts, Section

_WINDOW = 16 << 20
#: What overwrites: nothing, erased flash, the padding between functions. Tables for jumps lie in
#: functions, with up to 3,512 zeros in a row; of the others no compiler has written so many.
_FILLERS = (b"\0" * 8192, b"\xff" * 32, b"\xcc" * 32)
_BEGIN = 16  # bytes of a function that are never all the same
_FUNCTION = struct.Struct("<III")  # begin, end, how to unwind it
_MOST = 8 << 20  # bytes of that table: torch_cpu.dll has 4 MiB
_UNWINDS = frozenset({1, 2})  # versions
#: What nvcc's host code hands to the run-time: magic, version, the container. The section's name
#: is .nvFatBinSegment, of which a header has 8 bytes.
_HANDLE, _SEGMENT, _MAGIC = struct.Struct("<IIQQ"), ".nvFatBi", 0x466243B1
_UNNAMED = 100  # one of so many kernels may have no name
_NAME = re.compile(rb"\0([\w$.@?]{1,8191})(?=\0)")


def read_host(data: Data, pe: PeFacts, code: Inventory, kernels: frozenset[bytes]) -> Iterator[str]:
    """What is wrong with it, as far as that is known of its machine; any bytes are taken."""
    if pe.machine != X64:
        return
    if sum(one.raw for one in pe.sections) > len(data):  # it would be searched for each
        yield "its sections share bytes of the file"
        return
    for one in pe.sections:
        if one.executed and one.size and _constant(data, one):
            yield f"{one.name} is empty, or all the same byte"
    if pe.exports and code.containers and not pe.called:  # others may have data alone
        yield "none of its exports leads to code"
    memory = _Memory(pe)
    yield from _functions(data, pe, memory)
    yield from _handles(data, pe, memory, code)
    if any(one.name == _SEGMENT for one in pe.sections):
        yield from _unnamed(data, pe, code, kernels)


def _constant(data: Data, section: Section) -> bool:
    first = data[section.at : section.at + 1]
    for start in range(section.at, section.at + section.raw, _WINDOW):
        piece = data[start : min(start + _WINDOW, section.at + section.raw)]
        if piece.strip(first):
            return False
    return True


def _functions(data: Data, pe: PeFacts, memory: _Memory) -> Iterator[str]:
    """Each function is in code, can be unwound, and was not overwritten."""
    address, size = pe.functions
    table = memory.place(address, size)
    if size and (table is None or size % _FUNCTION.size or size > _MOST):
        yield f"its table of functions ({size} bytes) is not in it"
        return
    rows = list(_FUNCTION.iter_unpack(data[table : table + size])) if table is not None else []
    code = [one for one in pe.sections if one.executed]
    wrong, starts = [], []
    for begin, end, unwind in rows:
        starts.append(begin)
        if not begin < end:  # GNU's linker leaves such a row of what it has thrown away
            continue
        at = memory.place(begin, end - begin, code=True)
        how = memory.place(unwind & ~1, 1)
        known = unwind & 1 or (how is not None and data[how] & 7 in _UNWINDS)
        first = b"" if at is None else data[at : min(at + _BEGIN, at + end - begin)]
        overwritten = len(first) == _BEGIN and not first.strip(first[:1])
        if not first or not known or overwritten:
            wrong.append(begin)
    empty = sum(begin >= end for begin, end, _ in rows)
    if empty > len(rows) // 2:
        yield f"{empty} of its {len(rows)} functions are nowhere"
    if wrong:
        yield f"{len(wrong)} of its {len(rows)} functions have no code, as at {wrong[0]:#x}"
    for filler in _FILLERS:
        for one in code:
            for at in _runs(data, filler, one):
                row = bisect_right(starts, at) - 1
                if row >= 0 and at + len(filler) <= rows[row][1]:
                    yield f"the function at {starts[row]:#x} was overwritten"
                    return


def _runs(data: Data, filler: bytes, section: Section) -> Iterator[int]:
    """The addresses of such bytes."""
    at, end = section.at, section.at + section.raw
    while (at := find(data, filler, at, end)) >= 0:
        yield section.address + at - section.at
        at += len(filler)


def _handles(data: Data, pe: PeFacts, memory: _Memory, code: Inventory) -> Iterator[str]:
    """Each handle leads to a container, and each container has one."""
    containers = {unit.offset for unit in code.containers}
    led = set()
    for one in pe.sections:
        if one.name != _SEGMENT:
            continue
        size = min(one.size, one.raw) // _HANDLE.size * _HANDLE.size
        for magic, _, pointer, _ in _HANDLE.iter_unpack(data[one.at : one.at + size]):
            at = memory.place(pointer - pe.base, 1)
            if magic != _MAGIC or at not in containers:
                yield "a handle of its device code leads to none"
                return
            led.add(at)
    # What is for linking at run time is handed over in a way of its own.
    lost = {unit.offset for unit in code.containers if not unit.other} - led
    if led and lost:
        yield f"{len(lost)} of its {len(containers)} containers have no handle"


def _unnamed(data: Data, pe: PeFacts, code: Inventory, kernels: frozenset[bytes]) -> Iterator[str]:
    """Kernels are registered by their names, which are among the constants.

    One in 5,000 was seen that is not: instantiated, and called by nobody.
    """
    left = set(kernels)
    for one in pe.sections:
        end = one.at + one.raw
        if one.executed or any(one.at <= unit.offset < end for unit in code.containers):
            continue
        for start in range(one.at, end, _WINDOW):  # names are found in the window they begin in
            piece = data[start : min(start + _WINDOW + 8192, end)]
            left.difference_update(found[1] for found in _NAME.finditer(b"\0" + piece))
        forget(data)
    if len(left) * _UNNAMED > len(kernels):
        first = min(left)[:60].decode(errors="replace")
        yield f"{len(left)} of its {len(kernels)} kernels have no name in it: {first}"


class _Memory:
    """Where the file has what is at an address."""

    def __init__(self, pe: PeFacts) -> None:
        self._parts = sorted(pe.sections, key=lambda one: one.address)
        self._starts = [one.address for one in self._parts]

    def place(self, address: int, size: int, *, code: bool = False) -> int | None:
        """``None``: nothing; with ``code``, nothing that is executed."""
        number = bisect_right(self._starts, address) - 1
        if number < 0:
            return None
        one = self._parts[number]
        inside = address + size <= one.address + one.raw and (one.executed or not code)
        return one.at + address - one.address if inside else None
