"""An in-toto statement with SLSA's provenance of a wheel, made of its run's manifest alone.

Whoever has the manifest can make it again, and see whether a signed one says the same.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
https://slsa.dev/spec/v1.1/provenance
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from pydantic import ValidationError

from pipelines.core.console import say
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import safe_line
from pipelines.core.jsonfile import parse_json_object
from pipelines.core.model import first_problem
from pipelines.record.manifest import Manifest
from pipelines.record.materials import Kind, Material
from pipelines.record.results import UsedTool

PREDICATE = "https://slsa.dev/provenance/v1"
#: What externalParameters and internalParameters mean: docs/provenance.md.
BUILD_TYPE = "urn:windows-cuda-wheels:build:2"
BUILDER = "urn:windows-cuda-wheels:builder"
MANIFEST = "manifest.json"
#: What files of a wheel are called after its name: in an envelope, and without one.
SIGNED, UNSIGNED = ".intoto.jsonl", ".statement.json"
#: Kinds of materials that are files: dependencies with a hash, in SLSA's words.
_FILES: tuple[Kind, ...] = ("source", "tool")
_AXES = {"recipe", "version", "python", "torch", "cuda", "archs", "reproducible"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STATED = frozenset({"build", "collect", "audit"})  # stages without which there is no statement


def read_manifest(data: bytes) -> Manifest:
    """The manifest; ``ValueError`` says why it is none that a statement can be made of."""
    try:
        return Manifest.model_validate(parse_json_object(data))
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def no_statement_reason(made: Manifest) -> str:
    """Why its wheels get no statement; empty: they get one."""
    if made.inputs.origin or not made.inputs.materials:
        return "its wheels were not built here"
    if made.started is None or made.finished is None:
        return "it does not say when it was built"
    done = {name for name, state in made.stages.items() if state == "passed"}
    if missing := sorted(_STATED - done):
        return f"its stage {missing[0]} did not pass"
    for one in made.inputs.materials.rows(*_FILES):
        tool = _find_used_tool(made, one)
        if not _SHA256.fullmatch(one.value):
            return f"{one.label} is {safe_line(one.value, 80) or 'empty'}, not a sha256"
        if tool is not None and tool.sha256 not in (None, one.value):
            return f"{one.label} had sha256 {tool.sha256}, but {one.value} is pinned"
    return ""


def make_statement(data: bytes, wheel: str) -> dict[str, Any]:
    """The statement on the wheel of that name by the manifest ``data``.

    ``ValueError`` if it is not a manifest, or states no such wheel that was built and passed its
    audit.
    """
    made = read_manifest(data)
    rows = made.sha256(wheel)
    if len(rows) != 1:
        raise ValueError(f"it lists {len(rows)} wheels called {safe_line(wheel, 200)}")
    sha256 = rows[0]
    if (why := no_statement_reason(made)) or made.started is None or made.finished is None:
        raise ValueError(why)
    predicate = provenance_pb2.Provenance()
    inside = (_resource_descriptor(*row) for row in sorted(made.sboms.get(wheel, {}).items()))
    manifest = _resource_descriptor(MANIFEST, hashlib.sha256(data).hexdigest())
    files = [*_byproducts(made), *inside, manifest]
    raw = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": _drop_empty_values(made.inputs.model_dump(include=_AXES)),
            "internalParameters": _internal_parameters(made),
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
        subject = ResourceDescriptor(name=wheel, digest={"sha256": sha256})
        whole = Statement([subject.pb], PREDICATE, json_format.MessageToDict(predicate))
        whole.validate()
        return dict(json_format.MessageToDict(whole.pb))
    except (json_format.Error, OverflowError) as error:
        raise ValueError(f"it cannot be expressed as SLSA provenance: {safe_line(error)}") from None


def write_statements(folder: Path, data: bytes) -> None:
    """Write a statement on each wheel of a run that was built here and has passed its audit.

    ``data`` is the run's manifest. Statements of an earlier one are removed; those that were signed
    are reported.
    """
    for old in folder.glob(f"*{UNSIGNED}"):
        old.unlink()
    made = read_manifest(data)
    if no_statement_reason(made):
        return
    for wheel in made.wheels:
        write_atomic(folder / f"{wheel}{UNSIGNED}", encode_statement(make_statement(data, wheel)))
        if (signed := folder / f"{wheel}{SIGNED}").is_file():
            say(f"note: {signed.name} was signed before; sign again: invoke attest", style="yellow")


def encode_statement(said: dict[str, Any]) -> bytes:
    """A statement as it is written, and signed."""
    return json.dumps(said, indent=1, sort_keys=True).encode() + b"\n"


def _internal_parameters(made: Manifest) -> dict[str, Any]:
    """What the builder chose, and what it is worth."""
    level = made.evidence
    return {
        "host": _drop_empty_values({"name": made.inputs.host, **made.host}),
        "toolset": _drop_empty_values(made.toolset),
        "evidence": {"level": level.value, "meaning": level.meaning} if level else {},
        "publishable": made.publishable,
        "sealers": list(made.sealers),
        "serial": str(made.serial),
        "stages": made.stages,
        "job": made.inputs.job,
        "materials": {k: v for k, v in made.inputs.materials.root.items() if k not in _FILES},
        **({"divided": made.divided} if made.divided else {}),
    }


def _dependencies(made: Manifest) -> Iterator[dict[str, Any]]:
    """The source and the lock's files.

    A tool that was installed before is named by its pin, and said not to have been hashed by this
    run.
    """
    for one in made.inputs.materials.rows(*_FILES):
        tool = _find_used_tool(made, one)
        said = _resource_descriptor("source" if one.kind == "source" else one.name, one.value)
        if tool is not None:
            hashed = "by this run" if tool.sha256 else "not by this run"
            said["annotations"] = {"version": tool.version, "hashed": hashed}
        yield said


def _find_used_tool(made: Manifest, one: Material) -> UsedTool | None:
    return made.tools.get(one.name) if one.kind == "tool" else None


def _byproducts(made: Manifest) -> Iterator[dict[str, Any]]:
    """Logs and reports."""
    for row in made.files:
        if not row.path.startswith("wheels/"):
            yield _resource_descriptor(row.path, row.sha256)


def _resource_descriptor(name: str, sha256: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": sha256}}


def _drop_empty_values(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", [])}
