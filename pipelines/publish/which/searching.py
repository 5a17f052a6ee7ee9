"""Where Windows finds a DLL that an extension module of Python imports.

The order: torch's folder where a package imports torch, as all DLLs there are loaded by then, the
module's own folder, Python's, those that were added, Windows'. Neither the current folder nor PATH:
https://docs.python.org/3/library/os.html#os.add_dll_directory
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field

from pipelines.publish.which.images import Loaded, read_image
from pipelines.publish.which.looking import Place, Torch, names_in
from pipelines.wheels.petables import UnreadableError

_MOST_SEEN = 500_000
_SETS = ("api-ms-win-", "ext-ms-")  # names without a file: Windows knows what they stand for


@dataclass
class Shelf:
    """The folders, and what was read of their DLLs."""

    place: Place
    torch: Torch | None
    brought: dict[str, str] = field(default_factory=dict)
    """The DLLs of the package that is looked at, wherever in it they lie: name -> file."""
    text: str = ""
    """The Python that is run first when that package is imported."""
    with_torch: bool = True
    """Whether that package imports torch."""
    _names: dict[str, dict[str, str]] = field(default_factory=dict)
    _read: dict[str, Loaded | str] = field(default_factory=dict)
    _copies: dict[str, list[str]] | None = None

    def find(self, name: str, own: str) -> str:
        """The file of a DLL that is wanted by one in the folder ``own``; empty: none."""
        first = (self._torchs,) if self.with_torch else ()
        for folder in (*first, own, *self.place.dll_folders, *self._toolkits(), self.place.system):
            if path := self._in(folder, name):
                return path
        return ""

    @property
    def adds(self) -> bool:
        """Whether the package adds folders in which DLLs are looked for."""
        return "add_dll_directory" in self.text

    @property
    def _torchs(self) -> str:
        return os.path.join(self.torch.folder, "lib") if self.torch else ""

    def _toolkits(self, *, every: bool = False) -> tuple[str, ...]:
        """Folders of CUDA's toolkit that the package adds, or all that have DLLs."""
        adds = self.adds and "CUDA_PATH" in self.text
        named = [("bin",), ("bin", "x64")][: 2 if every or "x64" in self.text else 1]
        return tuple(os.path.join(self.place.cuda, *one) for one in named
                     if self.place.cuda and (every or adds))  # fmt: skip

    def elsewhere(self, name: str) -> str:
        """Where a package of NVIDIA's has it, which Windows does not look into by itself."""
        inside = f"{os.sep}nvidia{os.sep}"
        return next((one for one in self.copies(name) if inside in one), "")

    def aside(self, name: str) -> str:
        """Where torch or CUDA's toolkit has it, for others that do not use these."""
        every = (self._in(folder, name) for folder in (self._torchs, *self._toolkits(every=True)))
        return next(filter(None, every), "")

    def top(self, path: str) -> str:
        """The folder at the top, by the name of its package, that a file is in."""
        site = next((one for one in self.place.paths if path.startswith(one + os.sep)), "")
        return path[len(site) + 1 :].partition(os.sep)[0].partition(".")[0]

    def copies(self, name: str) -> list[str]:
        """Every DLL of that name below the folders that packages are installed in."""
        if self._copies is None:
            self._copies = {}
            sites = [one for one in self.place.paths
                     if any(name.endswith("-info") for name in names_in(one))]  # fmt: skip
            walked = ((top, one) for site in sites for top, _, files in os.walk(site)
                      for one in files)  # fmt: skip
            for top, one in itertools.islice(walked, _MOST_SEEN):
                if one.lower().endswith(".dll"):
                    self._copies.setdefault(one.lower(), []).append(os.path.join(top, one))
        return self._copies.get(name, [])

    @staticmethod
    def is_set(name: str) -> bool:
        """Whether it is a name that Windows resolves by itself."""
        return name.startswith(_SETS)

    def read(self, path: str) -> Loaded | str:
        """What a DLL says of itself, or why that cannot be read."""
        if path not in self._read:
            try:
                self._read[path] = read_image(path)
            except (UnreadableError, OSError) as error:
                self._read[path] = str(getattr(error, "strerror", None) or error)
        return self._read[path]

    def is_systems(self, path: str) -> bool:
        """Whether it is Windows' own."""
        return bool(self.place.system) and os.path.dirname(path) == self.place.system

    def is_torchs(self, path: str) -> bool:
        """Whether it is one of torch's."""
        return self.torch is not None and path.startswith(self.torch.folder + os.sep)

    def _in(self, folder: str, name: str) -> str:
        if not folder:
            return ""
        if folder not in self._names:
            self._names[folder] = {one.lower(): one for one in names_in(folder)}
        own = self._names[folder].get(name)
        return os.path.join(folder, own) if own else ""
