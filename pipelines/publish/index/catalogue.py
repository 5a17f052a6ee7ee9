"""``catalogue.json``: every wheel of an index and what was shown of it; all pages follow from it.

It is the one file of an index that decides. A wheel is only ever added to it, or yanked; what it
says of one, and the bytes behind a name, stay as they were published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
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
from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.hosttext import line, safe
from pipelines.core.model import Model, first_problem
from pipelines.record.compared import Verdict
from pipelines.record.seal import ANY, Sealer, is_signed
from pipelines.record.taken import Sha256

#: Its name in an index.
CATALOGUE = "catalogue.json"
#: Bytes of one that is still read: 20,000 wheels have 20 MB.
MOST = 64 << 20
#: Of another index; empty: none.
ADDRESS = r"^(https://[\w.~/:-]+/)?$"
_LONGEST = 200  # characters of a file's name: Windows' paths end at 260
#: Only a build number begins with a digit: so a label is told from it.
_LABELLED = re.compile(
    r"(?P<plain>[^-]+-[^-]+-(?:\d[^-]*-)?[^-\d][^-]*-[^-]+-[^-]+)-(?P<label>[0-9a-z_.]+)\.whl"
)

#: What was shown of a wheel, as files: its audit, its smoke test, what it was made of, and that
#: signed.
Kind = Literal["audit.json", "smoke.xml", "manifest.json", "intoto.jsonl"]
#: A signed statement speaks of the manifest with it: they come and stay together.
_PAIR: frozenset[Kind] = frozenset({"manifest.json", "intoto.jsonl"})

Short = Annotated[str, StringConstraints(max_length=500)]
Time = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
Release = Annotated[str, StringConstraints(pattern=r"^(\d+\.\d+)?$")]
Arch = Annotated[str, StringConstraints(pattern=r"^\d{2,3}[af]?$")]


@dataclass(frozen=True)
class WheelName:
    """What the name of a wheel says, whatever way it is spelled: equal ones are one wheel."""

    project: NormalizedName
    version: Version
    build: BuildTag
    tags: frozenset[str]
    label: str

    @classmethod
    def read(cls, file: str) -> WheelName:
        """Of a plain wheel or a variant; ``ValueError`` for what is none."""
        label = ""
        if len(file) > _LONGEST:
            raise ValueError(f"the name has {len(file)} characters, more than {_LONGEST}")
        if found := _LABELLED.fullmatch(file):
            file, label = f"{found['plain']}.whl", found["label"]
        try:
            project, version, build, tags = parse_wheel_filename(file)
        except InvalidWheelFilename as error:
            raise ValueError(f"no name of a wheel: {error}") from None
        return cls(project, version, build, frozenset(map(str, tags)), label)


def _file(name: str) -> str:
    WheelName.read(name)
    if re.search(r"[^\w.+!-]", name, re.ASCII):
        raise ValueError("a name with other characters than letters, digits and ._+-!")
    return name


def _address(url: str) -> str:
    """Below the index, or somewhere else by https; never a script, never out of the index."""
    if url.startswith(("https://", "http://127.0.0.1:")):
        inside = url.partition("://")[2]
    elif url.startswith("files/") and ".." not in url.split("/") and "://" not in url:
        inside = url
    else:
        raise ValueError("no place below files/ and no https address")
    if re.search(r"[^\w.~%+!/:@=-]", inside, re.ASCII):
        raise ValueError("an address with other characters than addresses have")
    return url


def timestamp(when: datetime) -> str:
    """A moment as a catalogue has it, in UTC to the second."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stored(name: str, sha256: str) -> str:
    """Where a file lies below an index: a place that no other bytes can have."""
    return f"files/{sha256[:2]}/{sha256}/{name}"


def shown_at(file: str, kind: Kind, sha256: str) -> str:
    """Where what was shown of the wheel called ``file`` lies below an index."""
    return stored(kind if kind == "manifest.json" else f"{file}.{kind}", sha256)


class Smoke(Model):
    """What the smoke suite has shown of a wheel on GPUs."""

    verdict: Literal["passed", "untested"]
    why: Short = ""
    """Why it counts as untested."""
    gpus: Annotated[tuple[Short, ...], Field(max_length=64)] = ()
    """Those on which it has passed."""
    archs: tuple[Arch, ...] = ()
    """Of those GPUs."""
    cases: Annotated[int, Field(ge=0)] = 0
    """How many have passed."""


class Rebuilt(Model):
    """What came of it when somebody built a published wheel again."""

    verdict: Verdict
    run: Short
    evidence: Short
    when: Time


class Wheel(Model):
    """A wheel as it was published."""

    file: Annotated[Short, AfterValidator(_file)]
    sha256: Sha256
    size: Annotated[int, Field(ge=1, le=1 << 40)]
    """Bytes."""
    url: Annotated[str, StringConstraints(max_length=1000), AfterValidator(_address)]
    """Where it lies: below the index, or an https address."""
    metadata_sha256: Sha256
    """Of the METADATA in it, which lies beside it."""
    requires_python: Short = ""
    python: Release
    torch: Release
    """That it was built against; empty: it has nothing of torch."""
    stable: bool = False
    """Whether it keeps to torch's stable ABI: then every later torch does as well."""
    cuda: Release
    sass: Annotated[tuple[Arch, ...], Field(max_length=64)]
    """GPU architectures of which every container has machine code, as the audit judged."""
    ptx: Annotated[tuple[Arch, ...], Field(max_length=64)] = ()
    made_from: Sha256 | None = None
    """Of a variant: the plain wheel, of which it has all but the metadata."""
    run: Short
    uploaded: Time
    evidence: Short
    toolset: Short = ""
    checks: Annotated[int, Field(ge=1)]
    """How many the audit has made, all of them passed."""
    smoke: Smoke
    beside: dict[Kind, Sha256] = Field(default={})
    """What was shown of it, as files below the index: sha256 of each."""
    rebuilt: Annotated[tuple[Rebuilt, ...], Field(max_length=100)] = ()
    yanked: Short | None = None
    """Why nobody should take it any more."""

    @cached_property
    def name(self) -> WheelName:
        """What its file's name says."""
        return WheelName.read(self.file)

    def beside_url(self, kind: Kind) -> str:
        """Where that file lies, below the index; ``KeyError`` where there is none."""
        return shown_at(self.file, kind, self.beside[kind])

    def since(self, other: Wheel) -> Wheel:
        """The same with what ``other``, the same bytes of a later publish, has shown besides.

        What was seen stays seen: a test that was left out this time takes nothing back.
        """
        tested = self.smoke.verdict == "untested" and other.smoke.verdict == "passed"
        signed = "intoto.jsonl" in other.beside
        pair = other if signed or (tested and "intoto.jsonl" not in self.beside) else self
        shown = {k: v for k, v in (other if tested else self).beside.items() if k not in _PAIR}
        shown |= {k: v for k, v in pair.beside.items() if k in _PAIR}
        seen = {"smoke": other.smoke, "evidence": other.evidence, "run": other.run}
        return self.model_copy(update={"beside": shown} | (seen if tested else {}))

    def again(self, verdict: Rebuilt) -> Wheel:
        """The same with what came of it when it was built again; a run is told once."""
        others = (one for one in self.rebuilt if one.run != verdict.run)
        return self.model_copy(update={"rebuilt": (*others, verdict)})


class Catalogue(Model):
    """All that an index has."""

    schema_version: Literal[1] = 1
    generation: Annotated[int, Field(ge=0)] = 0
    """How many publishes there were."""
    tracks: Annotated[str, StringConstraints(pattern=ADDRESS)] = ""
    """An index of which the projects here are the same (PEP 708): its address."""
    wheels: Annotated[tuple[Wheel, ...], Field(max_length=50_000)] = ()
    sealer: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = ""
    """Key of the controller that published last: the one that signs its runs."""
    signature: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{128})?$")] = ""
    """Of that key, over all the rest."""

    @property
    def digest(self) -> str:
        """The sha256 of all but the signature: what is signed."""
        return sha256(self.model_copy(update={"signature": ""}).dump()).hexdigest()

    def signed(self, sealer: Sealer) -> Catalogue:
        """The same, signed."""
        named = self.model_copy(update={"sealer": sealer.identity})
        return named.model_copy(update={"signature": sealer.sign(named.digest)})

    def require_signed(self, trusted: Collection[str], where: str) -> None:
        """Refuse one with wheels that none of these keys has signed: :class:`ConfigError`."""
        if self.wheels and not is_signed(self.sealer, self.signature, self.digest):
            raise ConfigError(
                f"{where}/{CATALOGUE} is not as it was signed: somebody else has changed it",
                hint="Nothing was changed. Put the last one that was published back.",
            )
        if self.wheels and not {self.sealer, ANY} & {*trusted}:
            raise ConfigError(
                f"{where}/{CATALOGUE} is signed with the key {self.sealer} of another controller",
                hint="If you know whose key that is, add it to provenance.trust in pipeline.yaml: "
                "docs/provenance.md.",
            )

    def dump(self) -> bytes:
        """As the file has it."""
        return json.dumps(self.model_dump(mode="json"), indent=1).encode() + b"\n"

    def require_readable(self) -> None:
        """Raise :class:`ConfigError` for more than whoever reads it next would take."""
        try:
            read_catalogue(self.dump(), "")
        except ConfigError as error:
            raise ConfigError(
                "the index would be one that cannot be read: " + error.message.partition(": ")[2],
                hint="Nothing was changed. An index has its bounds: publish to another one.",
            ) from None

    @property
    def by_name(self) -> dict[WheelName, Wheel]:
        """Every wheel, by what its name says."""
        return {one.name: one for one in self.wheels}

    def plus(self, more: Iterable[Wheel]) -> Catalogue:
        """With ``more`` wheels; those that are there stay, but may have been tested since.

        Raises :class:`AuditError` for a name that another wheel has.
        """
        known = self.by_name
        for one in more:
            there = known.get(one.name)
            require_same(there, one.file, one.sha256)
            if there is None:
                known[one.name] = one
            else:
                known[one.name] = there.since(one)
        return self.model_copy(update={"wheels": tuple(known.values())})

    def told(self, verdicts: Iterable[tuple[str, Rebuilt]]) -> Catalogue:
        """With the verdicts on wheels that were built again, by the sha256 of the wheel.

        Raises :class:`ConfigError` for a wheel that is not here.
        """
        wheels = self.wheels
        for hashed, verdict in verdicts:
            if all(one.sha256 != hashed for one in wheels):
                raise ConfigError(
                    f"{line(verdict.run, 100)} has built a wheel with sha256 {hashed} again, and "
                    "the index has no such wheel",
                    hint="Publish that wheel first, or name the index that has it.",
                )
            wheels = tuple(one.again(verdict) if one.sha256 == hashed else one for one in wheels)
        return self.model_copy(update={"wheels": wheels})

    def without(self, file: str, why: str) -> Catalogue:
        """With the wheel called ``file`` yanked, and the variants made of it (PEP 592).

        Raises :class:`ConfigError` when there is none of that name.
        """
        found = [one for one in self.wheels if one.file == file]
        if not found:
            raise ConfigError(
                f"{line(file, 200)}: the index has no wheel of that name",
                hint="Type its file name as the index's page has it.",
            )
        gone = {found[0].sha256}
        changed = tuple(
            one.model_copy(update={"yanked": why}) if gone & {one.sha256, one.made_from} else one
            for one in self.wheels
        )
        return self.model_copy(update={"wheels": changed})


def require_same(there: Wheel | None, file: str, sha256: str) -> None:
    """Refuse other bytes for a name that is taken, with :class:`AuditError`."""
    if there is None or (there.sha256 == sha256 and there.file == file):
        return
    spelled = "" if there.file == file else f", there as {safe(there.file, 200)}"
    raise AuditError(
        f"{safe(file, 200)} is published already{spelled}, with sha256 {there.sha256} from run "
        f"{safe(there.run, 100)}; this one has {sha256}",
        hint="A name that somebody has installed never gets other bytes: give the build another "
        "version or local version. A bad wheel is taken back with --yank.",
    )


def read_catalogue(data: bytes, where: str) -> Catalogue:
    """What the file says; :class:`ConfigError` for one that is damaged, or says a name twice."""
    try:
        if len(data) > MOST:
            raise ValueError(f"more than {MOST >> 20} MiB")  # noqa: TRY301
        made = Catalogue.model_validate(json.loads(data))
        if len(made.by_name) != len(made.wheels):
            raise ValueError("two wheels have one name")  # noqa: TRY301
    except ValidationError as error:
        why = first_problem(error)
    except (ValueError, RecursionError) as error:
        why = str(error)
    else:
        return made
    raise ConfigError(
        f"{where}/{CATALOGUE} cannot be read: {line(why, 300)}",
        hint="Nothing was changed. Put back the last whole one; the pages still hold good.",
    )
