"""A prebuilt or external wheel and its dependencies, as recorded."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from pipelines.core.model import Model

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
#: Directory of a host, below its wheels, for what is installed with an external wheel.
COMPANIONS = "given"


class PrebuiltFile(Model):
    """A wheel that was used instead of a build."""

    file: str
    place: str
    sha256: Sha256
    stated: str | None = None
    """The sha256 that its source states."""
    unstated: tuple[str, ...] = ()
    """Which of torch and CUDA are not stated and only a test can show."""


class Dependencies(Model):
    """The dependencies of an external wheel."""

    packages: tuple[PrebuiltFile, ...]
    """Everything that is installed with it."""
    companions: tuple[str, ...] = ()
    """``name==version`` of those requested with ``--with``."""
    libraries: tuple[str, ...] = ()
    """Their directories below site-packages that are added to the DLL search path."""
    notes: tuple[str, ...] = ()
    """Notes on the choice."""
