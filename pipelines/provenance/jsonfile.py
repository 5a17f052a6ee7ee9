"""JSON that others have written: bounded, and read in one way only.

Two names in one object are refused: of two readers one takes the first and one the last, and a
signature over both readings is worth nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST = 1 << 20  # bytes of a file; a manifest has some 30 KB, and a MiB costs protobuf seconds


def read_bytes(path: Path) -> bytes:
    """The file; ``ValueError`` for one that is too large, or that cannot be read."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST + 1)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    if len(data) > MOST:
        raise ValueError(f"it has more than {MOST >> 20} MiB")
    return data


def parse(data: bytes) -> dict[str, Any]:
    """The object in ``data``; ``ValueError`` says why there is none that all would read alike."""
    try:
        # As text: of bytes json would also take UTF-16 and UTF-32, which others do not.
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - as any other wrong file
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice in one object")
    return found


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
