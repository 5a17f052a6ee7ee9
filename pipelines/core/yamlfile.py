"""YAML as the pipeline's files use it: one document without tags, no key twice, all of it bounded.

The parser's events are looked at before anything is made of them. They are told one after the
other, whatever they nest, so neither depth nor aliases cost more than the file is long. (libyaml's
and PyYAML's own are of different types, and have the same fields.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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


def _text(loader: Any, node: yaml.ScalarNode) -> str:
    text: str = loader.construct_scalar(node)
    if node.style == '"' and _ESCAPED_PATH.match(text):
        problem = r"a Windows path in double quotes, in which \t, \n and \e are control characters"
        raise _RefusedError(problem, node.start_mark, _FIXES["escape"])
    return text if node.style else Unquoted(text)


_Loader.add_constructor("tag:yaml.org,2002:str", _text)


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
    _look(yaml.parse(text, Loader=_Loader))
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe one


@dataclass
class _Open:
    """A mapping or a list whose end has not come yet."""

    anchor: str | None = None
    lines: dict[str, int] | None = None
    """Key -> its line; ``None``: a list."""
    name: str = ""
    """The key whose value comes next."""
    of_value: bool = False
    size: int = 1
    height: int = 0
    """Of what is nested in it; itself not counted."""


@dataclass
class _Looking:
    """What is known of the file up to an event."""

    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and height of what stands behind an anchor, once it is complete."""

    def opened(self, event: Any) -> None:
        mapping = isinstance(event, events.MappingStartEvent)
        self.stack.append(_Open(event.anchor, {} if mapping else None))
        self.deep(0, event.start_mark)

    def deep(self, height: int, mark: Any) -> None:
        if len(self.stack) + height > DEPTH:
            raise _RefusedError(f"nested more than {DEPTH} deep", mark, "Nothing here needs that.")

    def closed(self, event: Any) -> None:
        done = self.stack.pop()
        self.add(event, done.anchor, done.size, done.height + 1)

    def alias(self, event: Any) -> None:
        known = self.anchors.get(event.anchor)
        if known is None:
            problem = f"*{event.anchor} stands for nothing above it, or for itself"
            raise _RefusedError(problem, event.start_mark, "Write out what is meant.")
        self.add(event, None, *known)

    def add(self, event: Any, anchor: str | None, size: int, height: int) -> None:
        """A list or mapping is complete, or an alias stands for a value that is."""
        if anchor:
            self.anchors[anchor] = size, height
        if self.stack:
            self.deep(height, event.start_mark)
            parent = self.stack[-1]
            parent.height = max(parent.height, height)
            self.grown(parent, size, None, event.start_mark)

    def scalar(self, event: Any) -> None:
        size = 1 + len(event.value)
        if event.anchor:
            self.anchors[event.anchor] = size, 0
        if self.stack:
            self.grown(self.stack[-1], size, event.value, event.start_mark)

    def grown(self, parent: _Open, size: int, key: str | None, mark: Any) -> None:
        """``parent`` has a value more, or a key."""
        parent.size += size
        if parent.size > LIMIT:
            problem = f"aliases stand for more than {LIMIT >> 20} MiB"
            raise _RefusedError(problem, mark, "Write out what is meant.")
        if parent.lines is not None:
            if not parent.of_value and key is not None:
                self.named(parent, parent.lines, key, mark)
            parent.of_value = not parent.of_value

    def named(self, parent: _Open, lines: dict[str, int], key: str, mark: Any) -> None:
        parent.name = key
        if key in lines:
            where = ".".join(one.name for one in self.stack if one.lines is not None)
            raise _RefusedError(
                f"{where}: is there twice, in line {lines[key]} as well",
                mark,
                "Keep one of them: YAML alone would take the last and say nothing.",
            )
        lines[key] = mark.line + 1


def _look(told: Iterable[Any]) -> None:
    """Raise :class:`_RefusedError` for what may not stand in a file of ours."""
    looking = _Looking()
    kinds: dict[type, Callable[[Any], None]] = {
        events.ScalarEvent: looking.scalar,
        events.AliasEvent: looking.alias,
        events.MappingStartEvent: looking.opened,
        events.SequenceStartEvent: looking.opened,
        events.MappingEndEvent: looking.closed,
        events.SequenceEndEvent: looking.closed,
    }
    for event in told:
        if getattr(event, "tag", None) is not None:
            raise _RefusedError(f"the tag {event.tag[:40]}", event.start_mark, "Take it out.")
        if take := kinds.get(type(event)):
            take(event)
