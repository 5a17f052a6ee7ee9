"""Follows the log of something that runs on a host: bytes into a file, lines to the reader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pipelines.core.hosttext import safe

#: Lines of a log that the record and the reports keep.
TAIL = 60
_END = 64 << 10  # bytes of a log that its last lines are looked for in
_LONGEST = 1 << 20  # bytes; a host that never ends its line must not fill our memory


def log_lines(items: Iterator[Any], log: IO[bytes]) -> Iterator[Any]:
    """Each line as text, its end cut off; what is no bytes (the result) passes as it is."""
    rest = b""
    for item in items:
        if not isinstance(item, bytes):
            if rest:
                yield rest.decode("utf-8", "replace")
            yield item
            return
        log.write(item)
        log.flush()
        *whole, rest = (rest + item).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(rest) > _LONGEST:
            yield rest.decode("utf-8", "replace")
            rest = b""


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log, made harmless."""
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _END))
        lines = log.read().decode("utf-8", "replace").splitlines()
    return [safe(line, 500) for line in lines[-count:]]
