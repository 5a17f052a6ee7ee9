"""Trees laid out as Visual Studio's, made by tests: names and sizes, nothing of Microsoft's."""

from __future__ import annotations

import struct
import subprocess
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree

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


def vsix(path: Path, contents: Mapping[str, bytes]) -> Path:
    """A package of Visual Studio: names are below ``Contents`` and quoted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b"{}")
        for name, data in contents.items():
            archive.writestr(f"Contents/{quote(name)}", data)
    return path


def _sum(data: bytes) -> int:
    """[MS-CAB] 3.1: words of four bytes, exclusive-or; the rest is read from the other end."""
    whole = len(data) // 4
    found = 0
    for word in struct.unpack_from(f"<{whole}I", data):
        found ^= word
    return found ^ int.from_bytes(data[4 * whole :], "big")


def cab(contents: Mapping[str, bytes]) -> bytes:
    """A cabinet without compression: [MS-CAB] 2."""
    data = b"".join(contents.values())
    blocks = [data[at : at + 0x8000] for at in range(0, len(data), 0x8000)]
    files_at = 36 + 8
    rows, at = b"", 0
    for name, one in contents.items():
        rows += struct.pack("<IIHHHH", len(one), at, 0, 0, 0, 0x20) + name.encode() + b"\0"
        at += len(one)
    data_at = files_at + len(rows)
    sizes = [struct.pack("<HH", len(b), len(b)) for b in blocks]
    sums = [_sum(block) ^ _sum(size) for block, size in zip(blocks, sizes, strict=True)]
    body = b"".join(
        struct.pack("<I", n) + s + b for n, s, b in zip(sums, sizes, blocks, strict=True)
    )
    head = struct.pack("<4sIIIIIBBHHHHH", b"MSCF", 0, data_at + len(body), 0, files_at, 0, 3, 1, 1,
                       len(contents), 0, 1, 0)  # fmt: skip
    return head + struct.pack("<IHH", data_at, len(blocks), 0) + rows + body


def msi(path: Path, contents: Mapping[str, bytes], cabinet: str) -> bytes:
    """An installer, made by wixl, of files below ``Program Files``; returns its cabinet."""
    ids = {name: f"f{number}" for number, name in enumerate(contents)}
    root = ElementTree.Element("Directory", Id="TARGETDIR", Name="SourceDir")
    top = ElementTree.SubElement(root, "Directory", Id="ProgramFilesFolder")
    folders = {"": top}
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".file")
    refs = ""
    for name, id_ in ids.items():
        *parents, base = name.split("/")
        for depth, folder in enumerate(parents, 1):
            key = "/".join(parents[:depth])
            above = folders["/".join(parents[: depth - 1])]
            if key not in folders:
                number = f"d{len(folders)}"
                folders[key] = ElementTree.SubElement(above, "Directory", Id=number, Name=folder)
        place = folders["/".join(parents)]
        component = ElementTree.SubElement(place, "Component", Id=f"c{id_}", Guid=str(uuid4()))
        ElementTree.SubElement(component, "File", Id=id_, Name=base, Source=source.name)
        refs += f'<ComponentRef Id="c{id_}"/>'
    source.write_bytes(b"?")
    code = str(uuid4())
    wxs = path.with_suffix(".wxs")
    wxs.write_text(
        '<Wix xmlns="http://schemas.microsoft.com/wix/2006/wi">'
        f'<Product Id="*" Name="x" UpgradeCode="{code}" Version="1.0" Manufacturer="t"'
        ' Language="1033"><Package InstallerVersion="200" Compressed="yes"/>'
        f'<Media Id="1" Cabinet="{cabinet}"/>{ElementTree.tostring(root, "unicode")}'
        f'<Feature Id="F" Level="1">{refs}</Feature></Product></Wix>'
    )
    command = ["wixl", "-o", str(path), wxs.name]
    subprocess.run(command, cwd=path.parent, check=True, capture_output=True, timeout=60)
    source.unlink()
    wxs.unlink()
    return cab({ids[name]: data for name, data in contents.items()})


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
