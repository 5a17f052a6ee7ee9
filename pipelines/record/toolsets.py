"""Which compilers a host has for C++, and what of C++ a package needs of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

#: What of C++ a package needs; each includes those before it.
Api = Literal["plain", "cxx", "stable", "torch"]

#: Those for which the stand-in takes libc++.
WITH_LIBRARY: frozenset[Api] = frozenset({"cxx", "stable"})

#: The same in words: "flash-attn needs ...".
NEEDED: dict[Api, str] = {
    "plain": "C and CUDA kernels",
    "cxx": "C++ with its standard library",
    "stable": "torch's stable ABI",
    "torch": "torch's C++ API or MSVC's STL",
}


@dataclass(frozen=True)
class ToolSet:
    """A compiler with its linker, headers and libraries, and what can be built with them."""

    name: str
    version: str = ""
    """Such as 14.44; empty where it is not known before the host is reached."""
    apis: tuple[Api, ...] = ("plain", "cxx", "stable", "torch")
    lacks: str = ""
    """Why there is nothing else it can build; empty where it can build everything."""
    stamp: str = ""
    """What a wheel's local version says of it, from hosts whose wheels are not for publishing."""
    takes_fixes: bool = False
    """Whether what recipes have below ``fixes`` is for it."""
    with_cxx: tuple[tuple[str, str], ...] = ()
    """Variables that a package of :data:`WITH_LIBRARY` needs with it."""
    files: str = ""
    """Which files it is made of, where others of the same version may take their place."""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}".strip()


STAND_IN = ToolSet(
    "stand-in",
    apis=("plain", "cxx", "stable"),
    lacks="clang stands in for MSVC there, with libc++ for MSVC's STL",
    stamp=".sandbox",
    with_cxx=(("WCW_LIBCXX", "1"),),  # sdk/launcher.c: .cu files get libc++ too
)
MSVC = ToolSet("MSVC", stamp=".sandbox.msvc", takes_fixes=True)
_STAMP = re.compile(r"\.sandbox(\.msvc)?")
#: Of another system than Windows.
NATIVE = ToolSet("the host's own compiler")


def able(api: Api) -> tuple[ToolSet, ...]:
    """Those for Windows that can build what needs ``api``."""
    return tuple(one for one in (STAND_IN, MSVC) if api in one.apis)


def stamped(local: str) -> ToolSet | None:
    """The one of which a local version says that it built the wheel in a sandbox, if it does."""
    found = _STAMP.search(f".{local}")
    return None if found is None else MSVC if found[1] else STAND_IN
