"""Releases that are not chosen by themselves where Wine stands in for Windows."""

from __future__ import annotations

from pathlib import Path

from pipelines.core.model import Model, read_data

_FILE = Path(__file__).with_name("emulated.yaml")


class Limit(Model):
    """A release that does not run there."""

    project: str
    below: str
    """The first that does not."""
    why: str


class Limits(Model):
    """``emulated.yaml``."""

    limits: tuple[Limit, ...]


def load_limits() -> tuple[Limit, ...]:
    """Those of the file."""
    return read_data(_FILE, Limits).limits
