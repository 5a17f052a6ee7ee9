"""What a fleet would take and cost, for people and for programs, before anything is begun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.markup import escape

from pipelines import units
from pipelines.console import console, say
from pipelines.fleet.cells import Cells
from pipelines.fleet.estimate import Estimate
from pipelines.fleet.model import Machine
from pipelines.hosttext import line
from pipelines.tables import print_columns

_HOUR = 3600
#: Columns that a narrow terminal goes without, the first first.
_SPARE = ("memory", "GPUs", "slots", "price")


@dataclass(frozen=True)
class Foretold:
    """An order, the hosts, and each way in which it could be done."""

    machines: Mapping[str, Machine]
    cells: Cells
    ways: Mapping[str, Estimate]
    """By its name, such as ``as whole wheels``; the first is what was asked for."""
    asked: frozenset[str]
    """Hosts that said themselves what they are."""
    aside: Mapping[str, str]
    """Host -> why it cannot be used now."""
    currency: str

    @property
    def first(self) -> Estimate:
        """What was asked for."""
        return next(iter(self.ways.values()))

    @property
    def complete(self) -> bool:
        """Whether all could be done that some host fits."""
        return not self.first.stuck


def print_foretold(told: Foretold) -> None:
    """Hosts, then what does not fit, then what each way takes."""
    used = {host.machine.name: host for host in told.first.accounts.hosts}
    cells = _cells_of(told)
    rows = []
    reasons: dict[str, list[str]] = {}
    for name, machine in told.machines.items():
        if why := line(told.aside.get(name, "")) or _why_none(told, name, cells[name]):
            reasons.setdefault(why, []).append(name)
        rows.append(
            {
                "host": escape(name),
                "slots": str(machine.slots),
                "cores": f"{machine.cores}{'' if name in told.asked else '?'}",
                "memory": units.gib(machine.memory),
                "GPUs": ", ".join(machine.gpus) or "-",
                "price": f"{machine.price:g}" if machine.price else "-",
                "cells": str(cells[name]),
                "busy": units.percent(used[name].utilisation) if name in used else "-",
            }
        )
    left_out = print_columns(console, rows, spare=_SPARE)
    if left_out:
        say(f"No room here for: {', '.join(left_out)}; --format json has everything.", "dim")
    if set(told.machines) - told.asked:
        say("?: taken to be as this machine; --ask asks every host itself.", "dim")
    for why, names in reasons.items():
        say(f"not {units.few(names)}: {why}", "yellow")
    _print_left_out(told)
    for way, estimate in told.ways.items():
        if estimate.accounts.history.spans:
            _print_way(way, estimate, told)
    _print_alone(told)


def _why_none(told: Foretold, name: str, cells: int) -> str:
    """Why a host has no cell at all; of what hinders it in several, the most common."""
    if cells:
        return ""
    reasons = Counter(work.refused[name] for work in told.cells.works if name in work.refused)
    return line(reasons.most_common(1)[0][0]) if reasons else "no cell is for it"


def _cells_of(told: Foretold) -> Counter[str]:
    fitting: dict[str, set[str]] = {name: set() for name in told.machines}
    for work in told.cells.works:
        for host in work.hosts:
            if host in fitting and host not in told.aside:
                fitting[host].add(work.cell)
    return Counter({name: len(cells) for name, cells in fitting.items()})


def _print_left_out(told: Foretold) -> None:
    grouped: dict[str, list[str]] = {}
    for cell, why in told.cells.left_out.items():
        grouped.setdefault(why, []).append(cell)
    for why, cells in grouped.items():
        say(f"on no host: {units.few(cells, most=3)}", "red")
        say(f"    {line(why, 500)}", "dim")
    if stuck := told.first.stuck:
        say(f"no host could take {units.few(stuck, most=3)}", "red")


def _print_way(way: str, estimate: Estimate, told: Foretold) -> None:
    works = [one for one in estimate.accounts.history.works if one.stand == "done"]
    cells = units.counted(len({one.work.cell for one in works}), "cell")
    cost = f", {_money(estimate.accounts.cost, told)}" if estimate.accounts.priced else ""
    say(
        f"{way}: about {units.estimate(estimate.seconds)}{cost} for {cells}, "
        f"{units.number(estimate.core_seconds / _HOUR)} core h",
        "bold",
    )
    say(
        f"    {units.counted(len(works), 'work')}; slots busy "
        f"{units.percent(estimate.accounts.utilisation)}; no order of them is quicker than "
        f"{units.estimate(estimate.ideal)}",
        "dim",
    )


def _print_alone(told: Foretold) -> None:
    accounts = told.first.accounts
    if (alone := accounts.alone) is None or len(accounts.hosts) == 1:
        return
    cost = f", {_money(alone.cost, told)}" if accounts.priced else ""
    say(f"on {alone.machine.name} alone: at least {units.estimate(alone.seconds)}{cost}")


def _money(value: float, told: Foretold) -> str:
    return f"{value:.2f} {told.currency}"


def as_json(told: Foretold) -> dict[str, Any]:
    """All of it: ``schema`` 1, sizes in bytes, times in seconds, money in ``currency``."""
    cells = _cells_of(told)
    return {
        "schema": 1,
        "currency": told.currency,
        "hosts": [
            machine.model_dump(mode="json")
            | {
                "asked": name in told.asked,
                "cells": cells[name],
                "aside": told.aside.get(name, ""),
                "refused": {w.cell: w.refused[name] for w in told.cells.works if name in w.refused},
            }
            for name, machine in told.machines.items()
        ],
        "left_out": dict(told.cells.left_out),
        "ways": [_way(name, estimate) for name, estimate in told.ways.items()],
    }


def _way(name: str, estimate: Estimate) -> dict[str, Any]:
    accounts = estimate.accounts
    alone = accounts.alone
    return {
        "way": name,
        "seconds": estimate.seconds,
        "least_seconds": estimate.ideal,
        "core_seconds": estimate.core_seconds,
        "cost": accounts.cost,
        "utilisation": accounts.utilisation,
        "works": len(accounts.history.works),
        "not_done": list(estimate.stuck),
        "hosts": [
            {"host": host.machine.name, "busy_seconds": host.busy, "cost": host.cost}
            for host in accounts.hosts
        ],
        "cells": [
            {"cell": cell.cell, "hosts": list(cell.hosts), "cost": cell.cost, "ended": cell.ended}
            for cell in accounts.cells
        ],
        "alone": None
        if alone is None
        else {"host": alone.machine.name, "seconds": alone.seconds, "cost": alone.cost},
    }
