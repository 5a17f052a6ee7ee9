"""What a user's repository, and packages that are installed, bring besides what is built in.

Recipes, smoke suites, resources and signatures lie in one directory with one layout:

    recipes/NAME.yaml    smoke/SUITE/test_*.py    resources.yaml    signatures.yaml

``.wcw`` next to ``pipeline.yaml`` is the repository's. A package brings one by an entry point of
the group :data:`GROUP`, whose value names a directory within it, with dots. The repository's own is
looked at first, then those of packages, then what is built in. Two packages that bring the same
name are refused, unless the repository has it as well: which was meant would not be clear.
https://packaging.python.org/en/latest/specifications/entry-points/
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.core.paths import project_dir

#: Of the repository; hidden, so that no build system takes it for a package of the user's.
FOLDER = ".wcw"
#: Of entry points.
GROUP = "windows_cuda_wheels"
BUILT_IN = "built in"
#: Files of an origin.
RESOURCES, SIGNATURES = "resources.yaml", "signatures.yaml"
_DOTTED = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True)
class Found:
    """A directory laid out as above, or a file or directory that was found in one or built in."""

    path: Path
    says: str
    """Where it is from, for people and records: ``.wcw of this repository``, ``NAME of DISTRIBUTION
    VERSION``, or :data:`BUILT_IN`."""
    own: bool = False
    """Whether it is the repository's."""


def repository_plugins() -> Found:
    """The repository's own, which need not be there."""
    return Found(project_dir() / FOLDER, f"{FOLDER} of this repository", own=True)


def plugin_origins() -> tuple[Found, ...]:
    """Those that there are, the repository's own first.

    Raises :class:`ConfigError` for an entry point that names no directory.
    """
    mine = repository_plugins()
    return ((mine,) if mine.path.is_dir() else ()) + _of_packages()


@cache
def _of_packages() -> tuple[Found, ...]:
    found = importlib.metadata.entry_points(group=GROUP)
    return tuple(_of_package(each) for each in sorted(found, key=lambda each: each.name))


def _of_package(entry: importlib.metadata.EntryPoint) -> Found:
    """The directory that an entry point names; nothing of the package is run."""
    whose = entry.dist
    label = f"{whose.name} {whose.version}" if whose is not None else "a package"
    if _DOTTED.fullmatch(entry.value):
        top, *inner = entry.value.split(".")
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):  # of what is loaded without one, as __main__ is
            spec = None
        for place in (spec.submodule_search_locations or ()) if spec else ():
            if (path := Path(place, *inner)).is_dir():
                return Found(path, f"{entry.name} of {label}")
    raise ConfigError(
        f"{label}: its entry point {entry.name} of {GROUP} names '{entry.value[:80]}', which is no "
        "directory of a package",
        hint="Fix or remove that package: docs/init.md says what the entry point is.",
    )


def find_plugin_file(kind: str, name: str, what: str) -> Found | None:
    """``kind/name`` (``recipes/x.yaml``) of the first origin that has it; ``None``: none has.

    ``what`` is how people call it. Raises :class:`ConfigError` where two packages have it.
    """
    there = [one for one in plugin_origins() if (one.path / kind / name).exists()]
    if not there:
        return None
    first, *others = there
    if not first.own and others:
        both = " and ".join(one.says for one in there)
        raise _twice(what, both, kind)
    return Found(first.path / kind / name, first.says, first.own)


def _twice(what: str, both: str, where: str) -> ConfigError:
    return ConfigError(
        f"{what}: two packages have one: {both}",
        hint=f"Uninstall one of them, or put yours into {repository_plugins().path / where}.",
    )


def plugin_files(name: str) -> tuple[Found, ...]:
    """The file ``name`` (``resources.yaml``) of every origin that has one, in order."""
    return tuple(
        Found(one.path / name, one.says, one.own)
        for one in plugin_origins()
        if (one.path / name).is_file()
    )


def refuse_doubles(files: Iterable[tuple[Found, Iterable[str]]], what: str) -> None:
    """Raise :class:`ConfigError` where two packages bring a thing of one name.

    ``files`` are those of :func:`plugin_files` with the names in them. What the repository has
    itself is meant, whoever brings it as well.
    """
    rows = [(found, {*names}) for found, names in files]
    mine = {name for found, names in rows if found.own for name in names}
    whose: dict[str, Found] = {}
    for found, names in rows:
        for name in sorted(names - mine):
            first = whose.setdefault(name, found)
            if first is not found:
                both = f"{first.says} and {found.says}"
                raise _twice(f"{what} '{name}'", both, found.path.name)
