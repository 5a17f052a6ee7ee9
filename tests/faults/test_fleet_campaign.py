"""A thousand cells through the very dispatcher, with faults, and controllers killed anywhere.

Seeded: ``CAMPAIGN_SEED`` and ``CAMPAIGN_CELLS`` choose another one. The clock is simulated, nothing
else of the fleet is: ledger, policy and dispatcher are those of ``invoke build --fleet``. The line
that it prints is the README's.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fleet_world import Session, World

from pipelines import fleet
from pipelines.fleet.dispatch import Dispatcher
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Machine, Needs, Work
from pipelines.fleet.rules import Rules
from pipelines.units import GIB

pytestmark = pytest.mark.faults

CELLS = int(os.environ.get("CAMPAIGN_CELLS", "1000"))
SEED = int(os.environ.get("CAMPAIGN_SEED", "20261123"))
ROOM = str(Path(fleet.__file__).parent)


class Killed(BaseException):
    """As kill -9: nothing may catch it; what is not committed is not there."""


class Killer:
    """Kills the controller before some statement of the fleet's own code."""

    def __init__(self, seed: int, share: float) -> None:
        self.random = random.Random(seed)
        self.share = share
        self.left = -1
        self.places: Counter[tuple[str, int]] = Counter()

    def arm(self) -> None:
        if self.random.random() < self.share:
            self.left = int(self.random.expovariate(1 / 150))
            sys.settrace(self._trace)
        else:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                self.places[Path(frame.f_code.co_filename).name, frame.f_lineno] += 1
                raise Killed
        return self._trace


def matrix(cells: int, hosts: int, seed: int) -> tuple[list[Work], list[Machine]]:
    """Cells, some divided into shares, some with a test on a GPU; hosts of several sizes."""
    dice = random.Random(seed)
    machines = [
        Machine(
            name=f"host{n}",
            slots=dice.choice([1, 1, 2]),
            cores=dice.choice([8, 16, 32]),
            memory=64 * GIB,
            gpus=("9.0",) if n % 5 == 0 else (),
            made=n % 7 == 6,
        )
        for n in range(hosts)
    ]
    names = tuple(one.name for one in machines)
    works: list[Work] = []
    for n in range(cells):
        seconds = dice.uniform(300, 9000)
        common: dict[str, Any] = {"cell": f"cell{n}", "hosts": names, "warm": f"tools{n % 6}"}
        needs = Needs(memory=dice.choice([4, 16, 40]) * GIB)
        after: tuple[str, ...] = ()
        if n % 10 == 0:
            after = tuple(f"cell{n}/{k}of4" for k in range(1, 5))
            for key in after:
                share = seconds / 4
                works.append(
                    Work(key=key, kind="shard", core_seconds=share, width=18, needs=needs, **common)
                )
            seconds = 60
        kind = "link" if after else "cell"
        works.append(
            Work(
                key=f"cell{n}",
                kind=kind,  # type: ignore[arg-type]
                core_seconds=seconds,
                width=73,
                needs=needs,
                after=after,
                **common,
            )
        )
        if n % 4 == 0:
            test = Needs(slots=0, memory=4 * GIB, gpu=("9.0",))
            works.append(
                Work(
                    key=f"cell{n}/test",
                    kind="test",
                    core_seconds=120,
                    needs=test,
                    after=(f"cell{n}",),
                    **common,
                )
            )
    return works, machines


def expected(works: list[Work]) -> dict[str, str]:
    """What every work makes where nothing ever fails."""
    found: dict[str, str] = {}
    for work in works:  # what comes before is before it in the list
        parts = [work.key, *(found[key] for key in work.after)]
        found[work.key] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return found


def campaign(place: Path, cells: int, seed: int, *, faults: float, kills: float) -> str:
    works, machines = matrix(cells, 20, seed)
    world, killer = World(machines, seed, faults), Killer(seed, kills)
    began = time.monotonic()
    controllers = 0
    retried: set[str] = set()
    Ledger.create(place, "campaign", durable=False).close()
    path = next(place.glob("fleet-*"))
    while True:
        controllers += 1
        ledger = Ledger(path, durable=False)
        try:
            killer.arm()
            ledger.hold()
            ledger.put(works, machines, world.clock)
            dispatcher = Dispatcher(ledger, Session(world), Rules(poll=math.inf))
            dispatcher.run(killer.arm)
        except Killed:
            continue
        finally:
            sys.settrace(None)
            ledger.close()
            world.session = None
        ledger = Ledger(path)
        entries, attempts = ledger.works(), ledger.attempts()
        stuck = [one for one in entries if one.stand != "done"]
        for entry in stuck:  # two different hosts were gone with it: a person looks, and says so
            if entry.stand == "quarantined":
                died = {
                    one.span.host for one in attempts if one.span.key == entry.work.key and one.gone
                }
                lost = [one for one in attempts if one.span.key == entry.work.key]
                assert len(died) > 1 or len(lost) >= 6, entry
                retried.add(entry.work.key)
                ledger.order("retry", entry.work.key, at=world.clock)
            else:
                assert entry.stand == "blocked", entry
        ledger.close()
        if not stuck:
            break
    # What was promised.
    assert not world.wrong, world.wrong[:5]
    done = [one for one in attempts if one.span.outcome == "done"]
    assert Counter(one.span.key for one in done) == Counter(work.key for work in works)
    told = {one.span.key: one.told["sha256"] for one in done}
    assert told == expected(works)
    assert all((one.span.ended or 0) >= one.span.began for one in attempts if one.span.outcome)
    assert not [one for one in attempts if one.span.outcome is None], "an attempt without an end"
    for key, each in itertools.groupby(
        sorted(attempts, key=lambda a: a.span.key), lambda a: a.span.key
    ):
        spans = sorted((one.span.attempt, one.span.began, one.span.ended) for one in each)
        for (_, _, end), (_, start, _) in itertools.pairwise(spans):
            assert (end or math.inf) <= start, f"{key}: two attempts at once"
    return (
        f"FLEET CAMPAIGN seed {seed}: {cells} cells, {len(works)} works, 20 hosts, "
        f"{sum(world.befell.values())} faults {dict(world.befell)}, {controllers - 1} controllers "
        f"killed at {len(killer.places)} different statements; 0 lost, 0 run twice at once, "
        f"0 wrong bytes; {len(retried)} quarantined, {world.vain} went elsewhere while a host that "
        f"nobody could reach had them, {time.monotonic() - began:.0f} s"
    )


def test_nothing_is_lost(tmp_path: Path) -> None:
    sys.stdout.write(f"\n{campaign(tmp_path, CELLS, SEED, faults=0.1, kills=0.04)}\n")
