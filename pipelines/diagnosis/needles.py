"""Which needles a part of a log may have, by its words: most lines repeat those of others."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

#: Words differ neither by case nor by digits; the parts of a path are words.
_ALIKE = bytes.maketrans(
    (string.ascii_uppercase + string.digits + "\\/").encode(),
    (string.ascii_lowercase + "0" * len(string.digits) + "  ").encode(),
)


class Needles:
    """Rules out most needles for a part of a log, as one of their words is not in it."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._parts = {needle: _parts(needle) for needle in needles}

    def within(self, text: bytes) -> list[bytes]:
        """The needles that may be in ``text``; no other is."""
        words = b"  ".join({b"", *text.translate(_ALIKE).split()}) + b"  "
        return [n for n, parts in self._parts.items() if all(words.rfind(p) >= 0 for p in parts)]


def _parts(needle: bytes) -> list[bytes]:
    """Its longest word; then each with a blank where the needle says that it begins or ends."""
    parts = re.findall(rb"(?:^| )[^ ]+(?: |$)", needle.translate(_ALIKE).replace(b" ", b"  "))
    return [max(parts, key=len).strip(), *parts]
