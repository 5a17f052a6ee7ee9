r"""The longest path that a build will create, before there is one.

Windows' own limit is 260 characters with the final NUL. cl.exe has no other, whatever the registry
says, and a build that exceeds it fails late and strangely
(https://github.com/ninja-build/ninja/issues/2400). Objects are named as by setuptools and torch:
below ``build\temp.win-amd64-cpython-312\Release``, with the source's path; with an absolute one
the whole root is in it a second time.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PureWindowsPath

from pipelines.recipe.model import Recipe
from pipelines.recipe.worktree import matches_any_glob

#: Characters, the final NUL not counted.
MAX_PATH = 259
#: A job's own directory: the digits of its id.
JOB = 12


@dataclass(frozen=True)
class Longest:
    r"""The longest path of a build, and the length its build root may have at most."""

    path: str
    root_at_most: int

    @property
    def fits(self) -> bool:
        """Whether cl.exe can open it."""
        return len(self.path) <= MAX_PATH


def included_files(names: Iterable[str], exclude: Iterable[str]) -> list[str]:
    """The files of a tree (with ``/``) that are sent to the host."""
    patterns = tuple(exclude)
    return [name for name in names if not matches_any_glob(name, patterns)]


def longest_path(recipe: Recipe, names: Iterable[str], python: str, root: str) -> Longest:
    r"""Of sources and objects, for ``names`` of the source tree built below ``root`` (``C:\b``).

    ``python`` is ``3.12``; a cargo build has none and keeps its objects below ``target``.
    """
    directory = rf"{root}\{'0' * JOB}\src"
    best, twice = directory, False
    for name, again in _iter_build_paths(recipe, included_files(names, recipe.exclude), python):
        path = rf"{directory}\{name}"
        if again:
            path = rf"{directory}\{again}\{_bare(directory)}\{name}"
        if len(path) > len(best):
            best, twice = path, bool(again)
    spare = MAX_PATH - len(best)
    return Longest(best, len(root) + (spare // 2 if twice else spare))


def _bare(directory: str) -> str:
    """Without the drive, as setuptools appends an absolute path."""
    return directory[len(PureWindowsPath(directory).anchor) :]


def _iter_build_paths(recipe: Recipe, names: list[str], python: str) -> Iterable[tuple[str, str]]:
    """Paths below the tree, and for objects of absolute sources what comes before the root."""
    temp = rf"build\temp.win-amd64-cpython-{python.replace('.', '')}\Release"
    for name in names:
        windows = name.replace("/", "\\")
        yield windows, ""
        stem = windows.rpartition(".")[0]
        if _matches_any_glob(name, recipe.objects.relative):
            yield rf"{temp}\{stem}.obj", ""
        if _matches_any_glob(name, recipe.objects.absolute):
            yield rf"{stem}.obj", temp


def _matches_any_glob(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)
