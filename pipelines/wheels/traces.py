r"""What a Windows binary reveals of the machine that built it: paths, its PDB; and its signature.

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
from pipelines.wheels.fatbin import Data, find_bytes, release_mapped_pages

#: Marks of paths of build machines; the surrounding text decides.
_MARKS = (b":\\", b":/", b"/home/", b"/root/", b"/Users/", b"/tmp/", b"/build/", b"/github/")
#: Characters of a path as compilers write it (``__FILE__``), and endings of source files.
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
    """Traces in a Windows binary."""

    pdb: str = ""
    """Path of its PDB, as the linker wrote it."""
    paths: tuple[str, ...] = ()
    """Absolute paths of sources, in file order."""
    complete: bool = True
    """Whether the whole file was searched and all paths are listed."""
    relocatable: tuple[int, int] = (0, 0)
    """First and last offset of linked device code (nvcc -rdc=true)."""
    signed: bool = False
    """Whether it has an Authenticode signature, which is not verified."""
    cut: bool = False
    """Whether it is truncated: its headers refer to data after the end of the file."""


def read_traces(data: Data) -> Traces:
    """Read ``data``, a whole file; raises ``pefile.PEFormatError`` if it is not a PE file."""
    pe = pefile.PE(data=data, fast_load=True)
    tables = {table.name: table for table in pe.OPTIONAL_HEADER.DATA_DIRECTORY}
    signature = tables.get("IMAGE_DIRECTORY_ENTRY_SECURITY")
    paths: dict[str, None] = {}
    hits = 0
    for path in _scan_embedded_paths(data, [*_ranges(pe, len(data))]):
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
                (section.PointerToRawData, section.PointerToRawData + section.SizeOfRawData)
                for section in pe.sections
                if section.Name.startswith(_RELOCATABLE)
            ),
            (0, 0),
        ),
        cut=_cut(pe, signature, len(data)),
        signed=signature is not None and bool(signature.VirtualAddress and signature.Size),
    )


def _cut(pe: pefile.PE, signature: Any, size: int) -> bool:
    """Whether a section or the signature extends past the end of the file."""
    parts = [(section.PointerToRawData, section.SizeOfRawData) for section in pe.sections]
    if signature is not None:
        parts.append((signature.VirtualAddress, signature.Size))  # an offset, only in this table
    # A section without an offset is zero-initialised and not in the file.
    lost = any(start and start + length > size for start, length in parts)
    return lost or len(pe.sections) < pe.FILE_HEADER.NumberOfSections


def _pdb(data: Data) -> str:
    """The name in the CodeView record of the debug directory; empty without one."""
    try:
        return Image(data).pdb()[:_PATH]
    except (ValueError, struct.error):
        return ""


def _ranges(pe: pefile.PE, size: int) -> Iterator[tuple[int, int]]:
    """Ranges to search: everything but device code, which is large and mostly compressed."""
    start = 0
    for section in sorted(pe.sections, key=lambda section: section.PointerToRawData):
        if section.Name.startswith(_DEVICE):
            at = min(section.PointerToRawData, size)
            if start < at:
                yield start, at
            start = max(start, min(at + section.SizeOfRawData, size))
    yield start, size


def _scan_embedded_paths(data: Data, ranges: Sequence[tuple[int, int]]) -> Iterator[str]:
    """For each mark its path, or an empty string."""
    for mark in _MARKS:
        for start, end in ranges:
            at = mapped_from = find_bytes(data, mark, start, end)
            while at >= 0:
                yield _extract_path_at(data, mark, at)
                if at - mapped_from > _KEPT:
                    release_mapped_pages(data)
                    mapped_from = at
                at = find_bytes(data, mark, at + len(mark), end)


def _extract_path_at(data: Data, mark: bytes, at: int) -> str:
    drive = mark.startswith(b":")
    start = at - 1 if drive else at
    before = data[max(start - 1, 0) : start]
    # A letter before the drive letter belongs to a URL or a word; a path begins its string.
    if start < 0 or (drive and not _DRIVE.match(data[start:at])) or _WITHIN.match(before):
        return ""
    rest = _REST.match(data[at + len(mark) : at + _PATH])
    if rest is None or (drive and rest[0].startswith(b"/")) or not _FILE.search(rest[0]):
        return ""
    return (data[start : at + len(mark)] + rest[0]).decode("ascii", "replace")
