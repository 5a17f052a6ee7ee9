"""An in-toto statement with SLSA's provenance of a wheel, made of its run's manifest alone.

Whoever has the manifest can make it again, and see whether a signed one says the same.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
https://slsa.dev/spec/v1.1/provenance
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from pipelines.errors import AuditError
from pipelines.evidence import Evidence
from pipelines.hosttext import line
from pipelines.model import first_problem
from pipelines.provenance.jsonfile import parse
from pipelines.taken import Sha256
from pipelines.wheels.unpacking import UNREADABLE, chunks

PREDICATE = "https://slsa.dev/provenance/v1"
#: What externalParameters and internalParameters mean: docs/provenance.md.
BUILD_TYPE = "urn:windows-cuda-wheels:build:1"
BUILDER = "urn:windows-cuda-wheels:builder"
MANIFEST = "manifest.json"
#: What files of a wheel are called after its name: in an envelope, and without one.
SIGNED, UNSIGNED = ".intoto.jsonl", ".statement.json"
_TOOL = "tool "  # before a material that is an entry of the lock
_TOOL_SET = ("tool set", "tool set's files")
_AXES = ("recipe", "version", "python", "torch", "cuda", "archs", "reproducible")
_SBOM = re.compile(r"[^/]+\.dist-info/sboms/[^/]+")  # https://peps.python.org/pep-0770/
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SBOMS, _SBOM_BYTES = 20, 64 << 20
_STATED = frozenset({"build", "collect", "audit"})  # stages without which there is no statement

Short = Annotated[str, StringConstraints(max_length=500)]
Long = Annotated[str, StringConstraints(max_length=20_000)]


class _File(BaseModel):
    path: Short
    sha256: Sha256


class _Tool(BaseModel):
    version: Short
    sha256: Sha256 | None


class Manifest(BaseModel):
    """What of a manifest goes into a statement; its other keys are somebody else's to read."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    made_by: Short
    run: Short
    started: datetime | None
    finished: datetime | None
    publishable: bool | None
    evidence: Evidence | None
    stages: Annotated[dict[Short, Short], Field(max_length=50)]
    inputs: Annotated[dict[Short, Any], Field(max_length=50)]
    toolset: dict[Short, Any]
    host: dict[Short, Any]
    divided: Annotated[dict[Short, Any], Field(max_length=50)] = {}
    """Which host compiled how many of its units, where more than one did."""
    tools: Annotated[dict[Short, _Tool], Field(max_length=1000)]
    files: Annotated[tuple[_File, ...], Field(max_length=1000)]

    @property
    def materials(self) -> dict[str, str]:
        """Everything that decides the wheel."""
        found = self.inputs.get("materials")
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}

    def sha256(self, wheel: str) -> list[str]:
        """Of each row of a wheel of that name: one, unless it is of another run."""
        return [one.sha256 for one in self.files if one.path == f"wheels/{wheel}"]

    @property
    def unstated(self) -> str:
        """Why its wheels get no statement; empty: they get one."""
        if self.inputs.get("origin") or not self.materials:
            return "its wheels were not built here"
        if self.started is None or self.finished is None:
            return "it does not say when it was built"
        done = {name for name, state in self.stages.items() if state == "passed"}
        if lacking := sorted(_STATED - done):
            return f"its stage {lacking[0]} has not passed"
        for name, text in self.materials.items():
            tool = self.tools.get(name.removeprefix(_TOOL)) if _is_file(name) else None
            if _is_file(name) and not _SHA256.fullmatch(text):
                return f"{line(name)} is {line(text, 80) or 'empty'}, and no sha256"
            if tool is not None and tool.sha256 not in (None, text):
                return f"{line(name)} was hashed as {tool.sha256}, and its pin is {text}"
        return ""


def read_manifest(data: bytes) -> Manifest:
    """The manifest; ``ValueError`` says why it is none that a statement can be made of."""
    try:
        return Manifest.model_validate(parse(data))
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def statement(data: bytes, wheel: Path) -> dict[str, Any]:
    """The statement on ``wheel`` by the manifest ``data``.

    ``ValueError`` where the manifest is none, or tells of no such wheel that was built and has
    passed its audit; :class:`AuditError` for a wheel that cannot be looked into.
    """
    made = read_manifest(data)
    rows = made.sha256(wheel.name)
    if len(rows) != 1:
        raise ValueError(f"it tells of {len(rows)} wheels called {line(wheel.name, 200)}")
    sha256 = rows[0]
    if made.unstated or made.started is None or made.finished is None:
        raise ValueError(made.unstated)
    predicate = provenance_pb2.Provenance()
    files = [*_byproducts(made), *sboms(wheel), _described(MANIFEST, _sha256(data))]
    raw = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": _filled({name: made.inputs.get(name) for name in _AXES}),
            "internalParameters": _internal(made),
            "resolvedDependencies": list(_dependencies(made)),
        },
        "runDetails": {
            "builder": {
                "id": BUILDER,
                "version": dict([made.made_by.rsplit(" ", 1)]) if " " in made.made_by else {},
            },
            "metadata": {
                "invocationId": made.run,
                "startedOn": made.started.isoformat(),
                "finishedOn": made.finished.isoformat(),
            },
            "byproducts": files,
        },
    }
    try:
        json_format.ParseDict(raw, predicate)
        subject = ResourceDescriptor(name=wheel.name, digest={"sha256": sha256})
        whole = Statement([subject.pb], PREDICATE, json_format.MessageToDict(predicate))
        whole.validate()
        return dict(json_format.MessageToDict(whole.pb))
    except (json_format.Error, OverflowError) as error:
        raise ValueError(f"no SLSA provenance can be made of it: {line(error)}") from None


def encoded(said: dict[str, Any]) -> bytes:
    """A statement as it is written, and signed."""
    return json.dumps(said, indent=1, sort_keys=True).encode() + b"\n"


def _internal(made: Manifest) -> dict[str, Any]:
    """What the builder chose, and what it is worth."""
    level = made.evidence
    texts = {k: v for k, v in made.materials.items() if not _is_file(k)}
    return {
        "host": _filled({"name": made.inputs.get("host"), **made.host}),
        "toolset": _filled(made.toolset),
        "evidence": {"level": level.value, "meaning": level.meaning} if level else {},
        "publishable": made.publishable,
        "stages": made.stages,
        "job": made.inputs.get("job"),
        "materials": texts,
        **({"divided": made.divided} if made.divided else {}),
    }


def _dependencies(made: Manifest) -> Iterator[dict[str, Any]]:
    """The source and the lock's files.

    A tool that was installed before is named by its pin, and said not to have been hashed by this
    run.
    """
    for name, sha256 in sorted(made.materials.items()):
        if not _is_file(name):
            continue
        tool = made.tools.get(name.removeprefix(_TOOL))
        said = _described(name.removeprefix(_TOOL), sha256)
        if tool is not None:
            hashed = "by this run" if tool.sha256 else "not by this run"
            said["annotations"] = {"version": tool.version, "hashed": hashed}
        yield said


def _is_file(material: str) -> bool:
    """``tool set`` and its like are what a host has, and no entry of the lock."""
    return material == "source" or (material.startswith(_TOOL) and material not in _TOOL_SET)


def _byproducts(made: Manifest) -> Iterator[dict[str, Any]]:
    """Logs and reports."""
    for row in made.files:
        if not row.path.startswith("wheels/"):
            yield _described(row.path, row.sha256)


def sboms(wheel: Path) -> Iterator[dict[str, Any]]:
    """The bills of materials in a wheel, with their hashes.

    :class:`AuditError` for a wheel that cannot be read, or that has too many or too large ones.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [one for one in archive.infolist() if _SBOM.fullmatch(one.filename)]
            names = {one.filename for one in found}
            if len(found) > _SBOMS or len(names) != len(found):
                raise AuditError(
                    f"{wheel.name} has {len(found)} SBOMs, some of one name or more than {_SBOMS}",
                    advice="Take the wheel anew from whoever published it.",
                )
            for member in sorted(found, key=lambda one: one.filename):
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise AuditError(
                        f"{wheel.name}: {line(member.filename)} is packed by method "
                        f"{member.compress_type}; wheels have 0 and 8",
                        advice="Take the wheel anew from whoever published it.",
                    )
                if member.file_size > _SBOM_BYTES:
                    raise AuditError(
                        f"{wheel.name}: {line(member.filename)} unpacks to {member.file_size} "
                        f"bytes, more than {_SBOM_BYTES}",
                        advice="Take the wheel anew from whoever published it.",
                    )
                digest = hashlib.sha256()
                for chunk in chunks(archive, member):
                    digest.update(chunk)
                yield _described(member.filename, digest.hexdigest())
    except UNREADABLE as error:
        raise AuditError(
            f"{wheel.name} cannot be read: {line(error)}", advice="Take the wheel anew."
        ) from None


def _described(name: str, sha256: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": sha256}}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _filled(told: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if value not in (None, "", [])}
