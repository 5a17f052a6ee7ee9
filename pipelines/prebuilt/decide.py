"""Wheels that others have built: found by what their names say, believed after a look inside.

What :mod:`.candidates` lists is looked at here. One fits when its tags, version, torch
and CUDA are those of the target; it is used only after its sha256, its RECORD and the device code
inside it have been checked, for a wheel for the wrong torch or GPU imports well enough to be
believed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.tags import Tag, platform_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.files import sha256_of
from pipelines.core.finding import failures
from pipelines.core.versions import minor
from pipelines.prebuilt.candidates import Offer, offers_of
from pipelines.recipe.model import Recipe
from pipelines.record.results import AuditedFile
from pipelines.record.target import Target
from pipelines.record.toolsets import stamped
from pipelines.wheels.binaries import cuda_of
from pipelines.wheels.checking import Installation, Kernels, Order
from pipelines.wheels.checks import EXTERNAL, check_wheel
from pipelines.wheels.metadata import WheelFacts, inspect
from pipelines.wheels.tags import WINDOWS, wheel_tags
from pipelines.wheels.toolkit import cuda_in, may_be

_PLAIN = re.compile(r"\w[\w.+!-]*", re.ASCII)
_TORCH = re.compile(r"(?:torch|pt)(\d+\.\d+(?:\.\d+)?)")
_SMALL = 1 << 20


@dataclass(frozen=True)
class Match:
    """The offers that fit, the best first, and why the others do not: file name -> reason."""

    offers: tuple[Offer, ...]
    refused: dict[str, str]

    @property
    def offer(self) -> Offer | None:
        """The best one."""
        return next(iter(self.offers), None)


@dataclass(frozen=True)
class Decision:
    """What is done for a cell: build it, take ``offer``, skip it, or nothing, for there is none."""

    action: Literal["build", "prebuilt", "skip", "none"]
    why: str
    """For people."""
    offer: Offer | None = None
    others: tuple[Offer, ...] = ()
    """Those that are looked into when ``offer`` turns out to be another than it says."""
    missed: bool = False
    """Whether wheels were looked for, and none fits."""


def platforms_of(*, windows: bool) -> tuple[str, ...]:
    """Platform tags of a host; one that is no Windows is this machine, and takes what it takes."""
    return WINDOWS if windows else tuple(platform_tags())


def match(
    recipe: Recipe, target: Target, offers: Iterable[Offer], platforms: Sequence[str] = WINDOWS
) -> Match:
    """Those of ``offers`` that fit ``target``, by tag, then by what states torch and CUDA."""
    tags = wheel_tags(target.python, platforms)
    refused: dict[str, str] = {}
    fitting: list[tuple[tuple[int, int], Offer]] = []
    for offer in offers:
        reason, rank = _fits(recipe, target, offer, tags)
        if reason:
            refused[offer.file] = reason
        else:
            fitting.append((rank, offer))
    fitting.sort(key=lambda item: item[0])
    return Match(tuple(offer for _, offer in fitting), refused)


def _fits(
    recipe: Recipe, target: Target, offer: Offer, tags: dict[Tag, int]
) -> tuple[str, tuple[int, int]]:
    """Why not (empty if it fits), and the rank of a tag and of how much the name says."""
    nothing = (0, 0)
    if not _PLAIN.fullmatch(offer.file):  # it becomes a file of ours
        return "its name has characters that no wheel's has", nothing
    try:
        name, version, _, found = parse_wheel_filename(offer.file)
    except InvalidWheelFilename:
        return "its name is not a wheel's", nothing
    if name != canonicalize_name(recipe.distribution):
        return f"it is {name}", nothing
    try:
        wanted = Version(recipe.version)
    except InvalidVersion:
        wanted = None
    if wanted is not None and version.public != wanted.public:
        return f"version {version.public}, {wanted.public} is wanted", nothing
    rank = min((tags[tag] for tag in found if tag in tags), default=None)
    if rank is None:
        return f"tags {', '.join(sorted(map(str, found)))}", nothing
    wrong, vague = _states(version.local or "", target)
    return wrong, (rank, vague)


def _states(local: str, target: Target) -> tuple[str, int]:
    """What a local version says against ``target``, and how much it leaves open."""
    cuda, torch = cuda_in(local), _TORCH.search(local)
    if stamped(local):
        return "it was built in a sandbox, and is not for publishing", 0
    if cuda and not may_be(cuda, target.cuda):
        return f"CUDA {cuda}, {target.cuda} is wanted", 0
    if torch and target.torch and minor(torch[1]) != minor(target.torch):
        return f"torch {torch[1]}, {target.torch} is wanted", 0
    return "", (not torch) + (not cuda)


def _release(facts: WheelFacts, target: Target) -> str:
    """The release that must have made it: the target's, or its major version alone.

    The latter where the wheel's name says no more: programs of one major version run with each
    other.
    """
    major = target.cuda.partition(".")[0]
    return target.cuda if len(cuda_in(facts.version)) > len(major) else major


def unstated(offer: Offer, target: Target) -> list[str]:
    """Of torch and CUDA, what the wheel's name leaves open and nothing else has shown."""
    local = parse_wheel_filename(offer.file)[1].local or ""
    return [
        name
        for name, said, asked in (
            ("torch", _TORCH.search(local), target.torch),
            ("CUDA", cuda_in(local), target.cuda),
        )
        if asked and not said
    ]


def decide(
    recipe: Recipe,
    target: Target,
    *,
    name: str = "",
    platforms: Sequence[str] = WINDOWS,
    look: Callable[[str, str], list[Offer]] = offers_of,
) -> Decision:
    """What the recipe's strategy means for ``target``, which messages call ``name`` or by its id.

    Raises :class:`ConfigError` with ``prebuilt`` when nothing fits, naming what was refused.
    """
    chosen = recipe.strategy
    if chosen == "skip":
        return Decision("skip", recipe.skip)
    if chosen == "build":
        return Decision("build", "strategy: build")
    if not recipe.is_wheel:
        raise ConfigError(
            f"{recipe.name}: strategy: {chosen}: only wheels are to be had prebuilt",
            hint="strategy: build; its kernels are kept and restored in seconds.",
        )
    refused: dict[str, str] = {}
    fitting: list[tuple[str, Offer]] = []
    for place in recipe.prebuilt:
        found = match(recipe, target, look(place, recipe.distribution), platforms)
        fitting += [(place, offer) for offer in found.offers]
        refused |= found.refused
    if fitting:
        (place, offer), *others = fitting
        rest = tuple(other for _, other in others)
        return Decision("prebuilt", f"{offer.file} from {place}", offer, rest)
    reasons = "; ".join(f"{file}: {why}" for file, why in list(refused.items())[:5]) or "no wheels"
    why = f"nothing prebuilt fits {name or target.id}: {reasons}"
    if chosen == "prebuilt-then-build":
        return Decision("build", why, missed=True)
    raise ConfigError(
        why, hint="Build it (strategy: build), or name another place under 'prebuilt'."
    )


def examine(
    path: Path, offer: Offer, target: Target, platforms: Sequence[str] = WINDOWS
) -> AuditedFile:
    """Every check on a wheel that is to be used instead of a build.

    Architectures beyond those that were asked for are welcome, and PTX does for a GPU. Raises
    :class:`AuditError` for a file that is no wheel, or another one, or wrong.
    """
    found = sha256_of(path)
    if offer.sha256 and found != offer.sha256:  # nothing in it is worth a look
        raise _no(offer, f"its sha256 is {found}, {offer.sha256} is stated")
    facts = inspect(path)
    own = {tag.rsplit("-", 1)[-1] for tag in facts.tags}
    checks = check_wheel(
        facts,
        order=Order(
            next((name for name in platforms if name in own), platforms[0]),
            target.python,
            torch=target.torch,
        ),
        kernels=Kernels(target.archs, _release(facts, target), jit=True),
        stated=offer.sha256 or "",
    )
    if wrong := failures(checks):
        raise _no(offer, "; ".join(wrong))
    return AuditedFile(file=path.name, sha256=facts.sha256, version=facts.version, checks=checks)


def examine_external(path: Path, sha256: str, installation: Installation) -> AuditedFile:
    """Every check on a wheel of which nobody said what it should have.

    ``sha256`` is that of the file which was taken. Raises :class:`AuditError` for a file that is no
    wheel, or another one.
    """
    facts = inspect(path)
    if facts.sha256 != sha256:
        raise AuditError(
            f"{path.name} has sha256 {facts.sha256}, what was taken had {sha256}",
            hint="Something changed it on this machine: type the same again.",
        )
    return AuditedFile(
        file=path.name,
        sha256=sha256,
        version=facts.version,
        cuda=cuda_of(facts),
        checks=check_wheel(facts, EXTERNAL, installation=installation, stated=sha256),
    )


def _no(offer: Offer, why: str) -> AuditError:
    return AuditError(
        f"{offer.file} is not used: {why}",
        hint="Take another wheel, or build it: strategy: prebuilt-then-build.",
    )
