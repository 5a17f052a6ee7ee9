"""Finds all signatures in a log in one pass; :mod:`pipelines.diagnosis.judge` chooses the cause.

A log comes from a host and is untrusted: time is linear and memory bounded for any contents.
Blocks are searched for the literals (needles) of the signatures that their words do not rule out;
only around a hit is a line cut out, decoded and matched.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, cast

from pipelines.core.console import bytes_progress
from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe_text
from pipelines.diagnosis.judge import Diagnosis, Finding, diagnose_findings
from pipelines.diagnosis.model import NEEDLE, Catalogue, Signature, load_catalogue
from pipelines.diagnosis.needles import Needles

_BLOCK = 1 << 18
#: Bytes kept before a hit: of its line, and to find its compile unit.
_LINE_BEFORE, _BEFORE = 1 << 10, 1 << 16
#: Bytes kept after a hit: the rest of its line, and lines below it.
_LINE_AFTER, _AFTER = 1 << 11, 1 << 13
_KEPT = 5  # findings of one signature; the first ones count
_TRIED = 64  # lines of a block that are matched for the last finding
_SHOWN = 400  # characters of a line in a finding
_ESCAPE = 64  # bytes of the longest escape sequence that is taken out whole
_COLOURS = re.compile(rb"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]")
_UNIT = re.compile(
    rb"FAILED: (?:\[code=[-\d]{1,12}\] )?([^\r\n]{1,400})(?:\r?\n([^\r\n]{1,2000}))?"
)
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[\d.]{0,10}Z ")
#: What GitHub's runner and Docker's builder write before each line.
_PREFIX = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{8,20}Z |#\d{1,4} \d{1,7}\.\d{1,3} ")
_FRAME = re.compile(rb'File "([^"\r\n]{1,400})", line \d')
_PACKAGE = re.compile(r"site-packages[\\/](\w{1,80})|[\\/]([^\\/]{1,80})$")
_NEXT_UNIT = re.compile(rb"^\s{0,16}(?:FAILED: |\[\d{1,6}/\d{1,6}\] )")


@dataclass
class _Pass:
    """The state of one pass over a log."""

    catalogue: Catalogue
    needles: Needles
    newlines: int = 0
    """Line feeds before the part of the log that has not been searched."""
    found: dict[str, list[Finding]] = field(default_factory=dict)
    began: datetime | None = None
    """The time of the first line, in a log of GitHub's runner."""

    def search(self, data: bytes, start: int, stop: int) -> None:
        """Search for what begins in ``data[start:stop]``; beyond ``stop`` is context."""
        if self.began is None:
            self.began = _parse_log_timestamp(
                _STAMP.search(data, start, min(start + _LINE_AFTER, stop))
            )
        hits: dict[tuple[int, str], tuple[int, Signature]] = {}
        for needle in self.needles.within(data[start : stop + NEEDLE]):
            for begin, at, signature in self._hits(data, start, stop + len(needle) - 1, needle):
                hits.setdefault((begin, signature.id), (at, signature))
        for (begin, name), (at, signature) in sorted(
            hits.items(), key=lambda hit: (hit[1][1].last, hit[1][0])
        ):
            findings = self.found.setdefault(name, [])
            number = self.newlines + data.count(b"\n", start, at) + 1
            if signature.last:
                findings.clear()
            if len(findings) < _KEPT and number not in (finding.line for finding in findings):
                findings.append(self._finding(data, begin, at, number, signature))
        self.newlines += data.count(b"\n", start, stop)

    def _hits(
        self, data: bytes, start: int, stop: int, needle: bytes
    ) -> Iterator[tuple[int, int, Signature]]:
        """Lines with ``needle`` that match: start of line, offset, signature."""
        left: dict[str, int] = {}
        for signature in self.catalogue.by_needle[needle]:
            if not signature.last:
                left[signature.id] = _KEPT - len(self.found.get(signature.id, ()))
            elif hit := _find_last_match(data, start, stop, needle, signature):
                yield *hit, signature
        dull = set[bytes]()
        at = data.rfind(needle, start, stop)  # twice as fast as find, and most are not there
        if at >= 0 and any(left.values()):
            at = data.find(needle, start, stop)
        while at >= 0 and any(left.values()):
            begin, end = _line_bounds(data, at)
            if (line := data[begin:end]) not in dull:
                dull.add(line)
                text = _decode_log_line(line)
                for signature in self.catalogue.by_needle[needle]:
                    if left.get(signature.id) and signature.groups(text) is not None:
                        left[signature.id] -= 1
                        dull.discard(line)
                        yield begin, at, signature
            # A match near the cut of a long line is searched separately.
            complete = end - at < _LINE_AFTER
            at = data.find(needle, max(at + 1, end if complete else end - _LINE_BEFORE), stop)

    def _finding(
        self, data: bytes, begin: int, at: int, number: int, signature: Signature
    ) -> Finding:
        """The finding with its context."""
        end = _line_bounds(data, at)[1]
        text = _decode_log_line(data[begin:end])
        column = match.start() if (match := signature.pattern.search(text)) else 0
        shown = text if len(text) <= _SHOWN else text[max(0, column - _SHOWN // 4) :]
        shown = safe_text(shown.strip(), _SHOWN)
        below: list[str] = []
        # The line may go on beyond the cut.
        following = data[end : at + _AFTER].partition(b"\n")[2]
        for line in filter(bytes.strip, following.splitlines()):
            if _NEXT_UNIT.match(line) or len(below) >= signature.context:
                break
            below.append(safe_text(_decode_log_line(line[:_LINE_AFTER]).rstrip(), _SHOWN))
        block = data.rfind(b"FAILED: ", max(0, at - _BEFORE), at + 1)
        unit = _UNIT.match(data, block) if block >= 0 else None
        values = (signature.groups(text) or {}) | {"text": shown}
        if "{raised" in signature.cause:
            values["raised"] = _raised(data[max(0, begin - _AFTER) : begin])
        if self.began and (now := _parse_log_timestamp(_STAMP.match(data, begin))):
            values["minutes"] = str(round((now - self.began).total_seconds() / 60))
        return Finding(
            signature=signature,
            line=number,
            column=column + 1,
            text=shown,
            below=tuple(below),
            unit=safe_text(_decode_log_line(unit[1]).strip(), _SHOWN) if unit else "",
            command=safe_text(_decode_log_line(unit[2]).strip(), _SHOWN)
            if unit and unit[2] and unit.start(2) < begin
            else "",
            values={name: safe_text(value, _SHOWN) for name, value in values.items()},
        )


def _find_last_match(
    data: bytes, start: int, stop: int, needle: bytes, signature: Signature
) -> tuple[int, int] | None:
    """The last line that matches, of the last ones that have ``needle``."""
    for _ in range(_TRIED):
        at = data.rfind(needle, start, stop)
        if at < 0:
            break
        begin, end = _line_bounds(data, at)
        if signature.groups(_decode_log_line(data[begin:end])) is not None:
            return begin, at
        stop = max(begin, start)
    return None


def _parse_log_timestamp(stamp: re.Match[bytes] | None) -> datetime | None:
    with contextlib.suppress(ValueError):  # such as the 99th of a month
        return datetime.fromisoformat(stamp[1].decode()) if stamp else None
    return None


def _raised(above: bytes) -> str:
    """The packages of a traceback, the one that raised last; else its files."""
    names: list[str] = []
    start = max(0, above.rfind(b"Traceback (most recent call last)"))
    for path in map(_decode_log_line, _FRAME.findall(above, start)):
        match = _PACKAGE.search(path)
        if match and (match[1] or not re.search(r"[\\/][Ll]ib[\\/]", path)):
            names.append(match[1] or match[2])
    # pip's and the interpreter's own frames say nothing.
    return " -> ".join([name for name in dict.fromkeys(names) if name != "pip"][-3:])


def _line_bounds(data: bytes, at: int) -> tuple[int, int]:
    """Start and end of the line around ``at``; carriage returns also end a line."""
    low, high = max(0, at - _LINE_BEFORE), min(len(data), at + _LINE_AFTER)
    begin = max(data.rfind(b"\n", low, at), data.rfind(b"\r", low, at)) + 1 or low
    ends = [e for e in (data.find(b"\n", at, high), data.find(b"\r", at, high)) if e >= 0]
    return begin, min(ends, default=high)


def _decode_log_line(line: bytes) -> str:
    """A line as text: UTF-8, else the code page of western Windows."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = line.decode("cp1252", "replace")
    prefix = _PREFIX.match(text)
    return text[prefix.end() :] if prefix else text


def _iter_plain_blocks(stream: IO[bytes]) -> Iterator[bytes]:
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


def diagnose(
    log: IO[bytes] | Iterable[str], catalogue: Catalogue | None = None, *, above: int = 0
) -> Diagnosis | None:
    """What a log shows, ``None`` if nothing in it is known to mean a failure.

    ``log`` is a binary stream, or lines of text; ``above`` lines of the file stand before it and
    are counted, as of earlier attempts. Memory: a few MiB, whatever the log is.
    """
    if hasattr(log, "read"):
        stream = cast("IO[bytes]", log)
    else:
        text = "".join(line.rstrip("\n") + "\n" for line in log)
        stream = io.BytesIO(text.encode("utf-8", "replace"))
    catalogue = catalogue or load_catalogue()
    state = _Pass(catalogue, Needles(catalogue.by_needle), above)
    data, start, ended = b"", 0, True
    for block in _iter_plain_blocks(stream):
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
    return diagnose_findings(found, lines=state.newlines + (not ended))


def diagnose_file(path: Path, catalogue: Catalogue | None = None) -> Diagnosis | None:
    """As :func:`diagnose` for a file; :class:`ConfigError` if it cannot be read."""
    try:
        with path.open("rb") as stream, bytes_progress() as progress:
            size = path.stat().st_size
            return diagnose(progress.wrap_file(stream, size, description="reading"), catalogue)
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}", hint="Name a log, such as out/latest/build.log."
        ) from None


def last_log_lines(path: Path, most: int = 8) -> tuple[str, ...]:
    """The last lines of a log that are not empty, safe to print."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _AFTER))
        lines = b"".join(_iter_plain_blocks(stream)).splitlines()
    return tuple(safe_text(_decode_log_line(line), _SHOWN) for line in lines if line.strip())[
        -most:
    ]
