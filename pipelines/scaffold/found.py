"""What is known of a repository before anything of it has run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

Backend = Literal["setuptools", "scikit-build-core", "meson-python", "hatchling", "other"]
Binding = Literal["torch", "torch-stable", "pybind11", "nanobind", "c"]


@dataclass(frozen=True)
class Told:
    """What one file says; empty where it does not say it in so many words."""

    name: str = ""
    version: str = ""
    summary: str = ""
    licence: str = ""
    requires_python: str = ""
    requires: tuple[str, ...] = ()
    """What the package needs when it runs, as PEP 508 writes it."""
    build_requires: tuple[str, ...] = ()
    backend: str = ""
    """As ``pyproject.toml`` has it; empty: setuptools."""
    extensions: tuple[str, ...] = ()
    """Dotted names of extension modules, as far as they are written out."""
    sources: tuple[str, ...] = ()
    """Sources of extension modules, where they are written out."""
    packages: tuple[str, ...] = ()
    """Directories that become top-level packages, where they are written out."""
    py_api: str = ""
    """The oldest Python of whose limited API its wheels are, such as cp310; py3: of none."""
    cuda: bool = False
    """Whether it asks for CUDA: CUDAExtension, nvcc, ``LANGUAGES CUDA``."""
    torch: bool = False
    """Whether it builds with torch: BuildExtension, ``find_package(Torch)``."""
    bindings: frozenset[Binding] = frozenset()
    variables: tuple[str, ...] = ()
    """Variables of the environment that the build reads."""
    archs: tuple[str, ...] = ()
    """Architectures that are written out, such as 80 or 90a."""
    arch_define: str = ""
    """A variable of CMake's cache that becomes CMAKE_CUDA_ARCHITECTURES."""
    fetches: tuple[str, ...] = ()
    """What in it goes to the network, in words."""
    cuda_sources: tuple[str, ...] = ()
    """Sources that nvcc compiles though they are not called so."""
    doubts: tuple[str, ...] = ()
    """What it says in a way that only running it would show."""
    later: tuple[tuple[str, str], ...] = ()
    """Doubts, each with the field that another file may have in so many words."""
    settled: frozenset[str] = frozenset()
    """Fields that are made so that what a later file says of them does not count."""


@dataclass(frozen=True)
class Project:
    """A repository: what its files say together."""

    root: Path
    told: Told
    files: tuple[str, ...]
    """What would be packed, with ``/``."""
    by: str
    """How they were listed."""
    units: tuple[str, ...]
    """What nvcc compiles of it."""
    absent: tuple[str, ...] = ()
    """Sources that are named and not there."""
    submodules: tuple[str, ...] = ()
    """Those that are not checked out."""
    idle: tuple[str, ...] = ()
    """What was to be left out, and names nothing."""
    build: str = ""
    """The file that says how it is built: setup.py, CMakeLists.txt."""
    uses: frozenset[str] = frozenset()
    """Headers of its sources that decide who can compile it: ``torch``, ``stl``, ``cccl``."""
    public: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Package -> names that its ``__init__.py`` gives, as far as they are written out."""
    examples: tuple[str, ...] = ()
    """Modules with examples in docstrings that say what comes out."""
    inside: str = ""
    """Where it is in the git checkout that it is only a part of; empty: it is the whole."""
    operators: bool = False
    """Whether it gives torch libraries of operators to load, which need be no modules of Python."""

    @property
    def package(self) -> str:
        """Its top-level package, or a name for one; ``-`` is ``_``."""
        first = next(iter(self.public), "") or next(iter(self.told.packages), "")
        return first or self.told.name.replace("-", "_").replace(".", "_")


def joined(*parts: Told) -> Told:
    """What several files say, the first that says a thing; lists are all of them.

    What one of them leaves to the build is doubted where none of the others says it.
    """
    made = Told()
    for part in parts:
        changes: dict[str, object] = {}
        for name, old in vars(made).items():
            if name in made.settled:
                continue
            new = getattr(part, name)
            if isinstance(old, str | bool):
                changes[name] = old or new
            elif isinstance(old, frozenset):
                changes[name] = old | new
            else:
                changes[name] = tuple(dict.fromkeys((*old, *new)))
        made = replace(made, **changes)  # type: ignore[arg-type]
    left = tuple(words for name, words in made.later if not getattr(made, name))
    return replace(made, doubts=(*made.doubts, *left), later=())
