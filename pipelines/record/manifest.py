"""The parts of a run's ``manifest.json`` that are read again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from pipelines.core.evidence import Evidence
from pipelines.record.materials import Materials
from pipelines.record.prebuilt import Sha256
from pipelines.record.results import FileResult, UsedTool

#: Version of the format; others are refused.
SCHEMA = 2
Schema = Annotated[Literal[2], Field(alias="schema")]

Short = Annotated[str, StringConstraints(max_length=500)]


class _Inputs(BaseModel):
    """What was requested, and its materials."""

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
    """Other keys are ignored."""

    schema_: Schema
    made_by: Short
    serial: Annotated[int, Field(ge=0, le=1 << 53)] = 0
    """When the last stage ended, in milliseconds since 1970: a later state has a higher one."""
    run: Short
    started: datetime | None
    finished: datetime | None
    publishable: bool | None
    evidence: Evidence | None
    sealers: Annotated[tuple[Sha256, ...], Field(max_length=100)] = ()
    """Keys of the controllers that have recorded it."""
    stages: Annotated[dict[Short, Short], Field(max_length=50)]
    inputs: _Inputs
    toolset: dict[Short, Any]
    host: dict[Short, Any]
    divided: Annotated[dict[Short, Any], Field(max_length=50)] = {}
    """Which host compiled how many units, if there were several."""
    tools: Annotated[dict[Short, UsedTool], Field(max_length=1000)]
    files: Annotated[tuple[FileResult, ...], Field(max_length=1000)]
    sboms: Annotated[dict[Short, dict[Short, Sha256]], Field(max_length=100)] = {}
    """Of each wheel, those in it."""

    @property
    def wheels(self) -> list[str]:
        """The names of its wheels."""
        paths = (file.path for file in self.files)
        return [path.removeprefix("wheels/") for path in paths if path.startswith("wheels/")]

    def sha256(self, wheel: str) -> list[str]:
        """The sha256 of each wheel of that name: one, unless it is from another run."""
        return [file.sha256 for file in self.files if file.path == f"wheels/{wheel}"]
