"""The parts of a binary by their names: headers, sections, what is behind them."""

from __future__ import annotations

import io
import mmap
import struct
from typing import IO, NamedTuple, cast

from pipelines.remote.pestamps import Image
from pipelines.wheels.fatbin import Data

_MOST = 2000  # sections; more has no compiler's binary


class Portion(NamedTuple):
    """A part, and where in the file it begins and ends."""

    name: str
    start: int
    end: int


def portions(data: Data) -> list[Portion]:
    """The parts of a PE or ELF file; of what is neither, or cannot be read, one: ``bytes``."""
    whole = [Portion("bytes", 0, len(data))]
    try:
        if data[:2] == b"MZ":
            found = _of_pe(data)
        elif data[:4] == b"\x7fELF":
            found = _of_elf(data)
        else:
            return whole
    except Exception:  # readers raise anything on what is damaged; it is then compared as bytes
        return whole
    kept = [one for one in found if 0 <= one.start < one.end <= len(data)]
    return sorted(kept, key=lambda one: one.start) or whole


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
    first = min((one.start for one in made if one.end > one.start), default=len(data))
    return [Portion("headers", 0, first), *made, Portion("behind the sections", last, len(data))]


def _of_elf(data: Data) -> list[Portion]:
    from elftools.elf.elffile import ELFFile  # slow, and only for a look into such a file

    # What is mapped is a file already.
    file = ELFFile(cast("IO[bytes]", data) if isinstance(data, mmap.mmap) else io.BytesIO(data))
    made = [Portion("headers", 0, int(file.header["e_ehsize"]))]
    for number in range(min(file.num_sections(), _MOST)):
        section = file.get_section(number)
        if section["sh_type"] != "SHT_NOBITS" and section["sh_size"]:
            start = int(section["sh_offset"])
            made.append(Portion(f"section {section.name}", start, start + int(section["sh_size"])))
    return made
