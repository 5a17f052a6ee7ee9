"""What a statement must say for its wheel to be accepted: always, and by ``verify --require``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pipelines.core.errors import ConfigError
from pipelines.core.evidence import Evidence
from pipelines.core.hosttext import safe_line
from pipelines.core.jsonfile import as_dict

_LEVELS = [one.value for one in Evidence]
_DIGITS = 20
#: What each requirement compares, of SLSA's predicate.
_VALUES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "recipe": lambda said: _nested_string(said, "buildDefinition", "externalParameters", "recipe"),
    "level": lambda said: _internal_parameter(said, "evidence", "level"),
    "test": lambda said: _internal_parameter(said, "stages", "test"),
    "builder": lambda said: _nested_string(said, "runDetails", "builder", "id"),
    "newer-than": lambda said: _nested_string(said, "runDetails", "metadata", "finishedOn"),
    "serial": lambda said: str(serial_of(said)),
}


def read_requirements(texts: Sequence[str]) -> dict[str, str]:
    """``name=value`` each, also several between commas; :class:`ConfigError` for another."""
    found: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, separator, value = part.partition("=")
        if name not in _VALUES or not separator or not value:
            raise ConfigError(
                f"--require {safe_line(part, 80)}: expected NAME=VALUE with one of "
                f"{', '.join(_VALUES)}",
                hint="Example: --require recipe=flash-attn,test=passed,newer-than=2026-11-01.",
            )
        if name == "newer-than" and _date(value) is None:
            raise ConfigError(
                f"--require newer-than={safe_line(value, 40)}: expected a date such as 2026-11-01"
            )
        if name == "serial" and not value.isdecimal():
            raise ConfigError(f"--require serial={safe_line(value, 40)}: expected a number")
        if name == "level" and value not in _LEVELS:
            raise ConfigError(
                f"--require level={safe_line(value, 20)}: expected one of {', '.join(_LEVELS)}",
                hint="docs/evidence/levels.md explains them.",
            )
        if name in found:
            raise ConfigError(f"--require {name} is given twice", hint="Remove one of them.")
        found[name] = value
    return found


def unmet_requirements(
    said: Mapping[str, Any], requirements: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """What of them does not hold for a predicate: name, and what it says instead."""
    for name, wanted in requirements.items():
        actual = _VALUES[name](said)
        if not _meets_requirement(name, actual, wanted):
            yield (
                f"require {name}",
                f"{safe_line(actual, 100) or 'nothing'}, not {safe_line(wanted, 100)}",
            )


def _meets_requirement(name: str, actual: str, wanted: str) -> bool:
    if name == "newer-than":
        then, now = _date(wanted), _date(actual)
        return then is not None and now is not None and now > then
    if name == "serial":
        return int(actual) >= int(wanted)
    if name == "level":  # that one, or more
        return actual in _LEVELS and _LEVELS.index(actual) >= _LEVELS.index(wanted)
    return actual == wanted


def serial_of(said: Mapping[str, Any]) -> int:
    """Of a statement; 0: it has none."""
    text = _internal_parameter(said, "serial")
    return int(text) if text.isdecimal() and len(text) < _DIGITS else 0


def policy_violations(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Why no wheel with such a predicate of ours is to be taken."""
    for stage in ("build", "audit"):
        if (state := _internal_parameter(said, "stages", stage)) != "passed":
            yield stage, f"the stage {stage} {safe_line(state, 40) or 'was not run'}"
    if (state := _internal_parameter(said, "stages", "test")) not in ("", "passed"):
        yield "test", f"the smoke test {safe_line(state, 40)}"
    if not as_dict(said.get("buildDefinition")).get("resolvedDependencies"):
        yield "dependencies", "it lists neither source nor tools"


def _internal_parameter(said: Mapping[str, Any], *names: str) -> str:
    return _nested_string(said, "buildDefinition", "internalParameters", *names)


def _nested_string(said: Mapping[str, Any], *names: str) -> str:
    for name in names[:-1]:
        said = as_dict(said.get(name))
    value = said.get(names[-1])
    return value if isinstance(value, str) else ""


def _date(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
