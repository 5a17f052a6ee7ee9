"""The bill of materials of a wheel that is built here: CycloneDX 1.6, the same for equal inputs.

Nothing of the day, the user or the host gets into it but what decides the wheel's bytes; not even
our own version, or a release of ours would change wheels that it builds as before. What the wheel
is called is put in where it is packed, by :mod:`pipelines.remote.sboms`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from pipelines.core import units
from pipelines.core.finding import Finding
from pipelines.recipe.model import Patch
from pipelines.remote.sboms import FILE, completed
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.sboms import OURS

#: ``source``, ``vendored`` and ``built against`` are in the wheel, or must be with it.
Role = Literal["source", "vendored", "built against", "tool chain", "build host"]
_INSIDE: tuple[Role, ...] = ("source", "vendored", "built against")
_TYPES: dict[Role, str] = {
    "source": "file",
    "tool chain": "application",
    "build host": "platform",
}


@dataclass(frozen=True)
class Part:
    """Something that a wheel was made of."""

    role: Role
    name: str
    version: str = ""
    """Empty: unknown."""
    sha256: str = ""
    """Of its file."""
    purl: str = ""
    """Its package URL."""
    license: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    """More, by names of ours."""
    ref: str = ""
    """What tells it from others; by default role, name and version."""
    changes: tuple[tuple[Patch, bytes], ...] = ()
    """Patches with their bytes, applied to it in this order."""


def make_sbom_template(
    license: str, parts: Iterable[Part], properties: Mapping[str, str], epoch: int
) -> str:
    """The bill of a wheel but for what it is called, as :func:`completed` takes it.

    ``properties`` are those of the wheel, ``epoch`` its build's SOURCE_DATE_EPOCH.
    """
    wheel = {
        "bom-ref": "wheel",
        "name": "-",
        "type": "library",
        "licenses": _licenses(license),
        "properties": _property_entries(properties),
    }
    maker = {"bom-ref": "maker", "name": OURS.rstrip(":"), "type": "application"}
    named = {_ref(part): part for part in parts}
    inside = sorted(ref for ref, part in named.items() if part.role in _INSIDE)
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": _drop_empty_entries(wheel),
            "lifecycles": [{"phase": "build"}],
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat(),
            "tools": {"components": [maker]},
        },
        "components": [_component_entry(ref, named[ref]) for ref in sorted(named)],
        "dependencies": [_drop_empty_entries({"ref": "wheel", "dependsOn": inside})],
    }
    return json.dumps(bill, sort_keys=True)


#: The reference of the compiler; a healed build may use another release of it.
TOOLSET = "tool set"


def with_toolset(bill: str, version: str) -> str:
    """The bill of a build for which another release of the tool set was taken."""
    document = json.loads(bill)
    for one in document["components"]:
        if one["bom-ref"] == TOOLSET:
            one["version"] = version
    return json.dumps(document, sort_keys=True)


def compare_sbom(facts: WheelFacts, bill: str) -> Finding:
    """Whether what lies in a wheel that was built here is the bill that was meant, byte by byte."""
    name = f"{facts.dist_info}/sboms/{FILE}"
    there = dict(facts.sboms).get(name)
    try:
        meant = completed(bill, facts.metadata.encode())
    except ValueError as error:
        there, meant, found = None, b"", str(error)
    else:
        found = f"as planned, {units.pluralize(len(json.loads(bill)['components']), 'component')}"
        if there != meant:
            found = "none" if there is None else "different from the planned one"
    same = there == meant
    return Finding(
        id="sbom-planned",
        title="planned SBOM",
        level="ok" if same else "error",
        actual=found,
        expected="the planned bill of materials",
        hint="" if same else f"{name}: the wheel was changed on the host",
    )


def _ref(part: Part) -> str:
    return part.ref or " ".join(filter(None, (part.role, part.name, part.version)))


def _component_entry(ref: str, part: Part) -> dict[str, Any]:
    return _drop_empty_entries(
        {
            "bom-ref": ref,
            "name": part.name,
            "version": part.version,
            "type": _TYPES.get(part.role, "library"),
            "scope": "required" if part.role in ("vendored", "built against") else "excluded",
            "hashes": [{"alg": "SHA-256", "content": part.sha256}] if part.sha256 else [],
            "purl": part.purl,
            "licenses": _licenses(part.license),
            "properties": _property_entries({"role": part.role, **part.properties}),
            "pedigree": _pedigree(part.changes) if part.changes else None,
        }
    )


def _pedigree(changes: Iterable[tuple[Patch, bytes]]) -> dict[str, Any]:
    """Each patch whole, and what it mends; CycloneDX has no place for its hash but the notes."""
    notes, patches = [], []
    for one, data in changes:
        notes.append(f"{one.file}: sha256 {one.sha256}, {one.license}")
        content = base64.b64encode(data).decode("ascii")
        text = {"content": content, "contentType": "text/x-diff", "encoding": "base64"}
        resolved = {
            "type": "defect",
            "name": one.file,
            "description": one.why,
            "references": [one.source],
        }
        patches.append({"type": "unofficial", "diff": {"text": text}, "resolves": [resolved]})
    return {"notes": "\n".join(notes), "patches": patches}


def _licenses(text: str) -> list[dict[str, Any]]:
    if not text:
        return []
    try:
        expression = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return [{"license": {"name": text, "acknowledgement": "declared"}}]
    return [{"expression": expression, "acknowledgement": "declared"}]


def _property_entries(own: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": OURS + name, "value": own[name]} for name in sorted(own) if own[name]]


def _drop_empty_entries(made: dict[str, Any]) -> dict[str, Any]:
    """Without its empty entries."""
    return {name: value for name, value in made.items() if value}
