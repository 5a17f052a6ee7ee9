"""Facts about a repository that are known without running any of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

Backend = Literal["setuptools", "scikit-build-core", "meson-python", "hatchling", "other"]
Binding = Literal["torch", "torch-stable", "pybind11", "nanobind", "c"]
LIBRARIES: tuple[Binding, ...] = ("pybind11", "nanobind")
"""Bindings that are libraries of their own."""


@dataclass(frozen=True)
class FileFacts:
    """Facts stated literally in one file; empty if not stated."""

    name: str = ""
    version: str = ""
    summary: str = ""
    license: str = ""
    requires_python: str = ""
    requires: tuple[str, ...] = ()
    """Runtime requirements (PEP 508)."""
    build_requires: tuple[str, ...] = ()
    backend: str = ""
    """From ``pyproject.toml``; empty: setuptools."""
    extensions: tuple[str, ...] = ()
    """Dotted names of extension modules, as far as they are literal."""
    sources: tuple[str, ...] = ()
    """Sources of extension modules, if literal."""
    packages: tuple[str, ...] = ()
    """Directories that become top-level packages, if literal."""
    py_api: str = ""
    """The oldest Python of its limited API, such as cp310; py3: no Python ABI."""
    cuda: bool = False
    """Whether it uses CUDA: CUDAExtension, nvcc, ``LANGUAGES CUDA``."""
    torch: bool = False
    """Whether it builds with torch: BuildExtension, ``find_package(Torch)``."""
    bindings: frozenset[Binding] = frozenset()
    package_dirs: tuple[tuple[str, str], ...] = ()
    """Packages whose directory has another name, with it; an empty name is that of all others."""
    imports: tuple[str, ...] = ()
    """Modules that ``setup.py`` cannot be run without, and CMake."""
    variables: tuple[str, ...] = ()
    """Environment variables that the build reads."""
    switches: tuple[tuple[str, str], ...] = ()
    """Those of them that switch CUDA on, with the value that does."""
    archs: tuple[str, ...] = ()
    """Literal architectures, such as 80 or 90a."""
    arch_define: str = ""
    """The CMake cache variable that sets CMAKE_CUDA_ARCHITECTURES."""
    cuda_options: tuple[str, ...] = ()
    """Options of CMake that switch CUDA on, and are not on by default."""
    fetches: tuple[str, ...] = ()
    """Descriptions of network accesses."""
    cuda_sources: tuple[str, ...] = ()
    """Sources compiled by nvcc without a .cu extension."""
    doubts: tuple[str, ...] = ()
    """What can only be known by running it."""
    later: tuple[tuple[str, str], ...] = ()
    """Doubts with the field that another file may state."""
    settled: frozenset[str] = frozenset()
    """Fields for which later files are ignored."""


@dataclass(frozen=True)
class Project:
    """A repository: the combined facts of its files."""

    root: Path
    facts: FileFacts
    files: tuple[str, ...]
    """Files that would be packed, with ``/``."""
    by: str
    """How they were listed."""
    units: tuple[str, ...]
    """Sources compiled by nvcc."""
    absent: tuple[str, ...] = ()
    """Missing sources."""
    submodules: tuple[str, ...] = ()
    """Submodules that are not checked out."""
    idle: tuple[str, ...] = ()
    """Exclude patterns that match nothing."""
    build: str = ""
    """The file that defines the build: setup.py, CMakeLists.txt."""
    uses: frozenset[str] = frozenset()
    """Kinds of included headers, which decide the toolset: ``torch``, ``stl``, ``cccl``."""
    public: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Package -> public names of its ``__init__.py``, as far as they are literal."""
    examples: tuple[str, ...] = ()
    """Modules with docstring examples that have output."""
    inside: str = ""
    """Its path within a larger git checkout; empty if it is the whole checkout."""
    operators: bool = False
    """Whether it loads torch operator libraries, which may not be Python modules."""

    @property
    def package(self) -> str:
        """Its top-level package, or the project's name with ``_``."""
        first = next(iter(self.public), "") or next(iter(self.facts.packages), "")
        return first or self.facts.name.replace("-", "_").replace(".", "_")


def combine_facts(*parts: FileFacts) -> FileFacts:
    """Combine the facts of several files: the first value counts, lists are concatenated.

    A value that is computed at build time is a doubt unless another file states it.
    """
    made = FileFacts()
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
