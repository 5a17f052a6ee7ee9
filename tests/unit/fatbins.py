"""Fat-binary containers of a few entries."""

from __future__ import annotations

import struct

Entry = tuple[int, str, int]  # kind, architecture, payload size
PTX, ELF, LTO = 1, 2, 8


def entry(kind: int, arch: str, size: int = 8, *, header: int = 64) -> bytes:
    number, suffix = int(arch.rstrip("af")), arch.lstrip("0123456789")
    flags = 0x11 | {"": 0, "a": 1 << 20, "f": 1 << 21}[suffix]
    fixed = struct.pack("<HHIQQIIQQ", kind, 0x0101, header, size, 0, 0x10008, number, 0, flags)
    return fixed.ljust(header, b"\0") + b"x" * size


def container(*entries: Entry, size: int | None = None, header: int = 16) -> bytes:
    body = b"".join(entry(*one) for one in entries)
    head = struct.pack("<IHHQ", 0xBA55ED50, 1, header, len(body) if size is None else size)
    return head.ljust(header, b"\0") + body
