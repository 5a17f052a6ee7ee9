"""Versions of packages that do not run under Wine."""

from __future__ import annotations

from pathlib import Path

from pipelines.core.model import Model, read_data

_FILE = Path(__file__).with_name("wine_limits.yaml")


class Limit(Model):
    """Versions of a project that do not run under Wine."""

    project: str
    below: str
    """Only older versions run."""
    why: str


class Limits(Model):
    """``wine_limits.yaml``."""

    limits: tuple[Limit, ...]


def load_limits() -> tuple[Limit, ...]:
    """Read the file."""
    return read_data(_FILE, Limits).limits
