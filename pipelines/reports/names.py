"""Distinguishes runs by what is unique to each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pipelines.reports.views import RunView


def begun(view: RunView) -> str:
    """When the run started: ``2026-11-22 07:17:28``; empty if not recorded."""
    return view.created[:19].replace("T", " ")


def names(views: Sequence[RunView]) -> list[str]:
    """A unique name for each of ``views``: its cell, and as much more as needed.

    That is the package and the host where there are several, then when it began, then its id.
    """
    made = [view.target.label for view in views]
    parts: tuple[Callable[[RunView], str], ...] = (
        lambda view: view.target.package,
        lambda view: view.target.host,
    )
    for part in parts:
        if len({part(view) for view in views}) > 1:
            made = [f"{name}, {part(view)}" for name, view in zip(made, views, strict=True)]
    for part in (begun, lambda view: view.id):
        many = Counter(made)
        made = [
            f"{name}, {part(view)}" if many[name] > 1 and part(view) else name
            for name, view in zip(made, views, strict=True)
        ]
    return made
