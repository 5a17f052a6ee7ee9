"""Finds all signatures in a log in one pass, and the first real cause.

A log comes from a host and is untrusted: time is linear and memory bounded for any contents.
Blocks are searched for the literals (needles) of all signatures; only around a hit is a line cut
out, decoded and matched. Seventy searches for a literal are some four times faster than one
regex with all of them, and sixteen times faster than the regexes of all signatures.
"""

from __future__ import annotations

import codecs
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe
from pipelines.diagnosis.model import Catalogue, Signature, load_catalogue

_BLOCK = 1 << 18
#: Bytes kept before a hit: of its line, and to find its compile unit.
_LINE_BEFORE, _BEFORE = 1 << 10, 1 << 16
#: Bytes kept after a hit: the rest of its line, and lines below it.
_LINE_AFTER, _AFTER = 1 << 11, 1 << 13
_KEPT = 5  # findings of one signature; the first ones count
_SHOWN = 400  # characters of a line in a finding
_ESCAPE = 64  # bytes of the longest escape sequence that is taken out whole
_COLOURS = re.compile(rb"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]")
_UNIT = re.compile(rb"FAILED: (?:\[code=[-\d]{1,12}\] )?(\S{1,400})")
_NEXT_UNIT = re.compile(rb"^\s{0,16}(?:FAILED: |\[\d{1,6}/\d{1,6}\] )")


@dataclass(frozen=True)
class Finding:
    """A signature at one line of a log; all text is safe to print."""

    signature: Signature
    line: int
    """Counted from 1 by line feeds, as editors and grep -n do."""
    column: int
    text: str
    below: tuple[str, ...] = ()
    """Lines that follow, down to the next compile unit."""
    unit: str = ""
    """Its compile unit, if ninja named one."""


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a log: the first real cause, and all other findings."""

    cause: Finding
    others: tuple[Finding, ...]
    """In the order of the log; at most five of one signature."""
    lines: int
    """Lines of the log, those above it included."""

    @property
    def signature(self) -> Signature:
        """The signature of the cause."""
        return self.cause.signature

    @property
    def is_cause(self) -> bool:
        """Whether it is a real cause; otherwise only wrappers or warnings were found."""
        return self.signature.kind == "cause"


@dataclass
class _Pass:
    """The state of one pass over a log."""

    catalogue: Catalogue
    newlines: int = 0
    """Line feeds before the part of the log that has not been searched."""
    found: dict[str, list[Finding]] = field(default_factory=dict)

    def search(self, data: bytes, start: int, stop: int) -> None:
        """Search for what begins in ``data[start:stop]``; beyond ``stop`` is context."""
        hits: dict[tuple[int, str], tuple[int, Signature]] = {}
        for needle, signatures in self.catalogue.by_needle.items():
            open_signatures = [s for s in signatures if len(self.found.get(s.id, ())) < _KEPT]
            for begin, at, signature in _hits(data, (start, stop), needle, open_signatures):
                hits.setdefault((begin, signature.id), (at, signature))
        for (begin, name), (at, signature) in sorted(hits.items(), key=lambda hit: hit[1][0]):
            findings = self.found.setdefault(name, [])
            number = self.newlines + data.count(b"\n", start, at) + 1
            if len(findings) < _KEPT and number not in (finding.line for finding in findings):
                findings.append(_finding(data, begin, at, number, signature))
        self.newlines += data.count(b"\n", start, stop)


def _hits(
    data: bytes, span: tuple[int, int], needle: bytes, signatures: Sequence[Signature]
) -> Iterator[tuple[int, int, Signature]]:
    """The first matching lines around ``needle``: start of line, offset, signature."""
    left = {signature.id: _KEPT for signature in signatures}
    last = span[1] + len(needle) - 1
    at = data.find(needle, span[0], last) if signatures else -1
    while at >= 0 and signatures:
        begin, end = _line(data, at)
        text = _text(data[begin:end])
        matched = [signature for signature in signatures if signature.pattern.search(text)]
        for signature in matched:
            left[signature.id] -= 1
            yield begin, at, signature
        if matched:
            signatures = [signature for signature in signatures if left[signature.id]]
        # A match near the cut of a long line is searched separately.
        complete = end - at < _LINE_AFTER
        at = data.find(needle, max(at + 1, end if complete else end - _LINE_BEFORE), last)


def _line(data: bytes, at: int) -> tuple[int, int]:
    """Start and end of the line around ``at``; carriage returns also end a line."""
    low, high = max(0, at - _LINE_BEFORE), min(len(data), at + _LINE_AFTER)
    begin = max(data.rfind(b"\n", low, at), data.rfind(b"\r", low, at)) + 1 or low
    ends = [e for e in (data.find(b"\n", at, high), data.find(b"\r", at, high)) if e >= 0]
    return begin, min(ends, default=high)


def _text(line: bytes) -> str:
    """A line as text: UTF-8, else the code page of western Windows."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")


def _finding(data: bytes, begin: int, at: int, number: int, signature: Signature) -> Finding:
    """The finding with its context."""
    end = _line(data, at)[1]
    text = _text(data[begin:end])
    match = signature.pattern.search(text)
    column = match.start() if match else 0
    shown = text if len(text) <= _SHOWN else text[max(0, column - _SHOWN // 4) :]
    below: list[str] = []
    # The line may go on beyond the cut.
    following = data[end : at + _AFTER].partition(b"\n")[2]
    for line in filter(bytes.strip, following.splitlines()):
        if _NEXT_UNIT.match(line) or len(below) >= signature.context:
            break
        below.append(safe(_text(line[:_LINE_AFTER]).rstrip(), _SHOWN))
    block = data.rfind(b"FAILED: ", max(0, at - _BEFORE), at + 1)
    unit = _UNIT.match(data, block) if block >= 0 else None
    return Finding(
        signature=signature,
        line=number,
        column=column + 1,
        text=safe(shown.strip(), _SHOWN),
        below=tuple(below),
        unit=safe(_text(unit[1]), _SHOWN) if unit else "",
    )


def _plain(stream: IO[bytes]) -> Iterator[bytes]:
    """The log in blocks as UTF-8 or an ASCII-like code page, without colours.

    With a byte order mark UTF-16 is decoded. Without one (PowerShell's ``>>`` puts UTF-16 below
    what another program wrote) NULs are dropped, which leaves the ASCII in it.
    """
    first = stream.read(_BLOCK)
    while len(first) < len(codecs.BOM_UTF8) and (more := stream.read(_BLOCK)):
        first += more
    decoder = None
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
    first, rest = first.removeprefix(codecs.BOM_UTF8), b""
    for block in itertools.chain([first], iter(lambda: stream.read(_BLOCK), b"")):
        if decoder is not None:
            block = decoder.decode(block).encode("utf-8", "replace")  # noqa: PLW2901
        complete, rest = _without_marks(rest + block)
        yield complete
    yield _COLOURS.sub(b"", rest)


def _without_marks(block: bytes) -> tuple[bytes, bytes]:
    """A block without NULs and colours, and its end if an escape sequence may go on there."""
    rest = b""
    if b"\0" in block:
        block = block.replace(b"\0", b"")
    if b"\x1b" in block:
        cut = block.rfind(b"\x1b", max(0, len(block) - _ESCAPE))
        if cut >= 0:
            block, rest = block[:cut], block[cut:]
        block = _COLOURS.sub(b"", block)
    return block, rest


class _Lines(io.RawIOBase):
    """Lines of text as a binary stream."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            line = next(self._lines, None)
            if line is not None:
                self._rest = line.rstrip("\n").encode("utf-8", "replace") + b"\n"
        size = min(len(self._rest), len(buffer))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def diagnose(
    log: IO[bytes] | Iterable[str], catalogue: Catalogue | None = None, *, above: int = 0
) -> Diagnosis | None:
    """What a log shows, ``None`` if nothing in it is known to mean a failure.

    ``log`` is a binary stream, or lines of text; ``above`` lines of the file stand before it and
    are counted, as of earlier attempts. The cause is the first finding of the lowest
    rank: a real cause wherever it stands, else the first error that is not in the catalogue, else
    what merely says that something failed. Memory: some 2 MiB, whatever the log is.
    """
    stream = cast("IO[bytes]", log) if hasattr(log, "read") else io.BufferedReader(_Lines(log))
    state = _Pass(catalogue or load_catalogue(), above)
    data, start, ended = b"", 0, True
    for block in _plain(stream):
        data = data[max(0, start - _BEFORE) :] + block
        start = min(start, _BEFORE)
        stop = max(start, len(data) - _AFTER)
        state.search(data, start, stop)
        start = stop
        ended = data.endswith(b"\n") or not data
    state.search(data, start, len(data))
    found = sorted(
        (finding for findings in state.found.values() for finding in findings),
        key=lambda finding: (finding.line, finding.column),
    )
    if not found:
        return None
    cause = min(found, key=lambda finding: finding.signature.order)
    others = tuple(finding for finding in found if finding is not cause)
    return Diagnosis(cause, others, lines=state.newlines + (not ended))


def diagnose_file(path: Path, catalogue: Catalogue | None = None) -> Diagnosis | None:
    """As :func:`diagnose` for a file; :class:`ConfigError` if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return diagnose(stream, catalogue)
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}", hint="Name a log, such as out/latest/build.log."
        ) from None
