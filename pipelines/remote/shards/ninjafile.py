"""The edges of a build.ninja: read, and rewritten where units are another host's.

As exact as ninja in what it reads, which is only what determines the units: paths, not commands,
which ninja itself reports. An edge that it cannot be sure of is not sharded.
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
    """One build edge; paths as ninja names them, relative to the directory it runs in."""

    outputs: tuple[str, ...]
    """All of them, including those after ``|``."""
    rule: str
    inputs: tuple[str, ...]
    """Explicit ones first, then those after ``|``."""
    waits: tuple[str, ...]
    """Other prerequisites: after ``||`` and ``|@``."""
    sure: bool
    """Whether each path is known, and nothing is added to the edge during the build."""
    begin: int
    """Its position in the text, including its bindings."""
    end: int
    rule_at: int
    """Position of its rule's name."""
    line_end: int


@dataclass(frozen=True)
class Manifest:
    """A build.ninja."""

    text: str
    edges: tuple[Edge, ...]
    defaults: tuple[str, ...]
    builddir: str
    """Ninja's log, relative to the directory it runs in."""

    def needed(self, targets: Iterable[str]) -> frozenset[str]:
        """All outputs needed for ``targets``, or by default.

        For a target not found here, which may be in an included file, all outputs.
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
        """The text without the edges of these outputs.

        They stay as phony edges, which keeps the order of everything that depends on their inputs.
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
    """``path`` as ninja names it in its log and output."""
    if sys.platform == "win32":
        path = path.replace("\\", "/")
    return posixpath.normpath(path)


def escaped(path: str) -> str:
    """``path`` escaped for a manifest."""
    return re.sub(r"([$ :])", r"$\1", path)


class _UnknownError(Exception):
    """A variable that is set elsewhere, or not at all."""


def _expand_ninja_value(text: str, *scopes: Mapping[str, str | None]) -> str:
    """``text`` unescaped, with variables replaced; raises :class:`_UnknownError`."""

    def one(result: re.Match[str]) -> str:
        if result[1]:
            return "\n" if result[1] == "^" else result[1]
        name = result[2] or result[3]
        if not name:
            return ""  # a continued line
        value = next((scope[name] for scope in scopes if name in scope), None)
        if value is None:
            raise _UnknownError(name)
        return value

    return _ESCAPE.sub(one, text)


class _Reader:
    """Parses one text from start to end."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.names: dict[str, str | None] = {}
        self.late: set[str] = set()  # rules whose edges get inputs during the build
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
                tokens = self._tokens(begin + len(word))
                defaults = [self._expanded(text, {}) for mark, text, _ in tokens if not mark]
                self.defaults += [canonical(path) for path in defaults if path]
            elif word not in _FILES and (binding := _BINDING.match(line)):
                self.names[binding[1]] = self._expanded(line[binding.end() :].rstrip("\r\n"), {})
        builddir = self.names.get("builddir") or "."
        return Manifest(self.text, tuple(self.edges), tuple(self.defaults), builddir)

    def _line(self) -> str:
        match = _LINE.match(self.text, self.at)
        assert match is not None  # noqa: S101 - it also matches an empty string
        self.at = max(match.end(), self.at + 1)
        return self.text[match.start() : self.at]

    def _bindings(self) -> dict[str, str | None]:
        """The indented lines that follow."""
        bindings: dict[str, str | None] = {}
        while self.text.startswith(" ", self.at) or self.text.startswith("#", self.at):
            comment = _COMMENT.match(self.text, self.at)
            if comment and "#" not in comment[0]:
                break  # an empty line ends them
            line = self._line() if comment is None else ""
            self.at = self.at if comment is None else comment.end()
            if binding := _BINDING.match(line):
                bindings[binding[1]] = self._expanded(line[binding.end() :].rstrip("\r\n"), {})
        return bindings

    def _expanded(self, text: str, scope: Mapping[str, str | None]) -> str | None:
        try:
            return _expand_ninja_value(text, scope, self.names)
        except _UnknownError:
            return None

    def _tokens(self, at: int) -> Iterator[tuple[str, str, int]]:
        """A line's (mark, path, position), one of the first two empty."""
        while True:
            between = _BETWEEN.match(self.text, at)
            at = between.end() if between else at
            if path := _PATH.match(self.text, at):
                yield "", path[0], at
                at = path.end()
            elif mark := next((mark_ for mark_ in _MARKS if self.text.startswith(mark_, at)), ""):
                yield mark, "", at
                at += len(mark)
            else:
                return

    def _edge(self, begin: int) -> None:
        line_end, scope = self.at, self._bindings()
        groups: dict[str, list[str]] = {}
        mark, rule, rule_at, sure = "", "", -1, True
        for kind, text, at in self._tokens(begin + len("build")):
            if kind:
                mark = kind
            elif mark == ":" and not rule:
                rule, rule_at = text, at
            else:
                value = self._expanded(text, scope)
                # A phony edge drops its bindings: no path may need them.
                sure = sure and value is not None and value == self._expanded(text, {})
                side = "in" if rule else "out"
                groups.setdefault(f"{side}{mark}", []).append(canonical(value or "?"))
        outputs, inputs = groups.get("out", []), groups.get("in:", [])
        if rule and outputs:
            late = "dyndep" in scope or rule in self.late
            self.edges.append(
                Edge(
                    outputs=(*outputs, *groups.get("out|", ())),
                    rule=rule,
                    inputs=(*inputs, *groups.get("in|", ())),
                    waits=(*groups.get("in||", ()), *groups.get("in|@", ())),
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
