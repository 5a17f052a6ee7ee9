"""Windows binaries made here: names imported and exported, and what linkers leave of themselves."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

_RVA = 0x1000
_RUN = 0x60000060  # its one section may be read and run
#: What link.exe of MSVC 14.44 leaves: start-up code, its compiler, itself.
MSVC_14_44 = ((0x105, 35207, 11), (0x104, 35214, 3), (0x105, 35214, 2), (0x102, 35214, 1))
MSVC_DLLS = {"VCRUNTIME140.dll": ["memcpy"], "api-ms-win-crt-heap-l1-1-0.dll": ["malloc"]}
STAND_IN_DLLS = {"ucrtbase.dll": ["malloc"], "KERNEL32.dll": ["Sleep"]}


def rich_header(products: Sequence[tuple[int, int, int]], size: int) -> bytes:
    """The start of a file up to its PE header, with the list as link.exe writes it."""
    before = b"MZ".ljust(size, b"\0")
    entries = [(product << 16 | build, count) for product, build, count in products]
    key = len(before) + sum(_turned(byte, at) for at, byte in enumerate(before))
    key = (key + sum(_turned(*entry) for entry in entries)) % 2**32
    words = [0x536E6144, 0, 0, 0, *(word for entry in entries for word in entry)]
    listed = b"".join(struct.pack("<I", word ^ key) for word in words)
    return before + listed + b"Rich" + struct.pack("<I", key)


def _turned(value: int, by: int) -> int:
    bits = f"{value:032b}"
    by %= 32
    return int(bits[by:] + bits[:by], 2)


def dll(
    imports: Mapping[str, Sequence[str]],
    exports: Sequence[str] = ("PyInit__C",),
    *,
    linker: tuple[int, int] = (14, 0),
    products: Sequence[tuple[int, int, int]] = (),
    tail: bytes = b"",
    before: int = 0x80,
    late: Mapping[str, Sequence[str]] | None = None,
    code: Mapping[str, bytes] | None = None,
) -> bytes:
    """A PE32+ DLL with one section; a name such as ``#7`` is imported by its number.

    ``late``: what is imported when it is first called. ``code``: of exports that are called.
    """
    does = code or {}
    body = bytearray()

    def put(data: bytes) -> int:
        body.extend(data + bytes(-len(data) % 8))
        return _RVA + len(body) - len(data) - -len(data) % 8

    def table(form: str, values: Sequence[int]) -> int:
        return put(struct.pack(f"<{len(values)}{form}", *values))

    names = [put(name.encode() + b"\0") for name in sorted(exports)]
    starts = [put(does[name]) if name in does else _RVA for name in sorted(exports)]
    tables = (
        table("I", starts),
        table("I", names),
        table("H", range(len(names))),
    )
    own = put(b"_C.pyd\0")
    exported = put(struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, own, 1, *[len(names)] * 2, *tables))

    def thunks(names: Sequence[str]) -> int:
        found = [
            1 << 63 | int(name[1:]) if name[0] == "#" else put(b"\0\0" + name.encode() + b"\0")
            for name in names
        ]
        return table("Q", [*found, 0])

    rows = lates = b""
    for library, wanted in imports.items():
        first, label = thunks(wanted), put(library.encode() + b"\0")
        rows += struct.pack("<IIIII", first, 0, 0, label, first)
    for library, wanted in (late or {}).items():
        first, label = thunks(wanted), put(library.encode() + b"\0")
        lates += struct.pack("<IIIII12x", 1, label, 0, first, first)
    imported, delayed = put(rows + bytes(20)), put(lates + bytes(32)) if late else 0
    directories = struct.pack("<IIII", exported, 40, imported, len(rows) + 20).ljust(104, b"\0")
    directories += struct.pack("<II", delayed, len(lates) + 32 if late else 0)
    return _file(bytes(body), directories, linker, products, before) + tail


def _file(
    body: bytes,
    directories: bytes,
    linker: tuple[int, int],
    products: Sequence[tuple[int, int, int]],
    before: int,
) -> bytes:
    stub = bytearray(rich_header(products, before) if products else b"MZ".ljust(0x78, b"\0"))
    stub[0x3C:0x40] = struct.pack("<I", len(stub))
    size, raw = len(body) + -len(body) % 0x200, 0x400 + before // 0x200 * 0x200
    optional = struct.pack("<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20B, *linker, 0, size, 0, 0, _RVA,
        0x180000000, 0x1000, 0x200, 6, 0, 0, 0, 6, 0, 0, _RVA + size, raw, 0, 2, 0, 1 << 20, 4096,
        1 << 20, 4096, 0, 16) + directories.ljust(128, b"\0")  # fmt: skip
    head = bytes(stub) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, len(optional), 0x2022) + optional
    head += struct.pack("<8sIIIIIIHHI", b".rdata", size, _RVA, size, raw, 0, 0, 0, 0, _RUN)
    return head.ljust(raw, b"\0") + body.ljust(size, b"\0")


def stand_in(tail: bytes = b"", **changes: object) -> bytes:
    """As the sandbox's own tools leave it."""
    return dll(**({"imports": STAND_IN_DLLS, "tail": tail} | changes))  # type: ignore[arg-type]


def msvc(tail: bytes = b"", **changes: object) -> bytes:
    """As MSVC 14.44 leaves it."""
    known = {"imports": MSVC_DLLS, "linker": (14, 44), "products": MSVC_14_44, "tail": tail}
    return dll(**(known | changes))  # type: ignore[arg-type]
