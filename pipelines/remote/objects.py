"""Objects of compile units on the host, and which of its programs produce them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TypedDict

from . import builder, files, process
from .resources.compilers import user_compilers
from .rpc import idempotent
from .shards import compile_units

#: In vcvarsall.bat's environment; cl.exe loads the others from its own directory.
_MSVC = ("cl.exe", "link.exe")
_BESIDE = ("c1.dll", "c1xx.dll", "c2.dll")
#: On a host with an existing environment; gcc reports the paths of cc1 and cc1plus.
_NATIVE = ("cc", "c++", "gcc", "g++", "as", "ld")
_ASKED = ("cc1", "cc1plus")
_CUDA = ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc")
_TIMEOUT = 30.0


class Expected(TypedDict):
    """The expected path and hash of a file."""

    path: str
    sha256: str


@idempotent
def intact(expected: Sequence[Expected]) -> list[str]:
    """The paths whose file has the expected hash."""
    intact_paths = []
    for file in expected:
        with contextlib.suppress(OSError):
            if files.sha256(file["path"]) == file["sha256"]:
                intact_paths.append(file["path"])
    return intact_paths


@idempotent
def compilers(python: str, programs: Sequence[str] = (), toolkit: str = "") -> dict[str, str]:
    """The sha256 of the programs that compile and link, by their names.

    Also the values of the variables that they read besides their arguments. On Windows those of the
    environment that builds get. ``python``, ``programs``: as for a build, searched before PATH.
    ``toolkit``: directory of the host's own CUDA toolkit, if any. Raises what
    :func:`.builder.compiler_environment` does, and ``FileNotFoundError`` without a compiler: what
    was not checked cannot be called equal.
    """
    environment = builder.compiler_environment()
    path = builder.search_path(environment, python, programs)
    paths = dict(_find_build_programs(path, toolkit))
    if not {*paths} & {*_MSVC, *_NATIVE}:
        raise FileNotFoundError("no compiler on PATH")
    hashes = {name: files.sha256(place) for name, place in sorted(paths.items())}
    return hashes | compile_units.read_by_compilers(environment)


def _find_build_programs(path: str, toolkit: str) -> Iterator[tuple[str, str]]:
    windows = sys.platform == "win32"
    for name in _MSVC if windows else (*_NATIVE, *user_compilers()):
        if program := shutil.which(name, path=path):
            yield os.path.basename(name), program  # noqa: PTH119
            folder = os.path.dirname(program)  # noqa: PTH120
            for other in _BESIDE if name == _MSVC[0] else ():
                place = os.path.join(folder, other)  # noqa: PTH118
                if os.path.isfile(place):  # noqa: PTH113
                    yield other, place
    for name in () if windows else _ASKED:
        with contextlib.suppress(OSError, RuntimeError):
            gcc = shutil.which("gcc", path=path) or "gcc"
            code, output = process.capture([gcc, f"-print-prog-name={name}"], timeout=_TIMEOUT)
            if not code and os.path.isfile(output.strip()):  # noqa: PTH113
                yield name, output.strip()
    for name in _CUDA if toolkit else ():
        place = os.path.join(toolkit, *name.split("/")) + (".exe" if windows else "")  # noqa: PTH118
        if os.path.isfile(place):  # noqa: PTH113
            yield name.rpartition("/")[2], place
