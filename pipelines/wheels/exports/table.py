"""The exports of one set of DLLs, such as those of one torch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import LockError
from pipelines.wheels.exports.cache import CacheEntry
from pipelines.wheels.imports import Exports
from pipelines.wheels.libraries import is_torch_dll

#: Parts of the names of DLLs that only CUDA builds of torch have.
_CUDAS = ("cuda", "nvrtc")
_TELLING = "torch_cuda.dll"


@dataclass(frozen=True)
class ExportTable:
    """Cheap to pickle: the symbols stay in the cache's file."""

    against: str
    """Such as ``torch 2.8.0 (cp311)``."""
    path: Path
    sha256: str
    """Of its wheel; empty for a directory."""
    own: Callable[[str], bool] = is_torch_dll
    """Whether a missing DLL should be in it: a module-level function."""
    stated: bool = False
    """Whether ``sha256`` is only what the index states, as only parts were fetched."""

    @property
    def table(self) -> str:
        """The sha256 of a directory's exports, which names the cache file."""
        return "" if self.sha256 else self.path.stem

    def look(self, libraries: Collection[str]) -> tuple[Exports, dict[str, str]]:
        """The exports of those of ``libraries`` (in lower case) that belong to it, and why not.

        A DLL that is certainly absent exports nothing. Raises :class:`LockError` for a file that is
        damaged or belongs to another wheel.
        """
        entry = CacheEntry(self.path)
        head = entry.head
        if head.sha256 != self.sha256 or (self.table and entry.sha256 != self.table):
            raise LockError(
                f"{self.path} belongs to a wheel with sha256 {head.sha256 or '(none)'}, expected "
                f"{self.sha256 or '(none)'}; the table has {entry.sha256}",
                hint="Delete it: it will be created again.",
            )
        exports: dict[str, frozenset[str] | None] = {}
        why: dict[str, str] = {}
        has_cuda = self.own is not is_torch_dll or _TELLING in head.libraries
        for library in sorted(set(libraries)):
            if library in head.libraries:
                exports[library] = entry.names(library)
                if exports[library] is None:
                    why[library] = f"too large to fetch from {self.against}, or not readable"
            elif not self.own(library):
                continue
            elif library in head.others or self.own is not is_torch_dll:
                exports[library], why[library] = None, f"not read from {self.against}"
            elif not has_cuda and any(word in library for word in _CUDAS):
                exports[library] = None
                why[library] = f"not in {self.against}, a build without CUDA"
            else:
                exports[library] = frozenset()
        return exports, why
