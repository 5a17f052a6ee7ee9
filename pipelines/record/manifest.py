"""What ``manifest.json`` of a run says, as far as it is read again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from pipelines.core.evidence import Evidence
from pipelines.record.materials import Materials
from pipelines.record.taken import Sha256

#: Of the format; a manifest with another number is not read.
SCHEMA = 2
Schema = Annotated[Literal[2], Field(alias="schema")]

Short = Annotated[str, StringConstraints(max_length=500)]


class _File(BaseModel):
    path: Short
    sha256: Sha256


class Tool(BaseModel):
    """An entry of the lock, and the hash of what the run took for it, if it took one."""

    version: Short
    sha256: Sha256 | None


class _Inputs(BaseModel):
    """What was asked for, and what it was made of."""

    recipe: Short | None = None
    version: Short | None = None
    python: Short | None = None
    torch: Short | None = None
    cuda: Short | None = None
    archs: Short | None = None
    reproducible: bool = False
    host: Short | None = None
    job: Short | None = None
    origin: Short | None = None
    materials: Materials = Materials()


class Manifest(BaseModel):
    """Its other keys are somebody else's to read."""

    schema_: Schema
    made_by: Short
    run: Short
    started: datetime | None
    finished: datetime | None
    publishable: bool | None
    evidence: Evidence | None
    stages: Annotated[dict[Short, Short], Field(max_length=50)]
    inputs: _Inputs
    toolset: dict[Short, Any]
    host: dict[Short, Any]
    divided: Annotated[dict[Short, Any], Field(max_length=50)] = {}
    """Which host compiled how many of its units, where more than one did."""
    tools: Annotated[dict[Short, Tool], Field(max_length=1000)]
    files: Annotated[tuple[_File, ...], Field(max_length=1000)]

    def sha256(self, wheel: str) -> list[str]:
        """Of each row of a wheel of that name: one, unless it is of another run."""
        return [one.sha256 for one in self.files if one.path == f"wheels/{wheel}"]
