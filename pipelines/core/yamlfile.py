"""YAML as the pipeline's files use it: one document without tags, no key twice, all of it bounded.

The parser's events are looked at before anything is made of them. They come one after the
other, whatever they nest, so neither depth nor aliases cost more than the file is long. (libyaml's
and PyYAML's own are of different types, and have the same fields.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml import events
from yaml.error import MarkedYAMLError

from pipelines.core.errors import ConfigError, PipelineError

#: Bytes of a file, and characters of it once every alias is written out; the largest has 50 kB.
LIMIT = 2 << 20
#: A part of PyYAML's words -> the usual mistake.
_FIXES = {
    "escape": r"Write Windows paths in single quotes: 'C:\envs\t\python.exe'.",
    "expected hexdecimal number": r"Write Windows paths in single quotes: 'C:\xyz'.",
    "start any token": "Indent with spaces, not tabs, and quote text that begins with @ or `.",
    "mapping values are not allowed": 'Quote text that has ": " in it.',
}
_ESCAPED_PATH = re.compile(r"[A-Za-z]:[\w .()\\/-]*[\x00-\x1f\x7f-\xa0]")
#: Keys and lists within each other.
DEPTH = 40


class Unquoted(str):
    """A scalar without quotes, as it was typed: the field that it is for says what it means.

    To YAML 1.1 ``3.10`` is the number 3.1, ``2022`` is no text and ``on`` is true.
    """

    __slots__ = ()


def yaml_value(found: object) -> object:
    """What YAML makes of a scalar without quotes; for fields that take text and other values."""
    if not isinstance(found, Unquoted):
        return found
    try:
        return yaml.safe_load(found)
    except (yaml.YAMLError, ValueError):
        return str(found)


# libyaml where PyYAML was built with it: a tenth of the time.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Takes nothing and merge keys for what they are, and every other scalar for text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the class that it is of
        first: [row for row in rows if row[0].rpartition(":")[2] in ("null", "merge")]
        for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _construct_scalar_text(loader: Any, node: yaml.ScalarNode) -> str:
    text: str = loader.construct_scalar(node)
    if node.style == '"' and _ESCAPED_PATH.match(text):
        problem = r"a Windows path in double quotes, in which \t, \n and \e are control characters"
        raise _RefusedError(problem, node.start_mark, _FIXES["escape"])
    return text if node.style else Unquoted(text)


_Loader.add_constructor("tag:yaml.org,2002:str", _construct_scalar_text)


class _RefusedError(MarkedYAMLError):
    """YAML, but none of ours; ``hint`` is what to do."""

    def __init__(self, problem: str, mark: Any, hint: str) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.hint = hint


def read_yaml(path: Path, kind: type[PipelineError] = ConfigError, hint: str = "") -> Any:
    """What the file holds, scalars without quotes as :class:`Unquoted`.

    An error of ``kind`` names file and line when it is not what it should.

    ``hint`` replaces the hints for what a person has written.
    """

    def refused(line: str, what: str, fix: str) -> PipelineError:
        return kind(f"{path}{line}: {what}", hint=hint or fix)

    try:
        with path.open("rb") as stream:
            data = stream.read(LIMIT + 1)
        if len(data) > LIMIT:
            raise refused("", f"more than {LIMIT >> 20} MiB", "Is it the right file?")
        return parse_yaml(data.decode("utf-8"))
    except OSError as error:
        raise refused("", error.strerror or str(error), "Is it the right path?") from None
    except UnicodeDecodeError as error:
        raise refused("", f"not UTF-8 ({error.reason})", "Save it as UTF-8.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        if isinstance(error, _RefusedError):
            raise refused(line, problem, error.hint) from None
        fix = next((say for part, say in _FIXES.items() if part in problem), "Fix that line.")
        raise refused(line, f"not YAML: {problem}", fix) from None


def parse_yaml(text: str) -> Any:
    """What ``text`` holds, as :func:`read_yaml`; raises ``yaml.YAMLError``."""
    _validate_yaml_events(yaml.parse(text, Loader=_Loader))
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe one


@dataclass
class _Open:
    """A mapping or a list whose end has not come yet."""

    anchor: str | None
    keys: dict[str, int] | None
    """Key -> its line; ``None``: a list."""
    size: int = 1
    height: int = 0
    of_value: bool = False
    """Whether a mapping has the key of what comes next."""

    def add(self, size: int, height: int, key: str | None, mark: Any) -> None:
        """A value, or a key, is complete."""
        self.size, self.height = self.size + size, max(self.height, height)
        if self.size > LIMIT:
            problem = f"aliases stand for more than {LIMIT >> 20} MiB"
            raise _RefusedError(problem, mark, "Write out what is meant.")
        if self.keys is not None:
            if key is not None and not self.of_value:
                if key in self.keys:
                    problem = f"{key}: appears twice, in line {self.keys[key]} as well"
                    hint = "Keep one of them: YAML itself would silently use the last."
                    raise _RefusedError(problem, mark, hint)
                self.keys[key] = mark.line + 1
            self.of_value = not self.of_value


def _validate_yaml_events(parsed: Iterable[Any]) -> None:
    """Raise :class:`_RefusedError` for what may not stand in a file of ours."""
    stack: list[_Open] = []
    anchors: dict[str, tuple[int, int]] = {}  # size and height of what stands behind one
    for event in parsed:
        mark, key = event.start_mark, None
        if getattr(event, "tag", None) is not None:
            raise _RefusedError(f"the tag {event.tag[:40]}", mark, "Take it out.")
        match event:
            case events.CollectionStartEvent():
                is_mapping = isinstance(event, events.MappingStartEvent)
                stack.append(_Open(event.anchor, {} if is_mapping else None))
                _refuse_deep(len(stack), mark)
                continue
            case events.CollectionEndEvent():
                done = stack.pop()
                anchor, size, height = done.anchor, done.size, done.height + 1
            case events.AliasEvent():
                if event.anchor not in anchors:
                    problem = f"*{event.anchor} refers to no anchor above it, or to itself"
                    raise _RefusedError(problem, mark, "Write out what is meant.")
                anchor, (size, height) = None, anchors[event.anchor]
            case events.ScalarEvent():
                anchor, size, height, key = event.anchor, 1 + len(event.value), 0, event.value
            case _:
                continue
        if anchor:
            anchors[anchor] = size, height
        if stack:
            _refuse_deep(len(stack) + height, mark)
            stack[-1].add(size, height, key, mark)


def _refuse_deep(depth: int, mark: Any) -> None:
    if depth > DEPTH:
        raise _RefusedError(f"nested more than {DEPTH} deep", mark, "Nothing here needs that.")
