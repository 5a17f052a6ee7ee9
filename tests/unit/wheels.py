"""Tiny wheels, and what they are made of."""

from __future__ import annotations

import base64
import hashlib
import platform
import struct
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fatbins import ELF, container

from pipelines.recipe.sourcetree import EPOCH
from pipelines.remote import repack
from pipelines.wheels.checked import CheckedWheel
from pipelines.wheels.metadata import inspect_wheel

NAME = "pkg-1.0+cu130-cp311-cp311-win_amd64.whl"
INFO = "pkg-1.0+cu130.dist-info"
METADATA = b"Metadata-Version: 2.1\nName: Pkg\nVersion: 1.0+cu130\n\nText\n"
WHEEL = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-win_amd64\n"


def checked(path: Path) -> CheckedWheel:
    """The wheel as if it had been checked, where it is."""
    return CheckedWheel(path, inspect_wheel(path), ())


def fatbin(arch: int = 90, cuda: str = "13.0") -> bytes:
    return container((ELF, f"{arch}a", 8), cuda=cuda)


def pe(
    machine: int = 0x8664,
    export: bytes = b"PyInit__C",
    tail: bytes = b"",
    imports: bytes = b"KERNEL32.dll",
) -> bytes:
    """A PE32+ DLL with one section: one export, one function imported by its number."""
    rva, raw = 0x1000, 0x200
    names = b"_C.pyd\0".ljust(16, b"\0") + export.ljust(32, b"\0") + imports.ljust(20, b"\0")
    tables = rva + len(names)
    exports = struct.pack(
        "<IIHHIIIIIII", 0, 0, 0, 0, rva, 1, 1, 1, tables + 40, tables + 44, tables + 48
    )
    exports += struct.pack("<IIHxx", rva, rva + 16, 0)
    imported = tables + len(exports)
    thunks = imported + 40
    body = names + exports + struct.pack("<IIIII", thunks, 0, 0, rva + 48, thunks) + bytes(20)
    body += struct.pack("<QQ", 1 << 63 | 1, 0)
    directories = struct.pack("<IIII", tables, len(exports), imported, 40).ljust(128, b"\0")
    optional = struct.pack("<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20B, 14, 0, 0, 0x1000, 0, 0, 0x1000,
        0x180000000, 0x1000, 0x200, 6, 0, 0, 0, 6, 0, 0, 0x2000, 0x200, 0, 2, 0, 1 << 20, 4096,
        1 << 20, 4096, 0, 16) + directories  # fmt: skip
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, len(optional), 0x2022) + optional
    head += struct.pack("<8sIIIIIIHHI", b".rdata", 0x1000, rva, 0x200, raw, 0, 0, 0, 0, 0x60000060)
    return head.ljust(raw, b"\0") + body.ljust(0x200, b"\0") + tail


FILES = {
    "pkg/__init__.py": b"x = 1\n",
    "pkg/_C.cp311-win_amd64.pyd": pe(tail=fatbin()),
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/WHEEL": WHEEL,
}


def record(files: dict[str, bytes], algorithm: str = "sha256") -> bytes:
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).decode()
        lines.append(f"{name},{algorithm}={digest.rstrip('=')},{len(data)}\n")
    return "".join([*lines, f"{INFO}/RECORD,,\n"]).encode()


def wheel(
    room: Path, files: dict[str, bytes], lines: bytes | None = None, name: str = NAME
) -> Path:
    path = room / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in files.items():
            archive.writestr(member, data)
        archive.writestr(f"{INFO}/RECORD", record(files) if lines is None else lines)
    return path


TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
#: As Linux calls it, under Windows too.
MACHINE = {"AMD64": "x86_64"}.get(platform.machine(), platform.machine())
TAGS = f"{TAG}-{TAG}-linux_{MACHINE}"
#: Of :func:`wheel_here`.
HERE = f"pkg-1.0+cu130-{TAGS}.whl"


def wheel_here(room: Path, arch: int = 90, more: Mapping[str, bytes] | None = None) -> Path:
    """One for this machine, with device code for one architecture, and with ``more`` files."""
    files = {
        "pkg/__init__.py": b"import json\n",
        "pkg/_C.so": b"\x7fELF" + fatbin(arch),
        f"{INFO}/METADATA": METADATA,
        f"{INFO}/WHEEL": WHEEL.replace(b"cp311-cp311-win_amd64", TAGS.encode()),
        **(more or {}),
    }
    return wheel(room, files, name=HERE)


def packed_here(room: Path, spec: Mapping[str, Any]) -> Path:
    """The same as a host packs it that was given ``spec``: with its bill of materials."""
    path = wheel_here(room)
    repack.repack(path, None, EPOCH, spec.get("bill", ""))
    return path
