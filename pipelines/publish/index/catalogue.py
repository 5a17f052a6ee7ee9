"""``catalogue.json``: every wheel of an index with its evidence; all pages are generated from it.

It is an index's only source of truth. Wheels are only ever added or yanked; a wheel's entry and the
bytes behind its name never change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Literal

from packaging.utils import (
    BuildTag,
    InvalidWheelFilename,
    NormalizedName,
    parse_wheel_filename,
)
from packaging.version import Version
from pydantic import AfterValidator, Field, StringConstraints

from pipelines.core.comparison import Verdict
from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.evidence import PUBLISHING, is_trusted
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.model import Model, first_problem
from pipelines.record.prebuilt import Sha256
from pipelines.record.seal import Sealer, is_signed

#: Its name in an index.
CATALOGUE = "catalogue.json"
#: Most bytes that are read: 20,000 wheels have 20 MB.
MOST = 64 << 20
#: Address of another index; empty: none.
ADDRESS = r"^(https://[\w.~/:-]+/)?$"
_LONGEST = 200  # characters of a file's name: Windows' paths end at 260
#: Only a build number begins with a digit, which distinguishes it from a label.
_LABELLED = re.compile(
    r"(?P<plain>[^-]+-[^-]+-(?:\d[^-]*-)?[^-\d][^-]*-[^-]+-[^-]+)-(?P<label>[0-9a-z_.]+)\.whl"
)

#: Evidence files of a wheel: its audit, smoke test, manifest and the signed statement.
Kind = Literal["audit.json", "smoke.xml", "manifest.json", "intoto.jsonl"]
#: A signed statement is about its manifest: they are replaced together.
_PAIR: frozenset[Kind] = frozenset({"manifest.json", "intoto.jsonl"})

Short = Annotated[str, StringConstraints(max_length=500)]
Time = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
Release = Annotated[str, StringConstraints(pattern=r"^(\d+\.\d+)?$")]
Arch = Annotated[str, StringConstraints(pattern=r"^\d{2,3}[af]?$")]


@dataclass(frozen=True)
class WheelName:
    """A normalised wheel file name; equal ones are the same wheel."""

    project: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[str]
    label: str

    @classmethod
    def read(cls, file: str) -> WheelName:
        """Parse the name of a plain wheel or a variant; ``ValueError`` for anything else."""
        label = ""
        if len(file) > _LONGEST:
            raise ValueError(f"the name has {len(file)} characters, more than {_LONGEST}")
        if match := _LABELLED.fullmatch(file):
            file, label = f"{match['plain']}.whl", match["label"]
        try:
            project, version, build, tags = parse_wheel_filename(file)
        except InvalidWheelFilename as error:
            raise ValueError(f"not a wheel name: {error}") from None
        return cls(project, version, build, frozenset(map(str, tags)), label)


def _validate_wheel_filename(name: str) -> str:
    WheelName.read(name)
    if re.search(r"[^\w.+!-]", name, re.ASCII):
        raise ValueError("expected only letters, digits and ._+-! in the name")
    return name


def _validate_wheel_url(url: str) -> str:
    """Validate an address below the index or by https; never a script, never outside the index."""
    if url.startswith(("https://", "http://127.0.0.1:")):
        inside = url.partition("://")[2]
    elif url.startswith("files/") and ".." not in url.split("/") and "://" not in url:
        inside = url
    else:
        raise ValueError("expected a path below files/ or an https address")
    if re.search(r"[^\w.~%+!/:@=-]", inside, re.ASCII):
        raise ValueError("invalid characters in the address")
    return url


def format_timestamp(when: datetime) -> str:
    """A time in the catalogue's format, UTC in seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stored_path(name: str, sha256: str) -> str:
    """A file's path below the index, which contains its hash."""
    return f"files/{sha256[:2]}/{sha256}/{name}"


def shown_at(file: str, kind: Kind, sha256: str) -> str:
    """The path of an evidence file of the wheel ``file`` below the index."""
    return stored_path(kind if kind == "manifest.json" else f"{file}.{kind}", sha256)


#: Each wheel of a preview is yanked with this reason, and on the pages it is for no Python.
PREVIEW = "preview: built without Windows, to try this index, and not for use"


class Smoke(Model):
    """The result of a wheel's smoke suite on GPUs."""

    verdict: Literal["passed", "untested"]
    why: Short = ""
    """Why it counts as untested."""
    gpus: Annotated[tuple[Short, ...], Field(max_length=64)] = ()
    """GPUs on which it passed."""
    archs: tuple[Arch, ...] = ()
    """Their architectures."""
    cases: Annotated[int, Field(ge=0)] = 0
    """Number of passed cases."""


class Rebuilt(Model):
    """The result of rebuilding a published wheel."""

    verdict: Verdict
    run: Short
    evidence: Short
    when: Time


class Wheel(Model):
    """A published wheel."""

    file: Annotated[Short, AfterValidator(_validate_wheel_filename)]
    sha256: Sha256
    size: Annotated[int, Field(ge=1, le=1 << 40)]
    """Bytes."""
    url: Annotated[str, StringConstraints(max_length=1000), AfterValidator(_validate_wheel_url)]
    """Path below the index, or an https address."""
    metadata_sha256: Sha256
    """Of its METADATA file, which is published next to it."""
    requires_python: Short = ""
    python: Release
    torch: Release
    """The version it was built against; empty: it does not use torch."""
    stable: bool = False
    """Whether it uses torch's stable ABI and so works with later versions."""
    cuda: Release
    any_cuda: bool = False
    """Whether CUDA's runtime is inside, so that torch may be a build for another CUDA."""
    sass: Annotated[tuple[Arch, ...], Field(max_length=64)]
    """GPU architectures with machine code in every container, by the audit."""
    ptx: Annotated[tuple[Arch, ...], Field(max_length=64)] = ()
    made_from: Sha256 | None = None
    """For a variant: its plain wheel, which differs only in metadata."""
    run: Short
    serial: Annotated[int, Field(ge=0)] = 0
    """Of its manifest: a later state of the run has a higher one."""
    uploaded: Time
    evidence: Short
    toolset: Short = ""
    checks: Annotated[int, Field(ge=1)]
    """Number of audit checks, all passed."""
    smoke: Smoke
    attached: dict[Kind, Sha256] = Field(default={})
    """Its evidence files: sha256 of each."""
    rebuilt: Annotated[tuple[Rebuilt, ...], Field(max_length=100)] = ()
    stated: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = ""
    """What the object store stated of its files when they were last hashed, see
    :func:`pipelines.publish.index.store.hash_etags`."""
    yanked: Short | None = None
    """Why it should not be used any more."""

    @cached_property
    def name(self) -> WheelName:
        """Its parsed file name."""
        return WheelName.read(self.file)

    @property
    def files(self) -> dict[str, str]:
        """Path -> sha256 of each of its files in the index itself, not in a release."""
        own = {self.url: self.sha256, f"{self.url}.metadata": self.metadata_sha256}
        attached = {self.attached_url(kind): hashed for kind, hashed in self.attached.items()}
        return attached if "://" in self.url else own | attached

    def attached_url(self, kind: Kind) -> str:
        """The path of that evidence file; ``KeyError`` if there is none."""
        return shown_at(self.file, kind, self.attached[kind])

    def since(self, other: Wheel) -> Wheel:
        """The same with additional evidence of ``other``, the same bytes of a later publish.

        Existing evidence is kept: a skipped test does not revoke an earlier pass. Raises
        :class:`AuditError` for other bytes, and for what is older than the evidence that is there.
        """
        if (self.file, self.sha256) != (other.file, other.sha256):
            spelled = "" if self.file == other.file else f" as {safe_text(self.file, 200)}"
            raise AuditError(
                f"{safe_text(other.file, 200)} is already published{spelled}, with sha256 "
                f"{self.sha256} "
                f"from run {safe_text(self.run, 100)}; this one has {other.sha256}",
                hint="Published files never change: give the build another version or local "
                "version. Use --yank to withdraw a bad wheel.",
            )
        if other.serial < self.serial:
            raise AuditError(
                f"{safe_text(self.file, 200)}: the index has evidence with serial "
                f"{self.serial}, but "
                f"{safe_text(other.run, 100)} has serial {other.serial}: it is an older state",
                hint="Exclude this run, or test the wheel again.",
            )
        tested = self.smoke.verdict == "untested" and other.smoke.verdict == "passed"
        signed = "intoto.jsonl" in other.attached
        pair = other if signed or (tested and "intoto.jsonl" not in self.attached) else self
        shown = {k: v for k, v in (other if tested else self).attached.items() if k not in _PAIR}
        shown |= {k: v for k, v in pair.attached.items() if k in _PAIR}
        seen = {"smoke": other.smoke, "evidence": other.evidence, "run": other.run}
        more = {"attached": shown, "serial": other.serial if pair is other else self.serial}
        return self.model_copy(update=more | (seen if tested else {}))

    def again(self, verdict: Rebuilt) -> Wheel:
        """The same with the verdict of a rebuild; one verdict for each run."""
        others = (other for other in self.rebuilt if other.run != verdict.run)
        return self.model_copy(update={"rebuilt": (*others, verdict)})


class Catalogue(Model):
    """The contents of an index."""

    schema_version: Literal[1] = 1
    generation: Annotated[int, Field(ge=0)] = 0
    """Number of publishes."""
    tracks: Annotated[str, StringConstraints(pattern=ADDRESS)] = ""
    """Address of an index that these projects track (PEP 708)."""
    wheels: Annotated[tuple[Wheel, ...], Field(max_length=50_000)] = ()
    sealer: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = ""
    """Key of the controller that published last: the one that signs its runs."""
    signature: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{128})?$")] = ""
    """Of that key, over all the rest."""

    @property
    def preview(self) -> bool:
        """Whether it is of ``publish --preview``: it has such wheels."""
        return any(wheel.yanked == PREVIEW for wheel in self.wheels)

    @property
    def digest(self) -> str:
        """The sha256 of all but the signature: what is signed."""
        return sha256(self.model_copy(update={"signature": ""}).dump()).hexdigest()

    def signed(self, sealer: Sealer) -> Catalogue:
        """The same, signed."""
        named = self.model_copy(update={"sealer": sealer.identity})
        return named.model_copy(update={"signature": sealer.sign(named.digest)})

    def require_signed(self, own: str, trusted: Collection[str], where: str) -> None:
        """Refuse one that neither the key ``own`` nor one of ``trusted`` has signed.

        Those are :data:`pipelines.core.evidence.TRUST` each, and count for hosts whose wheels may
        be published. Raises :class:`ConfigError`.
        """
        if not is_signed(self.sealer, self.signature, self.digest):
            raise ConfigError(
                f"{where}/{CATALOGUE} does not match its signature: someone has changed it",
                hint="Nothing was changed. Restore the last published one.",
            )
        known = self.sealer == own or is_trusted(self.sealer, PUBLISHING, trusted)
        if not known:
            raise ConfigError(
                f"{where}/{CATALOGUE} is signed with the key {self.sealer} of another controller",
                hint=f"If you know whose key that is, add {self.sealer}=windows (or linux) to "
                "provenance.trust in pipeline.yaml: docs/provenance.md.",
            )

    def stating(self, stated: Callable[[Wheel], str]) -> Catalogue:
        """With what is stated of each wheel's files, where something is."""
        wheels = (w.model_copy(update={"stated": stated(w) or w.stated}) for w in self.wheels)
        return self.model_copy(update={"wheels": tuple(wheels)})

    def dump(self) -> bytes:
        """Its JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=1).encode() + b"\n"

    def require_readable(self) -> None:
        """Raise :class:`ConfigError` if it exceeds the limits of its reader."""
        try:
            parse_catalogue(self.dump(), "")
        except ConfigError as error:
            raise ConfigError(
                "the index would become unreadable: " + error.message.partition(": ")[2],
                hint="Nothing was changed. Publish to another index.",
            ) from None

    @property
    def by_name(self) -> dict[WheelName, Wheel]:
        """Every wheel by its name."""
        return {wheel.name: wheel for wheel in self.wheels}

    def plus(self, more: Iterable[Wheel]) -> Catalogue:
        """With ``more`` wheels; existing ones are kept, with additional evidence.

        Raises :class:`AuditError` for a name that is taken by other bytes.
        """
        known = self.by_name
        for wheel in more:
            there = known.get(wheel.name)
            known[wheel.name] = wheel if there is None else there.since(wheel)
        return self.model_copy(update={"wheels": tuple(known.values())})

    def with_verdicts(self, verdicts: Iterable[tuple[str, Rebuilt]]) -> Catalogue:
        """With verdicts on rebuilt wheels, by the sha256 of the wheel.

        Raises :class:`ConfigError` for an unknown wheel.
        """
        wheels = self.wheels
        for hashed, verdict in verdicts:
            if all(one.sha256 != hashed for one in wheels):
                raise ConfigError(
                    f"{safe_line(verdict.run, 100)} rebuilt a wheel with sha256 {hashed}, but "
                    "the index "
                    "has no such wheel",
                    hint="Publish that wheel first, or name an index that has it.",
                )
            wheels = tuple(one.again(verdict) if one.sha256 == hashed else one for one in wheels)
        return self.model_copy(update={"wheels": wheels})

    def without(self, file: str, why: str) -> Catalogue:
        """With the wheel ``file`` and its variants yanked (PEP 592).

        Raises :class:`ConfigError` if there is no such wheel.
        """
        matches = [wheel for wheel in self.wheels if wheel.file == file]
        if not matches:
            raise ConfigError(
                f"{safe_line(file, 200)}: no such wheel in the index",
                hint="Use its file name as on the index page.",
            )
        if self.preview:
            raise ConfigError(
                f"{safe_line(file, 200)}: is yanked already, as every wheel of a preview",
                hint="Remove the directory of a preview to withdraw it.",
            )
        gone = {matches[0].sha256}
        changed = tuple(
            wheel.model_copy(update={"yanked": why})
            if gone & {wheel.sha256, wheel.made_from}
            else wheel
            for wheel in self.wheels
        )
        return self.model_copy(update={"wheels": changed})


def parse_catalogue(data: bytes, where: str) -> Catalogue:
    """Parse the file; :class:`ConfigError` if it is damaged or has a duplicate name."""
    try:
        if len(data) > MOST:
            raise ValueError(f"more than {MOST >> 20} MiB")  # noqa: TRY301
        made = Catalogue.model_validate(json.loads(data))
        if len(made.by_name) != len(made.wheels):
            raise ValueError("two wheels have the same name")  # noqa: TRY301
    except (ValueError, RecursionError) as error:
        why = first_problem(error)
    else:
        return made
    raise ConfigError(
        f"{where}/{CATALOGUE} cannot be read: {safe_line(why, 300)}",
        hint="Nothing was changed. Restore the last intact one; the pages are still valid.",
    )
