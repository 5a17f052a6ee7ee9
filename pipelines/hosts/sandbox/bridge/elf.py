"""The functions that a driver's Linux library exports, from its table of dynamic symbols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import HostError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_KIND = "ET_DYN for EM_X86_64"


def exported_functions(path: Path) -> frozenset[str]:
    """Their names. :class:`HostError` for anything but a shared library for x86-64 Linux."""
    from elftools.elf.elffile import ELFFile  # slow, and only needed with a driver

    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            kind = f"{elf['e_type']} for {elf['e_machine']}"
            functions = frozenset(_functions(elf)) if kind == _KIND else None
    except OSError as error:
        raise _no_library(path, error.strerror or str(error)) from None
    except Exception as error:  # the reader raises anything on a damaged file
        raise _no_library(path, f"not a readable ELF file: {error}") from None
    if functions is None:
        raise _no_library(path, f"an ELF file of kind {kind}")
    return functions


def _functions(elf: ELFFile) -> Iterator[str]:
    from elftools.elf.dynamic import DynamicSegment

    for segment in elf.iter_segments():
        if isinstance(segment, DynamicSegment):
            for symbol in segment.iter_symbols():
                is_function = symbol["st_info"]["type"] == "STT_FUNC"
                if is_function and symbol["st_shndx"] != "SHN_UNDEF":
                    yield str(symbol.name)


def _no_library(path: Path, actual: str) -> HostError:
    return HostError(
        f"{path}: {actual}; expected a shared library of NVIDIA's driver",
        hint="Install NVIDIA's driver for Linux, or repair it: nvidia-smi should list the GPU.",
    )
