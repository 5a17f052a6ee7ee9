"""``fleet`` of ``pipeline.yaml``: which hosts are one, and when one is set aside."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from pipelines.core.model import Model, Name


class FleetSettings(Model):
    """How a matrix is built on many hosts at once."""

    hosts: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Those that a fleet takes where ``--hosts`` names none; without it, all."""
    wait_minutes: Annotated[float, Field(ge=0, le=1440, allow_inf_nan=False)] = 10.0
    """How long a host that died is waited for, before what it built is begun on another."""
    clock_minutes: Annotated[float, Field(gt=0, le=1440, allow_inf_nan=False)] = 5.0
    """A host whose clock is further off is set aside."""
    free_gib: Annotated[float, Field(ge=0, le=65536, allow_inf_nan=False)] = 10.0
    """A host with less free disk space is set aside."""

    @field_validator("hosts")
    @classmethod
    def _named_once(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for number, name in enumerate(names or ()):
            if name in (names or ())[:number]:
                raise ValueError(
                    f"'{name}' is named twice; how many builds it takes at a time is its 'slots'"
                )
        return names
