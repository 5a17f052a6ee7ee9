"""Fat-binary containers of a few entries."""

from __future__ import annotations

import struct

Entry = tuple[int, str, int]  # kind, architecture, payload size
PTX, ELF, LTO = 1, 2, 8


def cubin(cuda: str) -> bytes:
    """What ptxas of that release writes, as far as it tells the release."""
    major, minor = map(int, cuda.split("."))
    abi, version = (7, major * 10 + minor) if major < 13 else (8, 1)
    told = f"Cuda compilation tools, release {cuda}, V{cuda}.88\0" if abi == 8 else ""
    kind = b"\x7fELF\2\1\1" + bytes([0x33 if abi == 7 else 0x41, abi]).ljust(9, b"\0")
    return kind + struct.pack("<HHI", 2, 190, version) + bytes(40) + told.encode()


def entry(
    kind: int, arch: str, size: int = 8, *, header: int = 64, cuda: str = "", isa: str = "9.0"
) -> bytes:
    """``cuda`` made its SASS, in place of ``size`` bytes of nothing; ``isa`` is its PTX's."""
    number, suffix = int(arch.rstrip("af")), arch.lstrip("0123456789")
    flags = 0x11 | {"": 0, "a": 1 << 20, "f": 1 << 21}[suffix]
    payload = cubin(cuda) if cuda and kind == ELF else b"x" * size
    major, minor = map(int, isa.split(".")) if kind == PTX else (1, 8)
    version = major << 16 | minor
    fixed = struct.pack(
        "<HHIQQIIQQ", kind, 0x0101, header, len(payload), 0, version, number, 0, flags
    )
    return fixed.ljust(header, b"\0") + payload


def container(
    *entries: Entry, size: int | None = None, header: int = 16, cuda: str = "", isa: str = "9.0"
) -> bytes:
    body = b"".join(entry(*one, cuda=cuda, isa=isa) for one in entries)
    head = struct.pack("<IHHQ", 0xBA55ED50, 1, header, len(body) if size is None else size)
    return head.ljust(header, b"\0") + body
