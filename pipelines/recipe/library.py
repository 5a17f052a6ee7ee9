"""The kernels of a cargo build as a library of their own, kept under a key.

candle-flash-attn's build script leaves the kernels alone when its library exists and is newer than
they are; on Windows it cannot make the library itself (nvcc takes no ``.o`` there). So the objects
are compiled first, ``lib.exe`` joins them, and cargo only links. The key has everything that
decides the objects; as long as it stands, a build costs a look at a file.
``remote/cargo.py`` does on the host what is decided here.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from pipelines.core.errors import ConfigError
from pipelines.recipe.model import Library, Recipe

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Unit:
    """A kernel to compile."""

    source: str
    """Below the project's directory, with ``/``."""
    object: str
    """A file name."""


@dataclass(frozen=True)
class Steps:
    """What a host does; it knows where, and its own compilers' part of the key."""

    key: str
    directory: str
    """Of the project in the source tree, with ``/``; every command runs there."""
    units: tuple[Unit, ...]
    """The slow ones first."""
    compiler: tuple[str, ...]
    """Words of each compile, before ``-o OBJECT SOURCE``."""
    archiver: tuple[str, ...]
    """Words that join objects, before their paths; {out} is the library's."""
    library: tuple[str, ...]
    """File names under which the library must be there afterwards."""
    variable: str
    """Tells cargo's build script the directory of the library."""
    cargo: tuple[str, ...] = ("cargo", "build", "--release", "--lib")
    verify: tuple[str, ...] = ("cargo", "test", "--release", "--no-run")
    """Links the library into programs, which building a Rust library alone does not."""

    def spec(self) -> dict[str, Any]:
        """As ``remote/cargo.py`` takes it: builtins."""
        return asdict(self)


def library_key(recipe: Recipe, source_sha256: str, *, cuda: str, arch: str) -> str:
    """16 hex digits of what decides the objects, as far as it is known here.

    The source, which of it are kernels, the flags, CUDA's release and the GPU; the host adds the
    versions that its compilers state, and the variables that they read.
    """
    library = _require_library(recipe)
    parts = [source_sha256, cuda, arch, library.directory, library.sources, library.flags]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def library_build_steps(
    recipe: Recipe, names: Iterable[str], *, key: str, arch: str, windows: bool = True
) -> Steps:
    """The whole build of ``names`` (the source's files, with ``/``).

    Raises :class:`ConfigError` when no kernel is there, or two would have objects of one name.
    """
    library = _require_library(recipe)
    kernels = slow_first(_kernel_source_paths(library, names))
    suffix = ".obj" if windows else ".o"
    units = tuple(Unit(name, PurePosixPath(name).stem + suffix) for name in kernels)
    if not units or len({unit.object for unit in units}) != len(units):
        raise ConfigError(
            f"recipe {recipe.name}: library: sources: {len(units)} kernels, "
            f"{len({unit.object for unit in units})} names of objects",
            hint="Fix the globs; each kernel needs a name of its own.",
        )
    # What the build script adds elsewhere than for MSVC.
    more = () if windows else ("-Xcompiler", "-fPIC")
    return Steps(
        key=key,
        directory=library.directory,
        units=units,
        compiler=("nvcc", f"--gpu-architecture=sm_{arch}", "-c", *library.flags, *more),
        archiver=("lib", "/NOLOGO", "/OUT:{out}") if windows else ("ar", "rcs", "{out}"),
        library=library.names,
        variable=library.variable,
    )


def slow_first(names: Iterable[str]) -> list[str]:
    """By the largest number in the name, downwards, so that the last to end did not begin last.

    It is the head dimension, which decides how long a kernel takes: the slowest units of a measured
    build of flash-attn were those of 256 and 128.
    """

    def rank(name: str) -> tuple[int, str]:
        return -max(map(int, _NUMBER.findall(PurePosixPath(name).stem)), default=0), name

    return sorted(names, key=rank)


def _kernel_source_paths(library: Library, names: Iterable[str]) -> Iterable[str]:
    """The kernels' paths below the project's directory."""
    base = f"{library.directory}/"
    for name in names:
        inside = name.removeprefix(base)
        if inside != name and any(fnmatch.fnmatchcase(inside, glob) for glob in library.sources):
            yield inside


def _require_library(recipe: Recipe) -> Library:
    if recipe.library is None:
        raise ConfigError(
            f"recipe {recipe.name} has no library", hint="Only 'kind: cargo' recipes have one."
        )
    return recipe.library
