"""Whether a set of works can be done at all: keys, what comes after what, who comes after whom."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping

from pipelines.errors import ConfigError
from pipelines.fleet.model import Work
from pipelines.units import few


def check(works: Iterable[Work], known: Mapping[str, Work]) -> list[Work]:
    """The works as they came, or :class:`ConfigError`: a key twice, an ``after`` that cannot be."""
    found: dict[str, Work] = {}
    for work in works:
        if work.key in found:
            raise ConfigError(f"the work {work.key} is there twice", advice="Name it once.")
        found[work.key] = work
    every = {**known, **found}
    for work in found.values():
        if lost := [key for key in work.after if key not in every]:
            raise ConfigError(
                f"{work.key} comes after {few(lost)}, which is not to be done",
                advice="Add that work, or take it out of what this one comes after.",
            )
    try:
        graphlib.TopologicalSorter({k: w.after for k, w in every.items()}).prepare()
    except graphlib.CycleError as error:
        raise ConfigError(
            f"works wait for each other: {few(error.args[1], ' after ')}",
            advice="One of them must not come after the others.",
        ) from None
    return list(found.values())


def followers(works: Iterable[Work]) -> dict[str, list[str]]:
    """Key -> keys of those that come right after it."""
    found: dict[str, list[str]] = {}
    for work in works:
        for key in dict.fromkeys(work.after):
            found.setdefault(key, []).append(work.key)
    return found
