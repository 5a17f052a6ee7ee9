"""Which entry of the tool-chain lock a name stands for in a target's cell.

A wheel that there is one of for every Python, or for every torch, has an entry for each, which says
what it is for: ``torch-2.8-cu128-cp312`` is for torch 2.8, CUDA 12.8 and Python 3.12. Recipes, and
``requires`` in the lock, give the distribution's name alone; here it becomes the entry of the cell.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from pipelines.core import plugins
from pipelines.core.errors import LockError
from pipelines.core.paths import CHECKOUT, project_dir
from pipelines.core.target import Target
from pipelines.core.versions import free_threaded, python_release

#: What an entry may be for, most particular first: an entry for one torch goes before one for one
#: Python, and the one for all is the last.
AXES = ("torch", "cuda", "python")
_NAMED = 6  # entries in one message
#: No name stands for another.
NOTHING: Mapping[str, str] = MappingProxyType({})


class Entry(Protocol):
    """What is asked of a tool here; an axis is None where the entry is for all of them."""

    @property
    def name(self) -> str:
        """What recipes call it."""
        ...

    @property
    def python(self) -> str | None:
        """The minor version that it is for."""
        ...

    @property
    def torch(self) -> str | None:
        """The minor release that it is for."""
        ...

    @property
    def cuda(self) -> str | None:
        """The release that it is for."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """Names of what must come with it."""
        ...


def axis_values(entry: Entry | Target) -> tuple[str | None, ...]:
    """What ``entry`` is for, or what a target has, in the order of :data:`AXES`."""
    return tuple(getattr(entry, axis) or None for axis in AXES)


def wanted_file() -> str:
    """Where a tool is added: the file of the user's repository, or in a checkout the built-in."""
    own = plugins.repository_plugins().path / "toolchain.yaml"
    built_in = project_dir() == CHECKOUT and not own.is_file()
    return "pipelines/toolchain/toolchain.yaml" if built_in else f"{plugins.FOLDER}/{own.name}"


def unknown_tool(name: str, known: Iterable[str]) -> LockError:
    """The error for a tool that the lock does not have, with the nearest that it has."""
    near = difflib.get_close_matches(name, sorted(known), n=_NAMED)
    return LockError(
        f"toolchain.lock.yaml has no tool '{name}'",
        hint=f"The nearest: {', '.join(near)}" if near else f"Add it to {wanted_file()}.",
    )


class Names:
    """The entries of a lock by what recipes call them; an id stands for itself."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries
        self.ids: dict[str, list[str]] = {}
        for id_, entry in entries.items():
            self.ids.setdefault(entry.name, []).append(id_)

    def __contains__(self, name: str) -> bool:
        return name in self.ids or name in self.entries

    def resolve(self, name: str, target: Target) -> str:
        """The id of the entry that ``name`` stands for with ``target``.

        Raises :class:`LockError` when there is none, with the nearest that there are.
        """
        named = {id_: axis_values(self.entries[id_]) for id_ in self.ids.get(name, ())}
        asked = axis_values(target)
        fitting = [
            id_
            for id_, axes in named.items()
            if all(own in (None, wanted) for own, wanted in zip(axes, asked, strict=True))
        ]
        if fitting:
            return max(fitting, key=lambda id_: [own is not None for own in named[id_]])
        if name in self.entries:
            return name
        if not named:
            raise unknown_tool(name, {*self.ids, *self.entries})
        others = sorted(named, key=lambda id_: (_axis_distance(named[id_], asked), id_))
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        raise LockError(
            f"toolchain.lock.yaml has no {name} for {_describe_target_axes(target) or 'no cell'}: "
            f"there are {', '.join(others[:_NAMED])}{more}",
            hint=f"Ask for one of these, or add the other to {wanted_file()} and type: invoke lock",
        )

    def expand(
        self, wanted: Iterable[str], target: Target, instead: Mapping[str, str] = NOTHING
    ) -> dict[str, str]:
        """``wanted`` and what must come with it: name -> id, the wanted ones first, each once.

        ``instead``: name -> the name whose entry is taken for it. Raises what :meth:`resolve` does.
        """
        found: dict[str, str] = {}
        waiting = list(wanted)
        while waiting:
            found |= {
                name: self.resolve(instead.get(name, name), target)
                for name in waiting
                if name not in found
            }
            required = (name for id_ in found.values() for name in self.entries[id_].requires)
            waiting = [name for name in dict.fromkeys(required) if name not in found]
        return found


def _describe_target_axes(target: Target) -> str:
    """What of it decides between entries."""
    parts = {"CUDA": target.cuda, "torch": target.torch, "Python": target.python}
    return ", ".join(f"{word} {value}" for word, value in parts.items() if value)


def _axis_distance(
    axes: tuple[str | None, ...], asked: tuple[str | None, ...]
) -> tuple[int, list[int]]:
    """How far an entry is from a cell: in how many axes of its own, and how much in each."""
    pairs = zip(axes, asked, strict=True)
    away = [abs(_release_ordinal(own) - _release_ordinal(wanted)) for own, wanted in pairs if own]
    return sum(map(bool, away)), away


def _release_ordinal(release: str | None) -> int:
    """``3.12`` as 624, so that 3.9 is nearer to 3.10 than to 3.12; 0 without a release.

    A Python without the global lock is next to the one with it.
    """
    major, _, minor = python_release(release or "0.0").partition(".")
    return 2 * (int(major) * 100 + int(minor or 0)) + free_threaded(release or "")


def distribution_name(file: str) -> str:
    """The distribution a wheel's file name stands for, normalised (PEP 503)."""
    return re.sub(r"[-_.]+", "-", file.split("-", 1)[0]).lower()
