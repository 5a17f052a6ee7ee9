"""Which CUDA version made the device code of a wheel, as its containers state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.model import Dated, read_data
from pipelines.core.versions import Release, minor_release

if TYPE_CHECKING:  # the plan needs the table alone
    from pipelines.wheels.fatbin import Container

_FILE = Path(__file__).with_name("toolkits.yaml")
_NAMED = re.compile(r"cu(\d{2,4})(?!\d)")
_CUDART = re.compile(r"cudart64_(\d\d)\d?\.dll", re.IGNORECASE)


class Table(Dated):
    """``toolkits.yaml``."""

    ptx_isa: dict[Release, Release]
    """CUDA version -> version of the PTX that it writes."""


class CudaEvidence:
    """What supports the requested CUDA version and what conflicts with it."""

    def __init__(self, cuda: str) -> None:
        """``cuda`` is such as ``12.8``; ``12`` alone stands for every 12.x."""
        self.cuda = cuda
        self.stating = 0
        """Containers that state their CUDA."""
        self.total = 0
        self.matching: Counter[str] = Counter()
        self.conflicting: Counter[str] = Counter()
        """Description -> how many containers or files have it."""
        self._isas = {
            isa
            for release, isa in load_cuda_table().ptx_isa.items()
            if is_same_release(release, cuda)
        }

    def add(self, containers: Iterable[Container], imports: Iterable[str] = ()) -> None:
        """Add a binary's containers and the names of the DLLs that it imports."""
        for unit in containers:
            stated = {
                f"CUDA {release}": is_same_release(release, self.cuda) for release in unit.releases
            }
            stated |= {f"PTX {isa}": isa in self._isas for isa in unit.isas if self._knows(isa)}
            self._count(stated)
            self.stating += bool(stated)
            self.total += 1
        for name in imports:
            if match := _CUDART.fullmatch(name):
                major = self.cuda.partition(".")[0]
                self._count({name.lower(): int(match[1]) == int(major)})

    def _knows(self, isa: str) -> bool:
        """Whether the table has that ISA, or that of the requested version."""
        return bool(self._isas) or isa in load_cuda_table().ptx_isa.values()

    def _count(self, stated: dict[str, bool]) -> None:
        for words, fits in stated.items():
            (self.matching if fits else self.conflicting)[words] += 1


def newest_cuda_version(containers: Iterable[Container], imports: Iterable[str] = ()) -> str:
    """The newest CUDA version that they state, such as ``12.8`` or ``12``; empty for none."""
    isas = {isa: release for release, isa in reversed(load_cuda_table().ptx_isa.items())}
    versions: set[str] = set()
    for unit in containers:
        versions |= {minor_release(release) for release in unit.releases}
        versions |= {isas[isa] for isa in unit.isas if isa in isas}
    if not versions:
        versions = {match[1] for name in imports if (match := _CUDART.fullmatch(name))}
    return max(versions, key=lambda text: [*map(int, text.split("."))], default="")


def are_ptx_versions_known(isas: Iterable[str]) -> bool:
    """Whether the table has each of these PTX versions, and there is at least one.

    It does not for a CUDA newer than the table, or for unreadable PTX.
    """
    versions = {*isas}
    return bool(versions) and versions <= {*load_cuda_table().ptx_isa.values()}


def is_same_release(release: str, expected: str) -> bool:
    """Whether ``13.0.88`` is a 13.0, or a 13, number by number."""
    actual, other = (tuple(map(int, text.split("."))) for text in (release, expected))
    return actual[: len(other)] == other


def cuda_in(local: str) -> str:
    """The CUDA in a local version, such as ``128`` or ``12``; empty for none."""
    match = _NAMED.search(local)
    return match[1] if match else ""


def may_be(stated: str, release: str) -> bool:
    """Whether ``128`` or ``12`` may mean a version such as ``12.8`` or ``12``."""
    major = release.partition(".")[0]
    short = release == major and stated.startswith(major)
    return short or stated in (major, release.replace(".", ""))


def cuda_runtime_dlls(names: Iterable[str]) -> tuple[str, ...]:
    """The DLLs of CUDA's runtime among imported ones; their names have its major version."""
    return tuple(sorted({name for name in names if _CUDART.fullmatch(name)}))


def load_cuda_table() -> Table:
    """The file; :class:`ConfigError` names the key that is wrong."""
    return read_data(_FILE, Table)
