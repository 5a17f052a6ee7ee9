"""Chooses prebuilt wheels by their names and checks their contents.

A wheel from :mod:`.candidates` fits if its tags, version, torch and CUDA are those of the target.
It is used only after its sha256, RECORD and device code have been checked: a wheel for the wrong
torch or GPU imports without an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.tags import Tag, platform_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.files import sha256_of
from pipelines.core.finding import failure_lines
from pipelines.core.target import Target
from pipelines.core.toolsets import local_version_toolset
from pipelines.core.versions import minor_release, parse_version
from pipelines.plan.prebuilt.candidates import Offer, list_wheel_offers
from pipelines.recipe.model import Recipe
from pipelines.record.results import AuditedFile
from pipelines.wheels.binaries import cuda_of
from pipelines.wheels.checking import Installation, Kernels, Order
from pipelines.wheels.checks import EXTERNAL, check_wheel
from pipelines.wheels.metadata import WheelFacts, inspect_wheel
from pipelines.wheels.tags import WINDOWS, wheel_tags
from pipelines.wheels.toolkit import cuda_in, may_be

_PLAIN = re.compile(r"\w[\w.+!-]*", re.ASCII)
_TORCH = re.compile(r"(?:torch|pt)(\d+\.\d+(?:\.\d+)?)")
_SMALL = 1 << 20


@dataclass(frozen=True)
class Match:
    """The matching offers, the best first, and why others were refused: file name -> reason."""

    offers: tuple[Offer, ...]
    refused: dict[str, str]

    @property
    def offer(self) -> Offer | None:
        """The best one."""
        return next(iter(self.offers), None)


@dataclass(frozen=True)
class Decision:
    """What to do for a cell: build it, use ``offer``, skip it, or nothing is available."""

    action: Literal["build", "prebuilt", "skip", "none"]
    why: str
    """For people."""
    offer: Offer | None = None
    others: tuple[Offer, ...] = ()
    """Alternatives if ``offer`` fails its checks."""
    missed: bool = False
    """Whether prebuilt wheels were searched and none fits."""


def platforms_of(*, windows: bool) -> tuple[str, ...]:
    """Platform tags of a host: Windows, or this machine."""
    return WINDOWS if windows else tuple(platform_tags())


def match_offers(
    recipe: Recipe, target: Target, offers: Iterable[Offer], platforms: Sequence[str] = WINDOWS
) -> Match:
    """The ``offers`` that fit ``target``, sorted by tag, then by how much their names state."""
    tags = wheel_tags(target.python, platforms)
    refused: dict[str, str] = {}
    fitting: list[tuple[tuple[int, int], Offer]] = []
    for offer in offers:
        reason, rank = _rank_offer(recipe, target, offer, tags)
        if reason:
            refused[offer.file] = reason
        else:
            fitting.append((rank, offer))
    fitting.sort(key=lambda item: item[0])
    return Match(tuple(offer for _, offer in fitting), refused)


def _rank_offer(
    recipe: Recipe, target: Target, offer: Offer, tags: dict[Tag, int]
) -> tuple[str, tuple[int, int]]:
    """Why it does not fit (empty if it does), and its rank."""
    nothing = (0, 0)
    if not _PLAIN.fullmatch(offer.file):  # it becomes a file name here
        return "its name has invalid characters", nothing
    try:
        name, version, _, own_tags = parse_wheel_filename(offer.file)
    except InvalidWheelFilename:
        return "not the name of a wheel", nothing
    if name != canonicalize_name(recipe.distribution):
        return f"another project, {name}", nothing
    expected = parse_version(recipe.version)
    if expected is not None and version.public != expected.public:
        return f"version {version.public}, expected {expected.public}", nothing
    rank = min((tags[tag] for tag in own_tags if tag in tags), default=None)
    if rank is None:
        return f"tags {', '.join(sorted(map(str, own_tags)))}", nothing
    wrong, vague = _states(version.local or "", target)
    return wrong, (rank, vague)


def _states(local: str, target: Target) -> tuple[str, int]:
    """How a local version contradicts ``target``, and how much it leaves unstated."""
    cuda, torch = cuda_in(local), _TORCH.search(local)
    if local_version_toolset(local):
        return "built in a sandbox, for tests only", 0
    if cuda and not may_be(cuda, target.cuda):
        return f"CUDA {cuda}, expected {target.cuda}", 0
    if torch and target.torch and minor_release(torch[1]) != minor_release(target.torch):
        return f"torch {torch[1]}, expected {target.torch}", 0
    return "", (not torch) + (not cuda)


def _required_cuda_release(facts: WheelFacts, target: Target) -> str:
    """The CUDA version that must have made it: the target's, or only its major version.

    The latter if the wheel's name states no more: CUDA minor versions are compatible.
    """
    major = target.cuda.partition(".")[0]
    return target.cuda if len(cuda_in(facts.version)) > len(major) else major


def unstated_versions(offer: Offer, target: Target) -> list[str]:
    """Which of torch and CUDA the wheel's name does not state."""
    local = parse_wheel_filename(offer.file)[1].local or ""
    return [
        name
        for name, stated, requested in (
            ("torch", _TORCH.search(local), target.torch),
            ("CUDA", cuda_in(local), target.cuda),
        )
        if requested and not stated
    ]


def apply_strategy(
    recipe: Recipe,
    target: Target,
    *,
    name: str = "",
    platforms: Sequence[str] = WINDOWS,
    look: Callable[[str, str], list[Offer]] = list_wheel_offers,
) -> Decision:
    """Apply the recipe's strategy to ``target``, called ``name`` or by its id in messages.

    With ``prebuilt``, raises :class:`ConfigError` if nothing fits, with the reasons.
    """
    chosen = recipe.strategy
    if chosen == "skip":
        return Decision("skip", recipe.skip)
    if chosen == "build":
        return Decision("build", "strategy: build")
    if not recipe.is_wheel:
        raise ConfigError(
            f"{recipe.name}: strategy: {chosen}: only wheels can be prebuilt",
            hint="Use strategy: build; its kernels are cached and restored in seconds.",
        )
    refused: dict[str, str] = {}
    fitting: list[tuple[str, Offer]] = []
    for place in recipe.prebuilt:
        matched = match_offers(recipe, target, look(place, recipe.distribution), platforms)
        fitting += [(place, offer) for offer in matched.offers]
        refused |= matched.refused
    if fitting:
        (place, offer), *others = fitting
        rest = tuple(other for _, other in others)
        return Decision("prebuilt", f"{offer.file} from {place}", offer, rest)
    reasons = "; ".join(f"{file}: {why}" for file, why in list(refused.items())[:5]) or "no wheels"
    why = f"no prebuilt wheel fits {name or target.id}: {reasons}"
    if chosen == "prebuilt-then-build":
        return Decision("build", why, missed=True)
    raise ConfigError(
        why, hint="Build it (strategy: build), or add another source under 'prebuilt'."
    )


def audit_prebuilt_wheel(
    path: Path, offer: Offer, target: Target, platforms: Sequence[str] = WINDOWS
) -> AuditedFile:
    """Run all checks on a wheel that is to be used instead of a build.

    Extra architectures are fine, and PTX suffices for a GPU. Raises :class:`AuditError` if the file
    is not a wheel, has another sha256, or fails a check.
    """
    sha256 = sha256_of(path)
    if offer.sha256 and sha256 != offer.sha256:  # its contents do not matter then
        raise _rejected_offer_error(offer, f"its sha256 is {sha256}, expected {offer.sha256}")
    facts = inspect_wheel(path)
    own = {tag.rsplit("-", 1)[-1] for tag in facts.tags}
    checks = check_wheel(
        facts,
        order=Order(
            next((name for name in platforms if name in own), platforms[0]),
            target.python,
            torch=target.torch,
        ),
        kernels=Kernels(target.archs, _required_cuda_release(facts, target), jit=True),
        stated=offer.sha256 or "",
    )
    if wrong := failure_lines(checks):
        raise _rejected_offer_error(offer, "; ".join(wrong))
    return AuditedFile(file=path.name, sha256=facts.sha256, version=facts.version, checks=checks)


def examine_external(path: Path, sha256: str, installation: Installation) -> AuditedFile:
    """Run all checks on an external wheel.

    ``sha256`` is that of the downloaded file. Raises :class:`AuditError` if the file is not a wheel
    or has changed.
    """
    facts = inspect_wheel(path)
    if facts.sha256 != sha256:
        raise AuditError(
            f"{path.name} has sha256 {facts.sha256}, expected {sha256}",
            hint="It was changed on this machine: run the command again.",
        )
    return AuditedFile(
        file=path.name,
        sha256=sha256,
        version=facts.version,
        cuda=cuda_of(facts),
        checks=check_wheel(facts, EXTERNAL, installation=installation, stated=sha256),
    )


def _rejected_offer_error(offer: Offer, why: str) -> AuditError:
    return AuditError(
        f"{offer.file} is not used: {why}",
        hint="Use another wheel, or build it (strategy: prebuilt-then-build).",
    )
