"""Finds uses of Python in a Linux library, which tie it to one Python whatever its tag says."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from pipelines.wheels.fatbin import Data

#: Libraries and functions of Python.
PYTHON = re.compile(r"(?i:(lib)?python\d)|_?Py[A-Z_]")


def python_references(data: Data) -> tuple[str, ...]:
    """Needed libraries and dynamic symbols, defined or undefined, that are Python's.

    Raises ``ValueError``, or an error of the ELF reader, if there is no table of them.
    """
    from elftools.elf.dynamic import DynamicSegment  # slow, and only for wheels of this kind
    from elftools.elf.elffile import ELFFile

    names: set[str] = set()
    for segment in ELFFile(io.BytesIO(data[:])).iter_segments():
        if isinstance(segment, DynamicSegment):
            needed: Iterator[Any] = segment.iter_tags("DT_NEEDED")  # of a class without types
            names |= {str(tag.needed) for tag in needed}
            names |= {str(symbol.name) for symbol in segment.iter_symbols()}
    if not names:
        raise ValueError("it has no dynamic symbol table")
    return tuple(sorted(name for name in names if PYTHON.match(name)))
