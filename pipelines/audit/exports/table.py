"""The exports of one set of DLLs, such as those of one torch, to be asked for some of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from pipelines.audit.exports.kept import Kept
from pipelines.core.errors import LockError
from pipelines.wheels.imported import Exports
from pipelines.wheels.libraries import is_torchs

#: What the DLLs of torch have in their names that only its CUDA builds bring.
_CUDAS = ("cuda", "nvrtc")
_TELLING = "torch_cuda.dll"


@dataclass(frozen=True)
class ExportTable:
    """Small enough to be sent to another process: the names stay in the cache's file."""

    against: str
    """Such as ``torch 2.8.0 (cp311)``."""
    path: Path
    sha256: str
    """Of the wheel that it is of; empty: of a directory."""
    own: Callable[[str], bool] = is_torchs
    """Whether a DLL that it lacks should be among them: a function of a module."""
    stated: bool = False
    """Whether ``sha256`` is what the index states: of the wheel parts alone were fetched."""

    @property
    def table(self) -> str:
        """The sha256 of what a directory's DLLs export, by which the cache's file is called."""
        return "" if self.sha256 else self.path.stem

    def look(self, libraries: Collection[str]) -> tuple[Exports, dict[str, str]]:
        """Of those of ``libraries`` (in lower case) that it is of: their exports, and why not.

        Of a DLL that is certainly not there nothing is exported. Raises :class:`LockError` for a
        file that is damaged, or of another wheel.
        """
        kept = Kept(self.path)
        head = kept.head
        if head.sha256 != self.sha256 or (self.table and kept.sha256 != self.table):
            raise LockError(
                f"{self.path} is of a wheel with sha256 {head.sha256 or '(none)'}, expected "
                f"{self.sha256 or '(none)'}; the table has {kept.sha256}",
                hint="Delete it: it is made anew from where it came.",
            )
        exports: dict[str, frozenset[str] | None] = {}
        why: dict[str, str] = {}
        whole = self.own is not is_torchs or _TELLING in head.libraries
        for library in sorted(set(libraries)):
            if library in head.libraries:
                exports[library] = kept.names(library)
                if exports[library] is None:
                    why[library] = f"too large to be fetched from {self.against}, or not readable"
            elif not self.own(library):
                continue
            elif library in head.others or self.own is not is_torchs:
                exports[library], why[library] = None, f"not read of {self.against}"
            elif not whole and any(word in library for word in _CUDAS):
                exports[library] = None
                why[library] = f"not in {self.against}, which is a build without CUDA"
            else:
                exports[library] = frozenset()
        return exports, why
