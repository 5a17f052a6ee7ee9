"""Checks of a wheel as a package: its names, RECORD, tags, requirements, paths and size."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from packaging.metadata import InvalidMetadata, Metadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field

from pipelines.core import units
from pipelines.core.finding import Level
from pipelines.core.hosttext import line
from pipelines.core.model import Model, read_data
from pipelines.core.units import few
from pipelines.wheels.checking import Installation, Order, Result, check, unless
from pipelines.wheels.installed import PACKAGES, installed, path_faults
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.pythonabi import python_of
from pipelines.wheels.sboms import all_of
from pipelines.wheels.tags import misfit

_FILE = Path(__file__).with_name("limits.yaml")
_LONGEST = 2 << 20  # characters of METADATA: the long description is in it
_USER = "n" * 20
_SHOWN = 5
_MOST = 500  # requirements
_PATCHES = 40  # releases of one minor version of Python, more than any has


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


def requirements(facts: WheelFacts, most: int | None = _MOST) -> list[Requirement]:
    """Those that can be read, of the first ones."""
    raw, _ = parse_email(facts.metadata[:_LONGEST].encode())
    found = []
    for text in raw.get("requires_dist", [])[:most]:
        try:
            found.append(Requirement(text))
        except InvalidRequirement:
            continue
    return found


@check("readable", "readable")
def readable(facts: WheelFacts) -> Iterator[Result]:
    """What is hostile or no wheel was refused before."""
    yield Result("ok", units.counted(len(facts.members), "file"))


@check("sha256", "sha256")
def sha256(facts: WheelFacts, stated: str) -> Iterator[Result]:
    """Whether its place says which bytes these are."""
    if not stated:
        yield Result("unknown", "its place states none")
    elif stated == facts.sha256:
        yield Result("ok", f"{stated}, as its place states")
    else:
        yield Result("error", facts.sha256, stated)


@check("name", "name and version")
def name_and_version(facts: WheelFacts) -> Iterator[Result]:
    """What it says of itself, in several places."""
    yield Result(
        unless(not facts.names_agree),
        f"METADATA {facts.metadata_name} {facts.metadata_version}, {facts.dist_info}",
        f"{facts.name} {facts.version}",
        "" if facts.names_agree else "file name, METADATA and .dist-info must agree",
    )


@check("zip", "zip")
def archive(facts: WheelFacts) -> Iterator[Result]:
    """One reading for every installer."""
    extras = f"extra fields {few(facts.form.extras)}" if facts.form.extras else ""
    level: Level = "error" if facts.form.fault else unless(extras, "warning")
    actual = facts.form.fault or extras or "one reading"
    yield Result(level, actual, "one reading, no extra fields")


@check("files", "files")
def files(facts: WheelFacts) -> Iterator[Result]:
    """One file for each name."""
    faults = [f"{name} ({why})" for name, why in path_faults(facts.members).items()]
    faults += [f"{name} (not a source of Python: it has a NUL)" for name in facts.broken]
    yield Result(unless(faults), few(faults) or "each by itself", "what Windows can have")


@check("record", "RECORD")
def record(facts: WheelFacts) -> Iterator[Result]:
    """Every file, byte by byte."""
    wrong = [
        f"{len(names)} {what}: {few(names)}"
        for what, names in (
            ("missing from the wheel", facts.record.missing),
            ("not in RECORD", facts.record.extra),
            ("with other bytes than recorded", facts.record.wrong),
        )
        if names
    ]
    yield Result(unless(wrong), "; ".join(wrong) or "true", "true for every file")


@check("tags", "tags")
def stated_tags(facts: WheelFacts) -> Iterator[Result]:
    """Installers go by the file's name, and only warn where WHEEL differs."""
    own, level = facts.wheel_tags, unless(not facts.tags_agree, "warning")
    yield Result(level, few(own), few(facts.tags), values=own)


@check("tags-true", "tags true")
def true_tags(facts: WheelFacts) -> Iterator[Result]:
    """Whether what is in it goes with the platform that it says it is for."""
    platforms = {tag.platform for text in facts.tags for tag in parse_tag(text)}
    names = [binary.name for binary in facts.binaries]
    wrong = []
    if "any" in platforms and names:
        wrong.append(f"it is for any platform, and has {few(names, '; ')}")
    if any(platform.startswith("win") for platform in platforms):
        wrong += [f"{name} is no binary of Windows" for name in names if name.endswith(".so")]
    level = unless(wrong)
    linux = any("linux" in platform for platform in platforms)  # elsewhere both places are one
    if not wrong and names and facts.purelib and linux:
        wrong, level = ["WHEEL says Root-Is-Purelib, and there are binaries in it"], "warning"
    if not wrong and not names and platforms != {"any"}:
        wrong, level = ["it is for one platform, and there is no binary in it"], "warning"
    yield Result(level, ", ".join(facts.tags[:_SHOWN]), hint=few(wrong, "; "))


@check("platform", "platform")
def platform(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """That of the order alone."""
    platforms = sorted({tag.rsplit("-", 1)[-1] for tag in facts.tags})
    yield Result(unless(platforms != [order.platform]), few(platforms), order.platform)


@check("python", "Python")
def python(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """One that the Python of the order takes; the recipe's ``wheel_tag`` alone where it has one."""
    tag = order.tag
    own = [each.rpartition("-")[0] for each in facts.tags]
    takes = {f"{each.interpreter}-{each.abi}" for each in order.takes}
    if tag:
        yield Result(unless(own != [tag] or tag not in takes), few(own), f"{tag} alone")
    else:
        level = unless(not takes.intersection(own))
        yield Result(level, few(own), f"one that {order.python} takes")


@check("installable", "platform and Python")
def installable(facts: WheelFacts, installation: Installation) -> Iterator[Result]:
    """Whether the Python takes it that it is to be installed for."""
    tags = [tag for text in facts.tags for tag in parse_tag(text)]
    why = misfit(tags, installation.python, installation.platforms)
    expected = f"one that Python {installation.python} takes there"
    yield Result(unless(why), ", ".join(facts.tags[:_SHOWN]), expected, why, values=facts.tags)


@check("metadata", "METADATA")
def metadata(facts: WheelFacts) -> Iterator[Result]:
    """What the format's own library says of METADATA."""
    if fault := _too_long(facts):
        yield Result("unknown", fault)
        return
    raw, strange = parse_email(facts.metadata.encode())
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
    level: Level = "error" if twice else unless(said, "warning")
    actual = units.counted(len(said), "mistake") if said else "valid"
    yield Result(level, actual, hint=few(said + early, "; "))


@check("requirements", "requirements")
def required(facts: WheelFacts) -> Iterator[Result]:
    """Each ``Requires-Dist`` and ``Requires-Python``, also against the tags."""
    if fault := _too_long(facts):
        yield Result("unknown", fault)
        return
    raw, _ = parse_email(facts.metadata.encode())
    texts = raw.get("requires_dist", [])
    wrong, odd = [], []
    for text in texts:
        try:
            one = Requirement(text)
        except InvalidRequirement:
            wrong.append(f"{line(text, 100)} is no requirement")
            continue
        if one.url:
            odd.append(f"{line(text, 100)} names an address, which no index takes")
        if canonicalize_name(one.name) == facts.name and not one.extras:
            odd.append(f"{line(text, 100)}: it requires itself")
    wrong += _pythons(facts, raw.get("requires_python", ""))
    level: Level = "error" if wrong else unless(odd, "warning")
    actual = ", ".join(texts[:_SHOWN]) or "none"
    yield Result(level, actual, hint=few(wrong + odd, "; "), values=texts)


@check("torch", "torch")
def torch(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """Whether its METADATA takes the torch that was asked for."""
    own = (one for one in requirements(facts, None) if canonicalize_name(one.name) == "torch")
    requirement = next((one for one in own if one.marker is None), None)
    if order.torch and requirement is not None:
        release = order.torch if order.torch.count(".") > 1 else f"{order.torch}.0"
        fits = requirement.specifier.contains(release, prereleases=True)
        why = "" if fits else f"it requires {requirement}, torch {order.torch} is wanted"
        yield Result(unless(not fits), str(requirement), order.torch, why)


@check("sbom", "SBOM")
def sboms(facts: WheelFacts) -> Iterator[Result]:
    """The bills of materials in it; that there is none is no fault."""
    if not facts.sboms:
        yield Result("ok", "none")
    for number, one in enumerate(all_of(facts), 1):
        level: Level = "error" if one.state == "invalid" else "unknown"
        if one.state == "valid":
            level = unless(one.of_another, "warning")
        count = units.counted(one.count, "component")
        why = f"it says that it is of {one.subject}" if one.of_another else one.problem
        found = f"{one.format or 'of an unknown format'}, {count}, {one.state}"
        if not one.format:
            found = one.state if one.state == "invalid" else "of an unknown format"
        yield Result(
            level,
            found,
            hint=f"{one.file}: {why}" if why else one.file,
            source=str(number) if len(facts.sboms) > 1 else "",
        )


@check("paths", "paths")
def paths(facts: WheelFacts) -> Iterator[Result]:
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
    everywhere = len(over) == len(table.folders)
    yield Result(
        "error" if everywhere else unless(over, "warning"),
        f"at most {len(longest)} characters below site-packages",
        hint=said if over else "",
    )


@check("upload", "upload")
def upload(facts: WheelFacts) -> Iterator[Result]:
    """Who takes it: a size is no fault of a wheel that is on an index already."""
    local = Version(facts.version).local
    over = [one.name for one in limits().uploads if facts.size > one.bytes]
    said = [f"larger than {name} takes without being asked" for name in over]
    if local:
        said.append(f"PyPI takes no local version (+{line(local, 40)})")
    level = unless(len(over) == len(limits().uploads), "warning")
    yield Result(level, units.size(facts.size), hint="; ".join(said))


def _too_long(facts: WheelFacts) -> str:
    """Why METADATA is not looked into; empty: it is."""
    if len(facts.metadata) > _LONGEST or facts.metadata.count("\nRequires-Dist:") > _MOST:
        return f"METADATA of {len(facts.metadata)} characters, or of too many requirements"
    return ""


def _pythons(facts: WheelFacts, said: str) -> Iterator[str]:
    """Requires-Python against the Python of the tags: an installer refuses what contradicts."""
    if not said:
        return
    try:
        wanted = SpecifierSet(said)
    except InvalidSpecifier:
        yield f"Requires-Python {line(said, 60)} is no range of versions"
        return
    tags = {tag for text in facts.tags for tag in parse_tag(text)}
    own = {python_of(tag).removesuffix("t") for tag in tags} - {""}
    exact = all(tag.abi not in ("abi3", "abi3t", "none") for tag in tags)
    if own and exact and not any(wanted.contains(f"{o}.{p}") for o in own for p in range(_PATCHES)):
        yield f"Requires-Python {line(said, 60)} has no Python that its tags are for"
