"""Where two untrusted wheels differ, from the archive down to sections and architectures.

Their files are compared in chunks. Those that differ are unpacked to disk and mapped, so that a
library of gigabytes takes no more memory than a small one.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import NamedTuple

from pipelines.core.comparison import Difference, Verdict
from pipelines.core.files import disk_errors
from pipelines.core.hosttext import safe_line
from pipelines.remote.pestamps import Image
from pipelines.wheels.checked import CheckedWheel
from pipelines.wheels.fatbin import Data, container_entries, inventory, release_mapped_pages
from pipelines.wheels.portions import binary_portions
from pipelines.wheels.unpacking import iter_member_chunks, open_memory_map

_BINARIES = (".pyd", ".dll", ".exe", ".so")
_CHUNK = 1 << 20
_COUNTED = 8 << 20  # differing bytes of a file are counted in at most this many
_TEXT = 4 << 20
_RESIDENT = 16 << 20  # bytes of a mapped file that are kept in memory while it is compared
_ROWS = 40  # differences reported for one file
#: ELF sections with text: compilers, library names and search paths.
_TEXTS = ("section .comment", "section .dynstr")


class _Part(NamedTuple):
    """Some bytes of a file, from one place to another."""

    data: Data
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def read(self, start: int, end: int) -> bytes:
        """Bytes counted from the start of the part."""
        return self.data[self.start + start : self.start + end]


def compare_wheels(
    published: CheckedWheel, rebuilt: CheckedWheel
) -> tuple[Verdict, list[Difference]]:
    """Whether two wheels are the same bytes, and if not where they differ.

    Differences of files come first, then those of the archives.
    """
    if published.sha256 == rebuilt.sha256:
        return "identical", []
    with zipfile.ZipFile(published.path) as old, zipfile.ZipFile(rebuilt.path) as other:
        ours = {info.filename: info for info in other.infolist() if not info.is_dir()}
        theirs = {info.filename: info for info in old.infolist() if not info.is_dir()}
        differences = [
            _bounded_difference(n, "", "only in the published one")
            for n in sorted(theirs.keys() - ours.keys())
        ]
        differences += [
            _bounded_difference(n, "", "only in the rebuilt one")
            for n in sorted(ours.keys() - theirs.keys())
        ]
        # RECORD follows from the other files and comes last.
        both = sorted(theirs.keys() & ours.keys(), key=lambda n: (n.endswith("/RECORD"), n))
        for name in both:
            if _same_member(old, theirs[name], other, ours[name]):
                continue
            with ExitStack() as stack:
                first = stack.enter_context(_open_unpacked_member(old, theirs[name]))
                second = stack.enter_context(_open_unpacked_member(other, ours[name]))
                # Bytes between the parts of a binary belong to none of them.
                rows = list(_explained(name, first, second)) or [
                    ("", _compare_whole_files(first, second))
                ]
            differences += [_bounded_difference(name, part, what) for part, what in rows[:_ROWS]]
            if len(rows) > _ROWS:
                differences.append(_bounded_difference(name, "", f"and {len(rows) - _ROWS} more"))
        verdict: Verdict = "different" if differences else "repacked"
        differences += [_bounded_difference("", "", what) for what in _compare_archives(old, other)]
        differences = differences or [
            _bounded_difference("", "", "archive: bytes outside its files")
        ]
    return verdict, differences


def _bounded_difference(name: str, part: str, what: str) -> Difference:
    return Difference(
        file=safe_line(name, 200), part=safe_line(part, 100), what=safe_line(what, 300)
    )


def _same_member(
    old: zipfile.ZipFile, first: zipfile.ZipInfo, other: zipfile.ZipFile, second: zipfile.ZipInfo
) -> bool:
    """Whether two files are the same bytes, whatever checksum their archives state."""
    return first.file_size == second.file_size and all(
        a == b
        for a, b in zip_longest(iter_member_chunks(old, first), iter_member_chunks(other, second))
    )


@contextmanager
def _open_unpacked_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[Data]:
    """A file of an archive, unpacked up to its stated size."""
    with TemporaryFile(prefix="wcw-") as file:
        with disk_errors(Path(gettempdir())):
            for chunk in iter_member_chunks(archive, info):
                file.write(chunk)
        with open_memory_map(file) as data:
            yield data


def _compare_archives(old: zipfile.ZipFile, other: zipfile.ZipFile) -> Iterator[str]:
    """How the archives themselves differ: order of files, times, modes, compression."""
    first, second = old.infolist(), other.infolist()
    if [info.filename for info in first] != [info.filename for info in second]:
        yield "archive: files in a different order"
    ours = {info.filename: info for info in second}
    pairs = [(info, ours[info.filename]) for info in first if info.filename in ours]
    for what, values in (
        ("times", [(a.date_time, b.date_time) for a, b in pairs]),
        ("modes", [(a.external_attr >> 16, b.external_attr >> 16) for a, b in pairs]),
        ("extra fields", [(a.extra.hex(), b.extra.hex()) for a, b in pairs]),
        ("system", [(a.create_system, b.create_system) for a, b in pairs]),
        ("compression method", [(a.compress_type, b.compress_type) for a, b in pairs]),
        (
            "compressed size",
            [(a.compress_size, b.compress_size) for a, b in pairs if a.CRC == b.CRC],
        ),
    ):
        if unlike := [pair for pair in values if pair[0] != pair[1]]:
            a, b = unlike[0]
            yield f"archive: {what} of {len(unlike)} files, the first {a} / {b}"


def _explained(name: str, first: Data, second: Data) -> Iterator[tuple[str, str]]:
    """What differs in a file: the part, and both values, published first."""
    if name.endswith(_BINARIES):
        yield from _binaries(first, second)
        return
    if len(first) <= _TEXT and len(second) <= _TEXT:
        try:
            texts = [data[:].decode("utf-8").splitlines() for data in (first, second)]
        except UnicodeDecodeError:
            pass
        else:
            pairs = enumerate(zip(*texts, strict=False), 1)
            unlike = [(n, pair) for n, pair in pairs if pair[0] != pair[1]]
            for n, (a, b) in unlike[:3]:
                yield f"line {n}", f"{safe_line(a, 120)} / {safe_line(b, 120)}"
            if len(texts[0]) != len(texts[1]):
                yield "", f"{len(texts[0])} lines / {len(texts[1])}"
            if unlike or len(texts[0]) != len(texts[1]):
                return
    yield "", _compare_whole_files(first, second)


def _binaries(first: Data, second: Data) -> Iterator[tuple[str, str]]:
    if len(first) != len(second):
        yield "", f"{len(first)} bytes / {len(second)}"
    yield from _stamps(first, second)
    theirs, ours = (
        {p.name: _Part(data, p.start, p.end) for p in binary_portions(data)}
        for data in (first, second)
    )
    for name in [*theirs, *(name for name in ours if name not in theirs)]:
        if name not in ours or name not in theirs:
            yield name, f"only in the {'published' if name in theirs else 'rebuilt'} one"
            continue
        a, b = theirs[name], ours[name]
        if difference := _count_differing_bytes(a, b):
            texts = name in _TEXTS and max(a.size, b.size) <= _TEXT
            yield (
                name,
                difference + (_strings(a.read(0, a.size), b.read(0, b.size)) if texts else ""),
            )
    yield from _compare_device_code(first, second, theirs)


def _strings(first: bytes, second: bytes) -> str:
    """Strings of compilers and linkers that are in only one of them."""
    theirs, ours = ({*data.split(b"\0")} for data in (first, second))
    texts = [
        "; ".join(safe_line(text.decode("utf-8", "replace"), 100) for text in sorted(alone)[:3])
        for alone in (theirs - ours, ours - theirs)
    ]
    return f": {' / '.join(text or 'nothing' for text in texts)}"


def _stamps(first: Data, second: Data) -> Iterator[tuple[str, str]]:
    """Timestamps and PDB paths in Windows binaries."""
    try:
        theirs, ours = Image(first), Image(second)
        places = dict(ours.stamps())
        for name, at in theirs.stamps():
            stamps = [int.from_bytes(first[at : at + 4], "little")]
            if name in places:
                stamps.append(int.from_bytes(second[places[name] : places[name] + 4], "little"))
            if len({*stamps}) > 1:
                hashed = " (a hash, /Brepro)" if theirs.repro else ""
                yield f"stamp of the {name}", " / ".join(map(_format_pe_timestamp, stamps)) + hashed
        if theirs.pdb() != ours.pdb():
            yield (
                "debug information",
                f"{safe_line(theirs.pdb(), 120)} / {safe_line(ours.pdb(), 120)}",
            )
    except (ValueError, struct.error):
        return


def _format_pe_timestamp(stamp: int) -> str:
    return f"{stamp:#010x}, {datetime.fromtimestamp(stamp, UTC):%Y-%m-%d %H:%M:%S}"


def _compare_device_code(
    first: Data, second: Data, parts: dict[str, _Part]
) -> Iterator[tuple[str, str]]:
    """Device code, container by container and architecture by architecture."""
    theirs, ours = inventory(first).containers, inventory(second).containers
    if len(theirs) != len(ours):
        yield "device code", f"{len(theirs)} containers / {len(ours)}"
        return
    for number, (a, b) in enumerate(zip(theirs, ours, strict=True), 1):
        one, other = container_entries(first, a), container_entries(second, b)
        if [row.name for row in one] != [row.name for row in other]:
            kinds = [", ".join(row.name for row in rows) for rows in (one, other)]
            yield f"container {number} of {len(theirs)}", " / ".join(kinds)
            continue
        for row, its in zip(one, other, strict=True):
            parts_of = _Part(first, row.start, row.end), _Part(second, its.start, its.end)
            if difference := _count_differing_bytes(*parts_of):
                where = next((n for n, p in parts.items() if p.start <= row.start < p.end), "")
                place = f"container {number} of {len(theirs)}, {row.name}"
                yield place, difference + (f", in {where}" if where else "")


def _compare_whole_files(first: Data, second: Data) -> str:
    return _count_differing_bytes(_Part(first, 0, len(first)), _Part(second, 0, len(second)))


def _count_differing_bytes(first: _Part, second: _Part) -> str:
    """How many bytes differ, and the offset of the first one in the published file; or nothing.

    Counting stops after some megabytes with differences.
    """
    many, at, seen = 0, -1, 0
    least = min(first.size, second.size)
    for start in range(0, least, _CHUNK):
        end = min(start + _CHUNK, least)
        a, b = first.read(start, end), second.read(start, end)
        if a == b:
            if not start % _RESIDENT:
                release_mapped_pages(first.data)
                release_mapped_pages(second.data)
            continue
        unlike = [n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
        at = first.start + start + unlike[0] if at < 0 else at
        many += len(unlike)
        seen += len(a)
        if seen >= _COUNTED:
            return f"at least {many} of {least} bytes differ, the first at {at:#x}"
    sizes = "" if first.size == second.size else f"{first.size} bytes / {second.size}"
    if at < 0:
        return f"{sizes}, otherwise identical" if sizes else ""
    message = f"{many} of {least} bytes differ, the first at {at:#x}"
    return f"{sizes}; {message}" if sizes else message
