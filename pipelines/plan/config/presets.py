"""Cells by the name of a widespread program: ``presets.yaml``, for ``--for``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from pipelines.core.errors import ConfigError
from pipelines.core.model import Dated, Model, Name, PythonVersion, Text, read_data, suggest_nearest
from pipelines.core.versions import Release

PRESETS_FILE = Path(__file__).with_name("presets.yaml")

#: Of one folder or file, never in a regular expression.
Part = Annotated[str, StringConstraints(pattern=r"^[\w.+ -]{1,80}$")]


class Axes(Model):
    """The axes that it sets; one without a value is not set."""

    python: PythonVersion | None = None
    torch: Release | None = None
    cuda: Release | None = None

    @property
    def flags(self) -> dict[str, str]:
        """Those that it sets."""
        return {name: text for name, text in self if text}


class Preset(Dated):
    """A program with its own Python."""

    says: Text
    """What it is, without a full stop."""
    axes: Axes
    folder: Part
    """The folder of its python.exe."""
    siblings: Annotated[tuple[Part, ...], Field(min_length=1)]
    """One of these is next to that folder."""
    refused: str = ""
    """Why nothing can be built for it, if so."""


class Presets(Model):
    """``presets.yaml``."""

    presets: Annotated[dict[Name, Preset], Field(min_length=1)]


def load_presets(path: Path = PRESETS_FILE) -> dict[str, Preset]:
    """By name; :class:`ConfigError` names the key that is wrong."""
    return read_data(path, Presets).presets


def find_preset(name: str) -> Preset:
    """The one of that name; :class:`ConfigError` names the nearest where there is none."""
    known = load_presets()
    if name not in known:
        near = suggest_nearest(name, known, "; did you mean {}?")
        raise ConfigError(
            f"--for {name[:40]}: there is no such preset{near}",
            hint=f"There are: {', '.join(known)}. For others use --python, --torch and --cuda.",
        )
    if why := known[name].refused:
        raise ConfigError(f"--for {name}: {why}", hint=f"See {known[name].source}")
    return known[name]


def apply_preset(name: str, axes: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """``axes`` with what the preset sets besides, and in words what it set and what it did not.

    What was typed wins. Raises :class:`ConfigError` for a name that there is none of.
    """
    chosen = find_preset(name)
    flags = chosen.axes.flags
    own = {axis: text for axis, text in flags.items() if axis not in axes}
    kept = [
        f"--{axis} {axes[axis]} is typed, and not {text}"
        for axis, text in flags.items()
        if axis in axes and axes[axis] != text
    ]
    said = " ".join(f"--{axis} {text}" for axis, text in own.items()) or "nothing more"
    date = f"{chosen.date}, not confirmed since" if chosen.old else chosen.date
    words = f"--for {name}: {said} ({chosen.says}, {date}: {chosen.source})"
    return {**axes, **own}, "; ".join([words, *kept])
