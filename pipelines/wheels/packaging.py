"""Checks of a wheel as a package: its names, RECORD, tags, requirements, paths and size."""

from __future__ import annotations

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
from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model, read_data
from pipelines.core.units import join_first
from pipelines.wheels.checking import Installation, Order, Result, level_if_wrong, wheel_check
from pipelines.wheels.layout import PACKAGES, installed_path, path_faults
from pipelines.wheels.metadata import Depth, WheelFacts
from pipelines.wheels.pythonabi import tag_python_version
from pipelines.wheels.sboms import all_of
from pipelines.wheels.tags import tag_incompatibility

_FILE = Path(__file__).with_name("limits.yaml")
_LONGEST = 2 << 20  # characters of METADATA: the long description is in it
_USER = "n" * 20
_SHOWN = 5
_MOST = 500  # requirements
_PATCHES = 40  # more patch releases than any Python has


class Folder(Model):
    """Where packages are installed."""

    name: str
    path: str


class Upload(Model):
    """A service and its largest accepted file."""

    name: str
    bytes: Annotated[int, Field(gt=0)]


class Limits(Model):
    """``limits.yaml``."""

    longest_path: Annotated[int, Field(gt=0)]
    folders: Annotated[tuple[Folder, ...], Field(min_length=1)]
    uploads: tuple[Upload, ...]
    seconds: Annotated[int, Field(gt=0)]


def load_wheel_limits() -> Limits:
    """The file, read once."""
    return read_data(_FILE, Limits)


def wheel_requirements(facts: WheelFacts, most: int | None = _MOST) -> list[Requirement]:
    """The readable ones among the first ``most``."""
    raw, _ = parse_email(facts.metadata[:_LONGEST].encode())
    result = []
    for text in raw.get("requires_dist", [])[:most]:
        try:
            result.append(Requirement(text))
        except InvalidRequirement:
            continue
    return result


def on_windows(requirement: Requirement, python: str = "") -> bool:
    """Whether it is one on Windows (x64), for a Python such as 3.12, without extras."""
    known = {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows", "extra": ""}
    known |= {"platform_machine": "AMD64"} | ({"python_version": python} if python else {})
    return requirement.marker is None or requirement.marker.evaluate(known)


def required_by(facts: WheelFacts) -> frozenset[str]:
    """The projects that it requires on its platform; of wheels for any, on Windows."""
    pythons = {tag_python_version(tag) for text in facts.tags for tag in parse_tag(text)} - {""}
    python = pythons.pop().removesuffix("t") if len(pythons) == 1 else ""
    linux = any("linux" in tag or "macosx" in tag for tag in facts.tags)
    return frozenset(
        canonicalize_name(one.name)
        for one in wheel_requirements(facts)
        if linux or on_windows(one, python)
    )


@wheel_check("readable", "readable")
def readable_wheel(facts: WheelFacts) -> Iterator[Result]:
    """Hostile files and files that are not wheels are refused earlier."""
    yield Result("ok", units.pluralize(len(facts.members), "file"))


@wheel_check("sha256", "sha256")
def matching_sha256(facts: WheelFacts, stated: str) -> Iterator[Result]:
    """Whether its source states the sha256, and it is right."""
    if not stated:
        yield Result("unknown", "not stated by its source")
    elif stated == facts.sha256:
        yield Result("ok", f"{stated}, as stated by its source")
    else:
        yield Result("error", facts.sha256, stated)


@wheel_check("name", "name and version", Depth.NAMES)
def name_and_version(facts: WheelFacts) -> Iterator[Result]:
    """File name, METADATA and .dist-info directory."""
    yield Result(
        level_if_wrong(not facts.names_agree),
        f"METADATA {facts.metadata_name} {facts.metadata_version}, {facts.dist_info}",
        f"{facts.name} {facts.version}",
        "" if facts.names_agree else "file name, METADATA and .dist-info must agree",
    )


@wheel_check("zip", "zip")
def unambiguous_zip(facts: WheelFacts) -> Iterator[Result]:
    """Whether every installer reads the archive the same way."""
    extras = f"extra fields {join_first(facts.form.extras)}" if facts.form.extras else ""
    level: Level = "error" if facts.form.fault else level_if_wrong(extras, "warning")
    actual = facts.form.fault or extras or "unambiguous"
    yield Result(level, actual, "unambiguous, no extra fields")


@wheel_check("files", "files")
def installable_files(facts: WheelFacts) -> Iterator[Result]:
    """Whether all files can be installed on Windows, none over another."""
    faults = [f"{name} ({why})" for name, why in path_faults(facts.members).items()]
    faults += [f"{name} (not a Python source: it has a NUL)" for name in facts.broken]
    yield Result(
        level_if_wrong(faults), join_first(faults) or "distinct", "valid and distinct on Windows"
    )


@wheel_check("record", "RECORD")
def record_entries(facts: WheelFacts) -> Iterator[Result]:
    """Every file's hash and size."""
    wrong = [
        f"{len(names)} {what}: {join_first(names)}"
        for what, names in (
            ("missing from the wheel", facts.record.missing),
            ("not in RECORD", facts.record.extra),
            ("with different contents", facts.record.wrong),
        )
        if names
    ]
    yield Result(level_if_wrong(wrong), "; ".join(wrong) or "matches", "matches every file")


@wheel_check("tags", "tags", Depth.NAMES)
def stated_tags(facts: WheelFacts) -> Iterator[Result]:
    """Installers use the file name, and only warn if WHEEL differs."""
    own, level = facts.wheel_tags, level_if_wrong(not facts.tags_agree, "warning")
    yield Result(level, join_first(own), join_first(facts.tags), values=own)


@wheel_check("tags-true", "tags match contents", Depth.NAMES)
def true_tags(facts: WheelFacts) -> Iterator[Result]:
    """Whether its contents match its platform tag."""
    platforms = {tag.platform for text in facts.tags for tag in parse_tag(text)}
    names = [binary.name for binary in facts.binaries]
    wrong = []
    if "any" in platforms and names:
        wrong.append(f"tagged for any platform, but it has {join_first(names, '; ')}")
    if any(platform.startswith("win") for platform in platforms):
        wrong += [f"{name} is not a Windows binary" for name in names if name.endswith(".so")]
    level = level_if_wrong(wrong)
    linux = any("linux" in platform for platform in platforms)  # only there the directories differ
    if not wrong and names and facts.purelib and linux:
        wrong, level = ["WHEEL says Root-Is-Purelib, but it has binaries"], "warning"
    if not wrong and not names and platforms != {"any"}:
        wrong, level = ["tagged for one platform, but it has no binaries"], "warning"
    yield Result(level, ", ".join(facts.tags[:_SHOWN]), hint=join_first(wrong, "; "))


@wheel_check("platform", "platform")
def requested_platform(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """Only the one that it was built for."""
    platforms = sorted({tag.rsplit("-", 1)[-1] for tag in facts.tags})
    yield Result(
        level_if_wrong(platforms != [order.platform]), join_first(platforms), order.platform
    )


@wheel_check("python", "Python")
def requested_python(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """One that the requested Python accepts; exactly the recipe's ``wheel_tag`` if it has one."""
    tag = order.tag
    own = [each.rpartition("-")[0] for each in facts.tags]
    takes = {f"{each.interpreter}-{each.abi}" for each in order.takes}
    if tag:
        yield Result(
            level_if_wrong(own != [tag] or tag not in takes), join_first(own), f"only {tag}"
        )
    else:
        level = level_if_wrong(not takes.intersection(own))
        yield Result(level, join_first(own), f"one that {order.python} accepts")


@wheel_check("installable", "platform and Python")
def installable_tags(facts: WheelFacts, installation: Installation) -> Iterator[Result]:
    """Whether the Python that it is to be installed for accepts it."""
    tags = [tag for text in facts.tags for tag in parse_tag(text)]
    why = tag_incompatibility(tags, installation.python, installation.platforms)
    expected = f"one that Python {installation.python} accepts there"
    yield Result(
        level_if_wrong(why), ", ".join(facts.tags[:_SHOWN]), expected, why, values=facts.tags
    )


@wheel_check("metadata", "METADATA", Depth.NAMES)
def valid_metadata(facts: WheelFacts) -> Iterator[Result]:
    """Whether the packaging library accepts METADATA."""
    if fault := _too_long(facts):
        yield Result("unknown", fault)
        return
    raw, strange = parse_email(facts.metadata.encode())
    problems = []
    try:
        Metadata.from_raw(raw, validate=True)
    except ExceptionGroup as group:
        problems = [str(error) for error in group.exceptions if isinstance(error, InvalidMetadata)]
    # Indexes accept fields of later metadata versions, and setuptools writes them.
    early = [text for text in problems if "introduced in metadata version" in text]
    problems = [text for text in problems if text not in early]
    twice = sorted({"name", "version", "requires-python"} & strange.keys())
    problems = [f"{name} is duplicated or unreadable" for name in twice] + problems
    level: Level = "error" if twice else level_if_wrong(problems, "warning")
    actual = units.pluralize(len(problems), "problem") if problems else "valid"
    yield Result(level, join_first([actual, *early], "; "), hint=join_first(problems, "; "))


@wheel_check("requirements", "requirements", Depth.NAMES)
def valid_requirements(facts: WheelFacts) -> Iterator[Result]:
    """Each ``Requires-Dist`` and ``Requires-Python``, also against the tags."""
    if fault := _too_long(facts):
        yield Result("unknown", fault)
        return
    raw, _ = parse_email(facts.metadata.encode())
    texts = raw.get("requires_dist", [])
    wrong, odd = [], []
    for text in texts:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            wrong.append(f"{safe_line(text, 100)} is not a valid requirement")
            continue
        if requirement.url:
            odd.append(f"{safe_line(text, 100)} names an address, which indexes reject")
        if canonicalize_name(requirement.name) == facts.name and not requirement.extras:
            odd.append(f"{safe_line(text, 100)}: it requires itself")
    wrong += _check_requires_python(facts, raw.get("requires_python", ""))
    level: Level = "error" if wrong else level_if_wrong(odd, "warning")
    actual = ", ".join(texts[:_SHOWN]) or "none"
    yield Result(level, actual, hint=join_first(wrong + odd, "; "), values=texts)


@wheel_check("torch", "torch")
def torch_requirement(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """Whether its METADATA accepts the requested torch."""
    own = (
        requirement
        for requirement in wheel_requirements(facts, None)
        if canonicalize_name(requirement.name) == "torch"
    )
    requirement = next((item for item in own if item.marker is None), None)
    if order.torch and requirement is not None:
        release = order.torch if order.torch.count(".") > 1 else f"{order.torch}.0"
        fits = requirement.specifier.contains(release, prereleases=True)
        why = "" if fits else f"it requires {requirement}, but is for torch {order.torch}"
        yield Result(level_if_wrong(not fits), str(requirement), order.torch, why)


@wheel_check("sbom", "SBOM", Depth.NAMES)
def bundled_sboms(facts: WheelFacts) -> Iterator[Result]:
    """Its SBOMs; a wheel without any is fine."""
    if not facts.sboms:
        yield Result("ok", "none")
    for number, sbom in enumerate(all_of(facts), 1):
        level: Level = "error" if sbom.state == "invalid" else "unknown"
        if sbom.state == "valid":
            level = level_if_wrong(sbom.of_another, "warning")
        count = units.pluralize(sbom.count, "component")
        why = f"it describes {sbom.subject}" if sbom.of_another else sbom.problem
        actual = f"{sbom.format or 'of an unknown format'}, {count}, {sbom.state}"
        if not sbom.format:
            actual = sbom.state if sbom.state == "invalid" else "unknown format"
        yield Result(
            level,
            actual,
            hint=f"{sbom.file}: {why}" if why else sbom.file,
            subject=str(number) if len(facts.sboms) > 1 else "",
        )


@wheel_check("paths", "paths", Depth.NAMES)
def windows_path_lengths(facts: WheelFacts) -> Iterator[Result]:
    """Whether its paths fit into the usual install directories on Windows."""
    names = [installed_path(name).removeprefix(f"{PACKAGES}/") for name in facts.members]
    longest = max(names, key=len, default="")
    table = load_wheel_limits()
    over = []
    for folder in table.folders:
        length = len(folder.path.replace("{user}", _USER)) + 1 + len(longest)
        if length > table.longest_path:
            over.append(f"{length} characters in {folder.name}")
    hint = f"{safe_line(longest, 300)} has {', '.join(over)}; the limit is {table.longest_path}"
    everywhere = len(over) == len(table.folders)
    yield Result(
        "error" if everywhere else level_if_wrong(over, "warning"),
        f"at most {len(longest)} characters below site-packages",
        hint=hint if over else "",
    )


@wheel_check("upload", "upload", Depth.NAMES)
def upload_size(facts: WheelFacts) -> Iterator[Result]:
    """Which services accept a file of its size."""
    local = Version(facts.version).local
    over = [upload.name for upload in load_wheel_limits().uploads if facts.size > upload.bytes]
    hints = [f"larger than {name} accepts by default" for name in over]
    if local:
        hints.append(f"PyPI rejects local versions (+{safe_line(local, 40)})")
    level = level_if_wrong(len(over) == len(load_wheel_limits().uploads), "warning")
    yield Result(level, units.format_size(facts.size), hint="; ".join(hints))


def _too_long(facts: WheelFacts) -> str:
    """Why METADATA is not checked; empty if it is."""
    if len(facts.metadata) > _LONGEST or facts.metadata.count("\nRequires-Dist:") > _MOST:
        return f"METADATA has {len(facts.metadata)} characters, or too many requirements"
    return ""


def _check_requires_python(facts: WheelFacts, stated: str) -> Iterator[str]:
    """Whether Requires-Python contradicts the tags; an installer would refuse the wheel."""
    if not stated:
        return
    try:
        specifiers = SpecifierSet(stated)
    except InvalidSpecifier:
        yield f"Requires-Python {safe_line(stated, 60)} is not a version range"
        return
    tags = {tag for text in facts.tags for tag in parse_tag(text)}
    own = {tag_python_version(tag).removesuffix("t") for tag in tags} - {""}
    exact = all(tag.abi not in ("abi3", "abi3t", "none") for tag in tags)
    if (
        own
        and exact
        and not any(specifiers.contains(f"{o}.{p}") for o in own for p in range(_PATCHES))
    ):
        yield f"Requires-Python {safe_line(stated, 60)} excludes the Pythons of its tags"
