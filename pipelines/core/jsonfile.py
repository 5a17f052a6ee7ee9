"""JSON that others have written: bounded, and read in one way only.

Two names in one object are refused: of two readers one takes the first and one the last, and a
signature over both readings is worth nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipelines.core.hosttext import safe_line

MOST = 1 << 20  # bytes of a file; a manifest has some 30 KB, and a MiB costs protobuf seconds
_VALUES = 50_000  # that many take seconds to be compared, and a manifest has some 300
_DIGITS = 18  # of a whole number: more is another number for who reads it as a float


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


def parse_json_object(data: bytes) -> dict[str, Any]:
    """The object in ``data``; ``ValueError`` says why there is none that all would read alike."""
    try:
        # As text: of bytes json would also take UTF-16 and UTF-32, which others do not.
        found = json.loads(
            data.decode(),
            object_pairs_hook=reject_duplicate_keys,
            parse_constant=_reject_json_value,
            parse_float=_finite,
            parse_int=_parse_short_int,
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - as any other wrong file
    count, level = 0, [found]
    while level:
        count += len(level)
        if count > _VALUES:
            raise ValueError(f"it has more than {_VALUES} values")
        level = [inner for one in level for inner in child_values(one)]
    return found


def child_values(value: Any) -> Iterable[Any]:
    """The values of an object or a list; none of anything else."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def json_differences(there: Any, here: Any) -> list[str]:
    """Both values of what differs between two objects, a line each."""
    # As text: for Python 1 is True.
    one, other = ({k: json.dumps(v) for k, v in _flatten_json(value)} for value in (there, here))
    return [
        f"{safe_line(name, 120)}: there {safe_line(one.get(name, 'nothing'), 200)}, "
        f"here {safe_line(other.get(name, 'nothing'), 200)}"
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    ]


def _flatten_json(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by where it stands; what is in lists by its name, as far as it has one."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flatten_json(inner, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _flatten_json(inner, f"{name}[{as_dict(inner).get('name', number)}]")
    else:
        yield name, value


def as_dict(value: Any) -> dict[str, Any]:
    """It, where it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def _finite(text: str) -> float:
    found = float(text)
    return found if math.isfinite(found) else _reject_json_value(text[:20])


def _parse_short_int(text: str) -> int:
    return int(text) if len(text) <= _DIGITS else _reject_json_value("a number of that many digits")


def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; ``ValueError`` for a name twice: readers differ in which one they take."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice in an object")
    return found


def _reject_json_value(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
