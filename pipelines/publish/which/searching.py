"""Where Windows finds a DLL that an extension module of Python imports.

The order: the module's own folder, Python's, those that were added (torch adds its own), Windows'.
Neither the current folder nor PATH is looked into:
https://docs.python.org/3/library/os.html#os.add_dll_directory
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from pipelines.publish.which.images import Loaded, read_image
from pipelines.publish.which.looking import Place, Torch, names_in, read_text
from pipelines.wheels.petables import UnreadableError

_SETS = ("api-ms-win-", "ext-ms-")  # names without a file: Windows knows what they stand for


@dataclass
class Shelf:
    """The folders, and what was read of their DLLs."""

    place: Place
    torch: Torch | None
    brought: dict[str, str] = field(default_factory=dict)
    """The DLLs of the package that is looked at, wherever in it they lie: name -> file."""
    _names: dict[str, dict[str, str]] = field(default_factory=dict)
    _read: dict[str, Loaded | str] = field(default_factory=dict)

    def find(self, name: str, beside: str) -> str:
        """The file of a DLL that is wanted by one in the folder ``beside``; empty: none."""
        for folder in (beside, *self.added, self.place.system):
            if path := self._in(folder, name):
                return path
        return ""

    @property
    def added(self) -> tuple[str, ...]:
        """Between the module's own folder and Windows'."""
        own = (os.path.join(self.torch.folder, "lib"),) if self.torch else ()
        return (*self.place.beside, *own)

    def elsewhere(self, name: str) -> str:
        """Where a package of NVIDIA's has it, which Windows does not look into by itself."""
        for folder in self.place.paths:
            for top, _, files in os.walk(os.path.join(folder, "nvidia")):
                for one in files:
                    if one.lower() == name:
                        return os.path.join(top, one)
        return ""

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


def adds_folders(paths: list[str]) -> bool:
    """Whether one of these Python files adds folders in which DLLs are looked for."""
    return any("add_dll_directory" in (read_text(path) or "") for path in paths)
