"""Reads the SBOMs of any wheel, with bounds.

PEP 770 puts them below ``sboms`` in the .dist-info directory, in any format. CycloneDX JSON is
validated against its schema; other formats are reported as not checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from packaging.utils import canonicalize_name
from pydantic import Field

from pipelines.core.extras import find_missing
from pipelines.core.hosttext import safe_line
from pipelines.core.jsonfile import as_dict, child_values, reject_duplicate_keys
from pipelines.core.model import Model
from pipelines.core.versions import parse_version
from pipelines.wheels.metadata import WheelFacts

_DEPTH = 64
#: Most JSON values of a wheel's SBOMs to validate, which takes seconds. 300 crates have 6000.
_VALUES = 20_000
_SHOWN, _PROPERTIES = 2000, 20
#: Prefix of our own properties.
OURS = "windows-cuda-wheels:"
#: Versions whose schema is available.
_KNOWN = ("1.2", "1.3", "1.4", "1.5", "1.6", "1.7")


class Component(Model):
    """A component as an SBOM describes it."""

    name: str
    version: str = ""
    kind: str = ""
    """Such as ``library``."""
    role: str = ""
    """Its role in the build if the SBOM is ours; else its scope."""
    sha256: str = ""
    purl: str = ""
    license: str = ""
    properties: dict[str, str] = Field(default={})
    """Our own properties, such as ``stand-in``."""


class Sbom(Model):
    """An SBOM in a wheel."""

    file: str
    """Its name in the wheel."""
    format: str = ""
    """Such as ``CycloneDX 1.6``; empty: not recognised."""
    state: Literal["valid", "invalid", "not checked"]
    problem: str = ""
    """Why it is not valid, or was not checked."""
    subject: str = ""
    """Name and version of what it describes."""
    properties: dict[str, str] = Field(default={})
    """Our own properties of the wheel, such as ``gpu:architectures``."""
    of_another: bool = False
    """Whether it describes another wheel."""
    count: int = 0
    """Components."""
    components: tuple[Component, ...] = ()
    """The first 2000."""


def all_of(facts: WheelFacts) -> tuple[Sbom, ...]:
    """All SBOMs of a wheel."""
    left, sboms = _VALUES, []
    for file, data in facts.sboms:
        sbom, values = read_sbom(file, data, facts.name, facts.version, left)
        left = max(0, left - values)
        sboms.append(sbom)
    return tuple(sboms)


def read_sbom(
    file: str, data: bytes | None, name: str, version: str, most: int = _VALUES
) -> tuple[Sbom, int]:
    """An SBOM of the wheel ``name`` ``version``, and how many values it has.

    ``data`` is ``None`` if it is too large. With more than ``most`` values it is not validated.
    Never raises.
    """
    made = Sbom(file=safe_line(file, 300), state="not checked")
    if data is None:
        return _updated_sbom(made, problem="too large, or too many of them"), 0
    try:
        document, values = _parsed(data)
    except (ValueError, RecursionError) as error:
        if not file.endswith((".json", ".cdx", ".spdx")) or data.lstrip()[:1] == b"<":
            return _updated_sbom(made, problem="this format is not checked"), 0
        return _updated_sbom(made, state="invalid", problem=safe_line(f"not JSON: {error}", 300)), 0
    if isinstance(document, dict) and isinstance(document.get("spdxVersion"), str):
        title = safe_line(document["spdxVersion"].replace("SPDX-", "SPDX "), 40)
        why = "SPDX is not validated"
        return _updated_sbom(
            made, format=title, problem=why, count=len(_list_or_empty(document.get("packages")))
        ), 0
    if not isinstance(document, dict) or document.get("bomFormat") != "CycloneDX":
        return _updated_sbom(made, problem="unknown JSON format"), 0
    return _cyclonedx(made, document, data, many=values > most, own=(name, version)), values


def _updated_sbom(made: Sbom, **more: object) -> Sbom:
    return made.model_copy(update=more)


def _cyclonedx(
    made: Sbom, document: dict[str, Any], data: bytes, *, many: bool, own: tuple[str, str]
) -> Sbom:
    release = document.get("specVersion")
    rows = _list_or_empty(document.get("components"))
    subject = as_dict(as_dict(document.get("metadata")).get("component"))
    state, problem = "not checked", "too large to validate"
    if release not in _KNOWN:
        problem = f"no schema for that version; known versions: {', '.join(_KNOWN)}"
    elif missing := find_missing("sbom"):
        problem = f"{missing.message}. {missing.hint}"
    elif not many:
        problem = problem_of(data, release)
        state = "invalid" if problem else "valid"
    return _updated_sbom(
        made,
        format=f"CycloneDX {safe_line(release, 20)}",
        state=state,
        problem=problem,
        subject=" ".join(
            filter(None, (_sbom_text_field(subject, "name"), _sbom_text_field(subject, "version")))
        ),
        properties=_own_properties(subject),
        of_another=_another(subject, *own),
        count=len(rows),
        components=tuple(_parse_component(as_dict(row)) for row in rows[:_SHOWN]),
    )


def _another(subject: dict[str, Any], name: str, version: str) -> bool:
    """Whether it describes another PyPI release; other kinds of packages have other names."""
    if not _sbom_text_field(subject, "purl").startswith("pkg:pypi/"):
        return False
    own = parse_version(_sbom_text_field(subject, "version"))
    same = own is not None and own == parse_version(version)
    return not same or canonicalize_name(_sbom_text_field(subject, "name")) != canonicalize_name(
        name
    )


def problem_of(data: bytes, release: str, *, strict: bool = False) -> str:
    """The first violation of the schema of CycloneDX ``release``; empty if it is valid.

    ``strict`` also rejects unknown keys. The formats of addresses and times are not checked: the
    address parser takes a millisecond per character (rfc3987-syntax 1.1), and an SBOM may have
    thousands.
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
        return "nested too deeply to validate"
    if error is None:
        return ""
    place = "/".join(map(str, error.absolute_path)) or "(top level)"
    return safe_line(f"{place}: {error.message}", 300)


def _unique(_: object, unique: bool, items: Any, __: object) -> Iterator[Exception]:
    """Like jsonschema's own, but not quadratic: that takes four seconds for 1500 components."""
    from jsonschema.exceptions import ValidationError

    texts = [json.dumps(item, sort_keys=True) for item in items] if isinstance(items, list) else []
    if unique and len({*texts}) != len(texts):
        yield ValidationError("two elements are equal")


def _parsed(data: bytes) -> tuple[Any, int]:
    """The JSON and how many values are in it; ``ValueError`` if it is nested too deeply."""
    document = json.loads(data, object_pairs_hook=reject_duplicate_keys)
    level, values = [document], 0
    for _ in range(_DEPTH):
        if not level:
            return document, values
        values += len(level)
        level = [inner for value in level for inner in child_values(value)]
    raise ValueError(f"nested deeper than {_DEPTH} levels")


def _parse_component(row: dict[str, Any]) -> Component:
    hashes = {
        _sbom_text_field(as_dict(h), "alg"): _sbom_text_field(as_dict(h), "content")
        for h in _list_or_empty(row.get("hashes"))
    }
    licenses = [
        _sbom_text_field(as_dict(entry), "expression")
        or _sbom_text_field(as_dict(as_dict(entry).get("license")), "id")
        or _sbom_text_field(as_dict(as_dict(entry).get("license")), "name")
        for entry in _list_or_empty(row.get("licenses"))
    ]
    properties = _own_properties(row)
    return Component(
        name=_sbom_text_field(row, "name"),
        version=_sbom_text_field(row, "version"),
        kind=_sbom_text_field(row, "type"),
        role=properties.pop("role", "") or _sbom_text_field(row, "scope"),
        sha256=hashes.get("SHA-256", ""),
        purl=_sbom_text_field(row, "purl"),
        license=", ".join(filter(None, licenses)),
        properties=properties,
    )


def _own_properties(row: dict[str, Any]) -> dict[str, str]:
    rows = [as_dict(item) for item in _list_or_empty(row.get("properties"))[:_PROPERTIES]]
    named = {_sbom_text_field(item, "name"): _sbom_text_field(item, "value") for item in rows}
    return {name.removeprefix(OURS): text for name, text in named.items() if name.startswith(OURS)}


def _sbom_text_field(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    return safe_line(value, 200) if isinstance(value, str) else ""


def _list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
