"""The named parts of a binary: headers, sections and what follows them."""

from __future__ import annotations

import io
import mmap
import struct
from typing import IO, NamedTuple, cast

from pipelines.remote.pestamps import Image
from pipelines.wheels.fatbin import Data

_MOST = 2000  # sections; no compiler makes more


class Portion(NamedTuple):
    """A part, and where in the file it begins and ends."""

    name: str
    start: int
    end: int


def binary_portions(data: Data) -> list[Portion]:
    """The parts of a PE or ELF file; of any other or unreadable file only one, ``bytes``."""
    everything = [Portion("bytes", 0, len(data))]
    try:
        if data[:2] == b"MZ":
            parts = _of_pe(data)
        elif data[:4] == b"\x7fELF":
            parts = _of_elf(data)
        else:
            return everything
    except Exception:  # parsers raise anything on damaged files, which are then compared as bytes
        return everything
    valid = [portion for portion in parts if 0 <= portion.start < portion.end <= len(data)]
    return sorted(valid, key=lambda portion: portion.start) or everything


def _of_pe(data: Data) -> list[Portion]:
    image = Image(data)
    count, optional = struct.unpack_from("<2xH12xH", data, image.header + 4)
    rows = image.optional + optional
    made, last = [], 0
    for number in range(min(count, _MOST)):
        raw, size, start = struct.unpack_from("<8s8xII", data, rows + 40 * number)
        name = raw.rstrip(b"\0").decode("ascii", "replace")
        made.append(Portion(f"section {name}", start, min(start + size, len(data))))
        last = max(last, made[-1].end)
    first = min(
        (portion.start for portion in made if portion.end > portion.start), default=len(data)
    )
    return [Portion("headers", 0, first), *made, Portion("after the sections", last, len(data))]


def _of_elf(data: Data) -> list[Portion]:
    from elftools.elf.elffile import ELFFile  # slow to import

    # A mapping already has the interface of a file.
    file = ELFFile(cast("IO[bytes]", data) if isinstance(data, mmap.mmap) else io.BytesIO(data))
    made = [Portion("headers", 0, int(file.header["e_ehsize"]))]
    for number in range(min(file.num_sections(), _MOST)):
        section = file.get_section(number)
        if section["sh_type"] != "SHT_NOBITS" and section["sh_size"]:
            start = int(section["sh_offset"])
            made.append(Portion(f"section {section.name}", start, start + int(section["sh_size"])))
    return made
