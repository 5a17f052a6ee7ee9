"""How compile units are assigned to shards: a pure function, the same on every host and here.

The longest unit first, each to the shard with the least work so far.
https://en.wikipedia.org/wiki/Longest-processing-time-first_scheduling
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence


def weight(source: str, costs: Iterable[Sequence[object]], other: float) -> float:
    """Seconds that a unit takes: from the first (glob, seconds) matching its source's file name.

    ``other``: for those that no glob matches.
    """
    name = source.replace("\\", "/").rpartition("/")[2]
    for glob, seconds in costs:
        if fnmatch.fnmatchcase(name, str(glob)):
            return float(str(seconds))
    return other


def divided(
    weights: Mapping[str, float], count: int, before: Sequence[float] = ()
) -> list[list[str]]:
    """The ids of ``weights`` (id -> seconds) in ``count`` shards, each with the longest first.

    ``before``: seconds that each shard already has from units assigned before.
    """
    loads = list(before) or [0.0] * count
    shares: list[list[str]] = [[] for _ in range(count)]
    for unit in sorted(weights, key=lambda unit: (-weights[unit], unit)):
        least = min(range(count), key=lambda share: (loads[share], len(shares[share]), share))
        shares[least].append(unit)
        loads[least] += weights[unit]
    return shares
