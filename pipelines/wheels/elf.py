"""What a Linux library has of Python: it is then for one Python, whatever its wheel says."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from pipelines.wheels.fatbin import Data

#: Libraries and functions of Python.
PYTHON = re.compile(r"(?i:(lib)?python\d)|_?Py[A-Z_]")


def of_python(data: Data) -> tuple[str, ...]:
    """Libraries that it needs and dynamic symbols, its own or others', that are Python's.

    Raises ``ValueError``, or an error of the reader's, for what has no table of them.
    """
    from elftools.elf.dynamic import DynamicSegment  # slow, and only for wheels of this kind
    from elftools.elf.elffile import ELFFile

    found: set[str] = set()
    for segment in ELFFile(io.BytesIO(data[:])).iter_segments():
        if isinstance(segment, DynamicSegment):
            needed: Iterator[Any] = segment.iter_tags("DT_NEEDED")  # of a class without types
            found |= {str(tag.needed) for tag in needed}
            found |= {str(symbol.name) for symbol in segment.iter_symbols()}
    if not found:
        raise ValueError("it has no table of dynamic symbols")
    return tuple(sorted(name for name in found if PYTHON.match(name)))
