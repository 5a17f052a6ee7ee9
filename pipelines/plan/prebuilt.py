"""Wheels that others have built: found by what their names say, believed after a look inside.

A directory or a simple index offers wheels. One fits when its tags, version, torch and CUDA are
those of the cell; it is used only after its sha256, its RECORD and the device code inside it have
been checked, for a wheel for the wrong torch or GPU imports well enough to be believed.
"""

from __future__ import annotations

import os
import re
import threading
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from pipelines.errors import AuditError, ConfigError, LockError
from pipelines.plan.archmap import numbers
from pipelines.plan.archs import ArchList
from pipelines.plan.matrix import Cell
from pipelines.plan.recipes import Recipe, Strategy
from pipelines.toolchain.lock import Cache, Tool, obtain, sha256_of
from pipelines.toolchain.sources import Source
from pipelines.wheels.gate import gate
from pipelines.wheels.metadata import WheelFacts, inspect

_PLATFORM = "win_amd64"
_CUDA = re.compile(r"cu(\d{2,4})(?!\d)")
_TORCH = re.compile(r"(?:torch|pt)(\d+\.\d+(?:\.\d+)?)")
_SUMS = "SHA256SUMS"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SMALL = 1 << 20


@dataclass(frozen=True)
class Offer:
    """A wheel that is to be had: its file name, where it is, its sha256 where that is stated."""

    file: str
    place: str
    """A path, or a URL."""
    sha256: str | None = None
    size: int | None = None

    @property
    def path(self) -> Path | None:
        """The file, if it is one here."""
        return None if "://" in self.place else Path(self.place)


@dataclass(frozen=True)
class Match:
    """The offer that fits best, and why the others do not: file name -> reason."""

    offer: Offer | None
    refused: dict[str, str]


@dataclass(frozen=True)
class Decision:
    """What is done for a cell: build it, take ``offer``, or skip it; ``why`` is for people."""

    action: Literal["build", "prebuilt", "skip"]
    why: str
    offer: Offer | None = None


def offers_of(place: str, project: str) -> list[Offer]:
    """The wheels at ``place``: a directory (with SHA256SUMS, if it has one) or a simple index.

    Raises :class:`ConfigError` when it is neither or cannot be read.
    """
    if re.match(r"https?://", place):
        return _index(place, project)
    folder = Path(place).expanduser()
    try:
        sums = _sums(folder / _SUMS)
        return [
            Offer(path.name, str(path), sums.get(path.name), path.stat().st_size)
            for path in sorted(folder.iterdir())
            if path.suffix == ".whl"
        ]
    except OSError as error:
        raise ConfigError(
            f"no wheels can be read in {place}: {error.strerror}",
            advice="Mend 'prebuilt' in the recipe: a directory, or the URL of a simple index.",
        ) from None


def _sums(path: Path) -> dict[str, str]:
    """``sha256sum``'s own format."""
    if not path.is_file():
        return {}
    rows = (line.split(maxsplit=1) for line in path.read_text("utf-8").splitlines())
    return {
        row[1].lstrip("*"): row[0] for row in rows if len(row) > 1 and _DIGEST.fullmatch(row[0])
    }


def _index(url: str, project: str) -> list[Offer]:
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError
    from requests import RequestException

    from pipelines.toolchain.sources import _session

    if not url.startswith("https://"):
        raise ConfigError(f"{url} is not https", advice="Only indexes behind TLS are asked.")
    try:
        with PyPISimple(url, session=_session()) as client:
            page = client.get_project_page(project, timeout=(15, 60))
    except NoSuchProjectError:
        return []
    except (RequestException, UnsupportedContentTypeError, ValueError) as error:
        raise ConfigError(
            f"{url} cannot be read as a simple index: {error}", advice="Mend 'prebuilt'."
        ) from None
    found = []
    for package in page.packages:
        if package.filename.endswith(".whl") and not package.is_yanked:
            digest = (package.digests or {}).get("sha256")
            found.append(Offer(package.filename, package.url, digest, package.size))
    return found


def match(recipe: Recipe, cell: Cell, offers: Iterable[Offer]) -> Match:
    """The best of ``offers`` for ``cell``: by tag, then by what states torch and CUDA."""
    tags = wheel_tags(cell.python)
    refused: dict[str, str] = {}
    fitting: list[tuple[tuple[int, int], Offer]] = []
    for offer in offers:
        reason, rank = _fits(recipe, cell, offer, tags)
        if reason:
            refused[offer.file] = reason
        else:
            fitting.append((rank, offer))
    best = min(fitting, key=lambda item: item[0], default=None)
    return Match(best[1] if best else None, refused)


def wheel_tags(python: str) -> dict[Tag, int]:
    """Every tag that a Windows Python takes, with its rank, the most special first."""
    major, minor = (int(part) for part in python.split("."))
    interpreter = f"cp{major}{minor}"
    tags = [
        *cpython_tags((major, minor), abis=[interpreter], platforms=[_PLATFORM]),
        *compatible_tags((major, minor), interpreter=interpreter, platforms=[_PLATFORM]),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}


def _fits(
    recipe: Recipe, cell: Cell, offer: Offer, tags: dict[Tag, int]
) -> tuple[str, tuple[int, int]]:
    """Why not (empty if it fits), and the rank of a tag and of how much the name says."""
    nothing = (0, 0)
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
    wrong, vague = _states(version.local or "", cell)
    return wrong, (rank, vague)


def _states(local: str, cell: Cell) -> tuple[str, int]:
    """What a local version says against ``cell``, and how much it leaves open."""
    cuda, torch = _CUDA.search(local), _TORCH.search(local)
    if cuda and not _same_cuda(cuda[1], cell.cuda):
        return f"CUDA {cuda[1]}, {cell.cuda} is wanted", 0
    if torch and cell.torch and torch[1].split(".")[:2] != cell.torch.split(".")[:2]:
        return f"torch {torch[1]}, {cell.torch} is wanted", 0
    return "", (not torch) + (not cuda)


def _same_cuda(stated: str, wanted: str) -> bool:
    """``128`` is 12.8; ``12`` and ``13`` state the major version alone."""
    plain = wanted.replace(".", "")
    return stated == (wanted.partition(".")[0] if len(stated) == 2 else plain)  # noqa: PLR2004


def decide(
    recipe: Recipe, cell: Cell, *, strategy: Strategy | None = None, places: Sequence[str] = ()
) -> Decision:
    """What the strategy means for ``cell``; ``places`` come before the recipe's own.

    Raises :class:`ConfigError` with ``prebuilt`` when nothing fits, naming what was refused.
    """
    chosen = strategy or recipe.strategy
    if chosen == "skip":
        return Decision("skip", recipe.skip or "skipped, as asked for")
    if chosen == "build":
        return Decision("build", "strategy: build")
    where = (*places, *recipe.prebuilt)
    refused: dict[str, str] = {}
    for place in where:
        found = match(recipe, cell, offers_of(place, recipe.distribution))
        if found.offer:
            return Decision("prebuilt", f"{found.offer.file} from {place}", found.offer)
        refused |= found.refused
    reasons = "; ".join(f"{file}: {why}" for file, why in list(refused.items())[:5]) or "no wheels"
    if chosen == "prebuilt-then-build":
        return Decision("build", f"nothing prebuilt fits {cell.id}: {reasons}")
    raise ConfigError(
        f"nothing prebuilt fits {cell.id}: {reasons}",
        advice="Build it (strategy: build), or name another place under 'prebuilt'.",
    )


def obtain_offer(offer: Offer, cache: Cache) -> Path:
    """The wheel on this machine, fetched into the verified cache when it is remote.

    Raises :class:`AuditError` when its index states no sha256: there is nothing to verify it by;
    :class:`LockError` when it cannot be had or has another one.
    """
    if offer.path is not None:
        return offer.path
    digest = offer.sha256
    if not digest:
        raise AuditError(
            f"{offer.file}: its index states no sha256",
            advice="Download it yourself, put it into a directory, and name that directory.",
        )
    path = cache.place(offer.file, digest)

    def keep(part: Path, source: Source) -> None:
        if (found := sha256_of(part)) != digest:
            raise LockError(f"{source.file} has sha256 {found}, stated is {digest}")
        part.replace(path)

    if not path.is_file():
        source = Source(file=offer.file, url=offer.place.partition("#")[0], size=offer.size)
        part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        obtain(offer.file, Tool(version="prebuilt", sources=(source,)), part, keep)
    return path


def verify_wheel(path: Path, offer: Offer, cell: Cell) -> WheelFacts:
    """The facts of a wheel that may be used for ``cell``; :class:`AuditError` says why not.

    Checked: the stated sha256, RECORD, names, tags, x64, PyInit, whole device code, code for every
    architecture that was asked for, and that its METADATA takes this torch.
    """
    if offer.sha256 and (found := sha256_of(path)) != offer.sha256:
        raise _no(offer, f"its sha256 is {found}, {offer.sha256} is stated")
    facts = inspect(path)
    wrong = [check for check in gate(facts, ArchList(()), platform=_PLATFORM) if not check.ok]
    if wrong:
        raise _no(offer, "; ".join(f"{c.name}: {c.found}, wanted {c.wanted}" for c in wrong))
    if lacking := uncovered(facts, cell.archs):
        raise _no(offer, f"a container has no code for {', '.join(lacking)}")
    if cell.torch and (requirement := _torch_requirement(path, facts)) is not None:
        release = cell.torch if cell.torch.count(".") > 1 else f"{cell.torch}.0"
        if not requirement.specifier.contains(release, prereleases=True):
            raise _no(offer, f"it requires {requirement}, torch {cell.torch} is wanted")
    return facts


def uncovered(facts: WheelFacts, archs: ArchList) -> list[str]:
    """Of the architectures asked for, those that some container of device code cannot serve.

    Machine code serves newer GPUs of its own major version (80 runs on 89), PTX every newer one.
    Architectures with PTX alone are not asked about: they stand for GPUs of no name.
    """
    units = [unit for binary in facts.extensions for unit in binary.inventory.containers]
    lacking = []
    for arch, number in zip(archs.sass, numbers(archs.sass), strict=True):
        for unit in units:
            machine = any(_runs(code, number) for code in unit.sass)
            if not machine and not any(p.isdigit() and int(p) <= number for p in unit.ptx):
                lacking.append(arch)
                break
    return lacking


def _runs(code: str, number: int) -> bool:
    """Whether machine code runs on a GPU; an ``a`` target on that very one only."""
    own = int(code.rstrip("af"))
    return own == number or (not code.endswith("a") and own // 10 == number // 10 and own < number)


def _torch_requirement(path: Path, facts: WheelFacts) -> Requirement | None:
    name = f"{facts.dist_info}/METADATA"
    # inspect has looked at every member's name and size.
    with zipfile.ZipFile(path) as archive, archive.open(name) as stream:
        headers = HeaderParser().parsestr(stream.read(_SMALL).decode("utf-8", "replace"))
    for line in headers.get_all("Requires-Dist", []):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) == "torch" and requirement.marker is None:
            return requirement
    return None


def _no(offer: Offer, why: str) -> AuditError:
    return AuditError(
        f"{offer.file} is not used: {why}",
        advice="Take another wheel, or build it: strategy: prebuilt-then-build.",
    )
