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
from pydantic import Field

from pipelines.core.hosttext import line
from pipelines.core.jsonfile import as_dict, inside, once
from pipelines.core.model import Model
from pipelines.wheels.metadata import WheelFacts

_DEPTH = 64
#: Values in the bills of a wheel that are held against a schema: seconds. 300 crates have 6000.
_VALUES = 20_000
_SHOWN, _PROPERTIES = 2000, 20
#: How properties of ours begin.
OURS = "windows-cuda-wheels:"
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
    told: dict[str, str] = Field(default={})
    """What our own properties say, such as ``stand-in``."""


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
    told: dict[str, str] = Field(default={})
    """Of the wheel, what our own properties say, such as ``gpu:architectures``."""
    of_another: bool = False
    """Whether it says that it is of another wheel."""
    count: int = 0
    """Components."""
    components: tuple[Component, ...] = ()
    """The first 2000."""


def all_of(facts: WheelFacts) -> tuple[Sbom, ...]:
    """Every one in a wheel."""
    left, found = _VALUES, []
    for file, data in facts.sboms:
        one, values = read(file, data, facts.name, facts.version, left)
        left = max(0, left - values)
        found.append(one)
    return tuple(found)


def read(
    file: str, data: bytes | None, name: str, version: str, most: int = _VALUES
) -> tuple[Sbom, int]:
    """What there is to say of a bill in the wheel ``name`` ``version``, and its values.

    ``data`` is ``None`` where it is too large. With more than ``most`` values it is not held
    against its schema. Never raises, whatever it is.
    """
    made = Sbom(file=line(file, 300), state="not checked")
    if data is None:
        return _with(made, problem="too large, or one of too many"), 0
    try:
        told, values = _parsed(data)
    except (ValueError, RecursionError) as error:
        if not file.endswith((".json", ".cdx", ".spdx")) or data.lstrip()[:1] == b"<":
            return _with(made, problem="its format is not looked into"), 0
        return _with(made, state="invalid", problem=line(f"no JSON: {error}", 300)), 0
    if isinstance(told, dict) and isinstance(told.get("spdxVersion"), str):
        said = line(told["spdxVersion"].replace("SPDX-", "SPDX "), 40)
        why = "SPDX is not held against its schema"
        return _with(made, format=said, problem=why, count=len(_list(told.get("packages")))), 0
    if not isinstance(told, dict) or told.get("bomFormat") != "CycloneDX":
        return _with(made, problem="JSON of no format that is known here"), 0
    return _cyclonedx(made, told, data, many=values > most, own=(name, version)), values


def _with(made: Sbom, **more: object) -> Sbom:
    return made.model_copy(update=more)


def _cyclonedx(
    made: Sbom, told: dict[str, Any], data: bytes, *, many: bool, own: tuple[str, str]
) -> Sbom:
    release = told.get("specVersion")
    rows = _list(told.get("components"))
    subject = as_dict(as_dict(told.get("metadata")).get("component"))
    state, problem = "not checked", "too much in it to be held against its schema"
    if release not in _KNOWN:
        problem = f"no schema of that release here, only of {', '.join(_KNOWN)}"
    elif not many:
        problem = problem_of(data, release)
        state = "invalid" if problem else "valid"
    return _with(
        made,
        format=f"CycloneDX {line(release, 20)}",
        state=state,
        problem=problem,
        subject=" ".join(filter(None, (_text(subject, "name"), _text(subject, "version")))),
        told=_ours(subject),
        of_another=_another(subject, *own),
        count=len(rows),
        components=tuple(_component(as_dict(row)) for row in rows[:_SHOWN]),
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
    from jsonschema.validators import Draft7Validator, extend

    chosen = JsonStrictValidator if strict else JsonValidator
    theirs: Any = chosen(SchemaVersion.from_version(release))._validator
    quick: Any = extend(Draft7Validator, {"uniqueItems": _unique})  # type: ignore[no-untyped-call]
    try:
        validator = quick(theirs.schema, registry=theirs._registry)
        error = next(validator.iter_errors(json.loads(data)), None)
    except RecursionError:
        return "nested deeper than its schema can be followed"
    if error is None:
        return ""
    place = "/".join(map(str, error.absolute_path)) or "(top level)"
    return line(f"{place}: {error.message}", 300)


def _unique(_: object, unique: bool, found: Any, __: object) -> Iterator[Exception]:
    """As jsonschema's own, which compares each with each: 1500 components take it four seconds."""
    from jsonschema.exceptions import ValidationError

    texts = [json.dumps(one, sort_keys=True) for one in found] if isinstance(found, list) else []
    if unique and len({*texts}) != len(texts):
        yield ValidationError("two of its elements are the same")


def _parsed(data: bytes) -> tuple[Any, int]:
    """The JSON, and how many values are in it; ``ValueError``: too deep."""
    told = json.loads(data, object_pairs_hook=once)
    level, values = [told], 0
    for _ in range(_DEPTH):
        if not level:
            return told, values
        values += len(level)
        level = [inner for one in level for inner in inside(one)]
    raise ValueError(f"nested deeper than {_DEPTH} levels")


def _component(row: dict[str, Any]) -> Component:
    hashes = {
        _text(as_dict(h), "alg"): _text(as_dict(h), "content") for h in _list(row.get("hashes"))
    }
    licences = [
        _text(as_dict(one), "expression")
        or _text(as_dict(as_dict(one).get("license")), "id")
        or _text(as_dict(as_dict(one).get("license")), "name")
        for one in _list(row.get("licenses"))
    ]
    told = _ours(row)
    return Component(
        name=_text(row, "name"),
        version=_text(row, "version"),
        kind=_text(row, "type"),
        role=told.pop("role", "") or _text(row, "scope"),
        sha256=hashes.get("SHA-256", ""),
        purl=_text(row, "purl"),
        licence=", ".join(filter(None, licences)),
        told=told,
    )


def _ours(row: dict[str, Any]) -> dict[str, str]:
    rows = [as_dict(one) for one in _list(row.get("properties"))[:_PROPERTIES]]
    named = {_text(one, "name"): _text(one, "value") for one in rows}
    return {name.removeprefix(OURS): text for name, text in named.items() if name.startswith(OURS)}


def _text(row: dict[str, Any], key: str) -> str:
    found = row.get(key)
    return line(found, 200) if isinstance(found, str) else ""


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []
