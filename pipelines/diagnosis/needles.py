"""Which needles a part of a log may have, by its words: most lines repeat those of others."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from functools import cache

#: Words differ neither by case nor by digits; the parts of a path are words.
_ALIKE = bytes.maketrans(
    (string.ascii_uppercase + string.digits + "\\/").encode(),
    (string.ascii_lowercase + "0" * len(string.digits) + "  ").encode(),
)


class Needles:
    """Rules out most needles for a part of a log, as one of their words is not in it."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._parts = {needle: _split_needle_words(needle) for needle in needles}

    def within(self, text: bytes) -> list[bytes]:
        """The needles that may be in ``text``; no other is."""
        words = {*text.translate(_ALIKE).split()}
        every = b"  ".join({b"", *words}) + b"  "
        return [
            needle
            for needle, (whole, ends) in self._parts.items()
            if whole <= words and all(every.rfind(end) >= 0 for end in ends)
        ]


@cache
def _split_needle_words(needle: bytes) -> tuple[set[bytes], list[bytes]]:
    """Its words between blanks; then those at its ends, with the blank that it has there."""
    parts = re.findall(rb"(?:^| )[^ ]+(?: |$)", needle.translate(_ALIKE).replace(b" ", b"  "))
    whole = [part for part in parts if part.startswith(b" ") and part.endswith(b" ")]
    ends = sorted({*parts} - {*whole}, key=len, reverse=True)
    return {part.strip() for part in whole}, ends
