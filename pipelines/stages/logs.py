"""Follows the log of something that runs on a host: bytes into a file, lines to the reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

#: Lines of a log that the record and the reports keep.
TAIL = 60
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
