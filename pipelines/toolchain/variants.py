"""Which entry of the tool-chain lock a name stands for in a cell.

A wheel that there is one of for every Python, or for every torch, has an entry for each:
``torch-2.8-cu128-cp312``, ``setuptools-torch2.11``, ``numpy-cp312``. Recipes, and ``requires`` in
the lock, give the distribution's name alone; here it becomes the entry of the cell.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pipelines.errors import LockError

_VARIANT = re.compile(
    r"(?P<name>.+?)"
    r"(?:-(?P<torch>\d+\.\d+)-cu(?P<cuda>\d{2,})-cp(?P<python>3\d+)"
    r"|-torch(?P<any_cell>\d+\.\d+)"
    r"|-cp(?P<any_torch>3\d+))"
)
_NAMED = 6  # entries in one message


@dataclass(frozen=True)
class Cell:
    """What decides between the entries of a name; empty where it plays no part."""

    python: str = ""
    """Minor version, such as 3.12."""
    cuda: str = ""
    torch: str = ""
    """Minor release, such as 2.8."""

    def __str__(self) -> str:
        parts = {"CUDA": self.cuda, "torch": self.torch, "Python": self.python}
        return ", ".join(f"{word} {value}" for word, value in parts.items() if value)


class Entry(Protocol):
    """What is asked of a tool here."""

    @property
    def requires(self) -> tuple[str, ...]:
        """Names of what must come with it."""
        ...


def names(entries: Iterable[str]) -> set[str]:
    """Every name that can stand for one of ``entries``, their own included."""
    found = set(entries)
    return found | {made["name"] for entry in found if (made := _VARIANT.fullmatch(entry))}


def candidates(name: str, cell: Cell) -> list[str]:
    """The entries that ``name`` may stand for, the most particular first."""
    cuda, python = cell.cuda.replace(".", ""), cell.python.replace(".", "")
    made = []
    if cell.torch and cuda and python:
        made.append(f"{name}-{cell.torch}-cu{cuda}-cp{python}")
    if cell.torch:
        made.append(f"{name}-torch{cell.torch}")
    if python:
        made.append(f"{name}-cp{python}")
    return [*made, name]


def resolve(entries: Iterable[str], name: str, cell: Cell) -> str:
    """The entry of ``name`` in ``cell``.

    Raises :class:`LockError` when there is none, with the nearest that there are.
    """
    have = {*entries}
    for entry in candidates(name, cell):
        if entry in have:
            return entry
    others = [e for e in have if (made := _VARIANT.fullmatch(e)) and made["name"] == name]
    if not others:
        near = difflib.get_close_matches(name, sorted(names(have)), n=_NAMED, cutoff=0.6)
        raise LockError(
            f"toolchain.lock.yaml has no tool '{name}'",
            advice=f"The nearest: {', '.join(near)}" if near else "Add it there.",
        )
    others.sort(key=lambda entry: (_distance(entry, cell), entry))
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    raise LockError(
        f"toolchain.lock.yaml has no {name} for {cell or 'no cell'}: "
        f"there are {', '.join(others[:_NAMED])}{more}",
        advice="Ask for one of these, or add the other to toolchain.lock.yaml.",
    )


def expand(entries: Mapping[str, Entry], wanted: Iterable[str], cell: Cell) -> dict[str, str]:
    """``wanted`` and what must come with it: name -> entry, the wanted ones first, each once.

    Raises what :func:`resolve` does.
    """
    found: dict[str, str] = {}
    waiting = list(wanted)
    while waiting:
        found |= {name: resolve(entries, name, cell) for name in waiting if name not in found}
        required = (name for entry in found.values() for name in entries[entry].requires)
        waiting = [name for name in dict.fromkeys(required) if name not in found]
    return found


def _distance(entry: str, cell: Cell) -> tuple[int, list[int]]:
    """How far ``entry`` is from ``cell``: in how many parts, and how much in each."""
    made = _VARIANT.fullmatch(entry)
    assert made is not None  # noqa: S101 - the caller has seen that it is one
    cuda, python = made["cuda"], made["python"] or made["any_torch"]
    pairs = [
        (made["torch"] or made["any_cell"], cell.torch),
        (cuda and f"{cuda[:-1]}.{cuda[-1]}", cell.cuda),
        (python and f"{python[0]}.{python[1:]}", cell.python),
    ]
    away = [abs(_number(a) - _number(b)) for a, b in pairs if a]
    return sum(map(bool, away)), away


def _number(release: str) -> int:
    """``3.12`` as 312, so that 3.9 is nearer to 3.10 than to 3.12; 0 without a release."""
    major, _, minor = (release or "0.0").partition(".")
    return int(major) * 100 + int(minor or 0)
