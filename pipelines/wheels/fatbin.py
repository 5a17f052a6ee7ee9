"""Which GPU architectures are inside a binary: a walk over its CUDA fat-binary containers.

Free of imports of ours and, but for Zstandard, of others: this file also travels by value to a
host, with the smoke suite. NVIDIA's Linux ``cuobjdump`` reports no device code in a Windows
``.pyd``; walking the bytes works on any file, on any machine.

The format is not documented; this is what ``fatbinary`` of CUDA 13.0 writes and what wheels
built with CUDA 11 and 12 hold, compared against ``cuobjdump --list-elf --list-ptx``. All
little-endian:

* container: ``u32 0xBA55ED50, u16 version=1, u16 header=16, u64 payload``, then ``payload``
  bytes of entries, one after another;
* entry: ``u16 kind, u16 version=0x0101, u32 header, u64 payload`` and at offset 28
  ``u32 arch`` (75, 120, ...), at offset 40 ``u64 flags``. Headers are 64 bytes or longer.
* kind 1 is PTX, 2 is an ELF (SASS), 8 is LTO intermediate code; flag bit 20 marks an ``a``
  target (``sm_90a``), bit 21 an ``f`` target (``sm_100f``, which cuobjdump lists as sm_100).

Payloads may be compressed (LZ4 or Zstandard); the headers never are.

Which toolkit made an entry: for PTX the header has the ISA version, ``u16 minor, u16 major`` at
offset 24. For SASS it is in the payload, an ELF file: up to CUDA 12 (ABI version 7) its
``e_version`` is 128 for 12.8; from 13 on (ABI version 8) ``.note.nv.tkinfo`` says
``Cuda compilation tools, release 13.0, V13.0.88``. Verified with ptxas 11.8, 12.1, 12.4, 12.6,
12.8, 12.9, 13.0 and 13.1. SASS is packed by ``-Xfatbin -compress-all``, and of
``-compress-mode`` by ``size`` (13.0). It is LZ4 only where the former goes with the mode ``speed``:
its first bytes are unpacked here, which is enough up to CUDA 12. Else it is Zstandard, which Python
3.14's module or its backport reads, where there is one: on a controller always; on other hosts it
stays closed.

What real files hold: one container for each compiled unit, and with ``nvcc -dlink`` (or
``nvcc -shared``) one more that never has PTX; with ``-arch=sm_100f`` PTX for both 100 and
100f. Code that checks the magic (cudart does) holds it as a constant too: a false hit.
"""

from __future__ import annotations

import importlib
import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing import TypeAlias

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
