"""What a user means by ``75;80;86;89;90;120+PTX``: a normalised list of GPU architectures.

SASS runs on one architecture (or, with the ``f`` suffix, one family); PTX is compiled by the
driver on GPUs that are newer. ``120+PTX`` asks for both, ``compute_120`` for PTX alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipelines.core.architectures.serving import arch_number
from pipelines.core.errors import ConfigError
from pipelines.core.model import Model, read_data
from pipelines.core.versions import Release

Version = tuple[int, int]


@dataclass(frozen=True)
class Span:
    """CUDA releases that compile for an architecture: from ``first``, up to but not ``gone``."""

    first: Version
    gone: Version | None = None

    def holds(self, cuda: Version) -> bool:
        """Whether ``cuda`` lies in this span."""
        return self.first <= cuda and (self.gone is None or cuda < self.gone)

    def __str__(self) -> str:
        first = f"CUDA {_format_version_pair(self.first)} or newer"
        return (
            first
            if self.gone is None
            else f"{first}, but older than {_format_version_pair(self.gone)}"
        )


class _Archs(Model):
    archs: dict[str, Annotated[tuple[Release, ...], Field(min_length=1, max_length=2)]]


def _split_cuda_release(release: str) -> Version:
    major, _, minor = release.partition(".")
    return int(major), int(minor)


#: In ascending order.
KNOWN: dict[str, Span] = {
    arch: Span(*map(_split_cuda_release, row))
    for arch, row in read_data(Path(__file__).with_name("archs.yaml"), _Archs).archs.items()
}
#: One GPU's by CUDA 12 and by CUDA 13: neither compiles by the other's name.
_RENAMED = {"101": "110", "101a": "110a", "101f": "110f"}
_RENAMED |= {new: old for old, new in _RENAMED.items()}
_ORDER = {arch: place for place, arch in enumerate(KNOWN)}

_EXPECTED = "numbers like 75, 8.9, 90a or sm_120, with +PTX behind those that want PTX too"
_ENTRY = re.compile(
    r"(?P<kind>sm_?|compute_?)?(?:(?P<major>[0-9]{1,2})\.(?P<minor>[0-9])|(?P<whole>[0-9]{2,3}))"
    r"(?P<suffix>[af]?)(?P<ptx>\+ptx)?",
    re.IGNORECASE | re.ASCII,
)
_MAX_MAJOR = 12
_NUMBER = re.compile(r"([0-9]{1,9})\.?([0-9]?)([af]?)", re.ASCII)
_ARCH = re.compile(r"(\d+)(\d)[af]?")
_CUDA = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]+)*", re.ASCII)


@dataclass(frozen=True)
class ArchList:
    """Architectures to compile SASS for, and those to add PTX of; ascending, without doubles.

    ``str()`` gives the usual text back (``75;80;120+PTX``), which ``parse`` reads to an equal
    value; an architecture with PTX alone is written ``compute_120``.
    """

    sass: tuple[str, ...]
    ptx: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = sorted({*self.sass, *self.ptx}, key=_ORDER.__getitem__)
        return ";".join(
            f"compute_{arch}"
            if arch not in self.sass
            else f"{arch}+PTX"
            if arch in self.ptx
            else arch
            for arch in names
        )


def parse_arch_list(text: str) -> ArchList:
    """Read what a user wrote: entries between semicolons, commas or blanks, in any order.

    Raises ``ConfigError`` for an empty list or an entry that no CUDA release knows; the
    message names the entry, what was expected and the nearest valid one.
    """
    sass: set[str] = set()
    ptx: set[str] = set()
    for entry in (part for part in re.split(r"[;,\s]+", text) if part):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise _bad(entry, f"is not understood; expected {_EXPECTED}", KNOWN)
        number = match["whole"] or match["major"] + match["minor"]
        arch = number + match["suffix"].lower()
        if arch not in KNOWN:
            raise _bad(entry, "is no architecture that any CUDA release compiles for", KNOWN)
        virtual = (match["kind"] or "").lower().startswith("compute")
        if not virtual:
            sass.add(arch)
        if virtual or match["ptx"]:
            ptx.add(arch)
    if not sass and not ptx:
        raise ConfigError(
            f"the architecture list is empty; expected {_EXPECTED}",
            hint="write for example 75;80;86;89;90;120+PTX",
        )
    place = _ORDER.__getitem__
    return ArchList(tuple(sorted(sass, key=place)), tuple(sorted(ptx, key=place)))


def merge_arch_lists(one: ArchList, other: ArchList) -> ArchList:
    """Everything that either has."""
    place = _ORDER.__getitem__
    return ArchList(
        tuple(sorted({*one.sass, *other.sass}, key=place)),
        tuple(sorted({*one.ptx, *other.ptx}, key=place)),
    )


def require_supported_archs(archs: ArchList, cuda: str = "13.0") -> None:
    """Raise ``ConfigError`` for the first architecture that CUDA ``cuda`` cannot compile for."""
    version = _parse_cuda_version(cuda)
    valid = supported_archs(cuda)
    for arch in sorted({*archs.sass, *archs.ptx}, key=_ORDER.__getitem__):
        if not KNOWN[arch].holds(version):
            raise _bad(arch, f"is not known to CUDA {cuda}: it needs {KNOWN[arch]}", valid)


def supported_archs(cuda: str) -> tuple[str, ...]:
    """Architectures CUDA ``cuda`` (``"13.0"``, ``"12.8.1"``) compiles for, ascending."""
    version = _parse_cuda_version(cuda)
    return tuple(arch for arch, span in KNOWN.items() if span.holds(version))


def _parse_cuda_version(cuda: str) -> Version:
    match = _CUDA.fullmatch(cuda.strip())
    if match is None:
        raise ConfigError(
            f"CUDA version {cuda!r} is not understood; expected something like 13.0",
            hint="write the major and the minor number with a dot between",
        )
    return int(match[1]), int(match[2])


def _format_version_pair(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _bad(entry: str, why: str, valid: Iterable[str]) -> ConfigError:
    valid = [*valid]
    nearest = min(valid, key=_arch_distance_key(entry), default="")
    if _RENAMED.get(entry) in valid:  # any other is of another GPU
        return ConfigError(
            f"architecture {entry!r} {why}", hint=f"this CUDA release calls it {_RENAMED[entry]}"
        )
    hint = f"the nearest valid one is {nearest}" if nearest else "this CUDA release has none"
    return ConfigError(f"architecture {entry[:40]!r} {why}", hint=hint)


def _arch_distance_key(entry: str) -> Callable[[str], tuple[int, bool, bool]]:
    """How far a known arch is from ``entry``: by number, then by suffix; the older one first."""
    match = _NUMBER.search(entry.lower())
    if match is None:  # no number to go by: the current mainstream
        return lambda arch: (abs(arch_number(arch) - 120), arch != "120", False)
    asked = int(match[1] + match[2])
    asked = asked * 10 if asked <= _MAX_MAJOR else asked  # "9" is most likely 90

    def key(arch: str) -> tuple[int, bool, bool]:
        known = arch_number(arch)
        return (abs(known - asked), arch.lstrip("0123456789") != match[3], known > asked)

    return key


def compute_capability(arch: str) -> str:
    """The compute capability of an architecture: ``"120"`` or ``"120a"`` is ``"12.0"``."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise ConfigError(f"architecture {arch[:40]!r} is not understood", hint="Write 120.")
    return f"{match[1]}.{match[2]}"
