"""The C++ toolsets of hosts, and the C++ API that packages need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

#: The C++ API that a package needs; each includes those before it.
Api = Literal["plain", "cxx", "stable", "torch"]

#: APIs for which the stub toolchain uses libc++.
WITH_LIBRARY: frozenset[Api] = frozenset({"cxx", "stable"})

#: The same in words: "flash-attn needs ...".
NEEDED: dict[Api, str] = {
    "plain": "C and CUDA kernels",
    "cxx": "C++ with its standard library",
    "stable": "torch's stable ABI",
    "torch": "torch's C++ API or MSVC's STL",
}


@dataclass(frozen=True)
class Toolset:
    """A compiler with its linker, headers and libraries, and what it can build."""

    name: str
    version: str = ""
    """Such as 14.44; empty if unknown until the host is reached."""
    apis: tuple[Api, ...] = ("plain", "cxx", "stable", "torch")
    limitation: str = ""
    """Why it cannot build everything; empty if it can."""
    stamp: str = ""
    """Local version of its wheels, if these cannot be published."""
    takes_fixes: bool = False
    """Whether ``fixes`` of recipes apply to it."""
    with_cxx: tuple[tuple[str, str], ...] = ()
    """Variables for packages of :data:`WITH_LIBRARY`."""
    files: str = ""
    """Identifies its files, if a version can have different ones."""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}".strip()


STUB = Toolset(
    "stand-in",
    apis=("plain", "cxx", "stable"),
    limitation="it uses clang instead of MSVC, with libc++ instead of MSVC's STL",
    stamp=".sandbox",
    with_cxx=(("WCW_LIBCXX", "1"),),  # sdk/launcher.c: .cu files get libc++ too
)
MSVC = Toolset("MSVC", stamp=".sandbox.msvc", takes_fixes=True)
_STAMP = re.compile(r"\.sandbox(\.msvc)?")
#: For systems other than Windows.
NATIVE = Toolset("the host's own compiler")


def toolsets_with_api(api: Api) -> tuple[Toolset, ...]:
    """Windows toolsets that provide ``api``."""
    return tuple(toolset for toolset in (STUB, MSVC) if api in toolset.apis)


def local_version_toolset(local: str) -> Toolset | None:
    """The sandbox toolset that a local version states, if any."""
    match = _STAMP.search(f".{local}")
    return None if match is None else MSVC if match[1] else STUB
