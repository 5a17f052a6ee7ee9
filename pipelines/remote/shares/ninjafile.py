"""The edges of a build.ninja: read, and written anew where units are another host's.

As exact as ninja in what it reads, and it reads only what decides which units there are: paths, not
commands, which ninja itself tells. An edge that it cannot be sure of is none that is divided.
https://ninja-build.org/manual.html#ref_ninja_file
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"(?:[^$\n]|\$(?:\r\n|\n|.|\Z))*(?:\n|\Z)")
_COMMENT = re.compile(r"[ ]*(?:#[^\n]*|\r?)(?:\n|\Z)")
_CONTINUED = r"\$\r?\n[ ]*"
_ESCAPE = re.compile(
    rf"{_CONTINUED}|\$([ :$^])|\$([A-Za-z0-9_-]+)|\$\{{([A-Za-z0-9_.-]+)\}}", re.DOTALL
)
_PATH = re.compile(
    rf"(?:[^$ \r\n:|]|{_CONTINUED}|\$[ :$^]|\$[A-Za-z0-9_-]+|\$\{{[A-Za-z0-9_.-]+\}})+"
)
_BETWEEN = re.compile(rf"(?:[ ]|{_CONTINUED})*")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_FILES = ("include", "subninja")
_BINDING = re.compile(rf"[ ]*([A-Za-z0-9_.-]+)(?:[ ]|{_CONTINUED})*=(?:[ ]|{_CONTINUED})*")
_MARKS = ("|@", "||", "|", ":")


@dataclass(frozen=True)
class Edge:
    """What is made of what; paths as ninja calls them, from the directory where it runs."""

    outputs: tuple[str, ...]
    """All of them, those after ``|`` too."""
    rule: str
    inputs: tuple[str, ...]
    """Explicit ones first, then those after ``|``."""
    waits: tuple[str, ...]
    """What else must be there before: after ``||`` and ``|@``."""
    sure: bool
    """Whether each path is known, and nothing is added to the edge while the build runs."""
    begin: int
    """Where it stands in the text, its bindings included."""
    end: int
    rule_at: int
    """Where its rule's name stands."""
    line_end: int


@dataclass(frozen=True)
class Manifest:
    """A build.ninja."""

    text: str
    edges: tuple[Edge, ...]
    defaults: tuple[str, ...]
    builddir: str
    """Where ninja's log is, from the directory where it runs."""

    def needed(self, targets: Iterable[str]) -> frozenset[str]:
        """All that is made for ``targets``, or by default.

        Of a target that is not found here, and may be in a file that this one includes, it is all.
        """
        makes = {output: edge for edge in self.edges for output in edge.outputs}
        left = [canonical(target) for target in targets] or list(self.defaults)
        if not left or any(target not in makes for target in left):
            return frozenset(makes)
        seen: set[str] = set()
        while left:
            path = left.pop()
            if path not in seen and path in makes:
                edge = makes[path]
                seen.update(edge.outputs)
                left += [*edge.inputs, *edge.waits]
        return frozenset(seen)

    def without(self, outputs: frozenset[str]) -> str:
        """The text where these outputs are not made any more.

        Their edges stay, as phony ones: what else waits for what they wait for still does.
        """
        made, at = "", 0
        for edge in self.edges:
            if edge.outputs[0] in outputs:
                head = self.text[edge.begin : edge.rule_at]
                tail = self.text[edge.rule_at + len(edge.rule) : edge.line_end].rstrip("\r\n")
                made += f"{self.text[at : edge.begin]}{head}phony{tail}\n"
                at = edge.end
        return made + self.text[at:]


def canonical(path: str) -> str:
    """``path`` as ninja calls it in its log and in what it tells."""
    if sys.platform == "win32":
        path = path.replace("\\", "/")
    return posixpath.normpath(path)


def escaped(path: str) -> str:
    """``path`` as it is written in a manifest."""
    return re.sub(r"([$ :])", r"$\1", path)


class _UnknownError(Exception):
    """A variable that is set elsewhere, or nowhere."""


def _value(text: str, *scopes: Mapping[str, str | None]) -> str:
    """``text`` without escapes, its variables replaced; raises :class:`_UnknownError`."""

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return "\n" if found[1] == "^" else found[1]
        name = found[2] or found[3]
        if not name:
            return ""  # a continued line
        value = next((scope[name] for scope in scopes if name in scope), None)
        if value is None:
            raise _UnknownError(name)
        return value

    return _ESCAPE.sub(one, text)


class _Reader:
    """Reads one text from its begin to its end."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.names: dict[str, str | None] = {}
        self.late: set[str] = set()  # rules whose edges get inputs while the build runs
        self.edges: list[Edge] = []
        self.defaults: list[str] = []

    def read(self) -> Manifest:
        while self.at < len(self.text):
            if comment := _COMMENT.match(self.text, self.at):
                self.at = max(comment.end(), self.at + 1)
                continue
            begin, line = self.at, self._line()
            name = _NAME.match(line)
            word = name[0] if name else ""
            if word == "build":
                self._edge(begin)
            elif word in ("rule", "pool"):
                if "dyndep" in self._bindings():
                    self.late.add(line.split()[1])
            elif word == "default":
                found = self._tokens(begin + len(word))
                told = [self._told(text, {}) for mark, text, _ in found if not mark]
                self.defaults += [canonical(path) for path in told if path]
            elif word not in _FILES and (binding := _BINDING.match(line)):
                self.names[binding[1]] = self._told(line[binding.end() :].rstrip("\r\n"), {})
        builddir = self.names.get("builddir") or "."
        return Manifest(self.text, tuple(self.edges), tuple(self.defaults), builddir)

    def _line(self) -> str:
        found = _LINE.match(self.text, self.at)
        assert found is not None  # noqa: S101 - it matches nothing as well
        self.at = max(found.end(), self.at + 1)
        return self.text[found.start() : self.at]

    def _bindings(self) -> dict[str, str | None]:
        """The indented lines that follow."""
        told: dict[str, str | None] = {}
        while self.text.startswith(" ", self.at) or self.text.startswith("#", self.at):
            comment = _COMMENT.match(self.text, self.at)
            if comment and "#" not in comment[0]:
                break  # a line without anything ends them
            line = self._line() if comment is None else ""
            self.at = self.at if comment is None else comment.end()
            if binding := _BINDING.match(line):
                told[binding[1]] = self._told(line[binding.end() :].rstrip("\r\n"), {})
        return told

    def _told(self, text: str, scope: Mapping[str, str | None]) -> str | None:
        try:
            return _value(text, scope, self.names)
        except _UnknownError:
            return None

    def _tokens(self, at: int) -> Iterator[tuple[str, str, int]]:
        """A line's (mark, path, where it stands), one of the first two empty."""
        while True:
            between = _BETWEEN.match(self.text, at)
            at = between.end() if between else at
            if path := _PATH.match(self.text, at):
                yield "", path[0], at
                at = path.end()
            elif mark := next((one for one in _MARKS if self.text.startswith(one, at)), ""):
                yield mark, "", at
                at += len(mark)
            else:
                return

    def _edge(self, begin: int) -> None:
        line_end, scope = self.at, self._bindings()
        found: dict[str, list[str]] = {}
        mark, rule, rule_at, sure = "", "", -1, True
        for kind, text, at in self._tokens(begin + len("build")):
            if kind:
                mark = kind
            elif mark == ":" and not rule:
                rule, rule_at = text, at
            else:
                told = self._told(text, scope)
                # A binding of the edge goes when it becomes a phony one: no path may need it.
                sure = sure and told is not None and told == self._told(text, {})
                side = "in" if rule else "out"
                found.setdefault(f"{side}{mark}", []).append(canonical(told or "?"))
        outputs, inputs = found.get("out", []), found.get("in:", [])
        if rule and outputs:
            late = "dyndep" in scope or rule in self.late
            self.edges.append(
                Edge(
                    outputs=(*outputs, *found.get("out|", ())),
                    rule=rule,
                    inputs=(*inputs, *found.get("in|", ())),
                    waits=(*found.get("in||", ()), *found.get("in|@", ())),
                    sure=sure and not late,
                    begin=begin,
                    end=self.at,
                    rule_at=rule_at,
                    line_end=line_end,
                )
            )


def read(text: str) -> Manifest:
    """The manifest of ``text``."""
    return _Reader(text).read()
