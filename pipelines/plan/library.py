"""The kernels of a cargo build as a library of their own, kept under a key.

candle-flash-attn's build script leaves the kernels alone when its library exists and is newer than
they are; on Windows it cannot make the library itself (nvcc takes no ``.o`` there). So the objects
are compiled first, ``lib.exe`` joins them, and cargo only links. The key has everything that
decides the objects; as long as it stands, a build costs a copy.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from pipelines.errors import ConfigError
from pipelines.plan.recipes import Library, Recipe


@dataclass(frozen=True)
class Steps:
    """What a host runs, each command a list of words; paths are the host's."""

    key: str
    store: str
    """The directory that holds the library once it is made."""
    compile: tuple[tuple[str, ...], ...]
    """One command a kernel, in any order, so many at a time as the host's memory allows."""
    archive: tuple[str, ...]
    """Joins the objects; its output is the first of ``library``."""
    library: tuple[str, ...]
    """Paths that must all hold the same bytes afterwards."""
    environment: dict[str, str]
    """For cargo, and for it alone."""
    cargo: tuple[str, ...]
    directory: str
    """Where every command runs."""


def library_key(recipe: Recipe, source_sha256: str, *, cuda: str, msvc: str, arch: str) -> str:
    """16 hex digits of everything that decides the objects: source, flags, compilers, GPU.

    ``cuda`` and ``msvc`` are full versions (``12.8.93``, ``14.44.35207``).
    """
    parts = (source_sha256, cuda, msvc, arch, *_library(recipe).flags)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def steps(
    recipe: Recipe, names: Iterable[str], *, key: str, arch: str, source: str, root: str
) -> Steps:
    """The whole build of ``names`` (the source's files, with ``/``) unpacked at ``source``.

    ``root`` is where libraries are kept on the host. Raises :class:`ConfigError` when no kernel
    is there, or two would have objects of one name.
    """
    library = _library(recipe)
    store = rf"{root}\{key}"
    kernels = sorted(_kernels(library, names))
    objects = [rf"{store}\{PurePosixPath(kernel).stem}.obj" for kernel in kernels]
    if not kernels or len({*objects}) != len(objects):
        raise ConfigError(
            f"recipe {recipe.name}: library: sources: {len(kernels)} kernels, "
            f"{len({*objects})} names of objects",
            advice="Mend the globs; each kernel needs a name of its own.",
        )
    compiles = tuple(
        ("nvcc", f"--gpu-architecture=sm_{arch}", "-c", *library.flags, "-o", target, kernel)
        for kernel, target in zip(kernels, objects, strict=True)
    )
    made = tuple(rf"{store}\{name}" for name in library.names)
    return Steps(
        key=key,
        store=store,
        compile=compiles,
        archive=("lib", "/NOLOGO", f"/OUT:{made[0]}", *objects),
        library=made,
        environment={library.variable: store},
        cargo=("cargo", "build", "--release", "--lib"),
        directory="\\".join([source, *library.directory.split("/")]),
    )


def _kernels(library: Library, names: Iterable[str]) -> Iterable[str]:
    """The kernels' paths below the project's directory."""
    base = f"{library.directory}/"
    for name in names:
        inside = name.removeprefix(base)
        if inside != name and any(fnmatch.fnmatchcase(inside, glob) for glob in library.sources):
            yield inside


def _library(recipe: Recipe) -> Library:
    if recipe.library is None:
        raise ConfigError(
            f"recipe {recipe.name} has no library", advice="Only 'kind: cargo' recipes have one."
        )
    return recipe.library
