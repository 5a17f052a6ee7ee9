"""Whether a Windows binary's own code can run, and find its device code.

Each rule holds for 770 x64 binaries: those of the wheels that :mod:`pipelines.wheels.devicecode`
names, and of 35 others (torch 2.10, Qt, LLVM, OpenCV, SciPy, Rust's). The function table:
https://learn.microsoft.com/cpp/build/exception-handling-x64.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator

from pipelines.wheels.fatbin import Data, Inventory, find_bytes, release_mapped_pages
from pipelines.wheels.pe import X64, PeFacts, Section

_WINDOW = 16 << 20
#: Bytes that overwrote code: zeros, erased flash, the padding between functions. Jump tables in
#: functions have up to 3,512 zeros in a row; no compiler writes so many of the others.
_FILLERS = (b"\0" * 8192, b"\xff" * 32, b"\xcc" * 32)
_BEGIN = 16  # bytes of a function that are never all the same
_FUNCTION = struct.Struct("<III")  # begin, end, how to unwind it
_MOST = 8 << 20  # bytes of that table: torch_cpu.dll has 4 MiB
_UNWINDS = frozenset({1, 2})  # versions
#: What nvcc's host code passes to the runtime: magic, version, the container. The section is
#: .nvFatBinSegment; headers have only the first 8 bytes of the name.
_HANDLE, _SEGMENT, _MAGIC = struct.Struct("<IIQQ"), ".nvFatBi", 0x466243B1
_UNNAMED = 100  # one of so many kernels may have no name
_NAME = re.compile(rb"\0([\w$.@?]{1,8191})(?=\0)")


def read_host(data: Data, pe: PeFacts, code: Inventory, kernels: frozenset[bytes]) -> Iterator[str]:
    """What is wrong with an x64 binary; accepts any bytes."""
    if pe.machine != X64:
        return
    if sum(section.raw for section in pe.sections) > len(data):  # each would be searched
        yield "its sections overlap in the file"
        return
    for section in pe.sections:
        if section.executed and section.size and _constant(data, section):
            yield f"{section.name} is empty or one repeated byte"
    if pe.exports and code.containers and not pe.called:  # others may have data alone
        yield "none of its exports points to code"
    memory = _Memory(pe)
    yield from _check_function_table(data, pe, memory)
    yield from _handles(data, pe, memory, code)
    if any(section.name == _SEGMENT for section in pe.sections):
        yield from _unnamed(data, pe, code, kernels)


def _constant(data: Data, section: Section) -> bool:
    first = data[section.at : section.at + 1]
    for start in range(section.at, section.at + section.raw, _WINDOW):
        piece = data[start : min(start + _WINDOW, section.at + section.raw)]
        if piece.strip(first):
            return False
    return True


def _check_function_table(data: Data, pe: PeFacts, memory: _Memory) -> Iterator[str]:
    """Check that each function is in a code section, can be unwound and is not overwritten."""
    address, size = pe.functions
    table = memory.place(address, size)
    if size and (table is None or size % _FUNCTION.size or size > _MOST):
        yield f"its function table ({size} bytes) is outside the file"
        return
    rows = list(_FUNCTION.iter_unpack(data[table : table + size])) if table is not None else []
    code = [section for section in pe.sections if section.executed]
    wrong, starts = [], []
    for begin, end, unwind in rows:
        starts.append(begin)
        if not begin < end:  # GNU's linker leaves such rows for discarded functions
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
        yield f"{empty} of its {len(rows)} functions have no address"
    if wrong:
        yield f"{len(wrong)} of its {len(rows)} functions have no code, as at {wrong[0]:#x}"
    for filler in _FILLERS:
        for section in code:
            for at in _filler_addresses(data, filler, section):
                row = bisect_right(starts, at) - 1
                if row >= 0 and at + len(filler) <= rows[row][1]:
                    yield f"the function at {starts[row]:#x} is overwritten"
                    return


def _filler_addresses(data: Data, filler: bytes, section: Section) -> Iterator[int]:
    """Addresses of the filler bytes."""
    at, end = section.at, section.at + section.raw
    while (at := find_bytes(data, filler, at, end)) >= 0:
        yield section.address + at - section.at
        at += len(filler)


def _handles(data: Data, pe: PeFacts, memory: _Memory, code: Inventory) -> Iterator[str]:
    """Check that each handle points to a container, and each container has one."""
    containers = {unit.offset for unit in code.containers}
    led = set()
    for section in pe.sections:
        if section.name != _SEGMENT:
            continue
        size = min(section.size, section.raw) // _HANDLE.size * _HANDLE.size
        for magic, _, pointer, _ in _HANDLE.iter_unpack(data[section.at : section.at + size]):
            at = memory.place(pointer - pe.base, 1)
            if magic != _MAGIC or at not in containers:
                yield "a handle of its device code points to no container"
                return
            led.add(at)
    # Code for linking at run time is registered differently.
    lost = {unit.offset for unit in code.containers if not unit.other} - led
    if led and lost:
        yield f"{len(lost)} of its {len(containers)} containers have no handle"


def _unnamed(data: Data, pe: PeFacts, code: Inventory, kernels: frozenset[bytes]) -> Iterator[str]:
    """Check that kernels' names, by which they are registered, are among the constants.

    One in 5,000 is not, as it is instantiated but never called.
    """
    left = set(kernels)
    for section in pe.sections:
        end = section.at + section.raw
        if section.executed or any(section.at <= unit.offset < end for unit in code.containers):
            continue
        for start in range(section.at, end, _WINDOW):  # names are found in the window they begin in
            piece = data[start : min(start + _WINDOW + 8192, end)]
            left.difference_update(match[1] for match in _NAME.finditer(b"\0" + piece))
        release_mapped_pages(data)
    if len(left) * _UNNAMED > len(kernels):
        first = min(left)[:60].decode(errors="replace")
        yield f"{len(left)} of its {len(kernels)} kernels are not registered: {first}"


class _Memory:
    """Maps addresses to file offsets."""

    def __init__(self, pe: PeFacts) -> None:
        self._parts = sorted(pe.sections, key=lambda section: section.address)
        self._starts = [part.address for part in self._parts]

    def place(self, address: int, size: int, *, code: bool = False) -> int | None:
        """The offset; ``None`` if there is none, or with ``code`` none that is executable."""
        number = bisect_right(self._starts, address) - 1
        if number < 0:
            return None
        part = self._parts[number]
        inside = address + size <= part.address + part.raw and (part.executed or not code)
        return part.at + address - part.address if inside else None
