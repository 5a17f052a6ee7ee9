"""``known.yaml``: what ``init`` knows of packages, and what it notes about one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pipelines.core.model import Dated, Model, Text, read_data
from pipelines.scaffold.project import Backend


class Gone(Dated):
    """A module that is gone: from which release of what, and what to do."""

    of: Text
    hint: Text


class Known(Model):
    """The file."""

    headers: dict[str, str]
    stl: frozenset[str]
    licenses: dict[str, str]
    backends: dict[str, Backend]
    notes: dict[str, str]
    gone: dict[str, Gone]


@cache
def load_knowledge() -> Known:
    """The file, read once."""
    return read_data(Path(__file__).with_name("known.yaml"), Known)


def knowledge_note(key: str, **said: object) -> str:
    """One of the notes, filled in."""
    return load_knowledge().notes[key].format(**said)
