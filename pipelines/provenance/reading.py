"""Bills of materials as they lie in wheels, of whoever: what they are, read with bounds.

PEP 770 has them below ``sboms`` of the .dist-info directory, in any format. CycloneDX' JSON is
held against its schema; of other formats it is said that nobody has looked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pipelines.hosttext import line
from pipelines.model import Model
from pipelines.wheels.metadata import WheelFacts

_DEPTH = 64
_VALUES = 200_000
#: Elements of lists that are compared with one another, squared: a list of 1500 takes four seconds.
_PAIRS = 1500**2
_SHOWN = 2000
#: Those with a schema that says what may stand.
_KNOWN = ("1.2", "1.3", "1.4", "1.5", "1.6", "1.7")


class Component(Model):
    """Something that a bill names, as it says."""

    name: str
    version: str = ""
    kind: str = ""
    """Such as ``library``."""
    role: str = ""
    """In the build, where the bill is ours; else its scope."""
    sha256: str = ""
    purl: str = ""
    licence: str = ""


class Sbom(Model):
    """A bill of materials in a wheel."""

    file: str
    """Its name in the wheel."""
    format: str = ""
    """Such as ``CycloneDX 1.6``; empty: not recognised."""
    state: Literal["valid", "invalid", "not checked"]
    problem: str = ""
    """Why it is not valid, or was not looked at."""
    subject: str = ""
    """Whose it says it is: name and version."""
    of_another: bool = False
    """Whether it says that it is of another wheel."""
    count: int = 0
    """Components."""
    components: tuple[Component, ...] = ()
    """The first 2000."""


def all_of(facts: WheelFacts) -> tuple[Sbom, ...]:
    """Every one in a wheel."""
    own = {"name": facts.name, "version": facts.version}
    return tuple(read(file, data, **own) for file, data in facts.sboms)


def read(file: str, data: bytes | None, *, name: str, version: str) -> Sbom:
    """What there is to say of a bill in the wheel ``name`` ``version``; ``None``: it is too large.

    Never raises, whatever it is.
    """
    file = line(file, 300)
    if data is None:
        return Sbom(file=file, state="not checked", problem="too large, or one of too many")
    try:
        told, (values, pairs) = _parsed(data)
    except (ValueError, RecursionError) as error:
        if file.endswith((".json", ".cdx", ".spdx")) and data.lstrip()[:1] != b"<":
            return Sbom(file=file, state="invalid", problem=line(f"no JSON: {error}", 300))
        return Sbom(file=file, state="not checked", problem="its format is not looked into")
    if isinstance(told, dict) and isinstance(told.get("spdxVersion"), str):
        many = len(_list(told.get("packages")))
        said = line(told["spdxVersion"].replace("SPDX-", "SPDX "), 40)
        why = "SPDX is not held against its schema"
        return Sbom(file=file, format=said, state="not checked", problem=why, count=many)
    if not isinstance(told, dict) or told.get("bomFormat") != "CycloneDX":
        return Sbom(file=file, state="not checked", problem="JSON of no format that is known here")
    return _cyclonedx(
        file, told, data, many=max(values / _VALUES, pairs / _PAIRS), own=(name, version)
    )


def _cyclonedx(
    file: str, told: dict[str, Any], data: bytes, *, many: float, own: tuple[str, str]
) -> Sbom:
    release = told.get("specVersion")
    rows = _list(told.get("components"))
    subject = _dict(_dict(told.get("metadata")).get("component"))
    state: Literal["valid", "invalid", "not checked"] = "valid"
    problem = ""
    if release not in _KNOWN:
        state, problem = "not checked", f"no schema of that release here, only {', '.join(_KNOWN)}"
    elif many > 1:
        state, problem = "not checked", "too much in it to be held against its schema"
    elif problem := problem_of(data, release):
        state = "invalid"
    return Sbom(
        file=file,
        format=f"CycloneDX {line(release, 20)}",
        state=state,
        problem=problem,
        subject=line(
            " ".join(filter(None, (_text(subject, "name"), _text(subject, "version")))), 200
        ),
        of_another=_another(subject, *own),
        count=len(rows),
        components=tuple(_component(_dict(row)) for row in rows[:_SHOWN]),
    )


def _another(subject: dict[str, Any], name: str, version: str) -> bool:
    """Whether it is of another release of PyPI's kind; other kinds of things have other names."""
    if not _text(subject, "purl").startswith("pkg:pypi/"):
        return False
    try:
        same = Version(_text(subject, "version")) == Version(version)
    except InvalidVersion:
        same = False
    return not same or canonicalize_name(_text(subject, "name")) != canonicalize_name(name)


def problem_of(data: bytes, release: str, *, strict: bool = False) -> str:
    """What the schema of CycloneDX ``release`` says against it; empty: it is valid.

    ``strict``: what the schema does not know is wrong as well. What addresses and times look like
    inside is not compared: a parser of addresses takes a millisecond for each character
    (rfc3987-syntax 1.1), and a bill may have thousands.
    """
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator, JsonValidator

    chosen = JsonStrictValidator if strict else JsonValidator
    validator = chosen(SchemaVersion.from_version(release))._validator
    try:
        error = next(validator.evolve(format_checker=None).iter_errors(json.loads(data)), None)
    except RecursionError:
        return "nested deeper than its schema can be followed"
    if error is None:
        return ""
    place = "/".join(map(str, error.absolute_path)) or "(top level)"
    return line(f"{place}: {error.message}", 300)


def _parsed(data: bytes) -> tuple[Any, tuple[int, int]]:
    """The JSON, how many values are in it and pairs in its lists; ``ValueError``: too deep."""
    told = json.loads(data, object_pairs_hook=_once)
    values = pairs = 0
    level = [told]
    for _ in range(_DEPTH):
        if not level:
            return told, (values, pairs)
        values += len(level)
        pairs += sum(len(one) ** 2 for one in level if isinstance(one, list))
        level = [inner for one in level for inner in _inside(one)]
    raise ValueError(f"nested deeper than {_DEPTH} levels")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; ``ValueError`` for a key twice, of which one reader takes this, another that."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is in it twice")
    return made


def _inside(one: Any) -> Iterator[Any]:
    if isinstance(one, dict):
        yield from one.values()
    elif isinstance(one, list):
        yield from one


def _component(row: dict[str, Any]) -> Component:
    hashes = {_text(_dict(h), "alg"): _text(_dict(h), "content") for h in _list(row.get("hashes"))}
    licences = [
        _text(_dict(one), "expression")
        or _text(_dict(_dict(one).get("license")), "id")
        or _text(_dict(_dict(one).get("license")), "name")
        for one in _list(row.get("licenses"))
    ]
    roles = [
        _text(_dict(one), "value")
        for one in _list(row.get("properties"))
        if _text(_dict(one), "name") == "windows-cuda-wheels:role"
    ]
    return Component(
        name=_text(row, "name"),
        version=_text(row, "version"),
        kind=_text(row, "type"),
        role=next(iter(roles), _text(row, "scope")),
        sha256=hashes.get("SHA-256", ""),
        purl=_text(row, "purl"),
        licence=", ".join(filter(None, licences)),
    )


def _text(row: dict[str, Any], key: str) -> str:
    found = row.get(key)
    return line(found, 200) if isinstance(found, str) else ""


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _dict(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
