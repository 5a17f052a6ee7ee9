"""The fleet's figures, printed: how far from the ideal, compared with others.

Everything goes through the scheduler, ledger and policy of a real fleet; only the clock is
simulated. The ideal is what no schedule can beat: the longest task on the fastest host, or all task
over all cores.
"""

from __future__ import annotations

import heapq
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from test_figures import show

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from fleet_world import planned, simulated

from pipelines.core.units import GIB, format_seconds
from pipelines.fleet.model import Machine, Needs, Task
from pipelines.fleet.policy import Room, assign_tasks
from pipelines.recipe.load import load_recipe
from pipelines.remote.shards import balance

UNITS = json.loads((Path(__file__).parent / "data/flash_attn_units.json").read_text("utf-8"))
MEASURED: dict[str, float] = {row["source"]: row["seconds"] for row in UNITS["units"]}
#: Core-seconds of cells such as a matrix has: flash-attn for one to three architectures (9522
#: each, measured), xformers and small ones.
SIZES = (9522, 2 * 9522, 3 * 9522, 4200, 2 * 4200, 300, 120)


def machines(count: int, *cores: int) -> list[Machine]:
    return [
        Machine(name=f"host{n:03}", cores=cores[n % len(cores)], memory=64 * GIB)
        for n in range(count)
    ]


def matrix(count: int, hosts: Sequence[Machine], seed: int = 1) -> list[Task]:
    dice = random.Random(seed)
    names = tuple(host.name for host in hosts)
    return [
        Task(
            key=f"cell{n}",
            kind="cell",
            cell=f"cell{n}",
            core_seconds=dice.choice(SIZES) * dice.uniform(0.9, 1.1),
            width=73,
            hosts=names,
            warm=f"tools{dice.randrange(4)}",
            needs=Needs(memory=16 * GIB),
        )
        for n in range(count)
    ]


def ideal(tasks: Sequence[Task], hosts: Sequence[Machine]) -> float:
    longest = max(min(host.seconds(task) for host in hosts) for task in tasks)
    return max(longest, sum(task.core_seconds for task in tasks) / sum(h.cores for h in hosts))


def in_order(
    tasks: Sequence[Task], hosts: Sequence[Machine], took: Callable[[Task, Machine], float]
) -> float:
    """What a list takes that is worked off as it stands: the next one to whoever is free."""
    free = [(0.0, n) for n in range(len(hosts))]
    warm: list[set[str]] = [set() for _ in hosts]
    for task in tasks:
        at, n = heapq.heappop(free)
        cold = 0.0 if task.warm in warm[n] else task.cold_seconds
        warm[n].add(task.warm)
        heapq.heappush(free, (at + took(task, hosts[n]) + cold, n))
    return max(at for at, _ in free)


@pytest.mark.parametrize("cores", [(16,), (16, 16, 32, 64), (4, 8, 32, 64)], ids=str)
def test_two_hundred_cells_on_four_hosts(tmp_path: Path, cores: tuple[int, ...]) -> None:
    hosts = machines(4, *cores)
    tasks = matrix(200, hosts)
    best = ideal(tasks, hosts)
    dice = random.Random(2)
    error = {task.key: dice.lognormvariate(0, 0.25) for task in tasks}

    def off(task: Task, host: Machine) -> float:
        return host.seconds(task) * error[task.key]

    real = [w.model_copy(update={"core_seconds": w.core_seconds * error[w.key]}) for w in tasks]
    label = f"200 cells, 4 hosts of {'+'.join(str(host.cores) for host in hosts)} cores"
    ratio = simulated(tmp_path, tasks, hosts)[0] / best
    assert ratio <= 1.15  # the clock is simulated: no machine is too busy for it
    show(f"{label}, of the ideal", f"{ratio:.3f}", "1.15")
    wrong = simulated(tmp_path, tasks, hosts, off)[0] / ideal(real, hosts)
    show("  where plans are 25 % off", f"{wrong:.3f}", "1.15")
    tried = []
    for seed in range(20):
        mixed = random.Random(seed).sample(tasks, len(tasks))
        tried.append(in_order(mixed, hosts, planned) / best)
    show("  peer: a list, first come", f"{sum(tried) / 20:.3f}, worst {max(tried):.3f}", "-")


def wall(units: Sequence[float], cores: int) -> float:
    """Until the last of them is compiled, the longest first, one a core."""
    lanes = [0.0] * cores
    for one in sorted(units, reverse=True):
        heapq.heapreplace(lanes, lanes[0] + one)
    return max(lanes)


@pytest.mark.parametrize("cores", [4, 8, 16])
def test_flash_attn_in_shares_on_eight_hosts(tmp_path: Path, cores: int) -> None:
    """Each unit takes what was measured; what is divided by are the recipe's costs."""
    hosts = machines(8, cores)
    names = tuple(host.name for host in hosts)
    costs = [*load_recipe("flash-attn").unit_costs.items()]
    weights = {name: balance.weight(name, costs, 130.0) for name in MEASURED}
    total = sum(MEASURED.values())
    best = max(*MEASURED.values(), total / (8 * cores))
    everyone = sorted(MEASURED)
    divisions = {
        "by measured costs": balance.divided(weights, 8),
        "peer: every eighth": [everyone[n::8] for n in range(8)],
        "peer: slices of the list": [everyone[n * 73 // 8 : (n + 1) * 73 // 8] for n in range(8)],
    }
    for label, shares in divisions.items():
        tasks = [
            Task(
                key=f"flash/{n}of8",
                kind="shard",
                cell="flash",
                core_seconds=sum(weights[unit] for unit in share),
                width=max(1, len(share)),
                hosts=names,
            )
            for n, share in enumerate(shares, 1)
        ]
        took = {
            task.key: wall([MEASURED[u] for u in share], cores)
            for task, share in zip(tasks, shares, strict=True)
        }
        done, _ = simulated(tmp_path, tasks, hosts, lambda task, _, took=took: took[task.key])  # type: ignore[misc]
        goal = "1.25" if label.startswith("by") else "-"
        assert goal == "-" or done <= 1.25 * best
        show(
            f"flash-attn, 8 shares on 8 x {cores} cores, {label}",
            f"{done / best:.3f} of {format_seconds(best)}",
            goal,
        )
    show("  alone on one of them", format_seconds(wall(list(MEASURED.values()), cores)), "-")


def test_ten_thousand_cells_on_two_hundred_hosts(tmp_path: Path) -> None:
    hosts = [
        host.model_copy(update={"gpus": ("9.0",) if n % 10 == 0 else ()})
        for n, host in enumerate(machines(200, 8, 16, 32))
    ]
    tasks = matrix(10_000, hosts)
    names = tasks[0].hosts
    tests = [
        Task(
            key=f"{task.key}/test",
            kind="test",
            cell=task.cell,
            core_seconds=60.0,
            needs=Needs(slots=0, memory=8 * GIB, gpu=("9.0",)),
            after=(task.key,),
            hosts=names,
        )
        for task in tasks[::5]
    ]
    began = time.monotonic()
    done, spans = simulated(tmp_path, [*tasks, *tests], hosts)
    took = time.monotonic() - began
    show("10,000 cells and 2,000 tests, 200 hosts", f"{took:.1f} s", "60 s")
    show("  decisions with their entries", f"{len(spans) / took:,.0f} a second", "-")
    show("  of the ideal", f"{done / ideal(tasks, hosts):.3f}", "1.15")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    show("  memory of the process", f"{peak:.0f} MiB", "-")


def test_what_a_round_costs() -> None:
    """Ten thousand wait and two hundred hosts are full but for one, as most of the time."""
    hosts = machines(200, 8, 16, 32)
    tasks = sorted(matrix(10_000, hosts), key=lambda one: -one.core_seconds)
    waiting = [(task, task.hosts) for task in tasks]
    rooms = {host.name: Room(host) for host in hosts}
    for room, task in zip([*rooms.values()][1:], tasks, strict=False):
        room.take(task, room.seconds(task))
    began = time.process_time()
    begun = assign_tasks(waiting, rooms, 0.0)
    took = time.process_time() - began
    assert len(begun) == 1
    show("a round of assignments, 10,000 x 200", f"{took * 1e3:.1f} ms of one core", "-")
