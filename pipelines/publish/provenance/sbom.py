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
from typing import TYPE_CHECKING, Literal

from pipelines.core import units
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding
from pipelines.remote.sboms import FILE, completed
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.sboms import OURS, problem_of

if TYPE_CHECKING:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, Pedigree
    from cyclonedx.model.license import License

#: ``source``, ``vendored`` and ``built against`` are in the wheel, or must be with it.
Role = Literal["source", "vendored", "built against", "tool chain", "build host"]
_METADATA = b"Name: a-wheel\nVersion: 1\n"


@dataclass(frozen=True)
class Change:
    """A patch that was applied to a source."""

    file: str
    sha256: str
    text: bytes
    """Of which ``sha256`` is."""
    why: str
    source: str
    """The address where it is from, or where what it mends is told."""
    license: str


@dataclass(frozen=True)
class Part:
    """Something that a wheel was made of."""

    role: Role
    name: str
    version: str = ""
    """Empty: nobody says it."""
    sha256: str = ""
    """Of its file."""
    purl: str = ""
    """Its package URL."""
    license: str = ""
    told: Mapping[str, str] = field(default_factory=dict)
    """More, by names of ours."""
    ref: str = ""
    """What tells it from others; by default role, name and version."""
    changes: tuple[Change, ...] = ()
    """Applied to it, in this order."""


def made(license: str, parts: Iterable[Part], told: Mapping[str, str], epoch: int) -> str:
    """The bill of a wheel but for what it is called, as :func:`completed` takes it.

    ``told`` are properties of the wheel, ``epoch`` its build's SOURCE_DATE_EPOCH. Raises
    :class:`ConfigError` where that is no valid CycloneDX.
    """
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.lifecycle import LifecyclePhase, PredefinedLifecycle
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output.json import JsonV1Dot6

    wheel = Component(
        name="-",
        type=ComponentType.LIBRARY,
        bom_ref="wheel",
        licenses=_licenses(license),
        properties=_properties(told),
    )
    maker = Component(name=OURS.rstrip(":"), type=ComponentType.APPLICATION, bom_ref="maker")
    bom = Bom(
        metadata=BomMetaData(
            component=wheel,
            tools=ToolRepository(components=[maker]),
            timestamp=datetime.fromtimestamp(epoch, UTC),
            lifecycles=[PredefinedLifecycle(LifecyclePhase.BUILD)],
        )
    )
    inside = []
    for part in parts:
        one = _component(part)
        bom.components.add(one)
        if part.role in ("source", "vendored", "built against"):
            inside.append(one)
    bom.register_dependency(wheel, inside)
    text = JsonV1Dot6(bom).output_as_string()
    bill = json.loads(text)
    del bill["serialNumber"]  # which is another one each time
    text = json.dumps(bill, sort_keys=True)
    if problem := problem_of(completed(text, _METADATA), "1.6", strict=True):
        raise ConfigError(
            f"its bill of materials would be no CycloneDX: {problem}",
            hint="Look at names, versions and licenses in the recipe.",
        )
    return text


#: The reference of the compiler, of which a build that is healed takes another release.
TOOLSET = "tool set"


def with_toolset(bill: str, version: str) -> str:
    """The bill of a build for which another release of the tool set was taken."""
    told = json.loads(bill)
    for one in told["components"]:
        if one["bom-ref"] == TOOLSET:
            one["version"] = version
    return json.dumps(told, sort_keys=True)


def compared(facts: WheelFacts, bill: str) -> Finding:
    """Whether what lies in a wheel that was built here is the bill that was meant, byte by byte."""
    name = f"{facts.dist_info}/sboms/{FILE}"
    there = dict(facts.sboms).get(name)
    try:
        meant = completed(bill, facts.metadata.encode())
    except ValueError as error:
        there, meant, found = None, b"", str(error)
    else:
        found = f"as planned, {units.counted(len(json.loads(bill)['components']), 'component')}"
        if there != meant:
            found = "none" if there is None else "another one than was planned"
    same = there == meant
    return Finding(
        id="sbom-planned",
        title="planned SBOM",
        level="ok" if same else "error",
        actual=found,
        expected="the bill of materials that was planned",
        hint="" if same else f"{name}: something on the host has changed the wheel",
    )


def _component(part: Part) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from packageurl import PackageURL

    kinds: dict[Role, ComponentType] = {
        "source": ComponentType.FILE,
        "tool chain": ComponentType.APPLICATION,
        "build host": ComponentType.PLATFORM,
    }
    with_it = part.role in ("vendored", "built against")
    return Component(
        name=part.name,
        version=part.version or None,
        type=kinds.get(part.role, ComponentType.LIBRARY),
        scope=ComponentScope.REQUIRED if with_it else ComponentScope.EXCLUDED,
        bom_ref=part.ref or " ".join(filter(None, (part.role, part.name, part.version))),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else (),
        purl=PackageURL.from_string(part.purl) if part.purl else None,
        licenses=_licenses(part.license),
        properties=_properties({"role": part.role, **part.told}),
        pedigree=_pedigree(part.changes) if part.changes else None,
    )


def _pedigree(changes: Iterable[Change]) -> Pedigree:
    """Each patch whole, and what it mends; CycloneDX has no place for its hash but the notes."""
    from cyclonedx.model import AttachedText, Encoding, XsUri
    from cyclonedx.model.component import Diff, Patch, PatchClassification, Pedigree
    from cyclonedx.model.issue import IssueClassification, IssueType

    changes = tuple(changes)
    notes = (f"{one.file}: sha256 {one.sha256}, {one.license}" for one in changes)
    return Pedigree(
        notes="\n".join(notes),
        patches=[
            Patch(
                type=PatchClassification.UNOFFICIAL,
                diff=Diff(
                    text=AttachedText(
                        content=base64.b64encode(one.text).decode("ascii"),
                        content_type="text/x-diff",
                        encoding=Encoding.BASE_64,
                    )
                ),
                resolves=[
                    IssueType(
                        type=IssueClassification.DEFECT,
                        name=one.file,
                        description=one.why,
                        references=[XsUri(one.source)],
                    )
                ],
            )
            for one in changes
        ],
    )


def _licenses(text: str) -> list[License]:
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.license import LicenseAcknowledgement

    if not text:
        return []
    return [
        LicenseFactory().make_from_string(
            text, license_acknowledgement=LicenseAcknowledgement.DECLARED
        )
    ]


def _properties(told: Mapping[str, str]) -> list[Property]:
    from cyclonedx.model import Property

    return [Property(name=OURS + name, value=value) for name, value in told.items() if value]
