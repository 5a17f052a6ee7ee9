"""What runs where, and the removal of what has no owner: ``invoke hosts``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.markup import escape

from pipelines.core.console import console, say
from pipelines.core.errors import PipelineError
from pipelines.core.tables import print_columns
from pipelines.core.units import format_size
from pipelines.hosts.base import HostConfig, OwnedItem
from pipelines.plan.config.model import Config

#: What cannot go before what uses it.
_LAST = {"volume": 1, "golden disk": 1, "image": 2}


@dataclass(frozen=True)
class Place:
    """Where hosts are, and what the pipeline has created there, or why that is unknown."""

    name: str
    hosts: tuple[str, ...]
    things: tuple[OwnedItem, ...] = ()
    error: PipelineError | None = None


def iter_host_places(settings: Config) -> Iterator[Place]:
    """Each place of the hosts of ``pipeline.yaml``; one that cannot be reached says so."""
    found: dict[str, list[tuple[str, HostConfig]]] = {}
    for name, host in settings.hosts.items():
        found.setdefault(host.place, []).append((name, host))
    for place, hosts in found.items():
        names = tuple(name for name, _ in hosts)
        try:
            kinds = {host.kind: host for _, host in hosts}  # each looks for what is of its own
            each = {
                (t.what, t.name): t for h in kinds.values() for t in h.owned_items(settings.hosts)
            }
            yield Place(place, names, tuple(each.values()))
        except PipelineError as error:
            yield Place(place, names, error=error)


def as_json(settings: Config) -> dict[str, Any]:
    """For programs: ``schema`` 1, and each place with its things; sizes in bytes."""
    keys = ("what", "name", "host", "state", "size", "who", "unowned")
    return {
        "schema": 1,
        "places": [
            {
                "place": place.name,
                "hosts": {name: settings.hosts[name].kind for name in place.hosts},
                "things": [{key: getattr(t, key) for key in keys} for t in place.things],
                "error": place.error.message if place.error else "",
            }
            for place in iter_host_places(settings)
        ],
    }


def show(settings: Config) -> None:
    """Print the hosts by their places, and what was made there."""
    spare, errors, rows = 0, [], []
    for place in iter_host_places(settings):
        rows += [
            ("bold", name, settings.hosts[name].kind, place.name, "", "", "")
            for name in place.hosts
        ]
        for thing in place.things:
            spare += bool(thing.unowned)
            room = "?" if thing.size is None else format_size(thing.size)
            whose = f"unused: {thing.unowned}" if thing.unowned else thing.who
            style = "yellow" if thing.unowned else "dim"
            rows.append(
                (style, f"  {thing.host}", thing.what, thing.name, thing.state, room, whose)
            )
        errors += [place.error] if place.error else []
    columns = ("host", "what", "name", "state", "size", "whose")
    lines = [  # labels are anybody's words
        {name: f"[{style}]{escape(cell)}[/]" for name, cell in zip(columns, cells, strict=True)}
        for style, *cells in rows
    ]
    if without := print_columns(console, lines, spare=("state", "size", "what", "whose")):
        say(f"Columns hidden to fit: {', '.join(without)} (see --json).", "dim")
    for error in errors:
        say(f"{error.message}. {error.hint}", style="red")
    if spare:
        say(f"{spare} of them are unused; to remove them: invoke hosts --clean", style="yellow")


def remove_unowned(settings: Config) -> None:
    """Remove what has no owner; raises the first error once the rest is done."""
    removed = freed = 0
    errors = []
    for place in iter_host_places(settings):
        errors += [place.error] if place.error else []
        for thing in sorted(place.things, key=lambda one: _LAST.get(one.what, 0)):
            if not thing.unowned:
                continue
            try:
                thing.remove()
            except PipelineError as error:
                errors.append(error)
                continue
            removed += 1
            freed += thing.size or 0
            say(f"removed {thing.what} {thing.name}: {thing.unowned}")
    say(
        f"{removed} removed, {format_size(freed)} freed" if removed else "nothing was unused",
        "green",
    )
    if errors:
        raise errors[0]
