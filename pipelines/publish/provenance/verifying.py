"""What a wheel's provenance is worth: its hash, its signatures, its manifest, today's lock.

What could not be checked is ``unknown``, never ``ok``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.signer import SSlibKey

from pipelines.core.errors import AuditError, ConfigError, error_class
from pipelines.core.evidence import Evidence
from pipelines.core.files import find_nearby, sha256_of
from pipelines.core.finding import Finding, Level
from pipelines.core.hosttext import safe_line
from pipelines.core.jsonfile import as_dict, json_differences, parse_json_object, read_bytes
from pipelines.core.model import Model
from pipelines.publish.memory import record_last_seen, rollback_problem
from pipelines.publish.provenance import policy
from pipelines.publish.provenance.signing import PAYLOAD_TYPE, Sealed, parse_envelope, read_bundle
from pipelines.publish.provenance.statement import (
    BUILD_TYPE,
    BUILDER,
    MANIFEST,
    PREDICATE,
    SIGNED,
    UNSIGNED,
    encode_statement,
    make_statement,
    read_manifest,
)
from pipelines.toolchain.lock import ToolchainLock
from pipelines.wheels.metadata import read_sboms

_STRONG = frozenset({"sha256", "sha384", "sha512"})
#: What need not be so for who says that it is enough -> the check that it is about.
ACCEPTED = {
    "unsigned": "signature",
    "lock": "lock",
    "builder": "builder",
    "older": "serial",
}
Key = tuple[Path, SSlibKey]


class Verified(Model):
    """All that was looked at of one wheel."""

    wheel: str
    sha256: str
    provenance: str
    findings: tuple[Finding, ...]

    @property
    def code(self) -> int:
        """The exit code: of what is wrong before that of what is only unlike today's."""
        return max((error_class(f.raises).exit_code for f in self.findings if f.failed), default=0)

    def accepting(self, enough: Sequence[str]) -> Verified:
        """The same, where these of :data:`ACCEPTED` need not be so. A wrong signature never is."""
        about = {ACCEPTED[word] for word in enough}
        findings = []
        for one in self.findings:
            if one.id in about and (one.id, one.level) != ("signature", "error"):
                level = "warning" if one.level == "error" else one.level
                one = one.model_copy(update={"requested": False, "level": level})  # noqa: PLW2901
            findings.append(one)
        return self.model_copy(update={"findings": tuple(findings)})


@dataclass(frozen=True)
class Said:
    """A statement that was read: what it says, and the envelope that it was in."""

    whole: dict[str, Any]
    predicate: dict[str, Any]
    """As SLSA's provenance has it, without what that does not know."""
    sealed: Sealed | None

    @property
    def ours(self) -> bool:
        """Whether it is of this program's build type."""
        return bool(self.built.get("buildType") == BUILD_TYPE)

    @property
    def built(self) -> dict[str, Any]:
        """Its buildDefinition."""
        return dict(self.predicate.get("buildDefinition") or {})


def find_provenance(wheel: Path) -> Path:
    """The provenance of a wheel: next to it, or above its directory, as in a run.

    A signed one comes first. :class:`ConfigError` where there is none.
    """
    for name in (wheel.name + SIGNED, wheel.name + UNSIGNED):
        if found := find_nearby(wheel, name):
            return found
    raise ConfigError(
        f"{safe_line(wheel, 300)}: no {safe_line(wheel.name, 200)}{SIGNED} in its directory or "
        "above",
        hint="Put the published file there, or name it with --provenance.",
    )


def verify_provenance(
    wheel: Path,
    provenance: Path,
    keys: Sequence[Key],
    lock: ToolchainLock,
    requirements: Mapping[str, str] = MappingProxyType({}),
) -> Verified:
    """Hold the wheel against its provenance, and that against keys, manifest, lock and policy.

    ``requirements`` are those of :func:`pipelines.publish.provenance.policy.read_requirements`.

    :class:`ConfigError` for a wheel that cannot be read. What is wrong with files of others is in
    the checks.
    """
    try:
        sha256 = sha256_of(wheel)
        findings = [*_iter_verify_findings(wheel, sha256, provenance, keys, lock, requirements)]
    except OSError as error:
        raise ConfigError(
            f"{safe_line(wheel, 300)}: {error.strerror}", hint="Name a wheel."
        ) from None
    return Verified(
        wheel=wheel.name, sha256=sha256, provenance=str(provenance), findings=tuple(findings)
    )


def _iter_verify_findings(  # noqa: PLR0917 - what verify is given
    wheel: Path,
    sha256: str,
    provenance: Path,
    keys: Sequence[Key],
    lock: ToolchainLock,
    requirements: Mapping[str, str],
) -> Iterator[Finding]:
    try:
        said = read_signed(provenance)
    except ValueError as error:
        yield _verify_finding("statement", "error", safe_line(error, 500))
        return
    subject = _subject(wheel, sha256, said)
    yield subject
    signature = _signature(said, keys)
    yield signature
    if subject.failed:
        return  # what else it says is of another wheel
    if signature.level == "ok" and said.ours:
        yield _serial(wheel.name, said, keys)
    yield _check_nearby_manifest(wheel, provenance, said)
    yield _check_locked_tools(said, lock)
    yield _check_embedded_sboms(wheel, said)
    yield from _evidence(said)
    yield from _policy(said, requirements)


def _policy(said: Said, requirements: Mapping[str, str]) -> Iterator[Finding]:
    builder = as_dict(as_dict(said.predicate.get("runDetails")).get("builder")).get("id")
    if not said.ours or builder != BUILDER:
        kind = safe_line(said.built.get("buildType", "none"), 120)
        kind += f" by {safe_line(builder or 'no one')}"
        yield _verify_finding("builder", "error", f"not built by this program: {kind}")
    else:
        for name, found in policy.policy_violations(said.predicate):
            yield _verify_finding(name, "error", found)
    for name, found in policy.unmet_requirements(said.predicate, requirements):
        yield _verify_finding(name, "error", found)


def _verify_finding(
    title: str, level: Level, actual: str, values: Sequence[str] = (), **more: Any
) -> Finding:
    fields = {"raises": "AuditError", "values": tuple(values)} | more
    return Finding(
        id=title.lower().replace(" ", "-"), title=title, level=level, actual=actual, **fields
    )


def read_signed(path: Path) -> Said:
    """The one statement of SLSA's provenance in a file; ``ValueError`` says why there is none."""
    found, why = [], "it has no statement"
    for data in read_bundle(path):
        try:
            found.append(_parse_statement(data))
        except ValueError as error:
            why = str(error)
    if len(found) > 1:
        raise ValueError(f"it has {len(found)} statements of {PREDICATE}, expected one")
    if not found:
        raise ValueError(why)
    return found[0]


def _parse_statement(data: dict[str, Any]) -> Said:
    sealed = None if "_type" in data else parse_envelope(data)
    if sealed is not None:
        if sealed.payload_type != PAYLOAD_TYPE:
            raise ValueError(
                f"its payloadType is {safe_line(sealed.payload_type, 100)}, expected {PAYLOAD_TYPE}"
            )
        data = parse_json_object(sealed.payload)
    _refuse_aliases(data, statement_pb2.Statement.DESCRIPTOR)
    _refuse_aliases(as_dict(data.get("predicate")), provenance_pb2.Provenance.DESCRIPTOR)
    try:
        # What is not known is left out, as in-toto wants it read; it is compared with nothing.
        whole = json_format.ParseDict(data, statement_pb2.Statement(), ignore_unknown_fields=True)
        Statement.copy_from_pb(whole).validate()
        said = dict(json_format.MessageToDict(whole))
        if said["predicateType"] != PREDICATE:
            raise ValueError(
                f"its predicate is {safe_line(said['predicateType'], 100)}, expected {PREDICATE}"
            )
        made = provenance_pb2.Provenance()
        json_format.ParseDict(said["predicate"], made, ignore_unknown_fields=True)
        return Said(said, dict(json_format.MessageToDict(made)), sealed)
    except (json_format.Error, OverflowError, TypeError, RecursionError) as error:
        raise ValueError(f"not an in-toto statement: {safe_line(error)}") from None


def _refuse_aliases(values: dict[str, Any], message: Any) -> None:
    """``ValueError`` for a name that Protobuf alone takes for another one.

    ``build_definition`` would be read here, and ``buildDefinition`` by everybody else.
    https://protobuf.dev/programming-guides/json/
    """
    for field in message.fields if message is not None else ():
        if field.name != field.json_name and field.name in values:
            raise ValueError(f"it has {field.name}, expected {field.json_name}")
        if inner := as_dict(values.get(field.json_name)):
            _refuse_aliases(inner, field.message_type)


def _subject(wheel: Path, sha256: str, said: Said) -> Finding:
    """Whether it is about this very file, by name and by every hash that it gives."""
    about = [one for one in said.whole["subject"] if one.get("name") == wheel.name]
    if len(about) != 1:
        names = [safe_line(one.get("name", "nameless"), 100) for one in said.whole["subject"]]
        found = f"it is about {', '.join(names[:5])}, not about {safe_line(wheel.name)}"
        return _verify_finding("wheel", "error", found)
    digest = about[0].get("digest", {})
    if "sha256" not in digest:
        return _verify_finding("wheel", "error", f"it has no sha256 of {safe_line(wheel.name)}")
    wrong = []
    for name in sorted(_STRONG & digest.keys()):
        here = sha256
        if name != "sha256":
            with wheel.open("rb") as stream:
                here = hashlib.file_digest(stream, name).hexdigest()
        if digest[name] != here:
            wrong.append(f"{name} here {here}, stated {safe_line(digest[name], 130)}")
    if wrong:
        found = "the statement is about a different file"
        return _verify_finding("wheel", "error", found, wrong)
    return _verify_finding("wheel", "ok", "exactly the file that the statement is about")


def _signature(said: Said, keys: Sequence[Key]) -> Finding:
    """Whether everybody whose key was named has signed it."""
    sealed = said.sealed
    if sealed is None and keys:
        found = f"it is not signed, but --key names {len(keys)} that must have signed it"
        return _verify_finding("signature", "error", found, [str(path) for path, _ in keys])
    if sealed is None:
        return _verify_finding("signature", "unknown", "it is not signed", requested=True)
    many = len(sealed.signatures)
    if not keys:
        found = f"not checked: it has {many}, but no --key was given"
        return _verify_finding("signature", "unknown", found, requested=True)
    good: set[int] = set()
    missing = []
    for path, key in keys:
        by = [number for number in range(many) if sealed.is_by(key, number)]
        good.update(by)
        if not by:
            missing.append(f"no signature by {path}, key {key.keyid[:16]}")
    ids = {key.keyid for _, key in keys}
    wrong = [n for n, (keyid, _) in enumerate(sealed.signatures) if keyid in ids and n not in good]
    others = many - len(good) - len(wrong)
    detail = [*missing, *(f"signature {n + 1} is invalid" for n in wrong)]
    detail += [f"{others} by other keys not checked"] if others else []
    if missing or wrong:
        found = "not signed with every --key" if missing else "one of them is invalid"
        return _verify_finding("signature", "error", found, detail)
    found = ", ".join(f"{path}, key {key.keyid[:16]}" for path, key in keys)
    return _verify_finding("signature", "ok", found, detail)


def _serial(wheel: str, said: Said, keys: Sequence[Key]) -> Finding:
    """Whether a later statement of a wheel of this name, by one of the keys, was verified here."""
    assert said.sealed is not None  # noqa: S101 - it is signed
    serial = policy.serial_of(said.predicate)
    digest = hashlib.sha256(said.sealed.payload).hexdigest()
    names = [f"{key.keyid} {wheel}" for _, key in keys]
    if why := next(filter(None, (rollback_problem(name, serial, digest) for name in names)), ""):
        return _verify_finding("serial", "error", why)
    try:
        for name in names:
            record_last_seen(name, serial, digest)
    except OSError as error:
        return _verify_finding(
            "serial", "unknown", f"{serial}, which cannot be saved: {safe_line(error, 200)}"
        )
    return _verify_finding("serial", "ok", f"{serial}, the newest verified here")


def _check_nearby_manifest(wheel: Path, provenance: Path, said: Said) -> Finding:
    """Whether the manifest that is here says the same."""
    if not said.ours:
        kind = safe_line(said.built.get("buildType", "none"), 120)
        return _verify_finding("manifest", "unknown", f"not checked: built as {kind}")
    path = find_nearby(wheel, MANIFEST) or provenance.with_name(MANIFEST)
    if not path.is_file():
        return _verify_finding("manifest", "unknown", "not checked: there is none in its directory")
    try:
        data = read_bytes(path)
        if not read_manifest(data).sha256(wheel.name):
            found = f"not checked: {path} is for a different wheel"
            return _verify_finding("manifest", "unknown", found)
        expected = make_statement(data, wheel.name)
        if (sha256 := expected["subject"][0]["digest"]["sha256"]) != sha256_of(wheel):
            raise ValueError(f"it is for a wheel with sha256 {sha256}")  # noqa: TRY301
    except (ValueError, AuditError) as error:
        return _verify_finding("manifest", "error", f"{path}: {safe_line(error, 400)}")
    there, here = said.whole["predicate"], expected["predicate"]
    if encode_statement(there) != encode_statement(here):
        found = f"{path} differs"
        return _verify_finding(
            "manifest", "error", found, json_differences(there, here) or ["in another order"]
        )
    return _verify_finding("manifest", "ok", "matches")


def _check_locked_tools(said: Said, lock: ToolchainLock) -> Finding:
    """Whether today's lock has the files that it was built with."""
    tools = [
        one
        for one in said.built.get("resolvedDependencies", ())
        if said.ours and one.get("name") != "source"
    ]
    if not tools:
        return _verify_finding("lock", "unknown", "not checked: it names no tools known here")
    rows = []
    for one in tools:
        name, digest = str(one.get("name", "")), one.get("digest", {}).get("sha256", "none")
        version = safe_line((one.get("annotations") or {}).get("version", ""), 60)
        pinned = lock.tools.get(name)
        if pinned is None:
            rows.append(f"{safe_line(name, 80)} {version}: not in the lock")
        elif not pinned.sha256 or pinned.sha256 != digest:
            rows.append(
                f"{safe_line(name, 80)} {version} sha256 {safe_line(digest, 64)[:16]}, today "
                f"{pinned.version} sha256 {pinned.sha256[:16] or 'not pinned'}"
            )
    if rows:
        found = f"{len(rows)} of {len(tools)} files are pinned differently today"
        return _verify_finding("lock", "error", found, rows, raises="LockError")
    return _verify_finding("lock", "ok", f"the same {len(tools)} files are pinned today")


def _check_embedded_sboms(wheel: Path, said: Said) -> Finding:
    """Whether the bills of materials in the wheel are those that it names."""
    try:
        inside = read_sboms(wheel)
    except AuditError as error:
        return _verify_finding("SBOM", "error", safe_line(error, 400))
    if not said.ours:
        found = f"not checked: {len(inside)} in the wheel, by another builder"
        return _verify_finding("SBOM", "unknown", found)
    run = said.predicate.get("runDetails") or {}
    stated = {
        str(one.get("name", "")): one.get("digest", {}).get("sha256", "")
        for one in run.get("byproducts", ())
        if ".dist-info/sboms/" in str(one.get("name", ""))
    }
    if unlike := {*inside.items()} ^ {*stated.items()}:
        rows = sorted({safe_line(name, 150) for name, _ in unlike})
        return _verify_finding("SBOM", "error", "those in the wheel differ from those stated", rows)
    if not inside:
        return _verify_finding("SBOM", "skipped", "none in the wheel, none stated")
    return _verify_finding("SBOM", "ok", ", ".join(safe_line(name, 150) for name in inside))


def _evidence(said: Said) -> Iterator[Finding]:
    """The evidence that the builder claims, and where it was gained: it is not verified here."""
    inner = as_dict(said.built.get("internalParameters"))
    if not said.ours:
        return
    level = str(as_dict(inner.get("evidence")).get("level", ""))
    known = {one.value: one.meaning for one in Evidence}
    test = safe_line(as_dict(inner.get("stages")).get("test", "was not run"), 40)
    meaning = known.get(level, "an unknown level")
    keys = inner.get("sealers")
    keys = ", ".join(safe_line(key, 16) for key in keys) if isinstance(keys, list) else ""
    yield _verify_finding(
        "evidence",
        "warning" if test in ("failed", "interrupted") else "unknown",
        f"the builder says {safe_line(level, 20) or 'none'}: {meaning}; test {test}; "
        f"recorded with the key {keys or '(not named)'}",
    )
    if inner.get("publishable") is not True:
        tools = as_dict(inner.get("toolset")).get("found")
        tools = tools if isinstance(tools, list) and tools else ["an unknown toolset"]
        found = f"not publishable: built with {safe_line(', '.join(map(str, tools)), 200)}"
        yield _verify_finding("publishing", "warning", found)
