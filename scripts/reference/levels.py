"""``docs/evidence/levels.md``: each capability with its level, and what has raised it to R."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from pipelines.core.model import Model
from pipelines.core.yamlfile import read_yaml
from scripts.reference.markdown import page, table

_NONE = "**Nothing has reached R: this project has not been run on real Windows.**"


class Capability(Model):
    """A row; the texts are Markdown."""

    capability: str
    level: str
    by: str
    """The tests that show it."""
    windows: tuple[str, ...] = ()
    """Steps of ``scripts/first_run.py`` that show it on Windows, each of them."""


class Levels(Model):
    """``levels.yaml``."""

    introduction: str
    capabilities: tuple[Capability, ...]


class WindowsRun(Model):
    """A first run that was imported."""

    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$")]
    date: date
    repository: str
    run: Annotated[str, Field(pattern=r"^(https://github\.com/[\w./-]+)?$")]
    """Its page; empty for a machine of one's own."""
    image: str
    windows: str
    """Its version, such as 10.0.26100."""
    passed: tuple[str, ...]
    """Steps."""
    attested: bool


def load(folder: Path) -> tuple[Levels, tuple[WindowsRun, ...]]:
    """``levels.yaml`` and ``windows-runs.yaml`` of ``docs/evidence``."""
    levels = Levels.model_validate(read_yaml(folder / "levels.yaml"))
    runs = TypeAdapter(tuple[WindowsRun, ...])
    return levels, runs.validate_python(read_yaml(folder / "windows-runs.yaml"))


def levels_page(levels: Levels, runs: Sequence[WindowsRun]) -> str:
    """The page."""
    shown = [(row, _latest(row, runs)) for row in levels.capabilities]
    count = sum(run is not None for _, run in shown)
    state = f"**{count} of {len(shown)} capabilities have reached R.**" if count else _NONE
    rows = [
        (row.capability, f"{_raised(run)}; before: {row.level}" if run else row.level, row.by)
        for row, run in shown
    ]
    return page(
        "Evidence levels",
        levels.introduction.replace("{state}", state).strip(),
        "## Capabilities",
        table(("capability", "level", "shown by"), rows),
    )


def _latest(row: Capability, runs: Sequence[WindowsRun]) -> WindowsRun | None:
    """The last run in which every step passed that shows it."""
    fitting = [run for run in runs if row.windows and {*row.windows} <= {*run.passed}]
    return max(fitting, key=lambda run: run.date, default=None)


def _raised(run: WindowsRun) -> str:
    attested = "" if run.attested else ", not attested"
    where = f"Windows {run.windows} ({run.image or 'own machine'})"
    day = f"[{run.date}]({run.run})" if run.run else f"{run.date}"
    return f"R: {where}, {day}, commit {run.commit[:12]}{attested}"
