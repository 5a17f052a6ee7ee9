"""Trees laid out as Visual Studio's, made by tests: names and sizes, nothing of Microsoft's."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import pefile

TOOLSET, SDK = "14.44.35207", "10.0.26100.0"
MICROSOFT = "Microsoft Corporation"


def _block(key: str, value: bytes, children: Iterable[bytes] = (), *, text: bool = False) -> bytes:
    """One node of VS_VERSIONINFO: length, length of value, type, key; each part at four bytes."""
    head = key.encode("utf-16-le") + b"\0\0"
    body = head + b"\0" * (-(6 + len(head)) % 4) + value
    for child in children:
        body += b"\0" * (-(6 + len(body)) % 4) + child
    size = len(value) // 2 if text else len(value)
    return struct.pack("<HHH", 6 + len(body), size, text) + body


def version_info(version: str, maker: str) -> bytes:
    """The resource in which a program says what it is."""
    a, b, c, d = map(int, version.split("."))
    fixed = struct.pack("<13I", 0xFEEF04BD, 0x10000, a << 16 | b, c << 16 | d, *[0] * 9)
    company = _block("CompanyName", f"{maker}\0".encode("utf-16-le"), text=True)
    table = _block("040904b0", b"", [company], text=True)
    strings = _block("StringFileInfo", b"", [table], text=True)
    return _block("VS_VERSION_INFO", fixed, [strings])


def _resources(info: bytes, at: int) -> bytes:
    """A section with that resource alone, for the address ``at``."""
    tree = b""
    for level, kind in enumerate((16, 1, 0x409)):  # type, name and language: directories
        target = 72 if level == 2 else 24 * (level + 1) | 0x80000000
        tree += struct.pack("<IIHHHHII", 0, 0, 0, 0, 0, 1, kind, target)
    return tree + struct.pack("<IIII", at + 88, len(info), 0, 0) + info


def program(version: str = "14.44.35211.0", maker: str = MICROSOFT, machine: int = 0x8664) -> bytes:
    """A PE file without code that says who made it."""
    section = _resources(version_info(version, maker), 0x1000)
    raw = section + b"\0" * (-len(section) % 512)
    directories = [(0, 0)] * 16
    directories[2] = (0x1000, len(section))
    optional = struct.pack("<HBBIIIIIQII", 0x20B, 14, 44, 0, len(raw), 0, 0, 0, 1 << 30, 4096, 512)
    optional += struct.pack("<6HIIIIHH", 6, 0, 0, 0, 6, 0, 0, 0x3000, 512, 0, 3, 0)
    optional += struct.pack("<4QII", 1 << 20, 4096, 1 << 20, 4096, 0, 16)
    optional += b"".join(struct.pack("<II", *one) for one in directories)
    coff = struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, len(optional), 0x22)
    name = b".rsrc\0\0\0"
    header = name + struct.pack("<IIII12xI", len(section), 0x1000, len(raw), 512, 0x40000040)
    start = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0" + coff + optional + header
    return start.ljust(512, b"\0") + raw


def files(
    toolset: str = TOOLSET, sdk: str = SDK, compiler: str = "14.44.35211.0"
) -> dict[str, bytes]:
    """Of a whole tree: path -> contents."""
    tools, kits = f"VC/Tools/MSVC/{toolset}", "Windows Kits/10"
    bin_ = {
        "cl.exe": program(compiler),
        **dict.fromkeys(("link.exe", "lib.exe", "cvtres.exe", "vctip.exe"), b"MZ"),
        **dict.fromkeys(("c1.dll", "c1xx.dll", "c2.dll", "mspdbcore.dll"), b"MZ"),
        "1033/clui.dll": b"MZ",
    }
    return {
        **{f"{tools}/bin/Hostx64/x64/{name}": data for name, data in bin_.items()},
        **{
            f"{tools}/include/{n}": b"//"
            for n in ("cstddef", "vcruntime.h", "vector", "yvals_core.h")
        },
        **{
            f"{tools}/lib/x64/{name}.lib": b"!<arch>\n"
            for name in ("msvcrt", "msvcprt", "vcruntime", "oldnames", "libcmt")
        },
        **{f"{kits}/Include/{sdk}/ucrt/{n}.h": b"//" for n in ("stdio", "corecrt")},
        **{f"{kits}/Include/{sdk}/um/{n}.h": b"//" for n in ("Windows", "winnt")},
        f"{kits}/Include/{sdk}/shared/basetsd.h": b"//",
        f"{kits}/Lib/{sdk}/ucrt/x64/ucrt.lib": b"!<arch>\n",
        f"{kits}/Lib/{sdk}/um/x64/kernel32.Lib": b"!<arch>\n",
        f"{kits}/Lib/{sdk}/um/x64/Uuid.Lib": b"!<arch>\n",
        f"{kits}/bin/{sdk}/x64/rc.exe": b"MZ",
        f"{kits}/bin/{sdk}/x64/mt.exe": b"MZ",
    }


def write(root: Path, contents: Mapping[str, bytes]) -> Path:
    """Write them below ``root``, which is returned."""
    for name, data in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def branded(exe: bytes, version: str, maker: str = MICROSOFT) -> bytes:
    """A program as it is, that says this of itself: a section more, with its resources."""
    image = pefile.PE(data=exe, fast_load=True)
    align = image.OPTIONAL_HEADER.SectionAlignment
    last = image.sections[-1]
    end = last.VirtualAddress + last.Misc_VirtualSize
    at = -(-end // align) * align
    section = _resources(version_info(version, maker), at)
    raw = section + b"\0" * (-len(section) % 512)
    file = exe + b"\0" * (-len(exe) % 512)
    header = struct.pack("<8sIIII12xI", b".rsrc", len(section), at, len(raw), len(file), 0x40000040)
    place = last.get_file_offset() + 40
    assert place + 40 <= image.OPTIONAL_HEADER.SizeOfHeaders
    image.FILE_HEADER.NumberOfSections += 1
    image.OPTIONAL_HEADER.SizeOfImage = at + -(-len(section) // align) * align
    image.OPTIONAL_HEADER.DATA_DIRECTORY[2].VirtualAddress = at
    image.OPTIONAL_HEADER.DATA_DIRECTORY[2].Size = len(section)
    written = bytes(image.write()).ljust(len(file), b"\0")
    return written[:place] + header + written[place + 40 :] + raw
