"""A wheel that was taken instead of built, and what came with it, as the record keeps them."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from pipelines.core.model import Model

#: Directory of a host, below its wheels, for what is installed with an external wheel.
BESIDE = "given"
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class PrebuiltFile(Model):
    """A wheel that was taken instead of built."""

    file: str
    place: str
    sha256: Sha256
    stated: str | None = None
    """The sha256 that its place states."""
    unstated: tuple[str, ...] = ()
    """Of torch and CUDA, what nothing but a test will show."""


class Company(Model):
    """What came with a wheel that was given."""

    packages: tuple[PrebuiltFile, ...]
    """All that is installed with it."""
    beside: tuple[str, ...] = ()
    """``name==version`` of those that were asked for."""
    libraries: tuple[str, ...] = ()
    """Directories of these, below site-packages, in which libraries are found: a help."""
    notes: tuple[str, ...] = ()
    """What is to be known of the choice."""
