r"""What a Windows binary tells of the machine that built it: paths, its PDB; and its signature.

A path says who built a wheel and where (``C:\Users\name\\...``), and two builds that differ in
nothing else differ in it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pefile

from pipelines.remote.pestamps import Image
from pipelines.wheels.fatbin import Data, find, forget

#: What paths of build machines have in them; what is before and behind it decides.
_MARKS = (b":\\", b":/", b"/home/", b"/root/", b"/Users/", b"/tmp/", b"/build/", b"/github/")
#: Characters of a path as compilers write it (``__FILE__``), and how such a file's name ends.
_DRIVE = re.compile(rb"[A-Za-z]\Z")
_WITHIN = re.compile(rb"[\w:/\\.%+~-]", re.ASCII)
_REST = re.compile(rb"[\w .+@~$()\[\]{}#=,/\\-]{3,240}", re.ASCII)
_FILE = re.compile(
    rb"[\w.+-]\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|inl|ipp|tpp|impl|pyx|pxd|py|rs|obj|pdb|f90)\Z",
    re.IGNORECASE,
)
_HITS = 200_000  # marks looked at in one file: those of random bytes are 1 in 65,536
_KEPT = 16 << 20  # bytes of a mapped file that stay in memory
_MOST = 200  # paths that are kept
_PATH = 260
_RELOCATABLE = b"__nv_rel"
_DEVICE = (b".nv_fat", b".nvFatBi", _RELOCATABLE)  # sections, whose names are cut at 8 characters


@dataclass(frozen=True)
class Traces:
    """Of a Windows binary."""

    pdb: str = ""
    """The file of its debug information, as the linker wrote it."""
    paths: tuple[str, ...] = ()
    """Absolute paths of sources, in the order in which they stand."""
    complete: bool = True
    """Whether all of it was looked through, and all paths are kept."""
    relocatable: tuple[int, int] = (0, 0)
    """Where the device code is that was linked (nvcc -rdc=true): from which byte to which."""
    signed: bool = False
    """Whether it has an Authenticode signature; nobody has verified that."""
    cut: bool = False
    """Whether its headers speak of more than there is: the end of the file was lost."""


def read_traces(data: Data) -> Traces:
    """What ``data``, a whole file, tells. Raises ``pefile.PEFormatError`` for what is no PE."""
    pe = pefile.PE(data=data, fast_load=True)
    tables = {one.name: one for one in pe.OPTIONAL_HEADER.DATA_DIRECTORY}
    signature = tables.get("IMAGE_DIRECTORY_ENTRY_SECURITY")
    paths: dict[str, None] = {}
    hits = 0
    for path in _paths(data, [*_ranges(pe, len(data))]):
        hits += 1
        if hits > _HITS or len(paths) >= _MOST:
            break
        if path:
            paths[path] = None
    return Traces(
        pdb=_pdb(data),
        paths=tuple(paths),
        complete=hits <= _HITS and len(paths) < _MOST,
        relocatable=next(
            (
                (one.PointerToRawData, one.PointerToRawData + one.SizeOfRawData)
                for one in pe.sections
                if one.Name.startswith(_RELOCATABLE)
            ),
            (0, 0),
        ),
        cut=_cut(pe, signature, len(data)),
        signed=signature is not None and bool(signature.VirtualAddress and signature.Size),
    )


def _cut(pe: pefile.PE, signature: Any, size: int) -> bool:
    """Whether a section, or the signature behind the last one, ends behind the file's end."""
    parts = [(one.PointerToRawData, one.SizeOfRawData) for one in pe.sections]
    if signature is not None:
        parts.append((signature.VirtualAddress, signature.Size))  # an offset, of this table alone
    # What begins nowhere is not in the file: its memory begins as zeros.
    lost = any(start and start + length > size for start, length in parts)
    return lost or len(pe.sections) < pe.FILE_HEADER.NumberOfSections


def _pdb(data: Data) -> str:
    """The name in the CodeView record of the debug directory; empty without one."""
    try:
        return Image(data).pdb()[:_PATH]
    except (ValueError, struct.error):
        return ""


def _ranges(pe: pefile.PE, size: int) -> Iterator[tuple[int, int]]:
    """Where there may be paths: all but device code, which is large and mostly compressed."""
    start = 0
    for one in sorted(pe.sections, key=lambda one: one.PointerToRawData):
        if one.Name.startswith(_DEVICE):
            at = min(one.PointerToRawData, size)
            if start < at:
                yield start, at
            start = max(start, min(at + one.SizeOfRawData, size))
    yield start, size


def _paths(data: Data, ranges: Sequence[tuple[int, int]]) -> Iterator[str]:
    """For each mark the path that it is in, or nothing where it is in none."""
    for mark in _MARKS:
        for start, end in ranges:
            at = kept = find(data, mark, start, end)
            while at >= 0:
                yield _path(data, mark, at)
                if at - kept > _KEPT:
                    forget(data)
                    kept = at
                at = find(data, mark, at + len(mark), end)


def _path(data: Data, mark: bytes, at: int) -> str:
    drive = mark.startswith(b":")
    start = at - 1 if drive else at
    before = data[max(start - 1, 0) : start]
    # A letter before the drive's is a URL's scheme or a word; a path begins its string.
    if start < 0 or (drive and not _DRIVE.match(data[start:at])) or _WITHIN.match(before):
        return ""
    rest = _REST.match(data[at + len(mark) : at + _PATH])
    if rest is None or (drive and rest[0].startswith(b"/")) or not _FILE.search(rest[0]):
        return ""
    return (data[start : at + len(mark)] + rest[0]).decode("ascii", "replace")
