"""What can be built: one version of a package as frozen models.

They say what a recipe's keys mean and refuse what contradicts itself;
:mod:`pipelines.recipe.load` reads the files and says what of them belongs to which version.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    model_validator,
)

from pipelines.core.architectures import gpus
from pipelines.core.architectures.archs import ArchList
from pipelines.core.errors import ConfigError
from pipelines.core.model import Link, Model, Name, PythonVersion, Regex, Text
from pipelines.core.target import Text as AxisText
from pipelines.core.toolsets import Api
from pipelines.core.versions import Range, Release, free_threaded, python_order, release_in_range
from pipelines.core.yamlfile import read_yaml
from pipelines.recipe.archmap import Arch, ArchMap, Jit, Plain, Variable, translate_archs
from pipelines.recipe.origin import INSIDE, FileSource, Inside, PathSource, Source
from pipelines.recipe.progress import Progress
from pipelines.toolchain.sources import Sha256

_ABI3 = re.compile(r"cp3(\d+)-abi3(t?)")
_FIRST_ABI3T = 15  # of Python 3
#: Of the environment, in which compilers look for flags.
FlagVariable = Literal["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CL", "_CL_", "LINK", "_LINK_"]
UnitSeconds = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
WheelTag = Annotated[str, StringConstraints(pattern=r"^(py3\d{0,2}-none|cp3\d{1,2}-abi3t?)$")]
Strategy = Literal["build", "prebuilt", "prebuilt-then-build", "skip"]
#: Those with which wheels are looked for.
SEARCHING: tuple[Strategy, ...] = ("prebuilt", "prebuilt-then-build")


def _local_version(made: Mapping[str, Any]) -> str:
    """That of a recipe which says nothing of it, of whose keys those above are known."""
    return "cu{cuda}torch{torch}{stamp}" if made.get("torch") else "cu{cuda}{stamp}"


def _api(made: Mapping[str, Any]) -> Api:
    """That of a recipe which says nothing of it, of whose keys those above are known."""
    return "torch" if made.get("torch") else "plain"


def _one_group(pattern: str) -> str:
    groups = re.compile(pattern).groups
    if groups != 1:
        raise ValueError(f"{groups} groups in it, and one is to be the version, or a part of it")
    return pattern


class Supports(Model):
    """What the package itself says it works with."""

    cuda: Range | None = None
    """A range such as ">=12.4,<13"."""
    torch: Range | None = None
    """A range such as ">=2.2"."""


class Cost(Model):
    """What compiling takes; the first of a recipe's whose CUDA fits counts."""

    cuda: Range | None = None
    """The releases of CUDA that this is for; all, without it."""
    units: Annotated[int, Field(gt=0)]
    """Files that are compiled."""
    unit_seconds: Annotated[float, Field(gt=0)]
    """Seconds of one core for a unit and one architecture, on average."""
    thread_gib: Annotated[float, Field(gt=0)]
    """Memory of one compile thread at its peak; nvcc has one for each architecture at a time."""
    nvcc_threads: Annotated[int, Field(ge=1)] | None = None
    """What the package hard-wires; ``None`` when {threads} in ``environment`` says it."""
    basis: Text
    """Where the figures come from."""


class Objects(Model):
    """How the build names its objects, to know the longest path before there is one."""

    relative: tuple[str, ...] = ()
    """Globs of sources that setup.py names relative to the tree."""
    absolute: tuple[str, ...] = ()
    """Globs of those it names by absolute path: the root then stands in the object's path twice."""


class Module(Model):
    """An extension module that its setup.py builds for fewer architectures than it is asked for."""

    files: Text
    """Glob on its name within the wheel."""
    only: Annotated[tuple[Arch, ...], Field(min_length=1)]
    """The architectures that it can have."""


class Vendored(Model):
    """Third-party code in the source tree, some of which is in the wheel."""

    name: Text
    """What its authors call it."""
    directory: Inside
    """Where it is, below the top of the source tree."""
    license: Text
    """Its own, as SPDX writes it."""
    purl: (
        Annotated[
            str, StringConstraints(pattern=r"^pkg:[a-z]+/[A-Za-z0-9._~/-]+@[a-z]*\{version\}$")
        ]
        | None
    ) = None
    """Its package URL, such as pkg:github/nvidia/cutlass@v{version}."""
    file: Annotated[str, StringConstraints(pattern=f"^/?{INSIDE}$")] | None = None
    """That says which version it is: below ``directory``, or with a slash before it the top."""
    version: tuple[Annotated[Regex, AfterValidator(_one_group)], ...] = ()
    """Regular expressions with one group each: what they find there, joined by dots."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.file) != bool(self.version):
            raise ValueError("file and version go together: where to look, and for what")
        return self


class Fix(Model):
    """Flags that a build with MSVC takes with some releases, beyond what the package sets."""

    rule: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")] | None = None
    """The rule of compat.yaml that it answers: ``invoke plan`` then says so."""
    cuda: Range | None = None
    """With these releases of CUDA; all, without it."""
    torch: Range | None = None
    """With these releases of torch; all, without it."""
    flags: Annotated[dict[FlagVariable, Text], Field(min_length=1)]
    """Put behind what stands in that variable already."""
    why: Text
    """What does not compile without it, one sentence."""
    source: Link
    """Where that is said."""

    def applies(self, cuda: str, torch: str | None) -> bool:
        """Whether a build with these releases takes it."""
        of_torch = self.torch is None or bool(torch and release_in_range(torch, self.torch))
        return release_in_range(cuda, self.cuda) and of_torch


@cache
def known_fixes() -> dict[str, object]:
    """The keys of each of ``fixes.yaml``, by its rule."""
    rows = read_yaml(Path(__file__).with_name("fixes.yaml"))["fixes"]
    return {row["rule"]: row for row in rows}


def _resolve_fix_name(fix: object) -> object:
    if isinstance(fix, str) and fix not in known_fixes():
        raise ValueError(f"expected {', '.join(known_fixes())}, or the keys of a fix")
    return known_fixes()[fix] if isinstance(fix, str) else fix


class Patch(Model):
    """A change of the source that upstream has not released, or that is only for this build."""

    file: Inside
    """A unified diff: as seen from pipeline.yaml, or one that comes with the recipes."""
    sha256: Sha256
    """Of the file."""
    source: Link
    """Where it is from, or where what it mends is described."""
    license: Text
    """Of its lines, as SPDX writes it."""
    why: Text
    """What does not work without it, one sentence."""


class Library(Model):
    """A cargo build's kernels as a library of their own, made first and kept under a key."""

    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    """Globs of the kernels, below ``directory``."""
    directory: Inside
    """Of the project, below the top of the source tree."""
    flags: tuple[str, ...]
    """nvcc's, as the crate's build script has them."""
    names: Annotated[tuple[Text, ...], Field(min_length=1)]
    """File names that the build script and the linker look for."""
    variable: Variable
    """Tells the build script where the library is."""


class Recipe(Model):
    """One version of a package: what to build and how."""

    name: Name
    """As the file is called, without ``.yaml``."""
    summary: Text
    """What the package is, in a line."""
    kind: Literal["wheel", "pure", "cargo"]
    """What comes of it: a wheel, a wheel without compiled code, or a Rust crate that cargo
    builds."""
    license: Text
    """The package's own, as SPDX writes it."""
    version: AxisText = ""
    """As ``versions`` calls it; empty when the source tree says it."""
    project: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$")] | None = None
    """The distribution's name on an index; default the recipe's."""
    strategy: Strategy = "build"
    """Whether it is built, taken ready-made, or not offered; see docs/recipes.md."""
    prebuilt: tuple[Text, ...] = ()
    """Directories and simple indexes with wheels, in the order in which they are looked at."""
    skip: str = ""
    """With ``strategy: skip``: what is said, and what to use instead."""
    source: Source
    """A ``path`` on this machine, a file (``pypi``, ``url``) with its hash, or a ``git`` commit."""
    exclude: tuple[Text, ...] = ()
    """Globs of the tree that the build does not need; they are not sent to the host."""
    patches: tuple[Patch, ...] = ()
    """Changes of a pinned source, applied in this order before it is sent; see docs/recipes.md."""
    vendored: tuple[Vendored, ...] = ()
    """Somebody else's code in the tree, which the wheel's bill of materials names: docs/sbom.md."""
    pythons: tuple[PythonVersion, ...] = ()
    """The releases of Python that it can be built for, such as "3.12"; "3.14t" is the one without
    the global lock."""
    torch: Release | None = None
    """The release it is built against by default; ``None`` for a package without torch."""
    cuda: Release
    """The release it is built with by default, such as "12.8"."""
    supports: Supports = Supports()
    """The releases of CUDA and torch that the package itself works with."""
    api: Api = Field(default_factory=_api)
    """What of C++ it needs, and so who can build it: ``plain`` C and CUDA kernels; ``cxx`` any
    standard library, as pybind11 does; ``stable`` torch's stable ABI, from 2.10 on; ``torch`` its
    C++ API, or the STL of MSVC. By default ``torch`` with torch, else ``plain``."""
    archs: Text
    """Default list, for example ``75;80;90+PTX``."""
    arch_map: ArchMap = Plain()
    """How the package takes the GPUs to compile for; see docs/recipes.md."""
    environment: dict[Variable, str] = Field(default={})
    """May use {archs}, {gencode} (nvcc's flags), {jobs}, {threads}, {version}, {local_version}."""
    fixes: tuple[
        Annotated[Fix, BeforeValidator(_resolve_fix_name, json_schema_input_type=str | Fix)], ...
    ] = ()
    """Flags for MSVC and nvcc on Windows that only some releases of CUDA or torch need. The name of
    a rule stands for the fix of that rule in pipelines/recipe/fixes.yaml."""
    reproducible: bool = False
    """Whether builds with the same inputs are to give the same bytes: compilers write down neither
    times nor places, the source stands at a fixed place, the wheel is repacked; see
    docs/reproducible.md."""
    progress: Progress = "[{done}/{total}]"
    """What lines of the build's log begin with that say how far it is; ninja's own by default.
    A build that says nothing of the kind is shown with the time that it has taken."""
    local_version: str = Field(default_factory=_local_version)
    """The wheel's, inside and in its name; by default cu{cuda}torch{torch}{stamp}, without torch
    cu{cuda}{stamp}. There are also {cuda_major} and {torch_full}."""
    restamp: bool = False
    """Whether the local version is put into the finished wheel: METADATA, names, RECORD. For a
    package whose build takes none; others get it by {local_version} in ``environment``."""
    build_requires: tuple[str, ...]
    """Tools of toolchain.yaml that the build installs."""
    wheel_tag: WheelTag | None = None
    """The wheel's Python and ABI where it is for more than one Python: ``py3-none`` for libraries
    that Python does not import, such as ``cp39-abi3`` for its limited API. Without it one for each
    Python is expected."""
    tested_with: tuple[Release, ...] = ()
    """Releases of torch, for a wheel that supports several: the smoke suite runs with each of them,
    in its own environment. Default: the one that the wheel is built against."""
    test_requires: tuple[str, ...] = ()
    """Tools of toolchain.yaml that the smoke test installs with the wheel; see `test_tools`."""
    host_requires: tuple[str, ...] = ()
    """Programs that the build starts, beyond the compiler; looked for on the host before it."""
    smoke: str = ""
    """Folder of tests for the wheel: of pipelines/smoke, or with a slash one of your own."""
    verify: str = ""
    """Python that shows on the host that the wheel loads, when there is no ``smoke``."""
    modules: tuple[Module, ...] = ()
    """Those that have not every architecture; the audit asks of each what it can have."""
    slow_first: tuple[Text, ...] = ()
    """Globs on the names of torch extensions' sources: those that take longest, in that order."""
    compile_cache: bool = True
    """``false`` for flags at which sccache fails: https://github.com/mozilla/sccache/issues/2726."""
    costs: tuple[Cost, ...] = ()
    """What compiling takes, for ``invoke plan``; the first whose ``cuda`` fits counts."""
    unit_costs: dict[Text, UnitSeconds] = Field(default={})
    """Glob on the names of sources -> seconds of one core, by which units are divided among hosts;
    the first that fits counts, else ``unit_seconds`` of ``costs``: docs/shards.md."""
    objects: Objects = Objects()
    """How the build names its objects, to know the longest path before there is one."""
    library: Library | None = None
    """For ``kind: cargo``: the kernels, which are compiled before cargo runs."""

    @property
    def test_tools(self) -> tuple[str, ...]:
        """All that the smoke test installs: what runs suites, torch if need be, and its own."""
        torch = ("torch",) if self.torch else ()
        return tuple(dict.fromkeys(("pytest", "pytest-xdist", *torch, *self.test_requires)))

    @property
    def is_wheel(self) -> bool:
        """Whether a wheel comes of it, compiled or not."""
        return self.kind != "cargo"

    @property
    def distribution(self) -> str:
        """Its name on an index."""
        return self.project or self.name

    def archs_of(self, module: str, archs: ArchList) -> tuple[str, ...]:
        """What of ``archs`` the module of that name in the wheel is to have."""
        for limited in self.modules:
            if fnmatch.fnmatchcase(module, limited.files):
                return tuple(arch for arch in archs.sass if arch in limited.only)
        return archs.sass

    def cost(self, cuda: str) -> Cost | None:
        """What a build with CUDA ``cuda`` takes; ``None`` when that is not known."""
        return next((cost for cost in self.costs if release_in_range(cuda, cost.cuda)), None)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.is_wheel and not self.pythons:
            raise ValueError("pythons: a wheel needs at least one")
        if (self.kind == "pure") != isinstance(self.arch_map, Jit):
            raise ValueError("kind: pure has arch_map: {kind: jit}, and no other kind has it")
        if self.kind == "pure" and (self.wheel_tag or self.restamp or self.modules):
            raise ValueError("kind: pure has neither wheel_tag, restamp nor modules")
        if self.kind == "cargo" and (self.pythons or self.torch or not self.library):
            raise ValueError("a cargo build has a library, and neither pythons nor torch")
        if self.is_wheel and self.library:
            raise ValueError("library: only for kind: cargo")
        if self.kind == "cargo" and (self.reproducible or self.restamp):
            raise ValueError("reproducible and restamp: only for wheels")
        if self.restamp and any("{local_version}" in t for t in self.environment.values()):
            raise ValueError(
                "restamp: {local_version} in environment gives it to the build as well"
            )
        if isinstance(self.source, PathSource) == bool(self.version):
            raise ValueError(
                "version: a directory has none, its build determines it"
                if self.version
                else "version is missing: the name of the release or commit"
            )
        if isinstance(self.source, PathSource) and self.patches:
            raise ValueError("patches: only for a source that is pinned: change the directory")
        if isinstance(self.source, FileSource) and not self.source.file.endswith(".tar.gz"):
            raise ValueError("source: file: expected a .tar.gz")
        return self

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        """Contradictions are found here, before anything is started."""
        if (self.strategy == "skip") != bool(self.skip):
            raise ValueError("strategy: skip needs 'skip', which says why and what to use instead")
        if self.strategy in SEARCHING and not self.prebuilt:
            raise ValueError(
                f"strategy: {self.strategy} needs 'prebuilt', where to look for wheels"
            )
        for name, value, range_ in (
            ("cuda", self.cuda, self.supports.cuda),
            ("torch", self.torch, self.supports.torch),
        ):
            if range_ and value is None:
                raise ValueError(f"supports: {name}: {range_}, but there is no {name}")
            if not release_in_range(str(value), range_):
                raise ValueError(f"{name}: {value} is not in supports: {name}: {range_}")
        if self.api == "stable" and (
            self.torch is None or release_in_range("2.9", self.supports.torch)
        ):
            raise ValueError(
                "api: stable: torch has it from 2.10 on: write supports: {torch: '>=2.10'}"
            )
        if self.torch is None and "{torch}" in self.local_version:
            raise ValueError("local_version: {torch} is used, but there is no torch")
        for release in self.tested_with:
            if self.torch is None or not release_in_range(release, self.supports.torch):
                known = self.supports.torch or self.torch
                raise ValueError(f"tested_with: {release} is not in supports: torch: {known}")
            if self.tested_with.count(release) > 1:
                raise ValueError(f"tested_with: {release} is there twice")
        return self

    @model_validator(mode="after")
    def _limited(self) -> Self:
        """Of a limited API: https://peps.python.org/pep-0803/.

        abi3t is of 3.15 and later, and no Python with the global lock takes it; one without takes
        no abi3.
        """
        found = _ABI3.match(self.wheel_tag or "")
        if found is None:
            return self
        older = [p for p in self.pythons if python_order(p)[1] < int(found[1])]
        if older:
            raise ValueError(
                f"pythons: {', '.join(older)}: a wheel of {self.wheel_tag} is for 3.{found[1]} "
                "and later"
            )
        other = [p for p in self.pythons if free_threaded(p) != bool(found[2])]
        if other or (found[2] and int(found[1]) < _FIRST_ABI3T):
            why = f"no wheel of it is for Python {', '.join(other)}" if other else "too old"
            raise ValueError(
                f"wheel_tag: {self.wheel_tag}: {why}; abi3 is for Pythons with the global lock, "
                "abi3t (3.15 on) for those without"
            )
        return self

    @model_validator(mode="after")
    def _compiles(self) -> Self:
        try:
            translate_archs(self.arch_map, gpus.parse_gpu_archs(self.archs), self.cuda, self.name)
        except ConfigError as error:
            raise ValueError(f"archs: {error.message}; {error.hint}") from None
        return self
