"""Find the wheel that fits this Python, and explain why an installed one does not load.

    python which.py --index https://wheels.example.org/

It needs only Python 3.9 or later and installs nothing: it prints the command. See --help for more.
It is generated from windows-cuda-wheels 0.1.0,
and consists of its modules, one after the other.
"""
# ruff: noqa
# fmt: off

from __future__ import annotations

import os
import sys

if sys.version_info < (3, 9):
    sys.exit("which.py needs Python 3.9 or later, but this is %d.%d" % sys.version_info[:2])
_own_first = not sys.flags.isolated and not getattr(sys.flags, "safe_path", False)
if sys.path and _own_first and sys.argv[0] not in ("-c", "-m", ""):
    _own_folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    if os.path.abspath(sys.path[0] or ".") == _own_folder:
        del sys.path[0]

import argparse
import ast
import contextlib
import csv
import fnmatch
import importlib
import importlib.machinery
import io
import itertools
import json
import mmap
import ntpath
import os
import posixpath
import re
import shlex
import shutil
import site
import ssl
import struct
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any, IO, NamedTuple
from urllib.parse import quote


# -------------------- core/architectures/serving.py
# Which machine code and which PTX run on which GPU, and which libraries are of one CUDA release.

BY_CODE, BY_PTX = "machine code", "PTX"
_TOOLKIT = (
    *("cudart", "cublas", "cufft", "cupti", "curand", "cusolver", "cusparse", "cudnn", "npp"),
    *("nvjitlink", "nvjpeg", "nvrtc", "c10_cuda", "torch_cuda"),
)


def arch_number(arch: str) -> int:
    """``90a`` and its like as the number that GPUs report: 90."""
    return int(arch.rstrip("af"))


def code_runs_on(code: str, gpu: str, *, ptx: bool = False) -> bool:
    """Whether machine code for ``code`` runs on a GPU of ``gpu`` (``89``); with ``ptx`` its PTX.

    Machine code serves newer GPUs of its own major version, PTX every newer one; an ``a`` target
    that very one, an ``f`` target its family.
    """
    own, other = arch_number(code), arch_number(gpu)
    if own == other:
        return True
    near = own // 10 == other // 10
    return own < other and not code.endswith("a") and (near or (ptx and code.isdigit()))


def runnable_code_kind(sass: Iterable[str], ptx: Iterable[str], gpu: str) -> str:
    """By what code of one unit, or of a whole wheel, runs on a GPU; empty: by none."""
    if any(code_runs_on(code, gpu) for code in sass):
        return BY_CODE
    return BY_PTX if any(code_runs_on(code, gpu, ptx=True) for code in ptx) else ""


def is_of_toolkit(library: str) -> bool:
    """Whether a DLL belongs to a CUDA release, or is torch's for one; the driver's does not."""
    return library.lower().startswith(_TOOLKIT)


# -------------------- wheels/fatbin.py
# Which GPU architectures are inside a binary: a walk over its CUDA fat-binary containers.

#: A whole file, in memory or mapped into it; as text, for Python 3.9 reads this file as well.
Data: TypeAlias = "bytes | mmap.mmap"
_WINDOW = 16 << 20  # bytes of a mapped file that are kept in memory while it is searched

MAGIC = struct.pack("<I", 0xBA55ED50)
#: With its version and the size of its header: how every container begins that is known.
HEAD = MAGIC + struct.pack("<HH", 1, 16)
PTX, ELF, LTO = 1, 2, 8
_NAMES = {PTX: "compute", ELF: "sm", LTO: "lto"}
FLAG_A, FLAG_F = 1 << 20, 1 << 21

_CONTAINER = struct.Struct("<IHHQ")
# kind, version, header, payload; packed at 16; minor and major at 24; arch at 28; flags at 40;
# unpacked at 56
_ENTRY = struct.Struct("<HHIQI4xHHI8xQ8xQ")
_CONTAINER_VERSION = 1
_MAX_HEADER = 1 << 20
_KINDS = frozenset(1 << bit for bit in range(1, 16)) | {PTX}
_MAX_ARCH = 9999
#: Magic hits and entries looked at in one file, together: a hostile file ends the walk here.
#: The largest wheel seen (606 containers, 12 entries each) needs fewer than 8,000.
MAX_STEPS = 250_000

FLAG_LZ4, FLAG_ZSTD = 1 << 13, 1 << 15
#: Of a packed cubin no more is unpacked than this multiple of its size, and these bytes: a hostile
#: file costs no more. ptxas packs to a nineteenth at best, with the release after a sixth of it.
_MOST_TIMES, _MOST_UNPACKED = 16, 64 << 20
_CUBIN = struct.Struct("<4s4xB7x4xI")  # magic, ABI version at 8, e_version at 20
_OLD_ABI = 7
_RELEASE = re.compile(rb"Cuda compilation tools, release (\d{1,3}\.\d{1,3}), V")


@dataclass(frozen=True)
class Container:
    """One fat binary: what one compiled unit (or one device link) carries.

    ``offset`` is where its magic lies in the file. ``other`` names entries that are neither
    SASS nor PTX, such as ``lto_90``. ``intact`` is False when the entries did not fill the
    container exactly: a cut or damaged file. ``releases`` are the CUDA versions that made its
    SASS (``13.0``), ``isas`` the versions of its PTX (``9.0``); empty if they cannot be read.
    """

    offset: int
    sass: frozenset[str]
    ptx: frozenset[str]
    other: frozenset[str] = frozenset()
    intact: bool = True
    releases: frozenset[str] = frozenset()
    isas: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Inventory:
    """All containers of a file, in file order. ``complete`` is False when the walk was cut off."""

    containers: tuple[Container, ...] = ()
    complete: bool = True

    @property
    def sass(self) -> frozenset[str]:
        """SASS architectures that at least one container carries."""
        return frozenset().union(*(container.sass for container in self.containers))

    @property
    def ptx(self) -> frozenset[str]:
        """PTX architectures that at least one container carries."""
        return frozenset().union(*(container.ptx for container in self.containers))

    def uneven(self) -> dict[str, int]:
        """SASS arch -> how many containers carry it, for those missing in some container.

        One unit without an architecture is a crash on that GPU only when the unit is called.
        """
        counts = Counter(arch for container in self.containers for arch in container.sass)
        return {
            arch: counts[arch]
            for arch in sorted(counts, key=arch_key)
            if counts[arch] < len(self.containers)
        }


class Entry(NamedTuple):
    """One entry of a container: code for one architecture, at ``body`` to ``end`` of the file."""

    kind: int
    arch: str
    start: int
    body: int
    end: int
    flags: int
    packed: int
    """Bytes of a compressed payload, before its padding."""
    unpacked: int
    """Bytes that it has when it is unpacked."""
    made: str
    """CUDA version for SASS, ISA version for PTX; empty if unknown."""

    @property
    def name(self) -> str:
        """``sm_90``, ``compute_90``, ``lto_90``."""
        return f"{_NAMES.get(self.kind, f'kind{self.kind}')}_{self.arch}"


def arch_key(arch: str) -> tuple[int, str]:
    """Sort key for names like ``"90a"``: by number, then by suffix."""
    digits = arch.rstrip("abcdefghijklmnopqrstuvwxyz")
    return (int(digits) if digits.isdigit() else 0, arch[len(digits) :])


def inventory(data: Data) -> Inventory:
    """Every container in ``data`` (a whole file: PE, ELF, archive, object or bare fatbin).

    Never raises on any bytes, and looks at no more than ``MAX_STEPS`` places.
    """
    containers: list[Container] = []
    position, steps = find_bytes(data, MAGIC), 0
    while position >= 0:
        if steps >= MAX_STEPS:
            return Inventory(tuple(containers), complete=False)
        container, end, used = _container(data, position, MAX_STEPS - steps)
        steps += used + 1
        if container is not None:
            containers.append(container)
            release_mapped_pages(data)
        position = find_bytes(data, MAGIC, end)
    return Inventory(tuple(containers))


def find_bytes(data: Data, what: bytes, start: int = 0, end: int | None = None) -> int:
    """Like ``bytes.find``; searched pages of a mapped file are dropped from memory."""
    end = len(data) if end is None else end
    if isinstance(data, bytes):
        return data.find(what, start, end)
    while start < end:
        hit = data.find(what, start, min(start + _WINDOW + len(what) - 1, end))
        if hit >= 0:
            return hit
        release_mapped_pages(data)
        start += _WINDOW
    return -1


def release_mapped_pages(data: Data) -> None:
    """Drop a mapped file's pages from memory; Linux maps 2 MiB at a time of a new file."""
    if isinstance(data, mmap.mmap) and hasattr(data, "madvise"):  # not on Windows
        data.madvise(mmap.MADV_DONTNEED)


def container_entries(data: Data, container: Container) -> list[Entry]:
    """The entries of a container that :func:`inventory` found in ``data``."""
    _, _, header, size = _CONTAINER.unpack_from(data, container.offset)
    first = container.offset + header
    return list(
        _iter_container_entries(data, first, min(first + size, len(data)), MAX_STEPS, look=False)
    )


def _container(data: Data, start: int, budget: int) -> tuple[Container | None, int, int]:
    """Read the container at ``start``: itself (None: a false hit), where to go on, steps used.

    An empty container counts as a false hit; one whose first entry makes no sense is damaged.
    After a damaged one the search goes on behind its last good entry, so a wrong size hides
    nothing that follows.
    """
    miss = (None, start + len(MAGIC), 0)
    if start + _CONTAINER.size > len(data):
        return miss
    _, version, header, size = _CONTAINER.unpack_from(data, start)
    if version != _CONTAINER_VERSION or not _CONTAINER.size <= header <= _MAX_HEADER:
        return miss
    end = start + header + size
    entries = list(_iter_container_entries(data, start + header, min(end, len(data)), budget))
    if not entries and (size == 0 or header != _CONTAINER.size):
        return miss
    last = entries[-1].end if entries else start + header
    container = Container(
        offset=start,
        sass=frozenset(entry.arch for entry in entries if entry.kind == ELF),
        ptx=frozenset(entry.arch for entry in entries if entry.kind == PTX),
        other=frozenset(entry.name for entry in entries if entry.kind not in {ELF, PTX}),
        intact=last == end,
        releases=frozenset(e.made for e in entries if e.kind == ELF and e.made),
        isas=frozenset(e.made for e in entries if e.kind == PTX and e.made),
    )
    return container, last, len(entries)


def _iter_container_entries(
    data: Data, position: int, end: int, budget: int, *, look: bool = True
) -> Iterator[Entry]:
    """Entries from ``position`` until ``end`` or the first one that makes no sense.

    Each entry moves on by at least its fixed part, so this ends. ``look`` into SASS for its
    toolkit, which may require decompression.
    """
    while budget > 0 and position + _ENTRY.size <= end:
        row = _ENTRY.unpack_from(data, position)
        kind, _, header, size, packed, minor, major, arch, flags, unpacked = row
        following = position + header + size
        if (
            kind not in _KINDS
            or not _ENTRY.size <= header <= _MAX_HEADER
            or following > end
            or arch > _MAX_ARCH
        ):
            return
        suffix = "a" if flags & FLAG_A else "f" if flags & FLAG_F else ""
        made = f"{major}.{minor}" if kind == PTX else ""
        body = position + header
        if kind == ELF and look:
            made = _cubin_cuda_version(data, body, following, flags)
        yield Entry(
            kind, f"{arch}{suffix}", position, body, following, flags, packed, unpacked, made
        )
        position = following
        budget -= 1


def _cubin_cuda_version(data: Data, start: int, end: int, flags: int = 0) -> str:
    """The CUDA version that made a cubin, such as ``12.8``; empty if unknown."""
    if flags & (FLAG_LZ4 | FLAG_ZSTD):
        if flags & FLAG_ZSTD:
            cubin = _unpacked_zstd(data[start : min(end, start + _MOST_UNPACKED)])
        else:
            cubin = _decompress_lz4_prefix(data, start, end, _CUBIN.size)
        return _cubin_cuda_version(cubin, 0, len(cubin))
    head = data[start : min(end, start + _CUBIN.size)]
    if len(head) < _CUBIN.size:
        return ""
    magic, abi, version = _CUBIN.unpack_from(head)
    if magic != b"\x7fELF":
        return ""
    if abi <= _OLD_ABI:
        return f"{version // 10}.{version % 10}"
    match = _RELEASE.search(data, start, end)
    return match[1].decode() if match else ""


def _zstd() -> Any:
    """Python's own module or its backport, which are alike; or None."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


#: Python's module for Zstandard; ``None`` where there is none, as on a host.
ZSTD = _zstd()


def _unpacked_zstd(packed: bytes) -> bytes:
    """The first part of a Zstandard frame; nothing of one that is damaged, or without a module."""
    if ZSTD is None:
        return b""
    try:
        most = min(len(packed) * _MOST_TIMES, _MOST_UNPACKED)
        unpacked = ZSTD.ZstdDecompressor().decompress(packed, most)
    except ZSTD.ZstdError:
        return b""
    return bytes(unpacked)


def _decompress_lz4_prefix(data: Data, start: int, end: int, limit: int) -> bytes:
    """The first bytes of an LZ4 block, at most about ``wanted``; fewer of one that is damaged."""
    out = bytearray()
    while start < end and len(out) < limit:
        token = data[start]
        literals, start = _length(data, token >> 4, start + 1, end)
        out += data[start : min(end, start + min(literals, limit))]
        start += literals
        back = int.from_bytes(data[start : start + 2], "little")
        if start + 2 > end or not 0 < back <= len(out):
            break
        copied, start = _length(data, token & 15, start + 2, end)
        for _ in range(min(copied + 4, limit)):
            out.append(out[-back])
    return bytes(out[:limit])


def _length(data: Data, short: int, at: int, end: int) -> tuple[int, int]:
    """A length of LZ4: 15 goes on in the next bytes, up to one that is not 255; where it ends."""
    length, more = short, short == 15  # noqa: PLR2004
    while more and at < end:
        length += data[at]
        more = data[at] == 255  # noqa: PLR2004
        at += 1
    return length, at


def format_archs(archs: Iterable[str]) -> str:
    """``"75 80 90a"`` from a set of architectures; ``"none"`` from an empty one."""
    return " ".join(sorted(archs, key=arch_key)) or "none"


# -------------------- wheels/petables.py
# The tables by which Windows loads a binary: what it imports, at once and late, and exports.

_LONGEST = 8191  # characters; torch has names of 3,199, MSVC cuts its own at 4,096
_MOST = 200_000  # symbols of one binary: torch_cpu.dll exports 60,513
_TEXT = 64 << 20  # characters of all its names
_IMPORT = struct.Struct("<I8xII")  # names, the DLL's own name, addresses
_LATE = struct.Struct("<II8xI12x")  # attributes, the DLL's own name, names
_EXPORT = struct.Struct("<16xIIIIII")  # base, how many, how many names, and where the three are
_BY_RVA = 1
_PRINTED = frozenset(range(0x21, 0x7F))

#: DLL in lower case, and a name or a number as ``#12``.
Need = tuple[str, str]


class UnreadableError(ValueError):
    """An invalid table, or one larger than any linker writes."""


@dataclass
class Image:
    """A binary's memory layout: maps addresses to file offsets."""

    data: Data
    parts: tuple[tuple[int, int, int], ...]
    """Address, size and place in the file of each section."""
    wide: bool
    """Whether its addresses have 64 bits."""
    base: int
    left: int = _TEXT
    """Remaining budget of characters of names."""
    symbols: int = _MOST
    """Remaining budget of names: many tables can share the same bytes."""

    def place(self, address: int, size: int) -> int:
        """The file offset of ``size`` bytes at that address."""
        for start, length, at in self.parts:
            if start <= address and address + size <= start + length:
                return at + address - start
        raise UnreadableError(f"address {address:#x} is outside the file")

    def rows(self, kind: struct.Struct, address: int) -> Iterator[tuple[int, ...]]:
        """The rows of a table of unknown length."""
        for number in range(_MOST + 1):
            row = address + number * kind.size
            yield kind.unpack_from(self.data, self.place(row, kind.size))
        raise UnreadableError(f"the table at {address:#x} has no end")

    def numbers(self, code: str, count: int, address: int) -> tuple[int, ...]:
        """A table whose length is known."""
        if count > _MOST:
            raise UnreadableError(f"{count} symbols")
        kind = struct.Struct(f"<{count}{code}")
        return kind.unpack_from(self.data, self.place(address, kind.size)) if count else ()

    def text(self, address: int) -> str:
        """A name of printable characters."""
        at = self.place(address, 1)
        end = self.data.find(b"\0", at, at + _LONGEST + 1)
        text = self.data[at : max(end, at)]
        self.left -= len(text)
        if not text or self.left < 0 or not _PRINTED.issuperset(text):
            raise UnreadableError(f"no name at {address:#x}")
        return text.decode("ascii")


def read_imports(image: Image, address: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """Each DLL as written, with the symbols imported from it.

    Raises :class:`UnreadableError`, perhaps after the first ones.
    """
    for names, library, addresses in image.rows(_IMPORT, address):
        if not library or not addresses:  # either ends the table
            return
        yield _imports_of(image, library, names or addresses, 0)


def read_late(image: Image, address: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """Like :func:`read_imports`, for delay-loaded DLLs."""
    for attributes, library, names in image.rows(_LATE, address):
        if not library:
            return
        # Before Visual C++ 7 these were absolute addresses.
        base = 0 if attributes & _BY_RVA else image.base
        yield _imports_of(image, library - base, names - base, base)


def _imports_of(image: Image, library: int, names: int, base: int) -> tuple[str, tuple[Need, ...]]:
    written = image.text(library)
    kind, numbered = (
        (struct.Struct("<Q"), 1 << 63) if image.wide else (struct.Struct("<I"), 1 << 31)
    )
    symbols = []
    for (value,) in image.rows(kind, names):
        if not value:
            break
        image.symbols -= 1
        if image.symbols < 0:
            raise UnreadableError("too many names")
        number = f"#{value & 0xFFFF}"
        symbols.append(number if value & numbered else image.text(value - base + 2))
    return written, tuple((written.lower(), name) for name in symbols)


def read_exports(image: Image, address: int) -> dict[str, int]:
    """Names, and ordinals as ``#12``, with their addresses; raises :class:`UnreadableError`."""
    head = _EXPORT.unpack_from(image.data, image.place(address, _EXPORT.size))
    base, count, named, functions, names, ordinals = head
    there = image.numbers("I", count, functions)
    labels = [image.text(rva) for rva in image.numbers("I", named, names)]
    numbers = image.numbers("H", named, ordinals)
    if any(number >= count or not there[number] for number in numbers):
        raise UnreadableError("a name without an address")
    if any(label >= labels[at] for at, label in enumerate(labels[:-1], 1)):
        raise UnreadableError("names out of order: Windows uses binary search")
    addresses = {f"#{base + at}": rva for at, rva in enumerate(there) if rva}
    return addresses | {name: there[at] for name, at in zip(labels, numbers, strict=True)}


def read_forwards(image: Image, address: int, size: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """Like :func:`read_late`, for exports forwarded to another DLL."""
    _, count, _, functions, _, _ = _EXPORT.unpack_from(
        image.data, image.place(address, _EXPORT.size)
    )
    for forward in image.numbers("I", count, functions):
        if address <= forward < address + size:
            library, _, name = image.text(forward).rpartition(".")
            yield f"{library}.dll", ((f"{library}.dll".lower(), name),)


# -------------------- publish/memory.py
# What was seen last of each index and signed wheel, to notice an older one that is put back.

def memory_file() -> Path:
    """``$XDG_CONFIG_HOME/windows-cuda-wheels/seen.json``, or below ``~/.config``."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    home = os.path.expanduser(base)  # noqa: PTH111 - Path.expanduser raises where there is no home
    return Path(home) / "windows-cuda-wheels" / "seen.json"


def rollback_problem(name: str, serial: int, digest: str, yanked: Iterable[str] = ()) -> str:
    """Why this is not what was seen last of ``name``, or later; empty: it is.

    ``yanked``: the files that are withdrawn, and stay so.
    """
    try:
        seen = _seen().get(name, {})
        last, back = int(seen.get("serial", 0)), {*seen.get("yanked", ())} - {*yanked}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return f"{memory_file()} cannot be read; remove it"
    if serial < last:
        return f"serial {serial} is older than serial {last}, which was seen before"
    if serial == last and seen.get("sha256", digest) != digest:
        return f"it differs from the one seen before with serial {serial}"
    return f"{min(back)} was yanked but no longer is" if back else ""


def record_last_seen(name: str, serial: int, digest: str, yanked: Iterable[str] = ()) -> None:
    """Keep what was seen last; ``OSError`` where it cannot be written."""
    path = memory_file()
    if not path.is_absolute():
        raise OSError("this user has no home directory")
    known = {**_seen(), name: {"serial": serial, "sha256": digest, "yanked": sorted(yanked)}}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(known, indent=1), encoding="utf-8")
    part.replace(path)


def _seen() -> dict[str, Any]:
    try:
        return dict(json.loads(memory_file().read_bytes()))
    except FileNotFoundError:
        return {}


# -------------------- publish/which/texts.py
# Texts of others made harmless, and versions compared; with the standard library alone.

_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d{1,9})!)?(?P<release>\d{1,9}(?:\.\d{1,9}){0,9})"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_number>\d{0,9}))?"
    r"(?P<post>-\d{1,9}|[-_.]?(?:post|rev|r)[-_.]?\d{0,9})?"
    r"(?P<dev>[-_.]?dev[-_.]?\d{0,9})?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE | re.ASCII,
)
_NO_DEV = 1 << 40
_PATCHES = 40  # more than any release of Python has
_PRE = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_MINOR = re.compile(r"(\d{1,4})\.(\d{1,4})")

#: What sorts as PEP 440 says.
VersionKey = tuple[
    int, tuple[int, ...], tuple[str, int], int, int, tuple[tuple[int, int, str], ...]
]


class RefusalError(Exception):
    """What is said instead of an answer: found and expected, and what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def ascii_line(text: object, limit: int = 300) -> str:
    """On one line, printable ASCII alone, bounded: for terminals of any code page."""
    kept = (c if " " <= c <= "~" else " " if c.isspace() else "?" for c in str(text)[: 4 * limit])
    line = " ".join("".join(kept).split())
    return line if len(line) <= limit else line[:limit] + " ..."


def normalize_project(name: str) -> str:
    """The one spelling of a project's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version_key(text: str) -> VersionKey:
    """By which versions are compared; :class:`ValueError` for what is none."""
    found = _VERSION.fullmatch(text.strip()[:200])
    if found is None:
        raise ValueError(f"{ascii_line(text, 80)} is not a version")
    release = [int(one) for one in found["release"].split(".")]
    while len(release) > 1 and not release[-1]:
        release.pop()
    post = _digits_as_int(found["post"], -1)
    dev = _digits_as_int(found["dev"], _NO_DEV)
    if found["pre"]:
        kind = found["pre"].lower()
        pre = (_PRE.get(kind, kind), int(found["pre_number"] or 0))
    else:  # a development release without more comes before all others
        pre = ("", 0) if found["dev"] and not found["post"] else ("z", 0)
    local = (
        (1, int(one), "") if one.isdigit() else (0, 0, one.lower())
        for one in re.split(r"[-_.]", found["local"] or "")
        if one
    )
    return (int(found["epoch"] or 0), tuple(release), pre, post, dev, tuple(local))


def is_final_release(text: str) -> bool:
    """Whether a version is neither a pre-release nor one of development."""
    _, _, pre, _, dev, _ = version_key(text)
    return pre == ("z", 0) and dev == _NO_DEV


def _digits_as_int(text: str | None, absent: int) -> int:
    return absent if text is None else int(re.sub(r"\D", "", text) or 0)


def minor_of(text: str) -> tuple[int, int]:
    """``2.8.0+cu128`` is 2 and 8; 0 and 0 for what does not begin so."""
    found = _MINOR.match(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def satisfies_specifiers(version: str, specifiers: str) -> bool:
    """Whether specifiers of PEP 440 allow a version; ``ValueError`` for others."""
    return all(_allows(version, one.strip()) for one in specifiers.split(",") if one.strip())


def _allows(version: str, clause: str) -> bool:
    found = re.fullmatch(r"(>=|<=|==|!=|~=|>|<)\s*([^*]{1,60}?)(\.\*)?", clause)
    if found is None or (found[3] and found[1] not in ("==", "!=")):
        raise ValueError(f"{ascii_line(clause, 80)} is not a version range")
    how, text, star = found.groups()
    own, bound = version_key(version), version_key(text)
    local = bool(bound[5])
    first, second = (own, bound) if local else (own[:5], bound[:5])
    if star or how == "~=":
        parts = text.split("!")[-1].count(".") + (how != "~=")
        same = own[0] == bound[0] and _padded_release(own, parts) == _padded_release(bound, parts)
        return same != (how == "!=") and (how != "~=" or first >= second)
    return {
        ">=": first >= second,
        "<=": first <= second,
        "==": first == second,
        "!=": first != second,
        ">": first > second,
        "<": first < second,
    }[how]


def _padded_release(key: VersionKey, parts: int) -> tuple[int, ...]:
    """Its first parts: a key has no zeros at its end."""
    return (*key[1], *[0] * parts)[:parts]


def accepts_python(specifiers: str, python: str) -> bool:
    """Whether a Requires-Python takes that minor release, such as ``3.12``.

    Of the patch nothing is known: one that is taken will do. What is not understood takes none.
    """
    try:
        return any(
            satisfies_specifiers(f"{python.rstrip('t')}.{patch}", specifiers)
            for patch in range(_PATCHES)
        )
    except ValueError:
        return False


# -------------------- publish/which/machine.py
# What of a machine decides which wheel fits it, and the line in which people pass that on.

PREFIX = "wcw1:"


@dataclass(frozen=True)
class Machine:
    """A Python and what it runs on; no names and no paths."""

    platform: str
    """As the tags of wheels have it: ``win_amd64``."""
    python: str
    """``3.12``; ``3.13t`` without the global lock."""
    torch: str = ""
    """Its version as pip knows it, also where its files say ``+cu130`` besides; empty: none."""
    cuda: str = ""
    """``torch.version.cuda``; empty: a torch for the processor alone, or none."""
    driver: str = ""
    """The release of CUDA that the driver reports; empty: no driver."""
    gpus: tuple[str, ...] = ()
    """The compute capability of each."""

    @property
    def line(self) -> str:
        """As one line, which the index's page reads."""
        values = {
            "platform": self.platform,
            "python": self.python,
            "torch": self.torch,
            "cuda": self.cuda,
            "driver": self.driver,
            "gpu": ",".join(self.gpus),
        }
        return PREFIX + "&".join(f"{key}={quote(value, safe=',')}" for key, value in values.items())


# -------------------- publish/which/listed.py
# The wheels that an index lists: ``catalogue.json``, read as the untrusted text that it is.

CATALOGUE_NAME = "catalogue.json"
_MOST_BYTES = 64 << 20
_MOST_WHEELS = 50_000
_MOST_PARTS_OF_ALL = 40 * _MOST_WHEELS
_PATIENCE, _SILENCE = 120.0, 20.0  # seconds for all of it, and for a piece of it
_PIECE = 1 << 18
_ARCHES = r"\d{2,3}[af]?"
_FORBIDDEN = 403
_LOCAL = "http://127.0.0.1:"
_WHEEL = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.]*)-(?P<version>[\w.+!]+)(?:-(?P<build>\d\w*))?"
    r"-(?P<python>[a-z][\w.]*)-(?P<abi>[\w.]+)-(?P<platform>[\w.]+?)(?:-(?P<label>[\w.]+))?\.whl",
    re.ASCII,
)
_TEXTS = {
    "file": r"[\w.+!-]{8,200}",
    "sha256": r"[0-9a-f]{64}",
    "url": r"(https://|http://127\.0\.0\.1:|files/)[\w.~%+!/:@=-]{1,1000}",
    "requires_python": r"[ -~]{0,500}",
    "torch": r"(\d+\.\d+)?",
    "cuda": r"(\d+\.\d+)?",
    "uploaded": r"[\dTZ:-]{20}",
}


@dataclass(frozen=True)
class Row:
    """A wheel of an index, as far as it decides what fits."""

    file: str
    sha256: str
    url: str
    """Where it lies: below the index, or an https address."""
    project: str
    version: str
    tags: tuple[tuple[str, str, str], ...]
    """Python, ABI and platform, of each of its tags."""
    requires_python: str
    torch: str
    cuda: str
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    stable: bool
    """Whether it is for its torch and every later one."""
    any_cuda: bool
    """Whether it is for a torch of any CUDA."""
    tested: bool
    smoke: str
    uploaded: str


def read_catalogue_rows(data: bytes, where: str = "the index") -> list[Row]:
    """The plain wheels of a catalogue that were not yanked.

    Raises :class:`RefusalError` for one that is damaged, too large or not a catalogue: then none of
    its wheels is offered.
    """
    try:
        return _parse_catalogue_rows(data)
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        start = data[:40].decode("ascii", "replace").lstrip()
        said = (
            f"it begins with {ascii_line(start, 40)!r}"
            if start[:1] not in "{["
            else ascii_line(error, 200)
        )
        raise RefusalError(
            f"{CATALOGUE_NAME} of {ascii_line(where, 200)} is not valid: {said}",
            "Open the address in a browser: it should show the index's front page.",
        ) from None


def _parse_catalogue_rows(data: bytes) -> list[Row]:
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
    if data.count(b"[") + data.count(b"{") > _MOST_PARTS_OF_ALL:
        raise ValueError("it has too many parts")  # each takes 25 times its bytes
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("schema_version") != 1:
        said = document.get("schema_version") if isinstance(document, dict) else None
        newer = isinstance(said, int) and said > 1
        raise ValueError(
            f"it has schema version {ascii_line(said, 20)}: use the which.py of that index"
            if newer
            else "it does not have schema version 1"
        )
    wheels = document.get("wheels")
    if not isinstance(wheels, list) or len(wheels) > _MOST_WHEELS:
        raise ValueError(f"it has no list of at most {_MOST_WHEELS} wheels")
    rows = [_parse_catalogue_row(one) for one in wheels]
    names = [row.file for row, _ in rows]
    if len({*names}) != len(names):
        raise ValueError("two wheels have the same name")
    return [row for row, plain in rows if plain]


def _parse_catalogue_row(entry: Any) -> tuple[Row, bool]:
    """A wheel, and whether it is a plain one that may be taken."""
    text = {key: _require_matching_text(entry, key, form) for key, form in _TEXTS.items()}
    name = _WHEEL.fullmatch(text["file"])
    if name is None:
        raise ValueError(f"{text['file']} is not the name of a wheel")
    version_key(name["version"])
    if ".." in text["url"] or urllib.parse.unquote(text["url"]).rpartition("/")[2] != text["file"]:
        raise ValueError(f"{text['file']} has an address with another name")
    smoke = entry["smoke"]
    verdict = _require_matching_text(smoke, "verdict", "passed|untested")
    gpus = ", ".join(ascii_line(one, 60) for one in smoke.get("gpus", [])[:4])
    row = Row(
        **text,
        sass=tuple(_parse_arch_list(entry, "sass")),
        ptx=tuple(_parse_arch_list(entry, "ptx")),
        project=normalize_project(name["name"]),
        version=name["version"],
        tags=tuple(
            (python, abi, platform)
            for python in name["python"].split(".")
            for abi in name["abi"].split(".")
            for platform in name["platform"].split(".")
        ),
        stable=entry.get("stable", False) is True,
        any_cuda=entry.get("any_cuda", False) is True,
        tested=verdict == "passed",
        smoke=f"tested on {gpus}" if verdict == "passed" else "UNTESTED on any GPU",
    )
    return row, not name["label"] and entry.get("yanked") is None


def _require_matching_text(entry: Any, key: str, form: str) -> str:
    value = entry[key] if key != "requires_python" else entry.get(key, "")
    if not isinstance(value, str) or not re.fullmatch(form, value, re.ASCII):
        raise ValueError(f"{key}: {ascii_line(value, 80)}")
    return value


def _parse_arch_list(entry: Any, key: str) -> list[str]:
    values = entry.get(key, [])
    if not isinstance(values, list) or len(values) > 64:  # noqa: PLR2004
        raise ValueError(f"{key}: {ascii_line(values, 80)}")
    return [_require_matching_text({key: one}, key, _ARCHES) for one in values]


def fetch_rows(index: str, catalogue: str = "") -> tuple[list[Row], str]:
    """The wheels of an index, a directory or an address, and where its files lie.

    ``catalogue`` is a file that somebody has saved, of the index at an address. Raises
    :class:`RefusalError` where it cannot be read whole, whatever a server answers.
    """
    base = _normalize_index_url(index) if "://" in index else ""
    if base and not catalogue:
        data = _download_bounded(base + CATALOGUE_NAME)
        return _latest_rows(data, base, base), base
    folder = Path(os.path.expanduser(index)).absolute()
    file = Path(os.path.expanduser(catalogue)) if catalogue else folder / CATALOGUE_NAME
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RefusalError(
            f"{ascii_line(file.parent, 300)}: {ascii_line(file.name, 100)} cannot be read: "
            f"{ascii_line(error.strerror, 100)}",
            "Name the directory or the https address of an index.",
        ) from None
    base = base or folder.as_uri() + "/"
    return _latest_rows(data, base, str(file.parent)), base


def _latest_rows(data: bytes, base: str, where: str) -> list[Row]:
    """The wheels, unless a later catalogue of the index at ``base`` was seen here before."""
    rows, document = read_catalogue_rows(data, where), json.loads(data)
    if base.startswith(_LOCAL):  # a port of this machine, of another program each time
        return rows
    generation = document.get("generation")
    serial, digest = generation if isinstance(generation, int) else 0, sha256(data).hexdigest()
    yanked = [one["file"] for one in document["wheels"] if one.get("yanked") is not None]
    if why := rollback_problem(base, serial, digest, yanked):
        raise RefusalError(
            f"{CATALOGUE_NAME} of {ascii_line(where, 200)}: {ascii_line(why, 300)}",
            f"It may be an old copy. If its owner says that it is right, remove {memory_file()}.",
        )
    try:
        record_last_seen(base, serial, digest, yanked)
    except OSError as error:
        said = f"older copies of this index will not be noticed: {ascii_line(error, 200)}"
        print(f"which: {said}", file=sys.stderr)
    return rows


def _normalize_index_url(index: str) -> str:
    """The address of an index, ending with a slash."""
    try:
        parts = urllib.parse.urlsplit(index)
        _ = parts.port  # or none that can be
    except ValueError as error:
        raise RefusalError(
            f"the address of the index is invalid: {ascii_line(error, 100)}"
        ) from None
    if "@" in parts.netloc:  # it would stand in the command that people pass on
        raise RefusalError(
            "the address of the index contains a user name or password",
            "Remove it: this program does not support signing in.",
        )
    if not index.startswith(("https://", _LOCAL)) or not parts.hostname:
        raise RefusalError(f"{ascii_line(index, 200)}: expected an https address or a directory")
    path = parts.path
    if path.endswith((".html", ".json", ".py")):
        path = path.rpartition("/")[0]
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path.rstrip("/") + "/", "", ""))


class _Onward(urllib.request.HTTPRedirectHandler):
    """Follows to https alone: who sits on a way without it could lead on to anywhere."""

    def redirect_request(  # noqa: PLR0917 - as it is there
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        local = req.full_url.startswith(_LOCAL) and newurl.startswith(_LOCAL)
        if not newurl.startswith("https://") and not local:
            raise RefusalError(f"{ascii_line(req.full_url)} redirects to an address without https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download_bounded(url: str) -> bytes:
    """What a server answers, bounded in bytes and in time."""
    until = time.monotonic() + _PATIENCE
    data = bytearray()
    shown = ascii_line(url)
    saved = f"Save {shown} (with curl.exe -O), then add --index {shown.rpartition('/')[0]}/"
    saved += f" --catalogue {CATALOGUE_NAME}"
    try:
        # Python 3.13 refuses what pip takes: https://github.com/python/cpython/issues/138193
        context = ssl.create_default_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        secure = urllib.request.HTTPSHandler(context=context)
        opener = urllib.request.build_opener(_Onward, secure)
        # That of urllib is refused by fronts that check browsers (Cloudflare's error 1010).
        opener.addheaders = [("User-Agent", "which.py")]
        with opener.open(url, timeout=_SILENCE) as answer:
            while piece := answer.read1(_PIECE):
                data += piece
                if len(data) > _MOST_BYTES:
                    raise RefusalError(
                        f"{ascii_line(url)} has more than {_MOST_BYTES >> 20} MiB: not an index"
                    )
                if time.monotonic() > until:
                    raise RefusalError(f"{ascii_line(url)} takes longer than {_PATIENCE:.0f} s")
            length = answer.headers.get("Content-Length")
            if length is not None and length.isdigit() and int(length) != len(data):
                raise RefusalError(
                    f"{ascii_line(url)}: got {len(data)} of {length} bytes: try again"
                )
    except urllib.error.HTTPError as error:
        hint = "Use the address of the index's front page. If it is right, try again later."
        if error.code == _FORBIDDEN:
            hint = f"A proxy in front of it may reject programs. {saved}"
        raise RefusalError(f"{ascii_line(url)}: HTTP status {error.code}", hint) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        # Windows fetches authorities when it first needs them; Python has those that are there.
        distrusted = isinstance(reason, ssl.SSLCertVerificationError)
        hint = saved if distrusted else "Check the network connection."
        raise RefusalError(
            f"{ascii_line(url)} cannot be read: {ascii_line(reason, 200)}", hint
        ) from None
    return bytes(data)


def place_of(row: Row, base: str) -> str:
    """The address of a wheel of the index at ``base``."""
    quoted = urllib.parse.quote(row.url, safe="/:@!=~%")
    return quoted if "://" in quoted else base + quoted


# -------------------- publish/which/choosing.py
# Which wheel of an index fits a machine, and what it would take where none does.

_FIRST_ABI3T = 15  # of Python 3


@dataclass(frozen=True)
class Judged:
    """A wheel held against a machine."""

    row: Row
    by: str
    """``machine code`` or ``PTX`` by which it runs on the GPUs; empty: by none."""
    missed: tuple[str, ...]
    """Each rule that it misses, in words with both values; empty: it fits."""

    @property
    def fits(self) -> bool:
        """Whether it misses none."""
        return not self.missed


def choose_wheel(rows: Iterable[Row], machine: Machine, package: str = "") -> Judged | None:
    """The best wheel for a machine, of ``package`` alone if it is named; else the nearest.

    ``None`` where the index has none.
    """
    judged = [judge_row(row, machine) for row in rows if package in ("", row.project)]
    return max(judged, key=lambda one: (-len(one.missed), *_candidate_sort_key(one)), default=None)


def _candidate_sort_key(
    one: Judged,
) -> tuple[bool, bool, bool, VersionKey, tuple[int, int], str, str]:
    row = one.row
    return (
        one.by == BY_CODE,
        row.tested,
        is_final_release(row.version),  # no installer takes another of itself
        version_key(row.version),
        minor_of(row.cuda),
        row.uploaded,
        row.file,  # so that the same one is named each time
    )


def judge_row(row: Row, machine: Machine) -> Judged:
    """One wheel by all rules."""
    by = _served(row, machine)
    rules = (
        _of_platform(row, machine),
        _python_mismatch(row, machine),
        _torch_mismatch(row, machine),
        _of_cuda(row, machine),
        _of_driver(row, machine, by),
        _of_gpus(row, machine, by),
    )
    return Judged(row, by, tuple(one for one in rules if one))


def _of_platform(row: Row, machine: Machine) -> str:
    has = {platform for *_, platform in row.tags}
    if has & {machine.platform, "any"}:
        return ""
    return f"it is for {' and '.join(sorted(has))}, but this Python is for {machine.platform}"


def _python_mismatch(row: Row, machine: Machine) -> str:
    if not any(runs_python(python, abi, machine.python) for python, abi, _ in row.tags):
        said = " and ".join(sorted({f"{python}-{abi}" for python, abi, _ in row.tags}))
        return f"it is for Python {said}, but this is Python {machine.python}"
    if not accepts_python(row.requires_python, machine.python):
        return f"it requires Python {row.requires_python}, but this is Python {machine.python}"
    return ""


def runs_python(python: str, abi: str, own: str) -> bool:
    """Whether a tag's Python and ABI are for the Python ``3.12``, or ``3.13t``."""
    if python == "py3" and abi == "none":
        return True
    found = re.fullmatch(r"(cp|py)3(\d{1,2})", python)
    if found is None:
        return False
    free = own.endswith("t")
    minor, has = int(found[2]), minor_of(own)[1]
    if abi in ("abi3", "abi3t"):  # https://peps.python.org/pep-0803/: of 3.15 and later
        alike = free == (abi == "abi3t") and (not free or has >= _FIRST_ABI3T)
        return alike and found[1] == "cp" and has >= minor
    if found[1] == "py":
        return abi == "none" and has >= minor
    return has == minor and abi in ("none", f"cp3{minor}{'t' * free}")


def _torch_mismatch(row: Row, machine: Machine) -> str:
    if not row.torch:
        return ""
    if not machine.torch:
        return f"it is for torch {row.torch}, but no torch is installed"
    own, wanted = minor_of(machine.torch), minor_of(row.torch)
    if own == wanted or (row.stable and own > wanted):
        return ""
    later = " and later" if row.stable else ""
    return f"it is for torch {row.torch}{later}, but this is torch {machine.torch}"


def _of_cuda(row: Row, machine: Machine) -> str:
    if not row.torch or not row.cuda or not machine.torch:
        return ""
    if not machine.cuda:
        return f"it is for CUDA {row.cuda}, but torch {machine.torch} is a build without CUDA"
    own, wanted = minor_of(machine.cuda), minor_of(row.cuda)
    if row.any_cuda or (own[0] == wanted[0] and wanted <= own):
        return ""
    return f"it is for CUDA {row.cuda}, but torch was built with CUDA {machine.cuda}"


def _of_driver(row: Row, machine: Machine, by: str) -> str:
    if not row.cuda:
        return ""
    if not machine.driver:
        return f"it is for CUDA {row.cuda}, but there is no NVIDIA driver"
    own, wanted = minor_of(machine.driver), minor_of(row.cuda)
    if own[0] < wanted[0] or (by == BY_PTX and own < wanted):
        how = "its PTX" if own[0] == wanted[0] else "it"
        return (
            f"{how} needs a driver for CUDA {row.cuda}, but this one is for CUDA {machine.driver}"
        )
    return ""


def _of_gpus(row: Row, machine: Machine, by: str) -> str:
    if by:
        return ""
    code = ", ".join([*row.sass, *(f"{one} as PTX" for one in row.ptx)]) or "no GPU"
    own = " and ".join(machine.gpus)
    return f"it has code for {code}, but " + (
        f"the GPU has compute capability {own}" if own else "there is no GPU"
    )


def _served(row: Row, machine: Machine) -> str:
    """By what it runs on every GPU of the machine; PTX if one of them has nothing better."""
    ways = [runnable_code_kind(row.sass, row.ptx, one.replace(".", "")) for one in machine.gpus]
    if not all(ways):
        return ""
    return BY_PTX if BY_PTX in ways else "".join(ways[:1])


# -------------------- publish/which/children.py
# Processes that may hang, crash or print without end: bounded in time and in what is kept.

_MARK = "wcw1 "
_MOST_OUTPUT = 16 << 20
_GONE = 5.0  # seconds in which a killed process is away
_READ = 1 << 16


@dataclass(frozen=True)
class Ended:
    """What became of a process."""

    code: int | None
    """Its exit code; ``None``: it was ended, ``why`` says for what."""
    output: str
    """The end of what it has printed, both streams together unless they were kept apart."""
    why: str = ""
    errors: str = ""
    """The end of its standard error, where that was kept by itself."""

    @property
    def result(self) -> dict[str, Any]:
        """The object of its last marked line; empty where there is none."""
        for line in reversed(self.output.splitlines()):
            if line.startswith(_MARK):
                try:
                    found = json.loads(line[len(_MARK) :])
                except (ValueError, RecursionError):
                    return {}
                return found if isinstance(found, dict) else {}
        return {}


def run_child(
    command: Sequence[str], seconds: float, *, most: int = 1 << 16, apart: bool = False
) -> Ended:
    """Run it with nothing to read; at most ``seconds``, of its output the last ``most`` bytes.

    With ``apart`` its standard error is kept by itself.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        )
    except (OSError, ValueError) as error:
        return Ended(None, "", f"it cannot be started: {error}")
    over = threading.Event()
    kept = [bytearray(), bytearray()]

    def read(stream: IO[bytes], into: bytearray) -> None:
        total = 0
        while piece := os.read(stream.fileno(), _READ):
            into.extend(piece)
            total += len(piece)
            del into[: max(len(into) - most, 0)]
            if total > _MOST_OUTPUT:
                over.set()
                process.kill()
                return

    readers = [
        threading.Thread(target=read, args=(stream, kept[at]), daemon=True)
        for at, stream in enumerate((process.stdout, process.stderr))
        if stream is not None
    ]
    for one in readers:
        one.start()
    why = ""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        why = f"it was killed after {seconds:.0f} s"
        process.kill()
    for one in readers:
        one.join(_GONE)
    if over.is_set():
        why = f"it printed more than {_MOST_OUTPUT >> 20} MiB"
    output, errors = (bytes(one).decode("utf-8", "replace") for one in kept)
    return Ended(None if why else process.wait(_GONE), output, why, errors)


# -------------------- publish/which/images.py
# What of a Windows binary decides whether it can be loaded: its machine, and if it is whole.

MACHINES = {0x8664: "x64", 0x14C: "32-bit x86", 0xAA64: "ARM64"}
_PE = struct.Struct("<4sHH12xHH")  # signature, machine, sections, bytes of the next header
_DIRECTORIES = {0x20B: 112, 0x10B: 96}  # where they begin in the optional header
_DIRECTORY = struct.Struct("<II")
_PART = struct.Struct("<8x4I")  # size, address, bytes in the file, and where
_EXPORTS, _IMPORTS, _LATES = 0, 1, 13
_BLOCK = ~0x1FF
_FIXED = b"\xbd\x04\xef\xfe"  # of VS_FIXEDFILEINFO
_MOST_PARTS, _MOST_TABLES = 96, 16


@dataclass(frozen=True)
class Loaded:
    """What a DLL imports from other DLLs, and what it exports."""

    machine: int
    whole: bool
    """Whether the file has all the bytes that its headers announce."""
    needs: tuple[Need, ...] = ()
    """DLLs in lower case, with a name or a number as ``#12``."""
    late: tuple[Need, ...] = ()
    """Those that are looked for when they are first called."""
    exports: frozenset[str] = frozenset()
    libraries: tuple[str, ...] = ()
    """Every DLL that must be there before it can be loaded, in lower case."""
    linker: tuple[int, int] = (0, 0)
    """The version of the linker; of MSVC's also that of the toolset."""


@contextmanager
def open_mapped(path: str) -> Iterator[Data]:
    """A file, mapped into memory; ``OSError`` where it cannot be read."""
    with open(path, "rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty one
            yield b""
            return
        with data:
            yield data


def read_image(path: str) -> Loaded:
    """Headers, imports and exports.

    Raises :class:`UnreadableError` for what is no Windows binary, or says what cannot be;
    ``OSError`` for one that cannot be read.
    """
    with open_mapped(path) as data:
        start = int.from_bytes(data[0x3C:0x40], "little")
        try:
            machine, whole, image, tables = _headers(data)
        except struct.error:
            raise UnreadableError("its headers are truncated") from None
        if not whole:
            return Loaded(machine, False)
        imported = [*read_imports(image, tables[_IMPORTS])] if tables[_IMPORTS] else []
        late = [*read_late(image, tables[_LATES])] if tables[_LATES] else []
        exports = read_exports(image, tables[_EXPORTS]) if tables[_EXPORTS] else {}
        return Loaded(
            machine,
            True,
            tuple(need for _, needs in imported for need in needs),
            tuple(need for _, needs in late for need in needs),
            frozenset(exports),
            tuple(dict.fromkeys(name.lower() for name, _ in imported)),
            (data[start + 26], data[start + 27]),
        )


def _headers(data: Data) -> tuple[int, bool, Image, list[int]]:
    if data[:2] != b"MZ":
        raise UnreadableError("it is not a Windows binary")
    start = int.from_bytes(data[0x3C:0x40], "little")
    signature, machine, count, size, _ = _PE.unpack_from(data, start)
    first = start + 24
    kind = int.from_bytes(data[first : first + 2], "little")
    if signature != b"PE\0\0" or kind not in _DIRECTORIES or count > _MOST_PARTS:
        raise UnreadableError("it is not a Windows binary")
    wide = kind == 0x20B  # noqa: PLR2004 - PE32+
    at = first + _DIRECTORIES[kind]
    tables = [0] * _MOST_TABLES
    for number in range(min(int.from_bytes(data[at - 4 : at], "little"), _MOST_TABLES)):
        tables[number] = _DIRECTORY.unpack_from(data, at + number * _DIRECTORY.size)[0]
    base_at = first + (24 if wide else 28)
    base = int.from_bytes(data[base_at : base_at + (8 if wide else 4)], "little")
    heads = int.from_bytes(data[first + 60 : first + 64], "little")
    parts, whole = [(0, min(heads, len(data)), 0)], True
    for number in range(count):
        _, address, size_of, raw = _PART.unpack_from(data, first + size + number * 40)
        whole = whole and raw + size_of <= len(data)
        begin = raw & _BLOCK
        parts.append((address, min(size_of, max(len(data) - begin, 0)), begin))
    return machine, whole, Image(data, tuple(parts), wide, base), tables


def file_version(path: str) -> str:
    """The version in a DLL's resources, such as ``14.44.35211.0``; empty: it says none."""
    try:
        with open_mapped(path) as data:
            at = find_bytes(data, _FIXED)
            words = struct.unpack_from("<4H", data, at + 8) if at >= 0 else ()
    except (OSError, struct.error):
        return ""
    return "{1}.{0}.{3}.{2}".format(*words) if words else ""


def read_device_code(path: str) -> Inventory:
    """The machine code and PTX for GPUs in a file."""
    with open_mapped(path) as data:
        return inventory(data)


# -------------------- tables, and programs for processes of their own

CAUSES = {'32-bit-python': ('this Python is 32-bit: torch and CUDA wheels are only built for 64-bit',
                   'install the 64-bit Python (Windows installer, 64-bit)',
                   'error'),
 'broken-torch': ('torch is incomplete: {at} has no valid version.py',
                  "reinstall torch from PyTorch's index for its CUDA, with --force-reinstall",
                  'error'),
 'changed-files': ('{package}: {count} files were changed after installation, such as {path}',
                   'install it again: pip install --force-reinstall --no-deps with the same '
                   'wheel',
                   'warning'),
 'cpu-torch': ('torch {version} is a build without CUDA: it cannot use a GPU',
               "install the same release of torch with CUDA, from PyTorch's index for that CUDA",
               'error'),
 'cpu-torch.cuda': ('{wants} from CUDA {built}, which torch {torch} does not have',
                    'install a wheel that fits; the command is below, if the index has one',
                    'error'),
 'cpu-torch.dll': ('{wants}, which torch {torch} does not have',
                   'install a wheel that fits; the command is below, if the index has one',
                   'error'),
 'cuda-mismatch': ('{package} was built with CUDA {built}, but torch with CUDA {cuda}',
                   'install a wheel that fits; the command is below, if the index has one',
                   'error'),
 'cuda-mismatch.dll': ('{wants} from CUDA {built}, but torch is built with CUDA {cuda}',
                       'install a wheel that fits; the command is below, if the index has one',
                       'error'),
 'driver-trouble': ('the driver (CUDA {release}) cannot be used by programs: {trouble}',
                    'reinstall the driver and restart',
                    'error'),
 'half-installed.missing': ('{package}: {count} of {all} files are missing, such as {path}',
                            'install it again: pip install --force-reinstall --no-deps with the '
                            'same wheel',
                            'error'),
 'half-installed.part': ('{package} has no {name}: it was built without this part',
                         'install a wheel that fits; the command is below, if the index has one',
                         'error'),
 'half-installed.record': ('{package} has no readable RECORD: an installation was interrupted, '
                           'or files were copied by hand',
                           'install it again: pip install --force-reinstall --no-deps with the '
                           'same wheel',
                           'error'),
 'leftover': ('{path} is left over from an uninstall that could not remove it: a program had it '
              'open',
              'close all programs that use this Python, then delete that folder',
              'warning'),
 'linux-files': ('{package} has files for Linux, such as {file}, but this is Windows',
                 '{hint}',
                 'error'),
 'missing-dll': ('{wants}, which Windows cannot find{but}',
                 'install a wheel that fits; the command is below, if the index has one',
                 'error'),
 'missing-dll.cuda': ('{wants}, which Windows cannot find{but}',
                      'it belongs to CUDA: {projects} has it, or the toolkit in {folder}, for '
                      'programs that pass that folder to os.add_dll_directory; or install a '
                      'wheel that fits; the command is below, if the index has one',
                      'error'),
 'missing-dll.known': ('{wants}, which Windows cannot find', '{hint}', 'error'),
 'missing-dll.torch': ('{wants}, which torch {torch} does not have',
                       'install a wheel that fits; the command is below, if the index has one',
                       'error'),
 'missing-export': ('{name} imports {symbol} from {library}, but that{of} does not have '
                    'it{built}',
                    'install a wheel that fits; the command is below, if the index has one',
                    'error'),
 'missing-export.runtime': ('{name} imports {symbol} from {library}, but that{of} does not have '
                            'it{built}',
                            'install a newer Visual C++ Redistributable for x64 '
                            '(vc_redist.x64.exe)',
                            'error'),
 'missing-requirement': ('{said}', 'install the missing requirement', 'warning'),
 'missing-requirement.imported': ('{project} imports {name}, which is not installed',
                                  'install {name} with pip, without replacing torch',
                                  'error'),
 'no-binary': ('{package} has no compiled code', '{hint}', 'error'),
 'no-driver': ('no NVIDIA driver can be reached{why}',
               "install NVIDIA's driver for the GPU and restart; in a virtual machine or a "
               'remote session the GPU has to be passed through',
               'error'),
 'no-driver.dll': ("{wants} from NVIDIA's driver, which is not installed",
                   "install NVIDIA's driver for the GPU",
                   'error'),
 'no-gpu': ('the driver (CUDA {release}) shows no GPU',
            'check in Device Manager that the GPU is listed and enabled',
            'error'),
 'no-gpu.hidden': ('the driver (CUDA {release}) shows no GPU; CUDA_VISIBLE_DEVICES is set',
                   'unset CUDA_VISIBLE_DEVICES',
                   'error'),
 'no-msvc-runtime': ("{wants} from Microsoft's C++ runtime, which is not installed",
                     "install Microsoft's Visual C++ Redistributable for x64 (vc_redist.x64.exe)",
                     'error'),
 'no-torch': ('no torch is installed in this Python',
              'install torch with CUDA first; is this the right Python?',
              'error'),
 'no-torch.dll': ('{wants} from torch, which is not installed',
                  'install torch with CUDA',
                  'error'),
 'not-checked.dlls': ('more than {count} DLLs: not all of them were checked', '', 'unknown'),
 'not-checked.files': ('{package} is {what}: its files are not known, so they were not checked',
                       '',
                       'unknown'),
 'not-checked.gpu-code': ('GPU code was not checked: {name}: {why}', '', 'unknown'),
 'not-checked.many-files': ('{package} has {count} files: not all of them were checked',
                            '',
                            'unknown'),
 'not-checked.some-gpu-code': ('not all GPU code of {name} was checked', '', 'unknown'),
 'old-driver': ('torch {torch} is built with CUDA {cuda}, but the driver only supports CUDA '
                '{driver}',
                'install a driver for CUDA {major}.0 or newer',
                'error'),
 'old-driver.ptx': ('for compute capability {gpu} it only has PTX from CUDA {cuda}, but the '
                    'driver is for CUDA {driver}',
                    'install a driver for CUDA {cuda} or newer',
                    'error'),
 'old-processor': ('this processor, or virtual machine, has no {needs}, which torch uses',
                   '{hint}',
                   'error'),
 'old-runtime': ('{name} loads {found} ({version}){why}',
                 'install a newer Visual C++ Redistributable for x64 (vc_redist.x64.exe)',
                 'error'),
 'old-runtime.shadows': ('{name} loads {found} ({version}){why}',
                         'compare it with {systems}: update it, or rename it so that Windows '
                         'loads that one',
                         'error'),
 'other-copy': ('{name} imports {symbol} from {library}, but {copy} does not have it and is used '
                'if it is loaded first',
                'import this package first',
                'warning'),
 'other-copy.runtime': ('code built with MSVC {mutex} or newer crashes if {copy} ({version}) is '
                        'loaded first',
                        'import this package first',
                        'warning'),
 'other-project': ('{package} has neither compiled code nor a module of that name, but '
                   '{modules}: is it a different project?',
                   '{hint}',
                   'error'),
 'python-mismatch': ('{name} is for Python {built}, but this is Python {python}',
                     'install a wheel that fits; the command is below, if the index has one',
                     'error'),
 'python-mismatch.module': ('{file} of {package} is for Python {built}, but this is Python '
                            '{python}',
                            'install a wheel that fits; the command is below, if the index has '
                            'one',
                            'error'),
 'shadowed': ('Python imports {what} called {name}, {at}, instead of the package in {folder}',
              'rename it, or start Python in another folder',
              'error'),
 'side-by-side': ('{project} is installed more than once: {where}; files of both may be mixed',
                  'uninstall it until pip finds none, then install it once',
                  'warning'),
 'some-gpu-code': ('{count} of its {all} parts have no code for compute capability {gpu}',
                   "calls into those parts fail with 'no kernel image is available'",
                   'warning'),
 'torch-mismatch': ('{package} was built for torch {built}, but torch {torch} is installed',
                    'install a wheel that fits; the command is below, if the index has one',
                    'error'),
 'torn-torch': ("torch's files are version {version}, but its metadata says {metadata}",
                "reinstall torch from PyTorch's index for its CUDA, with --force-reinstall",
                'error'),
 'truncated': ('{name} is truncated',
               'install a wheel that fits; the command is below, if the index has one',
               'error'),
 'truncated.file': ('{package}: {path} is truncated',
                    'install it again: pip install --force-reinstall --no-deps with the same '
                    'wheel',
                    'error'),
 'two-torches': ('torch is installed more than once: {where}',
                 'uninstall torch until pip finds none, then install it once',
                 'warning'),
 'unreadable-dll': ('{name} cannot be loaded: {why}',
                    'install a wheel that fits; the command is below, if the index has one',
                    'error'),
 'unreadable-dll.wanted': ('{name} imports {library}, but {found} cannot be loaded: {why}',
                           'install a wheel that fits; the command is below, if the index has '
                           'one',
                           'error'),
 'user-site': ('{project} is installed both for this user and in Python itself: {where}; Python '
               'uses {first}',
               "uninstall one of them, or set PYTHONNOUSERSITE=1: {version} is the user's own",
               'warning'),
 'windows-on-arm': ("this Python is {how}: NVIDIA's driver library there is not for x64 programs",
                    'use a PC with an x64 processor, or wheels that are built for ARM64',
                    'error'),
 'wrong-gpu': ('it has code for {code}, but the GPU has compute capability {gpu}: calls fail '
               "with 'no kernel image is available'",
               'install a wheel that fits; the command is below, if the index has one',
               'error'),
 'wrong-machine': ('{name} is for {machine}, but this Python is for {own}',
                   'install a wheel that fits; the command is below, if the index has one',
                   'error'),
 'wrong-machine.wanted': ('{name} imports {library}, but {found} is for {machine}',
                          'install a wheel that fits; the command is below, if the index has one',
                          'error'),
 'wrong-requirement': ('{said}', 'install the missing requirement', 'error')}

FIT = 'install a wheel that fits; the command is below, if the index has one'

REFUTED = ('missing-dll',
 'missing-export',
 'no-msvc-runtime',
 'unreadable-dll',
 'wrong-machine',
 'truncated',
 'half-installed',
 'python-mismatch',
 'torch-mismatch',
 'cuda-mismatch',
 'old-runtime',
 'wrong-requirement')

CUDA_LIBRARIES = ((('cublas*64_12.dll', 'nvblas64_12.dll'), '12', 'nvidia-cublas-cu12'),
 (('cublas*64_13.dll', 'nvblas64_13.dll'), '13', 'nvidia-cublas'),
 (('cudart64_12.dll',), '12', 'nvidia-cuda-runtime-cu12'),
 (('cudart64_13.dll',), '13', 'nvidia-cuda-runtime'),
 (('nvrtc64_120_0*.dll', 'nvrtc-builtins64_12*.dll'), '12', 'nvidia-cuda-nvrtc-cu12'),
 (('nvrtc64_130_0*.dll', 'nvrtc-builtins64_13*.dll'), '13', 'nvidia-cuda-nvrtc'),
 (('cufft*64_11.dll',), '12', 'nvidia-cufft-cu12'),
 (('cufft*64_12.dll',), '13', 'nvidia-cufft'),
 (('curand64_10.dll',), '12', 'nvidia-curand-cu12'),
 (('curand64_10.dll',), '13', 'nvidia-curand'),
 (('cusolver*64_11.dll',), '12', 'nvidia-cusolver-cu12'),
 (('cusolver*64_12.dll',), '13', 'nvidia-cusolver'),
 (('cusparse64_12.dll',), '12', 'nvidia-cusparse-cu12'),
 (('cusparse64_12.dll',), '13', 'nvidia-cusparse'),
 (('nvjitlink_120_0.dll',), '12', 'nvidia-nvjitlink-cu12'),
 (('nvjitlink_130_0.dll',), '13', 'nvidia-nvjitlink'),
 (('cudnn*64_9.dll',), '12', 'nvidia-cudnn-cu12'),
 (('cudnn*64_9.dll',), '13', 'nvidia-cudnn-cu13'),
 (('cublas*64_11.dll', 'nvblas64_11.dll'), '11', 'nvidia-cublas-cu11'),
 (('cudart64_110.dll',), '11', 'nvidia-cuda-runtime-cu11'),
 (('nvrtc64_112_0*.dll', 'nvrtc-builtins64_11*.dll'), '11', 'nvidia-cuda-nvrtc-cu11'),
 (('cufft*64_10.dll',), '11', 'nvidia-cufft-cu11'),
 (('curand64_10.dll',), '11', 'nvidia-curand-cu11'),
 (('cusolver*64_11.dll',), '11', 'nvidia-cusolver-cu11'),
 (('cusparse64_11.dll',), '11', 'nvidia-cusparse-cu11'),
 (('cudnn*64_9.dll',), '11', 'nvidia-cudnn-cu11'),
 (('cudnn*64_8.dll',), '12', 'nvidia-cudnn-cu12'),
 (('cudnn*64_8.dll',), '11', 'nvidia-cudnn-cu11'))

TORCH_LIBRARIES = ('c10*.dll',
 'torch*.dll',
 'caffe2_nvrtc.dll',
 'shm.dll',
 'uv.dll',
 'fbgemm.dll',
 'asmjit.dll',
 'libiomp5md.dll',
 'libiompstubs5md.dll')

PRESETS = (('comfyui',
  "ComfyUI's portable Python for Windows",
  (('python', '3.13'), ('cuda', '13.0')),
  'python_embeded',
  ('ComfyUI',)),
 ('comfyui-cu126',
  "ComfyUI's portable Python for Windows, for GPUs before Turing",
  (('python', '3.12'), ('cuda', '12.6')),
  'python_embeded',
  ('ComfyUI',)))

KNOWN = {'bitsandbytes': ('0.43 and newer have wheels for Windows', 'bitsandbytes>=0.43', ''),
 'libomp140.x86_64.dll': ('install another torch (2.4.0 and some later versions need it), or the '
                          'MSVC build tools from the Visual Studio Build Tools installer',
                          '',
                          ''),
 'mmcv': ('install mmcv-full (1.x), the mmcv wheel of its own index, or build it with '
          'MMCV_WITH_OPS=1',
          '',
          ''),
 'nunchaku': ('the project with that name on PyPI is a different one; the wheels are at '
              'https://github.com/nunchaku-tech/nunchaku/releases',
              '',
              ''),
 'pytorch3d': ('build it with FORCE_CUDA=1', '', ''),
 'torch': ('install an older torch, or use another processor', '', 'avx'),
 'triton': ('triton has no wheels for Windows, but triton-windows does', 'triton-windows', '')}

EXITS = {'0xC0000005': 'it accessed invalid memory (access violation)',
 '0xC000001D': 'it ran an instruction that this processor does not have',
 '0xC0000135': 'a DLL was not found',
 '0xC0000139': 'a DLL does not export a function that is imported',
 '0xC0000142': 'a DLL failed to initialize',
 '0xC0000409': 'it aborted (abort, or a damaged stack)'}

MUTEX = '14.40'

TORCHES = (('2.1', ('11.8', '12.1'), ('3.8', '3.9', '3.10', '3.11')),
 ('2.2', ('11.8', '12.1'), ('3.8', '3.9', '3.10', '3.11', '3.12')),
 ('2.3', ('11.8', '12.1'), ('3.8', '3.9', '3.10', '3.11', '3.12')),
 ('2.4', ('11.8', '12.1', '12.4'), ('3.8', '3.9', '3.10', '3.11', '3.12')),
 ('2.5', ('11.8', '12.1', '12.4'), ('3.9', '3.10', '3.11', '3.12')),
 ('2.6', ('11.8', '12.4', '12.6'), ('3.9', '3.10', '3.11', '3.12', '3.13')),
 ('2.7', ('11.8', '12.6', '12.8'), ('3.9', '3.10', '3.11', '3.12', '3.13', '3.13t')),
 ('2.8', ('12.6', '12.8', '12.9'), ('3.9', '3.10', '3.11', '3.12', '3.13', '3.13t')),
 ('2.9', ('12.6', '12.8', '13.0'), ('3.10', '3.11', '3.12', '3.13', '3.13t', '3.14', '3.14t')),
 ('2.10', ('12.6', '12.8', '13.0'), ('3.10', '3.11', '3.12', '3.13', '3.13t', '3.14', '3.14t')),
 ('2.11', ('12.6', '12.8', '13.0'), ('3.10', '3.11', '3.12', '3.13', '3.13t', '3.14', '3.14t')),
 ('2.12', ('12.6', '13.0', '13.2'), ('3.10', '3.11', '3.12', '3.13', '3.13t', '3.14', '3.14t')),
 ('2.13', ('12.6', '13.0', '13.2'), ('3.10', '3.11', '3.12', '3.13', '3.14', '3.14t')),
 ('2.14',
  ('12.6', '13.0', '13.2'),
  ('3.10', '3.11', '3.12', '3.13', '3.14', '3.14t', '3.15', '3.15t')),
 ('2.15', (), ('3.11', '3.12', '3.13', '3.14', '3.14t', '3.15', '3.15t')))

PROBE = r'''"""Asks NVIDIA's driver what it is; run in a process of its own, for a broken driver may never end.

Prints one line: a marker and an object. ``error`` is there where the driver cannot be used.
"""

from __future__ import annotations

import ctypes
import json
import sys

_SYSTEM32_ALONE = 0x800  # LOAD_LIBRARY_SEARCH_SYSTEM32: not one that lies in the current folder
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NO_DEVICE = 100
_MOST = 64
_ARM64 = 0xAA64
_AVX = 1 << 2  # XSTATE_MASK_AVX


def native_machine() -> str:
    """``ARM64`` where Windows is of that machine, whatever this Python is of; else nothing."""
    if sys.platform != "win32":
        return ""
    try:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        kernel.IsWow64Process2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        process, own = ctypes.c_ushort(), ctypes.c_ushort()
        kernel.IsWow64Process2(kernel.GetCurrentProcess(), ctypes.byref(process), ctypes.byref(own))
    except (OSError, AttributeError):
        return ""
    return "ARM64" if own.value == _ARM64 else ""


def has_avx() -> bool | None:
    """Whether programs can use AVX here; ``None``: nothing says it."""
    try:
        if sys.platform == "win32":
            ask_for = ctypes.WinDLL("kernel32").GetEnabledXStateFeatures
            ask_for.restype = ctypes.c_ulonglong
            return bool(ask_for() & _AVX)
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as stream:
            flags = [line.split() for line in stream if line.startswith("flags")]
    except (OSError, AttributeError):
        return None
    return "avx" in flags[0] if flags else None


def query_nvidia_driver() -> dict[str, object]:
    """The release of CUDA in the driver, and the GPUs."""
    try:
        if sys.platform == "win32":
            cuda = ctypes.WinDLL("nvcuda.dll", winmode=_SYSTEM32_ALONE)
        else:
            cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"driver": "", "gpus": [], "names": []}
    number = ctypes.c_int()
    data: dict[str, object] = {"driver": "", "gpus": [], "names": []}
    if not cuda.cuDriverGetVersion(ctypes.byref(number)) and number.value > 0:
        data["driver"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    code = cuda.cuInit(0)
    if code not in (0, _NO_DEVICE):
        return {**data, "error": f"cuInit returned {code}"}
    if code or cuda.cuDeviceGetCount(ctypes.byref(number)):
        return data
    gpus, names = [], []
    for at in range(min(number.value, _MOST + 1)):  # of more than the most there is no answer
        device, part = ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(100)
        failed = cuda.cuDeviceGet(ctypes.byref(device), at)
        cuda.cuDeviceGetName(name, 99, device)
        both = []
        for which in (_MAJOR, _MINOR):
            failed = failed or cuda.cuDeviceGetAttribute(ctypes.byref(part), which, device)
            both.append(str(part.value))
        gpus.append(f"error {failed}" if failed else ".".join(both))
        names.append(name.value.decode("ascii", "replace"))
    return {**data, "gpus": gpus, "names": names}


if __name__ == "__main__":
    print(
        "wcw1 "
        + json.dumps({**query_nvidia_driver(), "native": native_machine(), "avx": has_avx()}),
        flush=True,
    )
'''

LOADER = r'''"""Imports its arguments; run in a process of its own, and the only place that imports anything.

The arguments are modules, and paths of libraries that are not modules. Prints one line: a marker
and an object with what went wrong, each error with its kind.
"""

from __future__ import annotations

import sys

_HERE = [one for one in sys.path if not one]  # the current folder: its json.py is not Python's
sys.path[:] = [one for one in sys.path if one]

import contextlib  # noqa: E402
import ctypes  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402

_QUIET = 0x8003  # no box that waits for a click: a DLL that is none, a crash, a missing file
_LONGEST = 2000


def main() -> None:
    """Import, and tell."""
    if sys.platform == "win32":
        ctypes.windll.kernel32.SetErrorMode(_QUIET)
    sys.path[:0] = _HERE
    errors = {}
    for name in filter(None, sys.argv[1:]):
        try:
            if os.path.isabs(name):
                ctypes.CDLL(name)
            else:
                importlib.import_module(name)
        except BaseException as error:  # whatever it raises is the answer
            errors[name] = f"{type(error).__name__}: {error}"[:_LONGEST]
    print("\nwcw1 " + json.dumps({"errors": errors}), flush=True)
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(0)  # a thread or a hook of the package's could keep it


if __name__ == "__main__":
    main()
'''


# -------------------- publish/which/looking.py
# What is in a Python: where it looks for modules, what is installed there, its torch.

_TEXT_BYTES, _RECORD_BYTES = 1 << 20, 32 << 20
_MOST_ENTRIES = 1_000_000
_MOST_TOPS, _MOST_ROWS = 200, 200_000
_PROBE_SECONDS = 30.0
_MOST_GPUS = 64
_ABOUT = re.compile(
    r"(?P<name>[^-]+(?:-[^-]+)*?)(?:-(?P<version>[^-]+)(?:-py\d[^-]*(?:-.+)?)?)?"
    r"\.(?P<kind>dist-info|egg-info|egg)"
)
_SMI = re.compile(r"CUDA(?: \w+)? Version\s*:\s*(\d{1,3}\.\d{1,2})")


@dataclass(frozen=True)
class Place:
    """A Python, and where it looks."""

    executable: str
    python: str
    """``3.12``; ``3.13t`` without the global lock."""
    platform: str
    """As the tags of wheels have it."""
    paths: tuple[str, ...]
    """Where it looks for modules, in order; the current folder first where it does so."""
    suffixes: tuple[str, ...]
    """With which extension modules may end, such as ``.cp312-win_amd64.pyd``."""
    user: str = ""
    """The folder of packages that are this user's alone; empty: it is not used."""
    system: str = ""
    """Windows' own DLLs."""
    dll_folders: tuple[str, ...] = ()
    """Where Python's own DLLs are, and those that torch adds to the search besides its own."""
    cuda: str = ""
    """CUDA's toolkit, as ``CUDA_PATH`` names it."""

    @property
    def windows(self) -> bool:
        """Whether it is of Windows."""
        return self.platform.startswith("win")


@dataclass(frozen=True)
class Driver:
    """What NVIDIA's driver says."""

    release: str = ""
    """Of CUDA; empty: there is no driver."""
    gpus: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    native: str = ""
    """``ARM64`` where Windows is of that machine."""
    trouble: str = ""
    """Why it cannot be used, or not be asked."""
    missing: tuple[str, ...] = ()
    """Instructions that the processor does not have, of those that were asked for."""


@dataclass(frozen=True)
class Installed:
    """A package by its ``.dist-info``, or what was before that."""

    project: str
    version: str
    folder: str
    """That of ``sys.path`` in which it lies."""
    info: str
    requires: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    files: tuple[tuple[str, int | None], ...] | None = None
    """Paths below ``folder`` with their bytes, as RECORD says; ``None``: there is none."""
    linked: bool = False
    """Whether it is installed as a link to a folder of sources (``pip install -e``)."""
    legacy: bool = False
    """Whether it is of the kind without RECORD: ``.egg-info``, as conda and setup.py leave it."""

    @property
    def label(self) -> str:
        """Its name and version, for people."""
        return f"{self.project} {self.version}"

    @property
    def tops(self) -> tuple[str, ...]:
        """The modules that it has at the top."""
        found: dict[str, None] = {}
        for path, _ in self.files or ():
            top, _, rest = path.partition("/")
            name = top.partition(".")[0]
            module = rest.endswith(".py") or (not rest and top.endswith((".py", ".pyd", ".so")))
            if module and name.isidentifier() and not name.startswith("__editable__"):
                found[name] = None
        return tuple(found)[:_MOST_TOPS] or (self.project.replace("-", "_"),)

    @property
    def own(self) -> tuple[str, ...]:
        """Of them those that are surely its own: many have ``tests`` and the like besides."""
        main = self.project.replace("-", "_")
        binary = {
            path.partition(".")[0]
            for path, _ in self.files or ()
            if "/" not in path and path.endswith((".pyd", ".so"))
        }
        first = main if main in self.tops else self.tops[0]
        return (first, *(one for one in self.tops if one in binary and one != first))


@dataclass(frozen=True)
class Torch:
    """The torch that would be imported, as its files say."""

    version: str
    cuda: str
    """Empty: a build for the processor alone."""
    folder: str
    """Of the package itself."""


def this_place() -> Place:
    """The Python that runs this."""
    paths = [os.fspath(one) for one in sys.path if one]
    if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        with contextlib.suppress(OSError):  # it has been removed
            paths.insert(0, os.getcwd())
    # One folder by two names, by a link or in other letters' case, is not two installations.
    folders: dict[str, str] = {}
    for one in paths:
        folders.setdefault(os.path.normcase(os.path.realpath(one)), one)
    free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    windows = sys.platform == "win32"
    root = os.environ.get("SYSTEMROOT", r"C:\Windows") if windows else ""
    dlls = [os.path.dirname(os.path.abspath(sys.executable))] if windows else []
    for prefix in (sys.exec_prefix, sys.base_exec_prefix) if windows else ():
        dlls += [prefix, os.path.join(prefix, "DLLs"), os.path.join(prefix, "Library", "bin")]
    return Place(
        executable=sys.executable or "",
        python=f"{sys.version_info[0]}.{sys.version_info[1]}{free}",
        platform=re.sub(r"[.-]", "_", sysconfig.get_platform()),
        paths=tuple(folders.values()),
        suffixes=tuple(importlib.machinery.EXTENSION_SUFFIXES),
        user=site.getusersitepackages() if site.ENABLE_USER_SITE else "",
        system=os.path.join(root, "System32") if windows else "",
        dll_folders=tuple(dict.fromkeys(dlls)),
        cuda=os.environ.get("CUDA_PATH", "") if windows else "",
    )


def ask_driver(place: Place) -> Driver:
    """NVIDIA's driver, by itself and else by ``nvidia-smi``."""
    ended = run_child([place.executable, "-I", "-S", "-c", PROBE], _PROBE_SECONDS)
    data = ended.result
    if data.get("driver") and not data.get("error"):
        return _parse_driver_report(data)
    trouble = ascii_line(
        data.get("error") or ended.why or ("" if data else ended.output[-200:]), 200
    )
    # By itself shutil.which would take one that lies in the current folder of Windows.
    smi = os.path.join(place.system, "nvidia-smi.exe") if place.system else "nvidia-smi"
    if shutil.which(smi) is None:
        return _parse_driver_report(data, trouble)
    release = _SMI.search(run_child([smi], _PROBE_SECONDS).output)
    listed = run_child(
        [smi, "--query-gpu=compute_cap,name", "--format=csv,noheader"], _PROBE_SECONDS
    )
    rows = [row.partition(",")[::2] for row in listed.output.splitlines() if row.strip()]
    if release is None:
        return _parse_driver_report(data, trouble or "nvidia-smi does not reach it")
    if listed.code:
        rows, trouble = [], f"nvidia-smi does not list the GPUs: {listed.why or listed.output}"
    seen = {"driver": release[1], "gpus": [a for a, _ in rows], "names": [b for _, b in rows]}
    said = trouble or "nvidia-smi can load its library, but CUDA programs cannot"
    return _parse_driver_report({**data, **seen}, said)


def _parse_driver_report(data: dict[str, object], trouble: str = "") -> Driver:
    release, gpus, names = data.get("driver"), _listed_in(data, "gpus"), _listed_in(data, "names")
    own = [str(one) for one in gpus]
    odd = [one for one in own if not re.fullmatch(r"[1-9]\d?\.\d", one)]
    if odd or len(own) > _MOST_GPUS:  # a wheel for the others alone must not be said to fit
        trouble = (
            f"not every GPU was identified, of {len(own)}: {ascii_line(odd[:1] or own[-1:], 60)}"
        )
        own, names = [], []
    return Driver(
        release=str(release) if re.fullmatch(r"\d{1,3}\.\d{1,2}", str(release)) else "",
        gpus=tuple(own),
        names=tuple(ascii_line(one, 80) for one in names),
        native="ARM64" if data.get("native") == "ARM64" else "",
        trouble=ascii_line(trouble, 200),
        missing=("avx",) if data.get("avx") is False else (),
    )


def _listed_in(data: dict[str, object], key: str) -> list[object]:
    found = data.get(key)
    return found if isinstance(found, list) else []


def read_text(path: str | Path, most: int = _TEXT_BYTES) -> str | None:
    """Its start; ``None`` where it cannot be read."""
    try:
        if not os.path.isfile(path):  # of a pipe there may never be an end
            return None
        with open(path, "rb") as stream:
            return stream.read(most).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def names_in(folder: str) -> list[str]:
    """What a folder has; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for _, entry in zip(range(_MOST_ENTRIES), entries))  # noqa: B905 - Python 3.9
    except (OSError, ValueError):
        return []


def find_installed(place: Place, wanted: Iterable[str]) -> list[Installed]:
    """Every installation of these projects, those that are found first come first."""
    known = {normalize_project(one) for one in wanted}
    found = []
    for folder in place.paths:
        for name in names_in(folder):
            about = _ABOUT.fullmatch(name) if name.endswith("-info") else None
            if about and normalize_project(about["name"]) in known:
                found.append(_read_installed_package(folder, name, about))
        egg = _ABOUT.fullmatch(os.path.basename(folder))
        if egg and egg["kind"] == "egg" and normalize_project(egg["name"]) in known:
            found.append(_read_installed_package(folder, "EGG-INFO", egg))
    return found


def find_pip_leftovers(place: Place, wanted: str) -> list[str]:
    """What pip has put aside and not removed: ``~lash_attn``."""
    tail = wanted.replace("-", "_")[1:]
    return [
        os.path.join(folder, name)
        for folder in place.paths
        for name in names_in(folder)
        if name.startswith("~")
        and normalize_project(name.lstrip("~")).replace("-", "_").startswith(tail)
    ]


def _read_installed_package(folder: str, name: str, about: re.Match[str]) -> Installed:
    info = os.path.join(folder, name)
    legacy = about["kind"] != "dist-info"
    file = os.path.join(info, "PKG-INFO" if legacy else "METADATA")
    text = read_text(file if os.path.isdir(info) else info) or ""
    head = "\n".join(text.splitlines()).partition("\n\n")[0]
    says = re.search(r"(?im)^Version:\s*(\S{1,200})", head)
    wheel = read_text(os.path.join(info, "WHEEL")) or ""
    files = _read_record_rows(os.path.join(info, "RECORD"))
    origin = read_text(os.path.join(info, "direct_url.json")) or ""
    linked = any(path.startswith("__editable__") for path, _ in files or ())
    return Installed(
        project=normalize_project(about["name"]),
        version=ascii_line(says[1] if says else about["version"] or "", 100),
        folder=folder,
        info=info,
        requires=tuple(re.findall(r"(?im)^Requires-Dist:\s*(.{1,300}?)\s*$", head)),
        tags=tuple(re.findall(r"(?im)^Tag:\s*(\S{1,100})", wheel)),
        files=files,
        linked=linked or re.search(r'"editable"\s*:\s*true', origin) is not None,
        legacy=legacy,
    )


def _read_record_rows(path: str) -> tuple[tuple[str, int | None], ...] | None:
    text = read_text(path, _RECORD_BYTES)
    if text is None:
        return None
    rows: list[tuple[str, int | None]] = []
    try:
        for row in csv.reader(text.splitlines()):
            inside = row and not os.path.isabs(row[0]) and ".." not in row[0].split("/")
            if inside and not row[0].endswith(".pyc") and len(rows) < _MOST_ROWS:
                size = int(row[2]) if len(row) > 2 and row[2].isdecimal() else None  # noqa: PLR2004
                rows.append((row[0], size))
    except (csv.Error, ValueError):
        return None
    return tuple(rows)


def found_at(place: Place, module: str) -> str:
    """The file or folder that ``import`` takes for a module at the top; empty: none.

    A folder without ``__init__.py`` counts only where nothing else is called so.
    """
    bare = ""
    for folder in place.paths:
        path = os.path.join(folder, module)
        if os.path.isdir(path):
            if os.path.isfile(os.path.join(path, "__init__.py")):
                return path
            bare = bare or path
        for suffix in (*place.suffixes, ".py"):
            if os.path.isfile(path + suffix):
                return path + suffix
    return bare


def read_torch(place: Place) -> Torch | None:
    """The torch that would be imported; ``None`` where there is none that says what it is."""
    folder = found_at(place, "torch")
    text = read_text(os.path.join(folder, "version.py")) if folder else None
    assigned = dict(_assigned(text or ""))
    version, cuda = assigned.get("__version__"), assigned.get("cuda")
    if not isinstance(version, str) or not re.fullmatch(
        r"\d{1,4}\.\d{1,4}[\w.+-]{0,60}", version, re.ASCII
    ):
        return None
    release = re.match(r"\d{1,3}\.\d{1,2}", cuda, re.ASCII) if isinstance(cuda, str) else None
    return Torch(version, release[0] if release else "", folder)


def _assigned(text: str) -> Iterator[tuple[str, object]]:
    """The constants of a module, which is not run."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            yield target.id, value.value


# -------------------- publish/which/portable.py
# Whether a Python is the one that a known program brings, and whether it is as its preset says.

@dataclass(frozen=True)
class Portable:
    """A program's own Python."""

    preset: str
    """Of ``--for``."""
    says: str
    differs: tuple[str, ...]
    """Each axis that the preset sets and that is another here, in words."""
    instead: tuple[str, ...]
    """Flags that name what is here."""


def match_portable_preset(place: Place, machine: Machine, wanted: str = "") -> Portable | None:
    """The preset whose Python this is, or the one of that name; ``None``: of no known program.

    Of several that lie alike it is the one that fits best. Raises :class:`RefusalError` for a name
    that there is none of.
    """
    names = [name for name, *_ in PRESETS]
    if wanted and wanted not in names:
        raise RefusalError(f"--for {ascii_line(wanted, 40)}: no such preset",
                           f"There are: {', '.join(names)}.")  # fmt: skip
    found = []
    for name, says, axes, folder, siblings in PRESETS:
        lies = _lies(place, folder, siblings)
        if wanted != name and (wanted or not lies):
            continue
        instead: list[str] = []
        where = f"{ascii_line(place.executable, 200)} is not where the preset's Python is"
        differs = [] if lies else [where]
        for axis, text in axes:
            has = getattr(machine, axis)
            if axis != "python" and has:
                has = ".".join(map(str, minor_of(has)))
            if has != text:
                called = {"python": "Python", "cuda": "torch's CUDA", "torch": "torch"}[axis]
                differs.append(f"{called} is {has or 'missing'}, but the preset has {text}")
                instead += [f"--{axis}", has] if has else []
        found.append(Portable(name, says, tuple(differs), tuple(instead)))
    return min(found, key=lambda one: len(one.differs), default=None)


def _lies(place: Place, folder: str, siblings: tuple[str, ...]) -> bool:
    """Whether its program is in a folder of that name, next to one of these."""
    path = ntpath if "\\" in place.executable else posixpath
    own = path.dirname(place.executable)
    above = path.dirname(own)
    return path.basename(own).lower() == folder.lower() and any(
        os.path.lexists(path.join(above, one)) for one in siblings
    )


# -------------------- publish/which/searching.py
# Where Windows finds a DLL that an extension module of Python imports.

_MOST_SEEN = 500_000
_SETS = ("api-ms-win-", "ext-ms-")  # names without a file: Windows knows what they stand for


@dataclass
class Shelf:
    """The folders, and what was read of their DLLs."""

    place: Place
    torch: Torch | None
    brought: dict[str, str] = field(default_factory=dict)
    """The DLLs of the package that is looked at, wherever in it they lie: name -> file."""
    text: str = ""
    """The Python that is run first when that package is imported."""
    with_torch: bool = True
    """Whether that package imports torch."""
    _names: dict[str, dict[str, str]] = field(default_factory=dict)
    _read: dict[str, Loaded | str] = field(default_factory=dict)
    _copies: dict[str, list[str]] | None = None

    def find(self, name: str, own: str) -> str:
        """The file of a DLL that is wanted by one in the folder ``own``; empty: none."""
        first = (self._torchs,) if self.with_torch else ()
        for folder in (*first, own, *self.place.dll_folders, *self._toolkits(), self.place.system):
            if path := self._in(folder, name):
                return path
        return ""

    @property
    def adds(self) -> bool:
        """Whether the package adds folders in which DLLs are looked for."""
        return "add_dll_directory" in self.text

    @property
    def _torchs(self) -> str:
        return os.path.join(self.torch.folder, "lib") if self.torch else ""

    def _toolkits(self, *, every: bool = False) -> tuple[str, ...]:
        """Folders of CUDA's toolkit that the package adds, or all that have DLLs."""
        adds = self.adds and "CUDA_PATH" in self.text
        named = [("bin",), ("bin", "x64")][: 2 if every or "x64" in self.text else 1]
        return tuple(os.path.join(self.place.cuda, *one) for one in named
                     if self.place.cuda and (every or adds))  # fmt: skip

    def elsewhere(self, name: str) -> str:
        """Where a package of NVIDIA's has it, which Windows does not look into by itself."""
        inside = f"{os.sep}nvidia{os.sep}"
        return next((one for one in self.copies(name) if inside in one), "")

    def aside(self, name: str) -> str:
        """Where torch or CUDA's toolkit has it, for others that do not use these."""
        every = (self._in(folder, name) for folder in (self._torchs, *self._toolkits(every=True)))
        return next(filter(None, every), "")

    def top(self, path: str) -> str:
        """The folder at the top, by the name of its package, that a file is in."""
        site = next((one for one in self.place.paths if path.startswith(one + os.sep)), "")
        return path[len(site) + 1 :].partition(os.sep)[0].partition(".")[0]

    def copies(self, name: str) -> list[str]:
        """Every DLL of that name below the folders that packages are installed in."""
        if self._copies is None:
            self._copies = {}
            sites = [one for one in self.place.paths
                     if any(name.endswith("-info") for name in names_in(one))]  # fmt: skip
            walked = ((top, one) for site in sites for top, _, files in os.walk(site)
                      for one in files)  # fmt: skip
            for top, one in itertools.islice(walked, _MOST_SEEN):
                if one.lower().endswith(".dll"):
                    self._copies.setdefault(one.lower(), []).append(os.path.join(top, one))
        return self._copies.get(name, [])

    @staticmethod
    def is_set(name: str) -> bool:
        """Whether it is a name that Windows resolves by itself."""
        return name.startswith(_SETS)

    def read(self, path: str) -> Loaded | str:
        """What a DLL says of itself, or why that cannot be read."""
        if path not in self._read:
            try:
                self._read[path] = read_image(path)
            except (UnreadableError, OSError) as error:
                self._read[path] = str(getattr(error, "strerror", None) or error)
        return self._read[path]

    def is_systems(self, path: str) -> bool:
        """Whether it is Windows' own."""
        return bool(self.place.system) and os.path.dirname(path) == self.place.system

    def is_torchs(self, path: str) -> bool:
        """Whether it is one of torch's."""
        return self.torch is not None and path.startswith(self.torch.folder + os.sep)

    def _in(self, folder: str, name: str) -> str:
        if not folder:
            return ""
        if folder not in self._names:
            self._names[folder] = {one.lower(): one for one in names_in(folder)}
        own = self._names[folder].get(name)
        return os.path.join(folder, own) if own else ""


# -------------------- publish/which/causes.py
# What can be wrong, in words; and what is wrong with a Python and its machine.

# Without a dot only two digits are unambiguous: torch210 is 2.10 or 2.1.0, torch251 is 2.5.1.
_LOCAL_TORCH = re.compile(r"(?:torch|(?<![a-z])pt)\.?(\d)(?:\.(\d{1,2})|(\d))(?!\d)")
_LOCAL_CUDA = re.compile(r"(?<![a-z])cu(?:da)?(1\d)(?:\.?(\d))?(?!\d)")
# With a marker it may be required elsewhere alone, or of an extra.
_REQUIRED = re.compile(r"torch\s*\(?\s*==\s*(\d{1,2})\.(\d{1,3})(?=[.\d*+a-z]*\s*\)?\s*$)")
_TORCH_INDEX = "https://download.pytorch.org/whl/"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong."""

    id: str
    """For programs, such as ``missing-dll``."""
    actual: str
    """With both sides, as far as there are two."""
    hint: str
    level: str = "error"
    """``error``: nothing works with it; ``warning``; ``unknown``: it could not be checked."""
    do: tuple[str, ...] = ()
    """Words for pip that change it; or ``ren``, a file and its new name."""

    @property
    def failed(self) -> bool:
        """Whether nothing works with it."""
        return self.level == "error"


def cause_finding(
    key: str, level: str = "", do: tuple[str, ...] = (), /, **said: object
) -> Finding:
    """A row of ``causes.yaml``, filled in; ``level`` where it is not the row's."""
    actual, hint, usual = CAUSES[key]
    words = actual.format(**said), hint.format(**said)
    return Finding(key.partition(".")[0], *words, level or usual, do)


@dataclass(frozen=True)
class Built:
    """What a package was built for, as far as it says so; empty where it does not."""

    torch: str = ""
    cuda: str = ""
    """Perhaps the major version alone, such as ``12``."""
    stable: bool = False
    """Whether it keeps to torch's stable ABI: then it is for every later torch as well."""
    any_cuda: bool = False
    """Whether CUDA's runtime is inside: then it is for a torch of any CUDA."""


def built_for(package: Installed) -> Built:
    """By its local version (``2.8.3+cu128torch2.8``) and what it requires."""
    local = package.version.lower().partition("+")[2]
    torch, cuda = _LOCAL_TORCH.search(local), _LOCAL_CUDA.search(local)
    required = [one for text in package.requires if (one := _REQUIRED.match(text))]
    release = torch or (required[0] if required else None)
    return Built(
        ".".join(filter(None, release.groups())) if release else "",
        ".".join(filter(None, cuda.groups())) if cuda else "",
    )


def python_findings(place: Place, driver: Driver) -> Iterator[Finding]:
    """A Python for which there are no such wheels."""
    if place.platform in ("win32", "linux_i686"):
        yield cause_finding("32-bit-python")
    if place.platform == "win_arm64":
        yield cause_finding("windows-on-arm", how="built for ARM64")
    if place.platform == "win_amd64" and driver.native:
        yield cause_finding("windows-on-arm", how="built for x64, on Windows for ARM64")


def driver_findings(driver: Driver, torch: Torch | None) -> Iterator[Finding]:
    """No driver, an old one, no GPU."""
    if not driver.release:
        yield cause_finding("no-driver", why=f" ({driver.trouble})" if driver.trouble else "")
        return
    if driver.trouble:
        yield cause_finding("driver-trouble", release=driver.release, trouble=driver.trouble)
    if not driver.gpus:
        hidden = "CUDA_VISIBLE_DEVICES" in os.environ
        yield cause_finding("no-gpu.hidden" if hidden else "no-gpu", release=driver.release)
    major = minor_of(torch.cuda)[0] if torch and torch.cuda else 0
    if torch and major > minor_of(driver.release)[0]:
        said = {"torch": torch.version, "cuda": torch.cuda, "driver": driver.release}
        yield cause_finding("old-driver", major=major, **said)


def is_release_of(said: str, own: str) -> bool:
    """Whether metadata speaks of the release that the files are.

    On PyPI the files of ``2.8.0+cpu``, or ``+cu128``, are in a wheel that is called ``2.8.0``.
    """
    both = said.partition("+"), own.partition("+")
    return both[0][0] == both[1][0] and (both[0][2] == both[1][2] or not all(b[2] for b in both))


def processor_findings(driver: Driver, torch: Torch | None) -> Iterator[Finding]:
    """A processor without instructions that torch has been compiled for."""
    hint, _, needs = KNOWN["torch"]
    if torch and needs in driver.missing:
        yield cause_finding("old-processor", needs=needs.upper(), hint=hint)


def torch_for(place: Place, driver: Driver, release: str = "") -> tuple[str, ...]:
    """What pip is given for a torch with CUDA that the driver runs; empty: none is known."""
    own, newest = minor_of(driver.release), (0, 0)
    for name, cudas, pythons in TORCHES if place.windows else ():
        fits = [one for one in map(minor_of, cudas) if one[0] <= own[0]]
        if place.python in pythons and minor_of(release or name) == minor_of(name):
            newest = max([one for one in fits if one <= own] or fits[:1] or [newest])
    local = "cu{}{}".format(*newest)
    line = f"torch=={release}+{local}" if release else "torch"
    return ("install", line, "--index-url", _TORCH_INDEX + local) if newest[0] else ()


def torch_findings(
    place: Place, torch: Torch | None, there: Sequence[Installed], driver: Driver
) -> Iterator[Finding]:
    """None, one without CUDA, half of one, two of them; ``there``: every installation of it."""
    if torch is None:
        at = found_at(place, "torch") or (there[0].info if there else "")
        do = () if at else torch_for(place, driver)
        yield cause_finding("broken-torch" if at else "no-torch", "", do, at=ascii_line(at))
        return
    if not torch.cuda:
        do = torch_for(place, driver, torch.version.partition("+")[0])
        yield cause_finding("cpu-torch", "", do, version=torch.version)
    if len(there) > 1:
        where = " and ".join(ascii_line(f"{one.version} in {one.folder}", 150) for one in there[:3])
        yield cause_finding("two-torches", where=where)
    elif there and not is_release_of(there[0].version, torch.version):
        yield cause_finding("torn-torch", version=torch.version, metadata=there[0].version)


def against_torch(package: Installed, built: Built, machine: Machine) -> Iterator[Finding]:
    """A package that was built for another torch or CUDA than is there."""
    wanted, there = minor_of(built.torch), minor_of(machine.torch)
    later = built.stable and there > wanted
    if built.torch and machine.torch and wanted != there and not later:
        yield cause_finding(
            "torch-mismatch", package=package.label, built=built.torch, torch=machine.torch
        )
    own, has = built.cuda.partition(".")[0], machine.cuda.partition(".")[0]
    if own and has and own != has and not built.any_cuda:
        yield cause_finding(
            "cuda-mismatch", package=package.label, built=built.cuda, cuda=machine.cuda
        )


# -------------------- publish/which/requiring.py
# What a package requires on this machine, and whether that is there, in a version that will do.

_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][\w.-]{0,99})\s*(?:\[[\w\s,.-]*\])?\s*\(?([\w\s.,!<>=~+*-]{0,200})\)?"
    r"\s*(?:;(.{1,500}))?",
    re.ASCII,
)
_ORDER = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def active_requirements(place: Place, package: Installed) -> Iterator[tuple[str, str]]:
    """Project and version range of each requirement that is one on this machine."""
    for found in filter(None, map(_REQUIREMENT.fullmatch, package.requires)):
        if is_marker_true(found[3] or "", place):
            yield normalize_project(found[1]), re.sub(r"\s", "", found[2])


def is_marker_true(marker: str, place: Place) -> bool:
    """Whether a requirement's marker is true here, without extras; not if it is not understood."""
    system, machine = ("Windows", "AMD64") if place.windows else ("Linux", "x86_64")
    known = {
        "os_name": "nt" if place.windows else "posix",
        "sys_platform": "win32" if place.windows else "linux",
        "platform_system": system,
        "platform_machine": "ARM64" if place.platform == "win_arm64" else machine,
        "python_version": place.python.rstrip("t"),
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": "",
    }
    try:  # it is written as comparisons are in Python
        return not marker.strip() or _true(ast.parse(marker.strip(), mode="eval").body, known)
    except (SyntaxError, ValueError, KeyError, RecursionError, MemoryError):
        return False


def _true(node: ast.expr, known: dict[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        judged = [_true(one, known) for one in node.values]
        return all(judged) if isinstance(node.op, ast.And) else any(judged)
    if not isinstance(node, ast.Compare) or len(node.ops) > 1:
        raise ValueError("no comparison")
    sides, how = (node.left, node.comparators[0]), type(node.ops[0])
    left, right = (
        known[one.id] if isinstance(one, ast.Name) else str(ast.literal_eval(one)) for one in sides
    )
    if how in (ast.In, ast.NotIn):
        return (left in right) == (how is ast.In)
    if getattr(sides[0], "id", "") == "python_version":
        return satisfies_specifiers(left, _ORDER[how] + right)
    return {"==": left == right, "!=": left != right}[_ORDER[how]]


def pip_line(place: Place, name: str, versions: str = "") -> str:
    """What pip is given for a requirement; of triton on Windows the release that torch names."""
    line = KNOWN.get(name, ("", "", ""))[1] if place.windows else ""
    if line and name == "triton":
        for text in (text for one in find_installed(place, ["torch"]) for text in one.requires):
            found = re.match(r"triton\s*==\s*(\d+\.\d+)", text, re.ASCII)
            line = f"{line}=={found[1]}.*" if found and "=" not in line else line
    return line or name + versions


def requirement_findings(place: Place, package: Installed) -> Iterator[Finding]:
    """Those that are not there, or in another version."""
    wanted = [*dict.fromkeys(active_requirements(place, package))]
    there = {
        one.project: one for one in reversed(find_installed(place, [name for name, _ in wanted]))
    }
    for name, versions in wanted:
        own = there.get(name)
        absent = own is None and name != "torch" and not found_at(place, name.replace("-", "_"))
        try:
            wrong = own and not satisfies_specifiers(own.version, versions)
        except ValueError:
            continue
        if absent or wrong:
            is_ = f"{name} is {own.version}" if own else "it is not installed"
            said = ascii_line(f"{package.label} requires {name}{versions}, but {is_}")
            # By its name alone pip would take a torch without CUDA.
            do = () if name == "torch" else ("install", pip_line(place, name, versions))
            yield cause_finding(
                "wrong-requirement" if wrong else "missing-requirement", "", do, said=said
            )


def needed_by(place: Place, packages: Sequence[Installed]) -> list[Installed]:
    """What of the requirements of these, and of theirs, is there."""
    found = {one.project: one for one in packages}
    left = [*packages]
    while left:
        new = [name for name, _ in active_requirements(place, left.pop()) if name not in found]
        left += [
            one for one in find_installed(place, new) if found.setdefault(one.project, one) is one
        ]
    return [one for one in found.values() if one not in packages]


# -------------------- publish/which/packages.py
# What of a package's files is wrong: some missing, others than listed, of another Python.

BINARIES = (".pyd", ".dll", ".so")
_MOST_FILES = 20_000
_MOST_READ, _DEEP = 400, 3
_IMPORTS_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)
_TAGGED = re.compile(r"\.cp(?:ython-)?(\d{2,3}t?)-[\w-]+\.(?:pyd|so)$")


def binaries_of(package: Installed) -> list[str]:
    """The paths of its DLLs and extension modules that are there."""
    if package.files is not None:
        listed = [path for path, _ in package.files if path.lower().endswith(BINARIES)]
        listed = listed[:_MOST_FILES]
        return [
            one
            for one in (_package_file_path(package, path) for path in listed)
            if os.path.isfile(one)
        ]
    found = []
    for top, _, names in os.walk(os.path.join(package.folder, package.tops[0])):
        found += [os.path.join(top, name) for name in names if name.lower().endswith(BINARIES)]
        if len(found) > _MOST_FILES:
            break
    return found


def python_text(package: Installed, deep: int = 1) -> str:
    """The Python that is run when it is imported first, or more of it."""
    names = [one for one, _ in package.files or () if one.endswith(".py")]
    named = [one for one in names if one.count("/") <= deep][:_MOST_READ]
    return "\n".join(read_text(_package_file_path(package, one)) or "" for one in named)


def package_uses_torch(package: Installed, libraries: Iterable[str]) -> bool:
    """Whether it imports torch, or so it must be taken; ``libraries``: what its modules want."""
    return (
        package.files is None
        or package.linked
        or any(re.match(r"torch(?![\w.-])", one) for one in (package.project, *package.requires))
        or any(one.startswith(("torch", "c10")) for one in libraries)
        or _IMPORTS_TORCH.search(python_text(package, _DEEP)) is not None
    )


def content_findings(package: Installed, *, compiled: bool) -> Iterator[Finding]:
    """No compiled part at all; ``compiled``: an index has one with."""
    names = [path.lower() for path, _ in package.files or ()]
    if not names or package.linked or any(one.endswith(BINARIES) for one in names):
        return
    name, known = package.project, KNOWN.get(package.project)
    said = {
        "package": package.label,
        "hint": known[0] if known else f"if it should have one, {FIT}",
    }
    if {name.replace("-", "_"), *name.split("-")} & {one.lower() for one in package.tops}:
        yield cause_finding("no-binary", "error" if compiled or known else "warning", **said)
        return
    modules = ascii_line(", ".join(package.tops), 100)
    yield cause_finding("other-project", "", ("uninstall", name), modules=modules, **said)


def _package_file_path(package: Installed, path: str) -> str:
    return os.path.join(package.folder, *path.split("/"))


def file_findings(package: Installed) -> Iterator[Finding]:
    """What RECORD lists and is not there, or has another size."""
    if package.legacy or package.linked:
        what = "an editable install" if package.linked else "not installed from a wheel"
        yield cause_finding("not-checked.files", package=package.label, what=what)
        return
    if package.files is None:
        yield cause_finding("half-installed.record", package=package.label)
        return
    missing: list[str] = []
    cut: list[str] = []
    other: list[str] = []
    for path, size in package.files[:_MOST_FILES]:
        try:
            has = os.stat(_package_file_path(package, path)).st_size
        except (OSError, ValueError):
            missing.append(path)
            continue
        if size is not None and has != size:
            kind = cut if has < size and path.lower().endswith(BINARIES) else other
            kind.append(f"{path} ({has} of {size} bytes)")
    count = len(package.files)
    if count > _MOST_FILES:
        yield cause_finding("not-checked.many-files", package=package.label, count=count)
    kinds = ("half-installed.missing", missing), ("truncated.file", cut), ("changed-files", other)
    for key, paths in kinds:
        if paths:
            said = {"count": len(paths), "all": count, "path": ascii_line(paths[0])}
            yield cause_finding(key, package=package.label, **said)


def copy_findings(place: Place, copies: Sequence[Installed]) -> Iterator[Finding]:
    """Several installations, one of which hides the others, and what is left of earlier ones."""
    first = copies[0]
    for left in find_pip_leftovers(place, first.project)[:1]:
        yield cause_finding("leftover", path=ascii_line(left))
    if len(copies) == 1:
        return
    where = " and ".join(ascii_line(f"{one.version} in {one.folder}", 160) for one in copies[:3])
    own = [one for one in copies if place.user and one.folder == place.user]
    key = "side-by-side"
    if own and any(one.folder != place.user for one in copies):
        key = "user-site"
    said = {"first": ascii_line(first.folder, 160), "version": own[0].version if own else ""}
    yield cause_finding(key, project=first.project, where=where, **said)


def name_findings(place: Place, package: Installed) -> Iterator[Finding]:
    """Something else that is called like its modules, and is taken for them."""
    if package.linked:  # its own is elsewhere
        return
    for name in package.own:
        at = found_at(place, name)
        # Of folders without it, Python takes all that are called so.
        bare = os.path.isdir(at) and "__init__.py" not in names_in(at)
        if at and not bare and os.path.dirname(at) != package.folder:
            what = "a folder" if os.path.isdir(at) else "a file"
            folder = ascii_line(package.folder)
            yield cause_finding("shadowed", what=what, name=name, at=ascii_line(at), folder=folder)


def tag_findings(place: Place, package: Installed, paths: Sequence[str]) -> Iterator[Finding]:
    """Modules of another Python or another system."""
    linux = [one for one in paths if one.endswith(".so")]
    windows = [one for one in paths if one.lower().endswith((".pyd", ".dll"))]
    if place.windows and linux and not windows:
        hint, install, _ = KNOWN.get(package.project, (FIT, "", ""))
        do = ("install", install) if install else ("uninstall", package.project)
        file = ascii_line(os.path.basename(linux[0]))
        yield cause_finding("linux-files", "", do, package=package.label, file=file, hint=hint)
        return
    own = place.python.replace(".", "")
    tagged = {match[1]: one for one in paths if (match := _TAGGED.search(one))}
    if tagged and own not in tagged:
        other, path = next(iter(tagged.items()))
        said = {"file": ascii_line(os.path.basename(path)), "built": f"{other[0]}.{other[1:]}"}
        yield cause_finding(
            "python-mismatch.module", package=package.label, python=place.python, **said
        )


def paths_of_this_python(place: Place, paths: Sequence[str]) -> list[str]:
    """Without the extension modules that another Python would load."""
    own = place.python.replace(".", "")
    return [one for one in paths if (match := _TAGGED.search(one)) is None or match[1] == own]


def other_python_dll(place: Place, libraries: Sequence[str]) -> str:
    """Of the DLLs that are wanted, that of another Python; empty: there is none."""
    for name in libraries:
        found = re.fullmatch(r"python(\d)(\d{1,2}t?)\.dll", name)
        if found and f"{found[1]}.{found[2]}" != place.python:
            return f"{found[1]}.{found[2]}"
    return ""


def find_stray_folder(place: Place, project: str) -> str:
    """A folder called like a package that is not installed."""
    name = project.replace("-", "_")
    at = found_at(place, name)
    return at if at and names_in(at) else ""


# -------------------- publish/which/loading.py
# Why Windows cannot load a package's DLLs: each that it wants, and each name of it, looked up.

_RUNTIME = re.compile(r"(?:msvcp140|vcruntime140|concrt140|vcomp140)(?:_\w+)?\.dll", re.ASCII)
_MOST_DLLS = 400
_OF_PLATFORM = {"win_amd64": 0x8664, "win32": 0x14C, "win_arm64": 0xAA64}


def dll_findings(
    shelf: Shelf, paths: Sequence[str], built: Built, *, seen: set[str] | None = None
) -> Iterator[Finding]:
    """What stands in the way of loading ``paths`` and whatever these want, which goes to ``seen``.

    Of a package that adds folders to the search, what it brings itself (``numpy.libs``) or what
    lies in one of NVIDIA's packages counts as found.
    """
    left = list(paths)
    seen = set() if seen is None else seen
    reported: set[tuple[str, str]] = set()
    done: set[str] = set()
    while left and len(done) < _MOST_DLLS:
        path = left.pop(0)
        if path in done:
            continue
        done.add(path)
        seen.add(path)
        for one in _of_one(shelf, path, built):
            if isinstance(one, str):
                left.append(one)
                continue
            # A runtime is reported once, whatever uses it.
            key = one.level, one.hint if one.id == "old-runtime" else one.actual
            if key not in reported:
                reported.add(key)
                yield one
    if left:
        yield cause_finding("not-checked.dlls", count=_MOST_DLLS)


def _of_one(shelf: Shelf, path: str, built: Built) -> Iterator[Finding | str]:
    """What is wrong with one, and the DLLs that are to be looked at for it."""
    own, name = shelf.read(path), ascii_line(os.path.basename(path), 100)
    if isinstance(own, str):
        yield cause_finding("unreadable-dll", name=name, why=ascii_line(own, 150))
        return
    if not own.whole:
        yield cause_finding("truncated", name=name)
        return
    wanted = _OF_PLATFORM.get(shelf.place.platform, own.machine)
    if own.machine != wanted:
        yield cause_finding(
            "wrong-machine", name=name, machine=_for_machine(own), own=MACHINES[wanted]
        )
        return
    if other := other_python_dll(shelf.place, own.libraries):
        yield cause_finding("python-mismatch", name=name, built=other, python=shelf.place.python)
        return
    for late, needs in enumerate((own.needs, own.late)):
        of: dict[str, list[str]] = {one: [] for one in (() if late else own.libraries)}
        for library, symbol in needs:
            of.setdefault(library, []).append(symbol)
        for library, symbols in of.items():
            found = "" if shelf.is_set(library) else shelf.find(library, os.path.dirname(path))
            if shelf.is_set(library):
                continue
            if not found:
                yield _missing_dll_finding(shelf, name, library, late=bool(late))
                continue
            yield from _of_runtime(shelf, own, name, found)
            yield from _of_copies(shelf, path, found, symbols)
            yield from _iter_missing_symbols(shelf, path, found, symbols, built, late=bool(late))
            ours = not shelf.is_systems(found) and not shelf.is_torchs(found)
            if ours and not library.startswith("python3") and not _RUNTIME.fullmatch(library):
                yield found


def _missing_dll_finding(shelf: Shelf, name: str, library: str, *, late: bool) -> Finding | str:
    """A DLL that is nowhere, or where Windows does not look; else where it is."""
    there = shelf.brought.get(library) or shelf.elsewhere(library)
    if there and shelf.adds:
        return there
    there = there or shelf.aside(library)
    key, said = _known_dll_cause(shelf, library) or _of_cudas(shelf, library, there)
    when = ", when it is first called," if late else ""
    wants = f"{name}{when} imports {ascii_line(library, 100)}"
    return cause_finding(key, "warning" if late else "error", wants=wants, **said)


def _known_dll_cause(shelf: Shelf, library: str) -> tuple[str, dict[str, str]] | None:
    """The cause of one that a package of Windows', NVIDIA's or torch's brings."""
    if _RUNTIME.fullmatch(library):
        return "no-msvc-runtime", {}
    if library in KNOWN:
        return "missing-dll.known", {"hint": KNOWN[library][0]}
    if library in ("nvcuda.dll", "nvml.dll"):
        return "no-driver.dll", {}
    if not any(fnmatch.fnmatchcase(library, one) for one in TORCH_LIBRARIES):
        return None
    if shelf.torch is None:
        return "no-torch.dll", {}
    key = "missing-dll.torch" if shelf.torch.cuda else "cpu-torch.dll"
    return key, {"torch": shelf.torch.version}


def _of_cudas(shelf: Shelf, library: str, there: str) -> tuple[str, dict[str, str]]:
    """The same for a library of CUDA's, or of an unknown origin."""
    rows = [row for row in CUDA_LIBRARIES if any(fnmatch.fnmatchcase(library, n) for n in row[0])]
    majors = sorted({major for _, major, _ in rows})
    own = shelf.torch.cuda if shelf.torch and shelf.with_torch else ""
    if rows and own and own.partition(".")[0] not in majors:
        return "cuda-mismatch.dll", {"built": " or ".join(majors), "cuda": own}
    if rows and shelf.torch and shelf.with_torch and not own and not there:
        return "cpu-torch.cuda", {"built": " or ".join(majors), "torch": shelf.torch.version}
    first = "imports torch first" if shelf.is_torchs(there) else "adds that folder itself"
    but = f"; {ascii_line(there)} is only found by a program that {first}" if there else ""
    projects = " or ".join(dict.fromkeys(row[2] for row in rows))
    folder = r"%CUDA_PATH%\bin\x64" if majors[-1:] >= ["13"] else r"%CUDA_PATH%\bin"
    key = "missing-dll.cuda" if rows else "missing-dll"
    return key, {"but": but, "projects": projects, "folder": folder}


def _of_runtime(shelf: Shelf, own: Loaded, name: str, found: str) -> Iterator[Finding]:
    """An older C++ run-time than the toolset of the binary, or than Windows has.

    https://learn.microsoft.com/cpp/porting/binary-compat-2015-2017
    Every Python has its own vcruntime140.dll, which is not known to matter.
    """
    library = os.path.basename(found).lower()
    if not library.startswith("msvcp140"):
        return
    systems = os.path.join(shelf.place.system, library)
    version, other, msvc = file_version(found), file_version(systems), own.linker
    said = {"name": name, "found": ascii_line(found), "version": version or "no version"}
    has, silent = minor_of(version), "no version"
    key, do = "old-runtime", tuple[str, ...]()
    if found != systems and os.path.isfile(systems):
        key, do = "old-runtime.shadows", ("ren", found, f"{library}.off")
        said["systems"] = ascii_line(systems)
    if version and has < msvc and msvc[0] == has[0]:
        why = f" but was built with MSVC {msvc[0]}.{msvc[1]}, which needs at least that version"
        level = "error" if has < minor_of(MUTEX) <= msvc else "warning"
        yield cause_finding(key, level, do, why=why, **said)
        return
    older = not version or has < minor_of(other)
    if do and older and shelf.read(found) != shelf.read(systems):
        why = f" instead of the one in Windows ({other or silent})"
        yield cause_finding(key, "warning", do, why=why, **said)
        return
    for copy in shelf.copies(library) if msvc >= minor_of(MUTEX) else ():
        if (0, 0) < minor_of(brought := file_version(copy)) < minor_of(MUTEX):
            yield cause_finding(
                "other-copy.runtime", mutex=MUTEX, copy=ascii_line(copy), version=brought
            )
            return


def _of_copies(shelf: Shelf, path: str, found: str, symbols: list[str]) -> Iterator[Finding]:
    """Another package's DLL of that name, which is taken if it is loaded first, and has less."""
    library, name = (ascii_line(os.path.basename(one), 100) for one in (found, path))
    for other in (
        [] if shelf.with_torch and shelf.is_torchs(found) else shelf.copies(library.lower())
    ):
        image = shelf.read(other) if shelf.top(other) != shelf.top(path) else ""
        gone = [] if isinstance(image, str) else [s for s in symbols if s not in image.exports]
        if gone:
            said = {
                "symbol": ascii_line(gone[0], 160),
                "library": library,
                "copy": ascii_line(other),
            }
            yield cause_finding("other-copy", name=name, **said)
            return


def _iter_missing_symbols(
    shelf: Shelf, path: str, found: str, symbols: list[str], built: Built, *, late: bool
) -> Iterator[Finding]:
    """Names that a DLL does not export; of Windows' own those of the C++ run-time are looked up."""
    name, library = (ascii_line(os.path.basename(one), 100) for one in (path, found))
    runtime = bool(_RUNTIME.fullmatch(library.lower()))
    if shelf.is_systems(found) and not runtime:
        return
    own, other = shelf.read(path), shelf.read(found)
    said, level = {"name": name, "library": library}, "warning" if late else "error"
    if isinstance(other, str):
        yield cause_finding(
            "unreadable-dll.wanted",
            level,
            found=ascii_line(found),
            why=ascii_line(other, 150),
            **said,
        )
    elif not isinstance(own, str) and other.machine != own.machine:
        machine = _for_machine(other)
        yield cause_finding(
            "wrong-machine.wanted", level, found=ascii_line(found), machine=machine, **said
        )
    elif not other.whole:
        yield cause_finding("truncated", name=ascii_line(found))
    elif missing := [one for one in symbols if one not in other.exports]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        of = f" of torch {shelf.torch.version}" if shelf.torch and shelf.is_torchs(found) else ""
        said["built"] = f"; it was built for torch {built.torch}" if of and built.torch else ""
        key = "missing-export.runtime" if runtime else "missing-export"
        yield cause_finding(key, level, symbol=ascii_line(missing[0], 160) + more, of=of, **said)


def _for_machine(image: Loaded) -> str:
    return MACHINES.get(image.machine, f"machine {image.machine:#x}")


# -------------------- publish/which/devices.py
# Whether a package's machine code runs on the GPUs that are there.

def device_findings(paths: Sequence[str], gpus: Sequence[str], driver: str) -> Iterator[Finding]:
    """A GPU for which none of the binaries has code, or only some of their parts."""
    units: list[Container] = []
    paths = paths if gpus else ()
    for path in paths:
        try:
            found = read_device_code(path)
        except OSError as error:
            why = ascii_line(error.strerror)
            yield cause_finding(
                "not-checked.gpu-code", name=ascii_line(os.path.basename(path)), why=why
            )
            continue
        units += found.containers
        if not found.complete:
            yield cause_finding(
                "not-checked.some-gpu-code", name=ascii_line(os.path.basename(path))
            )
    if not units:
        return
    code = sorted({arch for one in units for arch in one.sass}, key=arch_number)
    ptx = sorted({arch for one in units for arch in one.ptx}, key=arch_number)
    has = ", ".join([*code, *(f"{one} as PTX" for one in ptx)]) or "no GPU"
    for gpu in dict.fromkeys(gpus):
        arch = gpu.replace(".", "")
        without = [one for one in units if not runnable_code_kind(one.sass, one.ptx, arch)]
        if len(without) == len(units):
            yield cause_finding("wrong-gpu", code=has, gpu=gpu)
        elif without:
            yield cause_finding("some-gpu-code", count=len(without), all=len(units), gpu=gpu)
        elif not any(code_runs_on(one, arch) for one in code):
            releases = [minor_of(one) for unit in units for one in unit.releases]
            newest = max(releases, default=(0, 0))
            if driver and newest > minor_of(driver):
                cuda = f"{newest[0]}.{newest[1]}"
                yield cause_finding("old-driver.ptx", gpu=gpu, cuda=cuda, driver=driver)


# -------------------- publish/which/trying.py
# Whether a package can be imported, tried in a process of its own, where it may crash or hang.

_LOAD_SECONDS = 180.0
_MOST_MODULES = 40


def try_import(
    shelf: Shelf, package: Installed, paths: Sequence[str]
) -> tuple[bool | None, list[str]]:
    """Whether it loads, with what went wrong; ``None`` where not all of it was tried."""
    words = ["torch"] if shelf.torch and shelf.with_torch else []
    words.append(package.own[0])
    for path in paths:
        suffix = next((one for one in shelf.place.suffixes if path.endswith(one)), "")
        if suffix and not os.path.basename(path).startswith("lib"):
            inside = os.path.relpath(path, package.folder)
            dotted = inside[: -len(suffix)].replace(os.sep, ".")
            words.append(dotted if _is_module(shelf, path, dotted) else path)
    words = list(dict.fromkeys(words))
    command = [shelf.place.executable, "-c", LOADER, *words[:_MOST_MODULES]]
    ended = run_child(command, _LOAD_SECONDS)
    errors = ended.result.get("errors")
    if ended.code or not isinstance(errors, dict):
        code = f"0x{(ended.code or 0) & 0xFFFFFFFF:08X}"
        why = ended.why or f"its process exited with {ended.code}"
        why += f" ({code}: {EXITS[code]})" if code in EXITS else ""
        return False, [f"{ascii_line(why)}: {ascii_line(ended.output[-300:])}".rstrip(": ")]
    said = [f"{ascii_line(name, 150)}: {ascii_line(text, 400)}" for name, text in errors.items()]
    if not said and len(words) > _MOST_MODULES:
        return None, [f"{len(words) - _MOST_MODULES} of its {len(words)} modules were not tried"]
    return not said, said


def _is_module(shelf: Shelf, path: str, dotted: str) -> bool:
    """Whether a file has what Python calls, rather than being a library with that ending."""
    init = f"PyInit_{dotted.rpartition('.')[2]}"
    if not shelf.place.windows:
        try:
            with open_mapped(path) as data:
                return find_bytes(data, init.encode()) >= 0
        except OSError:
            return True
    image = shelf.read(path)
    return isinstance(image, str) or not image.whole or init in image.exports


def missing_module(place: Place, package: Installed, error: str) -> list[Finding]:
    """A package that it requires, and that is not there."""
    name = error.partition("No module named ")[2].strip("'\" ").partition(".")[0].partition("'")[0]
    if "ModuleNotFoundError" not in error or not name or name in package.tops:
        return []
    if name == "torch" or not name.isidentifier():
        return []
    if name.startswith(package.project.replace("-", "_") + "_"):  # no other package has that
        return [cause_finding("half-installed.part", package=package.label, name=name)]
    do = ("install", pip_line(place, name)) if name in KNOWN else ()
    return [
        cause_finding("missing-requirement.imported", "", do, project=package.project, name=name)
    ]


# -------------------- publish/which/reporting.py
# Everything that is looked at for one answer, put together.

#: Packages that are looked at whatever the index has.
KNOWN_PACKAGES = ("flash-attn", "xformers")
_STABLE = ("aoti_torch_", "torch_")  # the beginnings of its names, in C


@dataclass(frozen=True)
class Package:
    """What came of one that is installed."""

    installed: Installed
    loads: bool | None
    """``None``: it was not tried."""
    errors: tuple[str, ...]
    """What its import said, or why it was not tried."""
    findings: tuple[Finding, ...]
    partly: bool = False
    """Whether it can be imported itself, and some of its extension modules cannot."""


@dataclass(frozen=True)
class Report:
    """The answer."""

    place: Place
    driver: Driver
    torch: Torch | None
    torch_installed: str
    """Its version as pip knows it; empty where it does not know one, or it is none."""
    machine: Machine
    findings: tuple[Finding, ...]
    """Of the Python, the machine and torch."""
    packages: tuple[Package, ...]
    strays: tuple[str, ...]
    """Folders that are called like a package that is not installed."""
    absent: tuple[str, ...]
    """Packages that were named and are not installed."""
    choices: tuple[Judged, ...]
    """Of each project of the index that was asked for its best wheel."""
    portable: Portable | None = None
    """The program whose own Python it is, or was said to be."""
    named: bool = False
    """Whether that was said."""

    @property
    def keeps_torch(self) -> bool:
        """Whether a command can name torch so that pip leaves it as it is."""
        if self.torch is None:
            return True
        return is_release_of(self.torch_installed, self.torch.version)

    @property
    def good(self) -> bool:
        """Whether each project that was asked for works, by all that is known, or has a wheel.

        Not of a Python that is another than it was said to be.
        """
        if self.named and self.portable and self.portable.differs:
            return False
        names = {p.installed.project for p in self.packages} | {
            one.row.project for one in self.choices
        }
        whole = not any(one.failed for one in self.findings)
        loads = {
            one.installed.project
            for one in self.packages
            if whole and one.loads and not any(finding.failed for finding in one.findings)
        }
        fits = {one.row.project for one in self.choices if one.fits}
        return bool(names) and names <= loads | fits


def build_report(
    place: Place,
    rows: Sequence[Row],
    package: str = "",
    *,
    driver: Driver | None = None,
    load: bool = True,
    preset: str = "",
) -> Report:
    """Look at a Python and at what is installed in it; ``load``: import it in another process.

    ``preset``: the program whose Python it is said to be.
    """
    driver = ask_driver(place) if driver is None else driver
    torch, torches = read_torch(place), find_installed(place, ["torch"])
    machine = describe_machine(place, driver, torch, torches)
    listed = sorted({row.project for row in rows})
    asked = [package] if package else list(dict.fromkeys([*KNOWN_PACKAGES, *listed]))
    shelf = Shelf(place, torch)
    packages, strays = [], []
    there = find_installed(place, asked)
    for name in asked:
        copies = [one for one in there if one.project == name]
        if copies:
            compiled = any(row.project == name and "any" not in row.tags[0] for row in rows)
            packages.append(_inspect_package(shelf, copies, machine, load=load, compiled=compiled))
        elif at := find_stray_folder(place, name):
            strays.append(at)
    packages += _beneath(shelf, torches, packages, machine, load)
    return Report(
        place=place,
        driver=driver,
        torch=torch,
        torch_installed=_installed_torch_version(torches),
        machine=machine,
        findings=(
            *python_findings(place, driver),
            *torch_findings(place, torch, torches, driver),
            *driver_findings(driver, torch),
            *processor_findings(driver, torch),
        ),
        packages=tuple(packages),
        strays=tuple(strays),
        absent=(package,) if package and package not in {one.project for one in there} else (),
        portable=match_portable_preset(place, machine, preset),
        named=bool(preset),
        choices=tuple(
            filter(None, (choose_wheel(rows, machine, name) for name in listed if name in asked))
        ),
    )


def _installed_torch_version(torches: Sequence[Installed]) -> str:
    """What METADATA says, if it is a version: it becomes a word of a command."""
    try:
        version_key(torches[0].version)
    except (IndexError, ValueError):
        return ""
    return torches[0].version


def describe_machine(
    place: Place, driver: Driver, torch: Torch | None, torches: Sequence[Installed]
) -> Machine:
    """What of a Python and its driver decides which wheel fits."""
    return Machine(
        platform=place.platform,
        python=place.python,
        torch=_pip_torch_version(torch, torches),
        cuda=torch.cuda if torch else "",
        driver=driver.release,
        gpus=driver.gpus,
    )


def _pip_torch_version(torch: Torch | None, torches: Sequence[Installed]) -> str:
    """Its version as pip knows it, which it has to be named by to be kept.

    PyPI's wheels of torch have ``2.11.0`` there and ``2.11.0+cu130`` in their files.
    """
    if torch is None:
        return ""
    known = torches[0].version if torches else ""
    return known if known == torch.version.partition("+")[0] else torch.version


def _beneath(
    shelf: Shelf,
    torches: Sequence[Installed],
    packages: list[Package],
    machine: Machine,
    load: bool,
) -> Iterator[Package]:
    """torch, and what is required by what does not load, as far as something is wrong there."""
    asked = [one.installed.project for one in packages]
    failing = [one.installed for one in packages if not one.loads]
    first = torches[:1] if len(failing) == len(packages) else []
    for one in dict.fromkeys([*first, *needed_by(shelf.place, failing)]):
        copies = torches if one.project == "torch" else [one]
        if one.project not in asked and (copies is torches or binaries_of(one)):
            own = _inspect_package(
                shelf, copies, replace(machine, gpus=()), load=load and copies is torches
            )
            if own.loads is False or any(finding.failed for finding in own.findings):
                yield own


def _inspect_package(
    shelf: Shelf,
    copies: Sequence[Installed],
    machine: Machine,
    *,
    load: bool,
    compiled: bool = False,
) -> Package:
    own, place = copies[0], shelf.place
    paths = binaries_of(own)
    read = [shelf.read(one) for one in paths if place.windows]
    libraries = [name for one in read if not isinstance(one, str) for name in one.libraries]
    shelf.text, shelf.with_torch = python_text(own), package_uses_torch(own, libraries)
    stable, any_cuda = _abi_of(shelf, paths)
    built = replace(built_for(own), stable=stable, any_cuda=any_cuda)
    findings = [
        *file_findings(own),
        *copy_findings(place, copies),
        *name_findings(place, own),
        *tag_findings(place, own, paths),
        *content_findings(own, compiled=compiled),
        *requirement_findings(place, own),
        *(against_torch(own, built, machine) if shelf.with_torch else ()),
    ]
    if place.windows:
        findings += _of_binaries(shelf, paths, built)
    findings += device_findings(paths, machine.gpus, machine.driver)
    loads, errors = try_import(shelf, own, paths) if load else (None, ["its import was not tried"])
    findings += [one for text in errors for one in missing_module(place, own, text)]
    if loads and any(one.id == "shadowed" for one in findings):
        loads, errors = False, ["something else with the same name was imported"]
    if loads:  # then these are no reasons why it does not
        findings = [
            replace(one, level="warning") if one.failed and one.id in REFUTED else one
            for one in findings
        ]
    breaking = sorted(findings, key=lambda one: not one.failed)
    inside = (f"{own.own[0]}.", own.folder)
    partly = loads is False and all(text.startswith(inside) for text in errors)
    return Package(own, loads, tuple(errors), tuple(dict.fromkeys(breaking)), partly)


def _abi_of(shelf: Shelf, paths: Sequence[str]) -> tuple[bool, bool]:
    """Whether its modules want only the stable ABI of torch; and then, no DLL of CUDA's toolkit."""
    modules = [one for one in paths if one.lower().endswith(".pyd")]
    read = [shelf.read(one) for one in modules if shelf.place.windows]
    needs = [need for one in read if not isinstance(one, str) for need in (*one.needs, *one.late)]
    wanted = [name for library, name in needs if library.startswith(("torch", "c10"))]
    whole = not any(isinstance(one, str) for one in read)
    stable = bool(wanted) and whole and all(name.startswith(_STABLE) for name in wanted)
    return stable, stable and not any(is_of_toolkit(library) for library, _ in needs)


def _of_binaries(shelf: Shelf, paths: Sequence[str], built: Built) -> Iterator[Finding]:
    """Of extension modules and what these want; DLLs that are loaded by hand may be for others."""
    modules = [
        one for one in paths_of_this_python(shelf.place, paths) if one.lower().endswith(".pyd")
    ]
    others = [one for one in paths if one.lower().endswith(".dll")]
    shelf.brought = {os.path.basename(one).lower(): one for one in others}
    seen = set(modules)
    yield from dll_findings(shelf, modules, built, seen=seen)
    # Of those that differ by a number, such as CUDA's version, a package loads the one that fits.
    alike: dict[str, list[list[Finding]]] = {}
    for path in (one for one in others if one not in seen):
        kind = re.sub(r"\d+", "#", os.path.basename(path).lower())
        alike.setdefault(kind, []).append([*dll_findings(shelf, [path], built)])
    by_hand = [
        *dict.fromkeys(f for group in alike.values() if all(group) for f in min(group, key=len))
    ]
    if not modules or any(map(shelf.is_torchs, others)):  # torch loads all that it has
        yield from by_hand
        return
    for finding in by_hand[:1]:
        more = f" (and {len(by_hand) - 1} more like it)" if len(by_hand) > 1 else ""
        said = f"in a DLL that it loads by itself, if at all: {finding.actual}{more}"
        yield replace(finding, actual=said, level="warning")


# -------------------- publish/which/answer.py
# The answer for people and for programs.

_WIDTH = 98


#: By what commands are pasted into: how a program is quoted that is not plain, two of them are
#: joined so that the second is for a first that did not fail, and what stands in place of what.
#: PowerShell 5.1 has no &&; in a file cmd reads %2 as a word.
FORMS = {
    "PowerShell": ("& '{}'", "{}; if ($?) {{ {} }}", "", ""),
    "cmd": ('"{}"', "{} && {}", "", ""),
    ".bat": ('"{}"', "{} && {}", "%", "%%"),
    "bash": ("{}", "{} && {}", "\\", "/"),
}


def pip_installs(python: str, what: Sequence[str], torch: str) -> tuple[list[str], list[str]]:
    """What has pip install a wheel that ``what`` names, whatever is there: two commands.

    The first installs what it requires, and keeps torch or refuses. If another wheel of the same
    version is installed, pip keeps that and exits with 0: so the second forces it, and only it.
    """
    pip = [python, "-m", "pip", "install"]
    first = [*pip, *what, *([f"torch=={torch}"] * bool(torch))]
    return first, [*pip, "--force-reinstall", "--no-deps", *what]


def uv_installs(start: Sequence[str], index: str, what: str, torch: str) -> list[str]:
    """The same with uv, of an index: of an address uv does not compare the hash.

    ``start`` is ``uv add``, or ``uv pip install`` with its flags.
    """
    project = what.partition("==")[0]
    kind = "--only-binary" if "pip" in start else "--no-build-package"
    words = [*start, "--index", index, "--reinstall-package", project, kind, project, what]
    return [*words, *([f"torch=={torch}"] * bool(torch))]


def command_of(found: Report, judged: Judged, base: str) -> list[list[str]]:
    """What installs a wheel: torch is named as it is, so that pip keeps it or refuses.

    A second command forces it where a wheel of its release is there already.
    """
    row = judged.row
    address = f"{place_of(row, base)}#sha256={row.sha256}"
    new, again = pip_installs(found.place.executable, [address], found.torch_installed)
    return [new, again] if _find_installed_package(found, row) else [new]


def commands_of(found: Report, judged: Judged, base: str) -> dict[str, str]:
    """That command for each place that it may be pasted into, and the one of uv."""
    row, forms = judged.row, [*FORMS] if found.place.windows else ["bash"]
    start = ["uv", "pip", "install", "--python", found.place.executable]
    what = f"{row.project}=={row.version}"
    uv = uv_installs(start, f"{base}plain/", what, found.torch_installed)
    said = {form: format_for_shell(command_of(found, judged, base), form) for form in forms}
    return {**said, "uv": format_for_shell([uv], "cmd" if found.place.windows else "bash")}


def _find_installed_package(found: Report, row: Row) -> Package | None:
    """The installed package that has a wheel's release."""
    for one in found.packages:
        with contextlib.suppress(ValueError):
            same = version_key(one.installed.version) == version_key(row.version)
            if same and one.installed.project == row.project:
                return one
    return None


def format_for_shell(commands: Sequence[Sequence[str]], form: str) -> str:
    """As they are pasted into one of :data:`FORMS`."""
    (quoted, then, swap, by), lines = FORMS[form], []
    for program, *words in commands:
        start = program.replace("'", "''") if form == "PowerShell" else program
        start = quoted.format(shlex.quote(program) if form == "bash" else start)
        said = [_quote_shell_word(one, form) for one in words]
        lines.append(" ".join([program if is_plain(program) else start, *said]))
    text = lines[0] if len(lines) == 1 else then.format(*lines)
    return text.replace(swap, by) if swap else text


def _quote_shell_word(word: str, form: str) -> str:
    if form == "bash" and set(word) & set('$`"'):  # which it reads within " too: of a path
        return shlex.quote(word)
    return word if word.startswith("-") or word.isalpha() else f'"{word}"'


def is_plain(program: str) -> bool:
    """Whether no terminal sees more in a path than a path."""
    return re.fullmatch(r"[\w.:/\\+~-]+", program) is not None


def as_text(found: Report, base: str) -> str:
    """For people, in lines that a terminal of 100 columns shows whole."""
    lines = [*_machine_lines(found), *_finding_lines(found.findings, "")]
    for one in found.packages:
        lines += ["", *_package_lines(one)]
    for at in found.strays:
        lines += ["", f"{ascii_line(at)} has the name of a package that is not installed:",
                  "  Python imports that folder instead."]  # fmt: skip
    for choice in found.choices:
        lines += ["", *_choice_lines(found, choice, base)]
    for name in found.absent:
        lines += ["", f"{name} is not installed in this Python."]
    for number, (cause, do, undo) in enumerate(remedy_commands(found)):
        lines += [] if number else ["", "Commands that fix these causes, and how to undo each:"]
        lines += [f"  {cause}: {do}", f"    undo: {undo}"]
    if not found.choices:
        lines += [
            "",
            "No wheel can be suggested: no index was given (--index), or it has none of these.",
        ]
    return "\n".join(lines) + "\n"


def remedy_commands(found: Report) -> list[tuple[str, str, str]]:
    """Of each cause that a command changes: its id, that command, and the one that undoes it."""
    every = [*found.findings, *(f for one in found.packages if not one.loads for f in one.findings)]
    words = [(one.id, one.do, _undone(found, *one.do)) for one in dict.fromkeys(every) if one.do]
    # Words of metadata must be nothing else to a terminal.
    plain = re.compile(r"[\w.+!<>=~,*:/\\ -]{1,400}")
    return [
        (cause, _shell_command_line(found, *do), _shell_command_line(found, *undo))
        for cause, do, undo in words
        if all(map(plain.fullmatch, (*do, *undo)))
    ]


def _undone(found: Report, kind: str, what: str, *rest: str) -> tuple[str, ...]:
    """What brings back what is there now."""
    if kind == "ren":
        return (kind, os.path.join(os.path.dirname(what), rest[0]), os.path.basename(what))
    name = re.split(r"[!=<>~]", what)[0]
    there = find_installed(found.place, [name])
    index = (rest[0], f"{rest[1].rpartition('/')[0]}/cpu") if rest else ()
    return ("install", f"{name}=={there[0].version}", *index) if there else ("uninstall", name)


def _shell_command_line(found: Report, kind: str, *words: str) -> str:
    if kind == "ren":
        return " ".join([kind, *(f'"{one}"' for one in words)])
    pip = [found.place.executable, "-m", "pip", kind, *["-y"] * (kind == "uninstall")]
    return format_for_shell([[*pip, *words]], "cmd" if found.place.windows else "bash")


def _machine_lines(found: Report) -> Iterator[str]:
    place, driver = found.place, found.driver
    yield f"Python  {place.python} ({place.platform}), {ascii_line(place.executable)}"
    torch = "none"
    if found.torch:
        cuda = f"CUDA {found.torch.cuda}" if found.torch.cuda else "without CUDA"
        torch = f"{found.torch.version} ({cuda})"
    yield f"torch   {torch}"
    if found.portable:
        own = found.portable
        said = "is said to be" if found.named else "is"
        yield from _wrap_answer_text(
            f"preset  this {said} {own.says}: --for {own.preset}", "", "        "
        )
        for text in own.differs:
            yield from _wrap_answer_text(
                f"{'!' if found.named else '-'} {text}", "        ", "          "
            )
        if own.differs and own.instead:
            yield f"          to build for this Python: {' '.join(own.instead)}"
    yield f"driver  {f'for CUDA {driver.release}' if driver.release else 'none'}"
    named = [
        f"{name} (compute capability {gpu})"
        for gpu, name in zip(driver.gpus, (*driver.names, *[""] * len(driver.gpus)))  # noqa: B905 - Python 3.9
    ]
    yield f"GPU     {', '.join(named) or 'none'}"


def _wrap_answer_text(text: str, first: str, further: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _finding_lines(findings: Sequence[Finding], indent: str) -> Iterator[str]:
    for at, one in enumerate(findings):
        yield from _wrap_answer_text(
            one.actual, f"{indent}{'!' if one.failed else '-'} ", f"{indent}  "
        )
        if one.hint and not any(one.hint == later.hint for later in findings[at + 1 :]):
            yield from _wrap_answer_text(f"=> {one.hint}", f"{indent}  ", f"{indent}     ")


def _package_lines(one: Package) -> Iterator[str]:
    name = f"{one.installed.project} {one.installed.version}"
    said = {True: "is installed and loads", False: "is installed but DOES NOT LOAD"}
    if one.partly:
        said[False] = "can be imported, but NOT ALL OF IT LOADS"
    yield f"{name} {said[one.loads] if one.loads is not None else 'is installed'}"
    for text in one.errors:
        yield from _wrap_answer_text(text, "  ", "    ")
    yield from _finding_lines(one.findings, "  ")
    if one.loads is False and not any(finding.failed for finding in one.findings):
        yield "  No known cause was found."


def _choice_lines(found: Report, choice: Judged, base: str) -> Iterator[str]:
    row = choice.row
    if choice.fits:
        yield f"{row.project}: this wheel fits ({choice.by}; {row.smoke})"
        yield f"  {row.file}"
        there = _find_installed_package(found, row)
        if there is not None and there.loads and not there.findings:
            yield "  It is already installed and loads: nothing to do."
            return
        if not found.keeps_torch:
            knows = f"sees torch {found.torch_installed}" if found.torch_installed else (
                "does not see this torch")  # fmt: skip
            yield f"  pip {knows} and would replace it, so no command is given."
            return
        said = commands_of(found, choice, base)
        first = said["cmd" if found.place.windows else "bash"]
        yield f"  {first}"
        for form, where in (("PowerShell", "PowerShell"), (".bat", "a .bat file")):
            if said.get(form, first) != first:
                yield f"  in {where}: {said[form]}"
        if not any("pip" in names_in(folder) for folder in found.place.paths):
            yield f"  This Python has no pip: run it with -m ensurepip first, or use {said['uv']}"
    else:
        yield f"{row.project}: no wheel of the index fits. The nearest one:"
        yield f"  {row.file}"
        for rule in choice.missed:
            yield from _wrap_answer_text(rule, "  - ", "    ")


def as_object(found: Report, base: str) -> dict[str, Any]:
    """For programs: one object with a ``schema``."""
    machine = {"line": found.machine.line, **asdict(found.machine)}
    return {
        "schema": 1,
        "good": found.good,
        "machine": {**machine, "names": list(found.driver.names)},
        "executable": ascii_line(found.place.executable, 1000),
        "preset": _preset_object(found),
        "findings": [asdict(one) for one in found.findings],
        "packages": [
            {
                "name": one.installed.project,
                "version": one.installed.version,
                "folder": ascii_line(one.installed.folder, 1000),
                "loads": one.loads,
                "partly": one.partly,
                "errors": list(one.errors),
                "findings": [asdict(each) for each in one.findings],
            }
            for one in found.packages
        ],
        "absent": [*found.absent],
        "commands": [dict(zip(("cause", "do", "undo"), one)) for one in remedy_commands(found)],  # noqa: B905 - Python 3.9
        "strays": [ascii_line(one, 1000) for one in found.strays],
        "wheels": {one.row.project: _wheel_object(found, one, base) for one in found.choices},
    }


def _preset_object(found: Report) -> dict[str, Any] | None:
    own = found.portable
    if own is None:
        return None
    return {"name": own.preset, "said": found.named, "differs": [*own.differs],
            "instead": [*own.instead]}  # fmt: skip


def _wheel_object(found: Report, choice: Judged, base: str) -> dict[str, Any]:
    row, fits = choice.row, choice.fits
    named = fits and found.keeps_torch
    return {
        "fits": row.file if fits else None,
        "by": choice.by if fits else "",
        "url": place_of(row, base) if fits else None,
        "sha256": row.sha256 if fits else None,
        "command": command_of(found, choice, base)[-1] if named else None,
        "typed": commands_of(found, choice, base) if named else {},
        "nearest": None if fits else row.file,
        "missed": list(choice.missed),
    }


# -------------------- publish/which/main.py
# The program ``which.py``: its words and its answer.

#: Exit codes: a wheel was named or all loads; what was typed or the index is no good; neither.
GOOD, REFUSED, NOT_GOOD, INTERRUPTED = 0, 2, 9, 130


def make_parser() -> argparse.ArgumentParser:
    """Its command line."""
    made = argparse.ArgumentParser(
        prog="which.py",
        description="Find the wheel of an index that fits this Python, and explain why an "
        "installed one does not load. It prints the install command, but does not run it.",
    )
    made.add_argument("--index", metavar="DIR|URL", help="the index (default: this file's own)")
    made.add_argument("--catalogue", metavar="FILE", help="a saved copy of its catalogue.json")
    made.add_argument("--package", metavar="NAME", help="only this package")
    made.add_argument(
        "--for", dest="preset", metavar="NAME",
        help="show how this Python differs from that of a program such as comfyui",
    )  # fmt: skip
    made.add_argument(
        "--share", action="store_true", help="print one line about this machine, no names or paths"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--no-load", action="store_true", help="do not import any package")
    made.add_argument(
        "--mark", help=argparse.SUPPRESS
    )  # printed last: who ran it knows it is whole
    return made


def find_own_index(code_file: str) -> str:
    """The index that this file came from, a directory or an address; empty: it is not known.

    Where its text was fetched and compiled, that was under the name of its address.
    """
    if code_file.startswith(("https://", "http://127.0.0.1:")):
        return code_file.rpartition("/")[0] + "/"
    folder = os.path.dirname(os.path.abspath(code_file))
    return folder if os.path.isfile(os.path.join(folder, CATALOGUE_NAME)) else ""


def main(typed_words: Sequence[str], code_file: str) -> int:
    """Do it; the exit code."""
    options = make_parser().parse_args(typed_words)
    for stream in (sys.stdout, sys.stderr):  # a terminal's code page may not have all letters
        if isinstance(stream, io.TextIOWrapper):
            # Who runs this for its answer reads UTF-8.
            stream.reconfigure(encoding="utf-8" if options.mark else None)
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _answer_query(options, code_file)
    except KeyboardInterrupt:
        print("which: interrupted", file=sys.stderr)
        return INTERRUPTED
    except RefusalError as error:
        print(f"which: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        code = REFUSED
    if options.mark:
        print(options.mark)
    return code


def _answer_query(options: argparse.Namespace, code_file: str) -> int:
    place = this_place()
    if options.share:
        driver = ask_driver(place)
        if driver.trouble:  # the line cannot say so, and would look like a machine without
            print(f"which: the driver was not fully queried: {driver.trouble}", file=sys.stderr)
        torches = find_installed(place, ["torch"])
        print(describe_machine(place, driver, read_torch(place), torches).line)
        return GOOD
    index = options.index or find_own_index(code_file)
    rows, base = fetch_rows(index, options.catalogue or "") if index else ([], "")
    package = normalize_project(options.package or "")
    if options.package and index and package not in {row.project for row in rows}:
        print(f"The index has no package {ascii_line(options.package, 80)}.", file=sys.stderr)
    preset = options.preset or ""
    found = build_report(place, rows, package, load=not options.no_load, preset=preset)
    if options.json:
        print(json.dumps(as_object(found, base), indent=1))
    else:
        print(as_text(found, base), end="")
    return GOOD if found.good else NOT_GOOD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], main.__code__.co_filename))
