"""Objects of compile units on the host, and which of its own programs make them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TypedDict

from . import builder, files, process
from .resources.compilers import named
from .rpc import idempotent
from .shares import listed

#: Of vcvarsall.bat's environment; cl.exe loads the others, which lie beside it.
_MSVC = ("cl.exe", "link.exe")
_BESIDE = ("c1.dll", "c1xx.dll", "c2.dll")
#: Of a host that is used as it is; cc1 and cc1plus are where gcc says.
_NATIVE = ("cc", "c++", "gcc", "g++", "as", "ld")
_ASKED = ("cc1", "cc1plus")
_CUDA = ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc")
_TIMEOUT = 30.0


class Expected(TypedDict):
    """Where a file with that hash may be."""

    path: str
    sha256: str


@idempotent
def whole(expected: Sequence[Expected]) -> list[str]:
    """The paths at which there is a file with that very hash."""
    found = []
    for one in expected:
        with contextlib.suppress(OSError):
            if files.sha256(one["path"]) == one["sha256"]:
                found.append(one["path"])
    return found


@idempotent
def compilers(python: str, programs: Sequence[str] = (), toolkit: str = "") -> dict[str, str]:
    """The sha256 of the programs that compile and link, by their names.

    And the variables that these read besides their words, each with its text. On Windows those of
    the environment that builds get. ``python``, ``programs``: as a build has them, which come
    before PATH. ``toolkit``: where CUDA is, if it is the host's own. Raises
    what :func:`.builder.compiler_environment` does, and ``FileNotFoundError`` where there is no
    compiler: of what was not looked at nobody can say that it is the same.
    """
    environment = builder.compiler_environment()
    path = builder.search_path(environment, python, programs)
    found = dict(_programs(path, toolkit))
    if not {*found} & {*_MSVC, *_NATIVE}:
        raise FileNotFoundError("no compiler was found on PATH")
    hashes = {name: files.sha256(place) for name, place in sorted(found.items())}
    return hashes | listed.read_by_compilers(environment)


def _programs(path: str, toolkit: str) -> Iterator[tuple[str, str]]:
    windows = sys.platform == "win32"
    for name in _MSVC if windows else (*_NATIVE, *named()):
        if found := shutil.which(name, path=path):
            yield os.path.basename(name), found  # noqa: PTH119
            beside = os.path.dirname(found)  # noqa: PTH120
            for other in _BESIDE if name == _MSVC[0] else ():
                place = os.path.join(beside, other)  # noqa: PTH118
                if os.path.isfile(place):  # noqa: PTH113
                    yield other, place
    for name in () if windows else _ASKED:
        with contextlib.suppress(OSError, RuntimeError):
            gcc = shutil.which("gcc", path=path) or "gcc"
            code, said = process.capture([gcc, f"-print-prog-name={name}"], timeout=_TIMEOUT)
            if not code and os.path.isfile(said.strip()):  # noqa: PTH113
                yield name, said.strip()
    for name in _CUDA if toolkit else ():
        place = os.path.join(toolkit, *name.split("/")) + (".exe" if windows else "")  # noqa: PTH118
        if os.path.isfile(place):  # noqa: PTH113
            yield name.rpartition("/")[2], place
