"""Findings on a wheel as a package: its names, RECORD, tags, requirements, paths and size."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from packaging.metadata import InvalidMetadata, Metadata, RawMetadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field

from pipelines import units
from pipelines.examine.findings import Finding, Level
from pipelines.hosttext import line
from pipelines.model import Model, read_data
from pipelines.provenance.reading import all_of
from pipelines.record import CheckResult
from pipelines.wheels.installed import PACKAGES, installed
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.pe import MACHINES, machine_name
from pipelines.wheels.pythonabi import bound_to

_FILE = Path(__file__).with_name("limits.yaml")
_LONGEST = 2 << 20  # characters of METADATA: the long description is in it
_USER = "n" * 20
_SHOWN = 5
#: Values of one finding, and requirements of one wheel.
MOST = 500
_PATCHES = 40  # releases of one minor version of Python, more than any has
_CPYTHON = re.compile(r"cp3(\d{1,2})")


class Folder(Model):
    """Where packages lie."""

    name: str
    path: str


class Upload(Model):
    """Who takes files, and up to how many bytes."""

    name: str
    bytes: Annotated[int, Field(gt=0)]


class Limits(Model):
    """``limits.yaml``."""

    longest_path: Annotated[int, Field(gt=0)]
    folders: Annotated[tuple[Folder, ...], Field(min_length=1)]
    uploads: tuple[Upload, ...]
    seconds: Annotated[int, Field(gt=0)]


@functools.cache
def limits() -> Limits:
    """The file, read once."""
    return read_data(_FILE, Limits)


def of_check(one: CheckResult, wrong: Level = "problem") -> Finding:
    """A judgement of the gate as a finding; ``wrong`` is the level of one that is not passed."""
    level: Level = "ok" if one.judged else "unknown"
    found = one.found if one.ok or not one.wanted else f"{one.found} (expected {one.wanted})"
    return Finding(
        check=one.name,
        level=level if one.ok else wrong,
        found=line(found, 400),
        detail=line(one.detail, 600),
        values=tuple(line(value, 100) for value in one.values[:MOST]),
    )


def packaging_findings(facts: WheelFacts, gate: Mapping[str, CheckResult]) -> Iterator[Finding]:
    """What there is to say of it without a look into its binaries."""
    yield of_check(gate["name and version"])
    yield of_check(gate["zip"], "problem" if facts.form.fault else "mind")
    yield of_check(gate["files"])
    yield of_check(gate["RECORD"])
    yield of_check(gate["tags"], "mind")
    yield _true_tags(facts)
    if len(facts.metadata) > _LONGEST or facts.metadata.count("\nRequires-Dist:") > MOST:
        for name in ("METADATA", "requirements"):
            said = f"METADATA of {len(facts.metadata)} characters, or of too many requirements"
            yield Finding(check=name, level="unknown", found=said)
    else:
        raw, strange = parse_email(facts.metadata.encode())
        yield _metadata(raw, strange)
        yield _requires(facts, raw)
    yield from sbom_findings(facts)
    yield _paths(facts)
    yield _upload(facts)


def requirements(facts: WheelFacts) -> list[Requirement]:
    """Those that can be read."""
    raw, _ = parse_email(facts.metadata[:_LONGEST].encode())
    found = []
    for text in raw.get("requires_dist", [])[:MOST]:
        try:
            found.append(Requirement(text))
        except InvalidRequirement:
            continue
    return found


def sbom_findings(facts: WheelFacts) -> Iterator[Finding]:
    """What there is to say of the bills of materials in it; that there is none is no fault."""
    if not facts.sboms:
        yield Finding(check="SBOM", level="ok", found="none")
    for number, one in enumerate(all_of(facts), 1):
        level: Level = "problem" if one.state == "invalid" else "unknown"
        if one.state == "valid":
            level = "mind" if one.of_another else "ok"
        count = units.counted(one.count, "component")
        why = f"it says that it is of {one.subject}" if one.of_another else one.problem
        found = f"{one.format or 'of an unknown format'}, {count}, {one.state}"
        if not one.format:
            found = one.state if one.state == "invalid" else "of an unknown format"
        yield Finding(
            check=f"SBOM {number}" if len(facts.sboms) > 1 else "SBOM",
            level=level,
            found=found,
            detail=line(f"{one.file}: {why}" if why else one.file, 600),
        )


def _true_tags(facts: WheelFacts) -> Finding:
    """Whether what is in it goes with the Python and the platform that it says it is for."""
    tags = [tag for text in facts.tags for tag in parse_tag(text)]
    wrong = [*_against_tags(facts, tags)]
    pure = all(tag.platform == "any" for tag in tags)
    linux = any("linux" in tag.platform for tag in tags)  # elsewhere both places are one
    level: Level = "problem" if wrong else "ok"
    if not wrong and facts.binaries and facts.purelib and linux:
        wrong, level = ["WHEEL says Root-Is-Purelib, and there are binaries in it"], "mind"
    if not wrong and not facts.binaries and not pure:
        wrong, level = ["it is for one platform, and there is no binary in it"], "mind"
    shown = ", ".join(facts.tags[:_SHOWN])
    return Finding(check="tags true", level=level, found=shown, detail=_list(wrong))


def _against_tags(facts: WheelFacts, tags: list[Tag]) -> Iterator[str]:
    if any(tag.platform == "any" for tag in tags) and (own := [b.name for b in facts.binaries]):
        yield f"it is for any platform, and has {_list(own)}"
    windows = any(tag.platform.startswith("win") for tag in tags)
    pythons = {python for tag in tags if (python := _own_python(tag))}
    stable = any(tag.abi in ("abi3", "abi3t", "none") for tag in tags)
    machines = {MACHINES.get(tag.platform, 0) for tag in tags}
    wanted = " or ".join(sorted(map(machine_name, machines - {0}))) or "none"
    for binary in facts.binaries:
        if windows and binary.name.endswith(".so"):
            yield f"{binary.name} is no binary of Windows"
        elif binary.module and binary.pe and binary.pe.machine not in machines:
            found = machine_name(binary.pe.machine)
            yield f"{binary.name} is of {found}, and they are for {wanted}"
        for python in bound_to(binary.name, binary.pe.imports if binary.pe else ()):
            if stable and not (pythons == {python} and len(tags) == 1 and tags[0].abi == "none"):
                yield f"{binary.name} is for Python {python} alone"
            elif not stable and pythons and python not in pythons:
                yield f"{binary.name} is for Python {python}"


def _own_python(tag: Tag) -> str:
    """The Python that a tag is for: ``3.14t`` of ``cp314-cp314t``; empty: none alone."""
    found = _CPYTHON.fullmatch(tag.interpreter)
    free = found and tag.abi == f"{tag.interpreter}t"
    return f"3.{found[1]}{'t' * bool(free)}" if found else ""


def _metadata(raw: RawMetadata, strange: Mapping[str, object]) -> Finding:
    """What the format's own library says of METADATA."""
    said = []
    try:
        Metadata.from_raw(raw, validate=True)
    except ExceptionGroup as group:
        said = [str(one) for one in group.exceptions if isinstance(one, InvalidMetadata)]
    # Every index takes what a later version of the format has brought, and setuptools writes it.
    early = [text for text in said if "introduced in metadata version" in text]
    said = [text for text in said if text not in early]
    twice = sorted({"name", "version", "requires-python"} & strange.keys())
    said = [f"{name} is there twice, or is unreadable" for name in twice] + said
    return Finding(
        check="METADATA",
        level="problem" if twice else "mind" if said else "ok",
        found=f"{units.counted(len(said), 'mistake')}" if said else "valid",
        detail=line(_list(said + early), 600),
    )


def _requires(facts: WheelFacts, raw: RawMetadata) -> Finding:
    texts = raw.get("requires_dist", [])
    wrong, mind = [], []
    for text in texts:
        try:
            one = Requirement(text)
        except InvalidRequirement:
            wrong.append(f"{line(text, 100)} is no requirement")
            continue
        if one.url:
            mind.append(f"{line(text, 100)} names an address, which no index takes")
        if canonicalize_name(one.name) == facts.name and not one.extras:
            mind.append(f"{line(text, 100)}: it requires itself")
    wrong += _python(facts, raw.get("requires_python", ""))
    return Finding(
        check="requirements",
        level="problem" if wrong else "mind" if mind else "ok",
        found=line(", ".join(texts[:_SHOWN]), 300) or "none",
        detail=_list(wrong + mind),
        values=tuple(line(text, 200) for text in texts),
    )


def _python(facts: WheelFacts, said: str) -> Iterator[str]:
    """Requires-Python against the Python of the tags: an installer refuses what contradicts."""
    if not said:
        return
    try:
        wanted = SpecifierSet(said)
    except InvalidSpecifier:
        yield f"Requires-Python {line(said, 60)} is no range of versions"
        return
    tags = {tag for text in facts.tags for tag in parse_tag(text)}
    own = {int(found[1]) for tag in tags if (found := _CPYTHON.fullmatch(tag.interpreter))}
    exact = all(tag.abi not in ("abi3", "abi3t", "none") for tag in tags)
    taken = [m for m in own if any(wanted.contains(f"3.{m}.{p}") for p in range(_PATCHES))]
    if own and exact and not taken:
        yield f"Requires-Python {line(said, 60)} has no Python that its tags are for"


def _paths(facts: WheelFacts) -> Finding:
    """Whether its files can lie where packages usually lie on Windows."""
    names = [installed(name).removeprefix(f"{PACKAGES}/") for name in facts.members]
    longest = max(names, key=len, default="")
    table = limits()
    over = []
    for folder in table.folders:
        length = len(folder.path.replace("{user}", _USER)) + 1 + len(longest)
        if length > table.longest_path:
            over.append(f"{length} characters in {folder.name}")
    said = f"{line(longest, 300)} has {', '.join(over)}; {table.longest_path} is the most"
    return Finding(
        check="paths",
        level="problem" if len(over) == len(table.folders) else "mind" if over else "ok",
        found=f"at most {len(longest)} characters below site-packages",
        detail=said if over else "",
    )


def _upload(facts: WheelFacts) -> Finding:
    """Who takes it: a size is no fault of a wheel that is on an index already."""
    local = Version(facts.version).local
    over = [one.name for one in limits().uploads if facts.size > one.bytes]
    said = [f"larger than {name} takes without being asked" for name in over]
    if local:
        said.append(f"PyPI takes no local version (+{line(local, 40)})")
    every = len(over) == len(limits().uploads)
    return Finding(
        check="upload",
        level="mind" if every else "ok",
        found=units.size(facts.size),
        detail="; ".join(said),
    )


def _list(texts: list[str]) -> str:
    return units.few(dict.fromkeys(texts), "; ")
