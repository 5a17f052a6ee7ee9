"""``fleet`` of ``pipeline.yaml``: which hosts are one, who may join it, when one is set aside."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from pipelines.model import Model, Name

_HERE = ("localhost", "127.0.0.1", "::1")


class Tls(Model):
    """Files of certificates: absolute, or as seen from the top of the project."""

    ca: Annotated[str, StringConstraints(min_length=1)]
    """PEM file of the authority that signed the certificates of all controllers."""
    cert: Annotated[str, StringConstraints(min_length=1)]
    """PEM file of this controller's certificate."""
    key: Annotated[str, StringConstraints(min_length=1)]
    """PEM file of its private key."""


class FleetSettings(Model):
    """How a matrix is built on many hosts at once."""

    hosts: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Those that a fleet takes where ``--hosts`` names none; without it, all."""
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "USD"
    """Of every ``price`` of a host, by its three letters: ``EUR``."""
    scheduler: str | None = None
    """``tls://HOST:PORT`` of the scheduler of several controllers; without it, our own."""
    tls: Tls | None = None
    """What this controller shows to that scheduler, and knows it by."""
    dashboard_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of Dask's dashboard on this machine alone, where bokeh is installed; 0: any free one."""
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

    @field_validator("scheduler")
    @classmethod
    def _is_guarded(cls, address: str | None) -> str | None:
        return address if address is None else scheduler_address(address)

    @model_validator(mode="after")
    def _has_certificates(self) -> Self:
        if (self.scheduler or "").startswith("tls:") and self.tls is None:
            raise ValueError("scheduler: tls:// needs the keys ca, cert and key below 'tls'")
        return self


def scheduler_address(text: str) -> str:
    """``text`` if it is the address of a scheduler that may be used; :class:`ValueError` says why.

    Whoever reaches a scheduler can run code with it: without certificates only this machine may.
    https://distributed.dask.org/en/stable/tls.html
    """
    try:
        parts = urlsplit(text)
        whole = bool(parts.hostname and parts.port) and text == f"{parts.scheme}://{parts.netloc}"
    except ValueError:
        whole = False
    if not whole or parts.scheme not in ("tls", "tcp") or "@" in parts.netloc:
        raise ValueError("expected tls://HOST:PORT")
    if parts.scheme == "tcp" and parts.hostname not in _HERE:
        raise ValueError("tcp:// is neither encrypted nor signed in to: use tls://HOST:PORT")
    return text
