"""Whether a Python is the one that a known program brings, and whether it is as its preset says."""

from __future__ import annotations

import ntpath
import os
import posixpath
from dataclasses import dataclass

from pipelines.publish.which.data import PRESETS
from pipelines.publish.which.looking import Place
from pipelines.publish.which.machine import Machine
from pipelines.publish.which.texts import RefusalError, ascii_line, minor_of


@dataclass(frozen=True)
class Portable:
    """A program's own Python."""

    preset: str
    """Of ``--for``."""
    says: str
    differs: tuple[str, ...]
    """Each axis that the preset sets and that is another here, in words."""
    instead: tuple[str, ...]
    """Flags that name what is here."""


def match_portable_preset(place: Place, machine: Machine, wanted: str = "") -> Portable | None:
    """The preset whose Python this is, or the one of that name; ``None``: of no known program.

    Of several that lie alike it is the one that fits best. Raises :class:`RefusalError` for a name
    that there is none of.
    """
    names = [name for name, *_ in PRESETS]
    if wanted and wanted not in names:
        raise RefusalError(f"--for {ascii_line(wanted, 40)}: no such preset",
                           f"There are: {', '.join(names)}.")  # fmt: skip
    found = []
    for name, says, axes, folder, siblings in PRESETS:
        lies = _lies(place, folder, siblings)
        if wanted != name and (wanted or not lies):
            continue
        instead: list[str] = []
        where = f"{ascii_line(place.executable, 200)} is not where the preset's Python is"
        differs = [] if lies else [where]
        for axis, text in axes:
            has = getattr(machine, axis)
            if axis != "python" and has:
                has = ".".join(map(str, minor_of(has)))
            if has != text:
                called = {"python": "Python", "cuda": "torch's CUDA", "torch": "torch"}[axis]
                differs.append(f"{called} is {has or 'missing'}, but the preset has {text}")
                instead += [f"--{axis}", has] if has else []
        found.append(Portable(name, says, tuple(differs), tuple(instead)))
    return min(found, key=lambda one: len(one.differs), default=None)


def _lies(place: Place, folder: str, siblings: tuple[str, ...]) -> bool:
    """Whether its program is in a folder of that name, next to one of these."""
    path = ntpath if "\\" in place.executable else posixpath
    own = path.dirname(place.executable)
    above = path.dirname(own)
    return path.basename(own).lower() == folder.lower() and any(
        os.path.lexists(path.join(above, one)) for one in siblings
    )
