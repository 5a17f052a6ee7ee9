"""Fat-binary containers of a few entries."""

from __future__ import annotations

import struct

Entry = tuple[int, str, int]  # kind, architecture, payload size
PTX, ELF, LTO = 1, 2, 8


def cubin(cuda: str = "", arch: str = "80", *, kernel: str = "k", code: bytes = b"") -> bytes:
    """What ptxas of that release writes of one weak kernel, as far as it is read; of none, as of 13
    without saying so.

    ``code`` in place of its instructions: an end, and what fills the rest.
    """
    major, minor = map(int, (cuda or "13.0").split("."))
    abi, version = (7, major * 10 + minor) if major < 13 else (8, 1)
    number = int(arch.rstrip("af"))
    flags = number << 8 if abi == 8 else number | (0x800 if arch.endswith("a") else 0)
    if not code and number < 70:
        code = bytes.fromhex("0f0007000000e3ff") * 8
    code = code or b"".join(struct.pack("<H14x", one) for one in (0x94D, *[0x918] * 7))
    release = f"Cuda compilation tools, release {cuda}, V{cuda}.88\0" if cuda else ""
    told = f"{release}-arch sm_{arch} \0".encode() if abi == 8 else b"\0"
    names = ["", ".strtab", ".symtab", f".text.{kernel}", f".nv.info.{kernel}", ".note.nv.tkinfo"]
    texts = b"\0".join(map(str.encode, [*names, kernel])) + b"\0"
    at = [texts.index(b"\0" + name.encode() + b"\0") + 1 for name in [*names[1:], kernel]]
    symbols = bytes(24) + struct.pack("<IBBHQQ", at[5], 0x22, 0x10, 3, 0, len(code))
    bodies = [texts, symbols, code, b"info", told]
    kinds, links = (3, 2, 1, 0x70000000, 7), (0, 1, 2, 2, 0)
    data, rows = bytearray(64), bytearray(64)
    for body, name, kind, link in zip(bodies, at, kinds, links, strict=False):
        rows += struct.pack("<IIQQQQIIQQ", name, kind, 6, 0, len(data), len(body), link, 0, 1, 0)
        data += body
    head = b"\x7fELF\2\1\1" + bytes([0x33 if abi == 7 else 0x41, abi]).ljust(9, b"\0")
    head += struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, version, 0, 0, len(data), flags, 64, 0, 0, 64, 6, 1
    )
    data[:64] = head
    return bytes(data + rows)


def ptx(isa: str = "9.0", arch: str = "80") -> bytes:
    """What cicc writes of it."""
    return f".version {isa}\n.target sm_{arch}\n.visible .entry k() {{ ret; }}\n\0".encode()


def entry(
    kind: int,
    arch: str,
    size: int = 8,
    *,
    header: int = 64,
    cuda: str = "",
    isa: str = "9.0",
    payload: bytes | None = None,
) -> bytes:
    """``cuda`` made its SASS; ``isa`` is its PTX's; no less than ``size`` bytes of it."""
    number, suffix = int(arch.rstrip("af")), arch.lstrip("0123456789")
    flags = 0x11 | {"": 0, "a": 1 << 20, "f": 1 << 21}[suffix]
    if payload is None:
        payload = {ELF: lambda: cubin(cuda, arch), PTX: lambda: ptx(isa, arch)}.get(
            kind, lambda: b"x" * 8
        )()
    payload = payload.ljust(size, b"\0")
    major, minor = map(int, isa.split(".")) if kind == PTX else (1, 8)
    version = major << 16 | minor
    fixed = struct.pack(
        "<HHIQIIIIQQ", kind, 0x0101, header, len(payload), 0, 0, version, number, 0, flags
    )
    return fixed.ljust(header, b"\0") + payload


def container(
    *entries: Entry, size: int | None = None, header: int = 16, cuda: str = "", isa: str = "9.0"
) -> bytes:
    body = b"".join(entry(*one, cuda=cuda, isa=isa) for one in entries)
    head = struct.pack("<IHHQ", 0xBA55ED50, 1, header, len(body) if size is None else size)
    return head.ljust(header, b"\0") + body
