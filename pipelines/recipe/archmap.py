"""From the architectures a user asks for to what a package understands, as data of its recipe.

Packages differ: some read a variable of their own, some know a closed list and ignore the rest in
silence, some hard-wire what they compile. ``translate`` gives the variables to set, and the
architectures that will really be inside, which the audit then looks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from pipelines.core.architectures.archs import KNOWN, ArchList, compute_capability, merge_arch_lists
from pipelines.core.architectures.serving import arch_number
from pipelines.core.errors import ConfigError
from pipelines.core.model import Link, Model
from pipelines.core.versions import Range, release_in_range


def _validate_known_arch(arch: str) -> str:
    if arch not in KNOWN:
        raise ValueError("no architecture that any CUDA release compiles for")
    return arch


Arch = Annotated[str, AfterValidator(_validate_known_arch)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._+-]+$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]


class _Map(Model):
    least: Arch | None = None
    """Older GPUs are refused: the package compiles, but has no code for them."""
    why: str = ""
    """What happens on older ones, one sentence."""
    source: Link | None = None
    """Where that is said."""


class Plain(_Map):
    """The package takes the list as it is, by {archs} in ``environment``; no PTX alone."""

    kind: Literal["plain"] = "plain"
    """The package takes the list as it is."""


class Torch(_Map):
    """torch's own variable: ``8.0;9.0a;12.0+PTX``. No PTX alone, no family targets (``f``)."""

    kind: Literal["torch"]
    """The package leaves it to torch."""


class Listed(_Map):
    """A variable with a closed list; whatever else is asked for goes through torch's variable.

    torch adds its flags only when the package's own list gave none, so ``none`` must be a value
    that the package takes for no architecture at all.
    """

    kind: Literal["listed"]
    """The package knows a closed list and ignores the rest."""
    variable: Variable
    """Of the environment, in which the package looks for its list."""
    understands: Annotated[dict[Arch, Range], Field(min_length=1)]
    """Architecture -> CUDA releases with which it has an effect."""
    none: Annotated[str, StringConstraints(min_length=1)]
    """A value of it that the package takes for no architecture at all."""
    always_ptx: bool = False
    """Whether the package adds PTX of the newest by itself."""


class Fixed(_Map):
    """The package always compiles these; others are added on nvcc's own variable."""

    kind: Literal["fixed"]
    """The package hard-wires what it compiles."""
    compiles: Annotated[dict[Arch, Range], Field(min_length=1)]
    """Architecture -> CUDA releases with which the package compiles it."""


class Single(_Map):
    """One architecture a build, in a variable: ``89``. No PTX."""

    kind: Literal["single"]
    """The package is compiled for one GPU."""
    variable: Variable
    """Of the environment, in which the package looks for its architecture."""


class Named(_Map):
    """A variable in which architectures have the package's own words, each for code of its own.

    The words are all that the package takes: what else is asked for is refused, for it would be
    ignored in silence. No PTX.
    """

    kind: Literal["named"]
    """The package has its own words for what it compiles, and compiles no other."""
    variable: Variable
    """Of the environment, in which the package looks for its list."""
    words: Annotated[dict[Arch, Word], Field(min_length=1)]
    """Architecture that comes of it, such as 90a -> what is written, such as "9.0"."""
    needs: dict[Arch, Range] = Field(default={})
    """Architecture -> CUDA releases with which the package takes it, where not all do."""


class CMake(_Map):
    """{archs} in ``environment`` as CMAKE_CUDA_ARCHITECTURES has it: ``80-real;90-virtual``."""

    kind: Literal["cmake"]
    """The package leaves it to CMake."""
    becomes: dict[Arch, Arch] = Field(default={})
    """Architecture -> what the package's own CMake makes of it, such as 120 -> 120a."""


class Jit(_Map):
    """Nothing is compiled before the package runs: then for the GPU that is there."""

    kind: Literal["jit"]
    """The package compiles when it runs; for ``kind: pure``."""


ArchMap = Annotated[
    Plain | Torch | Listed | Fixed | Single | Named | CMake | Jit, Field(discriminator="kind")
]


@dataclass(frozen=True)
class Translated:
    """What to set, what comes of it, and what a person should know of the way there."""

    text: str
    """For {archs} in the recipe's environment."""
    effective: ArchList
    """What the wheel will have: at least what was asked for."""
    variables: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def translate_archs(mapping: ArchMap, archs: ArchList, cuda: str, package: str) -> Translated:
    """``archs`` as ``package`` understands them with CUDA ``cuda`` (``12.8``).

    Raises :class:`ConfigError` for what it cannot be made to build, with the nearest that it can.
    """
    _require_minimum_arch(mapping, archs, package)
    match mapping:
        case Listed():
            made = _translate_listed(mapping, archs, cuda)
        case Fixed():
            made = _fixed(mapping, archs, cuda, package)
        case Torch():
            made = Translated(str(archs), archs, {"TORCH_CUDA_ARCH_LIST": torch_list(archs)})
        case Single():
            made = _single(mapping, archs, package)
        case Named():
            made = _translate_named(mapping, archs, cuda, package)
        case CMake():
            made = _translate_cmake(mapping, archs, package)
        case Jit():
            says = f"{package} compiles for the GPU that it runs on: it has no device code"
            made = Translated("", ArchList(()), {}, (says,))
        case Plain():
            _no_ptx_alone(archs, package)
            made = Translated(str(archs), archs)
    return made


def torch_list(archs: ArchList) -> str:
    """``80;90a;120+PTX`` as TORCH_CUDA_ARCH_LIST has it: ``8.0;9.0a;12.0+PTX``."""
    _no_ptx_alone(archs, "torch's TORCH_CUDA_ARCH_LIST")
    for arch in archs.sass:
        if arch.endswith("f"):
            raise ConfigError(
                f"torch's TORCH_CUDA_ARCH_LIST knows no family target {arch}",
                hint=f"the nearest valid one is {arch[:-1]}",
            )
    return ";".join(
        compute_capability(arch) + arch.lstrip("0123456789") + ("+PTX" if arch in archs.ptx else "")
        for arch in archs.sass
    )


def gencode_flags(archs: ArchList) -> str:
    """``80;120+PTX`` as nvcc takes it, a flag for each."""
    flags = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs.sass]
    flags += [f"-gencode=arch=compute_{arch},code=compute_{arch}" for arch in archs.ptx]
    return " ".join(flags)


def _require_minimum_arch(mapping: ArchMap, archs: ArchList, package: str) -> None:
    if mapping.least is None:
        return
    old = [a for a in (*archs.sass, *archs.ptx) if arch_number(a) < arch_number(mapping.least)]
    if old:
        where = f" ({mapping.source})" if mapping.source else ""
        raise ConfigError(
            f"{package} has no code for {', '.join(dict.fromkeys(old))}: {mapping.why}{where}",
            hint=f"the nearest valid one is {mapping.least}",
        )


def _translate_listed(mapping: Listed, archs: ArchList, cuda: str) -> Translated:
    works = {a for a, range_ in mapping.understands.items() if release_in_range(cuda, range_)}
    newest = max(archs.sass, key=arch_number, default=None)
    ptx_fits = archs.ptx == ((newest,) if mapping.always_ptx else ())
    if {*archs.sass} <= works and archs.sass and ptx_fits:
        text = ";".join(archs.sass)
        return Translated(text, archs, {mapping.variable: text})
    notes = []
    if unknown := [arch for arch in archs.sass if arch not in works]:
        notes.append(
            f"{mapping.variable} does nothing for {', '.join(unknown)} with CUDA {cuda}: "
            "the list goes by TORCH_CUDA_ARCH_LIST"
        )
    if not ptx_fits:
        notes.append(f"{mapping.variable} cannot express which PTX: see TORCH_CUDA_ARCH_LIST")
    variables = {mapping.variable: mapping.none, "TORCH_CUDA_ARCH_LIST": torch_list(archs)}
    return Translated(mapping.none, archs, variables, tuple(notes))


def _fixed(mapping: Fixed, archs: ArchList, cuda: str, package: str) -> Translated:
    fixed = [a for a, range_ in mapping.compiles.items() if release_in_range(cuda, range_)]
    missing = ArchList(tuple(arch for arch in archs.sass if arch not in fixed), archs.ptx)
    flags = gencode_flags(missing).split()
    notes = []
    if spare := [arch for arch in fixed if arch not in archs.sass]:
        notes.append(f"{package} compiles {', '.join(spare)} as well, whatever is requested")
    if flags:
        notes.append(f"{package} has no setting for these: they go by NVCC_APPEND_FLAGS")
    variables = {"NVCC_APPEND_FLAGS": " ".join(flags)} if flags else {}
    effective = merge_arch_lists(archs, ArchList(tuple(fixed)))
    return Translated(str(effective), effective, variables, tuple(notes))


def _translate_cmake(mapping: CMake, archs: ArchList, package: str) -> Translated:
    for arch in archs.ptx:
        if arch in mapping.becomes:
            raise ConfigError(
                f"{package} makes {mapping.becomes[arch]} of {arch}: its PTX is for that GPU alone",
                hint=f"Leave +PTX out, or ask for PTX of {archs.sass[0]}.",
            )
    words = [f"{arch}-real" for arch in archs.sass] + [f"{arch}-virtual" for arch in archs.ptx]
    other = {arch: to for arch, to in mapping.becomes.items() if arch in archs.sass}
    notes = [f"{package} compiles {to} for {arch}: for that very GPU" for arch, to in other.items()]
    sass = tuple(dict.fromkeys(other.get(arch, arch) for arch in archs.sass))
    return Translated(";".join(words), ArchList(sass, archs.ptx), {}, tuple(notes))


def _single(mapping: Single, archs: ArchList, package: str) -> Translated:
    if len(archs.sass) != 1 or archs.ptx:
        nearest = next(iter(archs.sass or archs.ptx))
        raise ConfigError(
            f"{package} is built for one architecture at a time, without PTX: not for {archs}",
            hint=f"Ask for one of them: --archs {nearest}",
        )
    return Translated(archs.sass[0], archs, {mapping.variable: archs.sass[0]})


def _translate_named(mapping: Named, archs: ArchList, cuda: str, package: str) -> Translated:
    """Of 9.0 there may be 90a alone: it runs on the same GPU, and is what is written for it."""
    there = {arch for arch in mapping.words if release_in_range(cuda, mapping.needs.get(arch))}
    got, notes = [], []
    for arch in archs.sass:
        found = arch if arch in there else f"{arch}a" if f"{arch}a" in there else ""
        if not found:
            older = [one for one in there if arch_number(one) <= arch_number(arch)]
            near = max(
                older, key=arch_number, default=min(there, key=arch_number, default="no other")
            )
            raise ConfigError(
                f"{package} compiles no code for {arch} with CUDA {cuda}: it knows "
                f"{', '.join(sorted(there, key=arch_number))}",
                hint=f"the nearest valid one is {near}",
            )
        if found != arch:
            notes.append(f"{package} compiles {found} for {arch}: for that GPU, not for newer ones")
        got.append(found)
    if archs.ptx:
        raise ConfigError(
            f"{package} writes no PTX, but {', '.join(archs.ptx)} was requested",
            hint="Request only machine code, without +PTX.",
        )
    effective = ArchList(tuple(dict.fromkeys(got)))
    text = ";".join(mapping.words[arch] for arch in effective.sass)
    return Translated(text, effective, {mapping.variable: text}, tuple(notes))


def _no_ptx_alone(archs: ArchList, what: str) -> None:
    for arch in archs.ptx:
        if arch not in archs.sass:
            raise ConfigError(
                f"{what} cannot ask for PTX of {arch} without its machine code",
                hint=f"the nearest valid one is {arch}+PTX",
            )
