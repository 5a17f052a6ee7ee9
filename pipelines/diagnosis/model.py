"""Models of ``catalogue.yaml``: signatures in logs, their causes, hints and automatic fixes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    RootModel,
    StringConstraints,
    ValidationError,
    model_validator,
)

from pipelines.core import plugins
from pipelines.core.errors import ConfigError
from pipelines.core.model import Link, Model, Text, format_validation_error, read_data
from pipelines.core.yamlfile import read_yaml

CATALOGUE_FILE = Path(__file__).resolve().with_name("catalogue.yaml")
CODES_FILE = CATALOGUE_FILE.with_name("codes.yaml")

Kind = Literal["cause", "reader", "wrapper", "warning", "fact"]
_RANKS: dict[Kind, int] = {"cause": 0, "reader": 20, "wrapper": 20, "warning": 50, "fact": 99}

Confidence = Literal["certain", "likely", "possible"]
CONFIDENCES: tuple[Confidence, ...] = ("certain", "likely", "possible")

#: Characters of the longest needle.
NEEDLE = 64
#: Ways to match that a regex may have at one place of a line: its cost on hostile text.
_WAYS = 4096
_ESCAPES_AND_CLASSES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_REPEAT = re.compile(r"([*+])|\{(\d*)(,?)(\d*)\}")


def _require_linear_regex(text: str) -> str:
    """Refuse a regex that takes more than linear time, as it is matched against untrusted text."""
    try:
        re.compile(text, re.ASCII)
    except (re.error, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from None
    # Every escape and every class is one character to what follows it.
    plain = _ESCAPES_AND_CLASSES.sub("x", text)
    ways = 1
    for match in _REPEAT.finditer(plain):
        sign, low, comma, high = match.groups()
        if sign or (comma and not high):
            raise ValueError(f"unbounded repeat '{match[0]}'; write {{0,200}}")
        if plain[match.start() - 1] == ")":
            raise ValueError("repeats a group; repeat single characters only")
        ways *= int(high) - int(low or 0) + 1 if comma else 1
    if ways > _WAYS:
        raise ValueError(f"{ways} ways to match at one place, at most {_WAYS}: lower the bounds")
    return text


def _ascii(text: str) -> str:
    if not text.isascii() or not text.isprintable() or not re.search(r"\w", text):
        raise ValueError("a needle is printable ASCII, with a letter or digit")
    return text


Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Needle = Annotated[str, StringConstraints(min_length=4, max_length=NEEDLE), AfterValidator(_ascii)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$")]
Toolset = Annotated[str, StringConstraints(pattern=r"^14\.\d{2}$")]
WindowsPath = Annotated[str, StringConstraints(pattern=r"^[A-Z]:\\[^/]*$")]


class FewerJobs(Model):
    """Half the parallel compile jobs; with one job, half the threads of nvcc."""

    kind: Literal["fewer-jobs"]


class SetVariable(Model):
    """Set a variable of the build's environment."""

    kind: Literal["set"]
    variable: Variable
    value: Text


class AppendFlag(Model):
    """Add a flag to a variable that the compiler reads."""

    kind: Literal["append-flag"]
    variable: Variable
    flag: Text


class DropFlag(Model):
    """Remove flags (patterns with ``*``) from variables that the compiler reads."""

    kind: Literal["drop-flag"]
    variables: Annotated[tuple[Variable, ...], Field(min_length=1)]
    flags: Annotated[tuple[Text, ...], Field(min_length=1)]


class OtherToolset(Model):
    """Use the first of these toolsets that the host has and the build did not use."""

    kind: Literal["other-toolset"]
    versions: Annotated[tuple[Toolset, ...], Field(min_length=1)]
    older: bool = False
    """Only toolsets older than the one the build had."""


class ShorterRoot(Model):
    """Use shorter directories for the build and for temporary files."""

    kind: Literal["shorter-root"]
    root: WindowsPath
    temp: WindowsPath


Heal = Annotated[
    FewerJobs | SetVariable | AppendFlag | DropFlag | OtherToolset | ShorterRoot,
    Field(discriminator="kind"),
]


class Code(Model):
    """What a number that a program prints means, and what to do."""

    means: Text
    hint: Text


class _Codes(RootModel[dict[Id, dict[str, Code]]]):
    """``codes.yaml``: tables of codes."""


def load_codes() -> Mapping[str, Mapping[str, Code]]:
    """The tables of codes."""
    return read_data(CODES_FILE, _Codes).root


Scope = Mapping[Annotated[str, StringConstraints(pattern=r"^[a-z]+$")], Text | tuple[Text, ...]]


class Signature(Model):
    """A kind of failure: how a log shows it, why it happens, what to do.

    Cause and hint may have ``{name}`` or ``{name|otherwise}``: a named group of the regex (digits
    at its end do not count), ``text`` (the line), ``raised`` (the packages of the traceback above
    it), or ``means`` and ``hint`` of the code. Groups of a ``fact`` are what ``scope`` and
    ``needs`` are compared with.
    """

    id: Id
    kind: Kind = "cause"
    rank: Annotated[int, Field(ge=0, le=99)] | None = None
    regex: Annotated[str, StringConstraints(min_length=1), AfterValidator(_require_linear_regex)]
    needles: Annotated[tuple[Needle, ...], Field(min_length=1)]
    sample: Text
    also: tuple[Text, ...] = ()
    """Lines of other shells, compilers or releases that mean the same."""
    cause: Text
    hint: Text
    """What to run, or to set and where."""
    evidence: tuple[Link, ...] = ()
    evidence_note: Text | None = None
    """What is known without a link."""
    basis: Literal["seen", "code", "inferred"] = "seen"
    heals: tuple[Heal, ...] = ()
    context: Annotated[int, Field(ge=0, le=20)] = 3
    """Lines below the finding that belong to it."""
    confidence: Confidence | None = None
    scope: Scope = Field(default_factory=dict)
    """Versions (``<12.4``) or names for which it holds: of what the log says otherwise it is not
    the cause; where the log does not say, its confidence is lower."""
    needs: Scope = Field(default_factory=dict)
    """As ``scope``; without them in the log it is not the cause."""
    codes: str | None = None
    """The table in which its group ``code`` must be."""
    unless: tuple[Id, ...] = ()
    """Signatures that, found in the log, show that this one is not the cause."""
    last: bool = False
    """The last finding in the log counts, not the first."""
    ends: bool = False
    """It ended the job, whatever failed in it."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled regex."""
        return re.compile(self.regex, re.ASCII)

    @property
    def order(self) -> int:
        """Findings of a lower order explain those of a higher one."""
        return _RANKS[self.kind] if self.rank is None else self.rank

    @property
    def claims(self) -> Confidence:
        """Its confidence within its scope."""
        if self.confidence or self.kind != "cause":
            return self.confidence or "possible"
        return "likely" if self.basis == "inferred" or self.rank else "certain"

    def groups(self, text: str) -> dict[str, str] | None:
        """The named groups in a line that it matches, with the meaning of its code."""
        match = self.pattern.search(text)
        if match is None:
            return None
        groups = {name.rstrip("0123456789"): v for name, v in match.groupdict().items() if v}
        if self.codes:
            code = load_codes()[self.codes].get(groups["code"].upper())
            return groups | code.model_dump() if code else None
        return groups

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not self.evidence and not self.evidence_note:
            raise ValueError("expected evidence or evidence_note")
        if self.heals and self.kind != "cause":
            raise ValueError(f"a {self.kind} cannot have heals")
        if self.codes and not (self.codes in load_codes() and "code" in self.pattern.groupindex):
            raise ValueError("codes needs a group 'code' and is one of " + ", ".join(load_codes()))
        for sample in (self.sample, *self.also):
            which = "the sample" if sample == self.sample else f"'{sample[:60]}'"
            if self.groups(sample) is None:
                raise ValueError(f"the regex does not match {which}")
            if not any(needle in sample for needle in self.needles):
                raise ValueError(f"none of the needles stands in {which}")
        return self


class Catalogue(Model):
    """``catalogue.yaml``."""

    signatures: Annotated[tuple[Signature, ...], Field(min_length=1)]

    @cached_property
    def by_id(self) -> dict[str, Signature]:
        """Every signature under its id."""
        return {signature.id: signature for signature in self.signatures}

    @cached_property
    def by_needle(self) -> dict[bytes, list[Signature]]:
        """What to search for, with the signatures that have it."""
        by_needle: dict[bytes, list[Signature]] = {}
        for signature in self.signatures:
            for needle in signature.needles:
                by_needle.setdefault(needle.encode(), []).append(signature)
        return by_needle

    @model_validator(mode="after")
    def _one_signature_an_id(self) -> Self:
        ids = [signature.id for signature in self.signatures]
        if doubles := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"signatures with the same id: {', '.join(doubles)}")
        return self


def _replace_signature_numbers(problems: str, text: Any) -> str:
    """Replace the numbers of signatures in messages by their ids."""

    def name(match: re.Match[str]) -> str:
        try:
            return f" signatures.{text['signatures'][int(match[1])]['id']}"
        except (KeyError, TypeError):
            return match[0]

    return re.sub(r" signatures\.(\d{1,6})\b", name, problems)


def load_catalogue() -> Catalogue:
    """The catalogue that is built in, after ``signatures.yaml`` of the repository and of packages.

    Theirs are found first, and take the place of one that has their id.
    """
    brought = plugins.plugin_files(plugins.SIGNATURES)
    rows = [(entry, read_signature_catalogue(entry.path).signatures) for entry in brought]
    plugins.refuse_doubles(((entry, [s.id for s in each]) for entry, each in rows), "signature")
    if not rows:
        return _builtin()
    by_id: dict[str, Signature] = {}
    for signature in (*(one for _, each in rows for one in each), *_builtin().signatures):
        by_id.setdefault(signature.id, signature)
    return Catalogue(signatures=tuple(by_id.values()))


@cache
def _builtin() -> Catalogue:
    return read_signature_catalogue(CATALOGUE_FILE)


def read_signature_catalogue(path: Path) -> Catalogue:
    """Read the file; :class:`ConfigError` names the file and the key that is wrong."""
    text = read_yaml(path, hint="Restore it from git." if path == CATALOGUE_FILE else "")
    try:
        return Catalogue.model_validate(text)
    except ValidationError as error:
        raise ConfigError(
            _replace_signature_numbers(format_validation_error(path, error, Catalogue), text),
            hint="See pipelines/diagnosis/model.py: Signature.",
        ) from None
