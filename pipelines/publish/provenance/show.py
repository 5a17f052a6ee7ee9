"""Bills of materials for people at a terminal, and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipelines.core import units
from pipelines.core.console import console, say
from pipelines.core.hosttext import safe_text
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.sboms import Component, Sbom

_STYLES = {"valid": "green", "invalid": "bold red", "not checked": "yellow"}
#: What a wheel has of them, before what it was made with.
_ORDER = ("source", "vendored", "built against", "tool chain", "build host")
#: Of what is said of a component: what its row is not understood without.
_NOTES = ("directory", "stand-in")
_DIGITS = 12  # of a hash; all of them are in the JSON


def as_json(facts: WheelFacts, found: Sequence[Sbom]) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "schema": 1,
        "wheel": facts.filename,
        "sha256": facts.sha256,
        "record": facts.record.true,
        "sboms": [one.model_dump(mode="json") for one in found],
    }


def show(facts: WheelFacts, found: Sequence[Sbom]) -> None:
    """Each with a table of its components."""
    say(f"{facts.filename}  sha256 {facts.sha256}", style="bold")
    if not facts.record.true:
        say("its RECORD does not match its files: they were changed", style="bold red")
    if not found:
        say("it contains no bill of materials", style="yellow")
    for one in found:
        format_ = one.format or "of an unknown format"
        whose = f" of {one.subject}" if one.subject else ""
        console.print(
            f"{escape(one.file)}\n{escape(format_)}{escape(safe_text(whose))}, "
            f"{units.pluralize(one.count, 'component')}, [{_STYLES[one.state]}]{one.state}[/]"
            + (f": {escape(one.problem)}" if one.problem else "")
        )
        if one.of_another:
            say(f"it describes a different wheel: {one.subject}", style="bold red")
        for name, text in one.properties.items():
            say(f"{name}: {text}", style="dim")
        if one.components:
            console.print(_component_table(one.components))
        if one.count > len(one.components) and one.components:
            say(f"and {one.count - len(one.components)} more")


def _component_table(rows: Sequence[Component]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "component", "version", "license", "sha256"):
        table.add_column(title, overflow="fold")
    for row in sorted(rows, key=lambda row: (*_role_rank(row.role), row.name.lower())):
        version = row.version or ("unknown" if row.properties.get("unknown") == "version" else "-")
        notes = [f"{name}: {row.properties[name]}" for name in _NOTES if name in row.properties]
        digits = row.sha256[:_DIGITS] or "-"  # in a bill of others these may be any letters
        words = (row.role, row.name, version, row.license or "-", digits)
        cells = [escape(safe_text(word, 100)) for word in words]
        if notes:
            cells[1] += f"\n[dim]{escape(safe_text('; '.join(notes), 200))}[/]"
        table.add_row(*cells)
    return table


def _role_rank(role: str) -> tuple[int, str]:
    return (_ORDER.index(role) if role in _ORDER else len(_ORDER), role)
