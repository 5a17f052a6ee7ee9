"""``fleet`` of ``pipeline.yaml``: its hosts, and when one is set aside."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from pipelines.core.model import Model, Name


class FleetSettings(Model):
    """How a matrix is built on many hosts at once."""

    hosts: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """The hosts of a fleet without ``--hosts``; default: all."""
    wait_minutes: Annotated[float, Field(ge=0, le=1440, allow_inf_nan=False)] = 10.0
    """How long to wait for a host that died before its builds start again on another."""
    clock_minutes: Annotated[float, Field(gt=0, le=1440, allow_inf_nan=False)] = 5.0
    """Hosts with a larger clock offset are set aside."""
    free_gib: Annotated[float, Field(ge=0, le=65536, allow_inf_nan=False)] = 10.0
    """Hosts with less free disk space are set aside."""

    @field_validator("hosts")
    @classmethod
    def _named_once(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for number, name in enumerate(names or ()):
            if name in (names or ())[:number]:
                raise ValueError(
                    f"'{name}' is named twice; how many builds it takes at a time is its 'slots'"
                )
        return names
