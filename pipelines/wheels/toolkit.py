"""Which release of CUDA made the device code of a wheel, as its containers themselves tell."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pipelines.core.model import Model, read_data
from pipelines.core.versions import Release, minor
from pipelines.wheels.fatbin import Container

_FILE = Path(__file__).with_name("toolkits.yaml")
_NAMED = re.compile(r"cu(\d{2,4})(?!\d)")
_CUDART = re.compile(r"cudart64_(\d\d)\d?\.dll", re.IGNORECASE)


class Table(Model):
    """``toolkits.yaml``."""

    source: str
    ptx_isa: dict[Release, Release]
    """Release of CUDA -> version of the PTX that it writes."""


class Told:
    """What speaks for the release that was asked for, and what against it."""

    def __init__(self, cuda: str) -> None:
        """``cuda`` is such as ``12.8``; ``12`` alone stands for every 12.x."""
        self.cuda = cuda
        self.seen = 0
        """Containers that tell."""
        self.total = 0
        self.right: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        """Words -> containers, or files, that say so."""
        self._isas = {isa for release, isa in _table().ptx_isa.items() if same(release, cuda)}

    def hear(self, containers: Iterable[Container], imports: Iterable[str] = ()) -> None:
        """Take in a binary's containers, and the names of the DLLs that it imports."""
        for unit in containers:
            told = {f"CUDA {release}": same(release, self.cuda) for release in unit.releases}
            told |= {f"PTX {isa}": isa in self._isas for isa in unit.isas if self._tells(isa)}
            self._count(told)
            self.seen += bool(told)
            self.total += 1
        for name in imports:
            if match := _CUDART.fullmatch(name):
                major = self.cuda.partition(".")[0]
                self._count({name.lower(): int(match[1]) == int(major)})

    def _tells(self, isa: str) -> bool:
        """Whether the table knows whose ISA that is, or which the one asked for has instead."""
        return bool(self._isas) or isa in _table().ptx_isa.values()

    def _count(self, told: dict[str, bool]) -> None:
        for words, fits in told.items():
            (self.right if fits else self.wrong)[words] += 1


def newest(containers: Iterable[Container], imports: Iterable[str] = ()) -> str:
    """The newest release of CUDA that they tell, such as ``12.8``, or ``12``; empty for none."""
    isas = {isa: release for release, isa in reversed(_table().ptx_isa.items())}
    found: set[str] = set()
    for unit in containers:
        found |= {minor(release) for release in unit.releases}
        found |= {isas[isa] for isa in unit.isas if isa in isas}
    if not found:
        found = {match[1] for name in imports if (match := _CUDART.fullmatch(name))}
    return max(found, key=lambda text: [*map(int, text.split("."))], default="")


def known(isas: Iterable[str]) -> bool:
    """Whether the table knows which release writes each of these versions of PTX, and there is one.

    Of a later CUDA than the table's, or of PTX that could not be read, it does not.
    """
    told = {*isas}
    return bool(told) and told <= {*_table().ptx_isa.values()}


def same(release: str, wanted: str) -> bool:
    """Whether ``13.0.88`` is a 13.0, or a 13, number by number."""
    one, other = (tuple(map(int, text.split("."))) for text in (release, wanted))
    return one[: len(other)] == other


def cuda_in(local: str) -> str:
    """What a local version says of its CUDA, such as ``128`` or ``12``; empty: nothing."""
    found = _NAMED.search(local)
    return found[1] if found else ""


def may_be(stated: str, release: str) -> bool:
    """Whether ``128`` or ``12`` may stand for a release such as ``12.8`` or ``12``."""
    major = release.partition(".")[0]
    short = release == major and stated.startswith(major)
    return short or stated in (major, release.replace(".", ""))


def cudarts(names: Iterable[str]) -> tuple[str, ...]:
    """Of imported DLLs, those of CUDA's run-time, whose name has its major version."""
    return tuple(sorted({name for name in names if _CUDART.fullmatch(name)}))


@functools.cache
def _table() -> Table:
    return read_data(_FILE, Table)
