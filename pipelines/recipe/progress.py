"""How far a build says that it is: a template that its log's lines begin with.

No regular expression of a recipe meets a host's text: one that backtracks would hang the
controller, and nothing can interrupt it. What is matched here has few ways to match any line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import Annotated

from pydantic import AfterValidator

_FIELDS = {"done", "total"}
_LOOKED_AT = 1 << 14  # characters of a line; torch's own with one nvcc have 2000 to 4000
#: A source file that a compiler is given; without its directory.
_SOURCE = re.compile(r"[\w.+-]{1,80}\.(?:cu|cpp|cxx|cc|c)\b", re.ASCII)


def _template(text: str) -> str:
    try:
        fields = [part[1:] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise ValueError(f"not a template: {error}; such as '[{{done}}/{{total}}]'") from None
    if sorted(fields) != [(name, "", None) for name in sorted(_FIELDS)]:
        raise ValueError("expected {done} and {total}, each once, such as '[{done}/{total}]'")
    return text


Progress = Annotated[str, AfterValidator(_template)]


@dataclass(frozen=True)
class Step:
    """What a line says: units done, units in all, and which one this is."""

    done: int
    total: int
    unit: str


def make_progress_parser(template: str) -> Callable[[str], Step | None]:
    """What finds the :class:`Step` in a line of the log; ``None`` where there is none.

    The unit is the first source file after what the template says, else the first word.
    """
    parts = [
        re.escape(text) + (rf"(?P<{name}>[0-9]{{1,9}})" if name else "")
        for text, name, _, _ in Formatter().parse(template)
    ]
    pattern = re.compile("".join(parts))

    def read(line: str) -> Step | None:
        found = pattern.match(line)
        if found is None:
            return None
        rest = line[found.end() : found.end() + _LOOKED_AT]
        source = _SOURCE.search(rest)
        unit = source[0] if source else next(iter(rest.split(maxsplit=1)), "")
        return Step(int(found["done"]), int(found["total"]), unit)

    return read
