"""Which entry of the tool-chain lock a name stands for in a target's cell.

A wheel that there is one of for every Python, or for every torch, has an entry for each:
``torch-2.8-cu128-cp312``, ``setuptools-torch2.11``, ``numpy-cp312``. Recipes, and ``requires`` in
the lock, give the distribution's name alone; here it becomes the entry of the cell. Of a target
only Python, CUDA and torch count, as minor releases.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from pipelines.errors import LockError
from pipelines.target import Target

_VARIANT = re.compile(
    r"(?P<name>.+?)"
    r"(?:-(?P<torch>\d+\.\d+)-cu(?P<cuda>\d{2,})-cp(?P<python>3\d+)"
    r"|-torch(?P<any_cell>\d+\.\d+)"
    r"|-cp(?P<any_torch>3\d+))"
)
_NAMED = 6  # entries in one message


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


def candidates(name: str, target: Target) -> list[str]:
    """The entries that ``name`` may stand for, the most particular first."""
    cuda, python = target.cuda.replace(".", ""), target.python.replace(".", "")
    made = []
    if target.torch and cuda and python:
        made.append(f"{name}-{target.torch}-cu{cuda}-cp{python}")
    if target.torch:
        made.append(f"{name}-torch{target.torch}")
    if python:
        made.append(f"{name}-cp{python}")
    return [*made, name]


def resolve(entries: Iterable[str], name: str, target: Target) -> str:
    """The entry of ``name`` for ``target``.

    Raises :class:`LockError` when there is none, with the nearest that there are.
    """
    have = {*entries}
    for entry in candidates(name, target):
        if entry in have:
            return entry
    others = [e for e in have if (made := _VARIANT.fullmatch(e)) and made["name"] == name]
    if not others:
        near = difflib.get_close_matches(name, sorted(names(have)), n=_NAMED, cutoff=0.6)
        raise LockError(
            f"toolchain.lock.yaml has no tool '{name}'",
            advice=f"The nearest: {', '.join(near)}" if near else "Add it there.",
        )
    others.sort(key=lambda entry: (_distance(entry, target), entry))
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    raise LockError(
        f"toolchain.lock.yaml has no {name} for {_words(target) or 'no cell'}: "
        f"there are {', '.join(others[:_NAMED])}{more}",
        advice="Ask for one of these, or add the other to toolchain.lock.yaml.",
    )


def expand(entries: Mapping[str, Entry], wanted: Iterable[str], target: Target) -> dict[str, str]:
    """``wanted`` and what must come with it: name -> entry, the wanted ones first, each once.

    Raises what :func:`resolve` does.
    """
    found: dict[str, str] = {}
    waiting = list(wanted)
    while waiting:
        found |= {name: resolve(entries, name, target) for name in waiting if name not in found}
        required = (name for entry in found.values() for name in entries[entry].requires)
        waiting = [name for name in dict.fromkeys(required) if name not in found]
    return found


def _words(target: Target) -> str:
    """What of it decides between entries."""
    parts = {"CUDA": target.cuda, "torch": target.torch, "Python": target.python}
    return ", ".join(f"{word} {value}" for word, value in parts.items() if value)


def _distance(entry: str, target: Target) -> tuple[int, list[int]]:
    """How far ``entry`` is from ``target``: in how many parts, and how much in each."""
    made = _VARIANT.fullmatch(entry)
    assert made is not None  # noqa: S101 - the caller has seen that it is one
    cuda, python = made["cuda"], made["python"] or made["any_torch"]
    pairs = [
        (made["torch"] or made["any_cell"], target.torch),
        (cuda and f"{cuda[:-1]}.{cuda[-1]}", target.cuda),
        (python and f"{python[0]}.{python[1:]}", target.python),
    ]
    away = [abs(_number(a) - _number(b)) for a, b in pairs if a]
    return sum(map(bool, away)), away


def _number(release: str) -> int:
    """``3.12`` as 312, so that 3.9 is nearer to 3.10 than to 3.12; 0 without a release."""
    major, _, minor = (release or "0.0").partition(".")
    return int(major) * 100 + int(minor or 0)
