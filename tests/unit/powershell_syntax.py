"""PowerShell as a syntax tree, and where this repository keeps it: scripts and RUN bodies."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tree_sitter_powershell
from tree_sitter import Language, Node, Parser

ROOT = Path(__file__).parents[2]

_PARSER = Parser(Language(tree_sitter_powershell.language()))
#: Letters of a parameter below which nobody could tell which one is meant.
_SHORTEST = 3


def text(node: Node) -> str:
    """The source of a node."""
    return (node.text or b"").decode("utf-8", "replace")


def plain(node: Node | None) -> str:
    """The source of a node without the quotes around it, in lower case; empty for no node."""
    return text(node).strip("'\"").casefold() if node is not None else ""


def variable(node: Node) -> str:
    """The name of a variable in lower case, without ``$``, ``@`` or braces, with its scope."""
    return text(node).lstrip("$@").strip("{}").casefold()


def below(node: Node, *types: str) -> Iterator[Node]:
    """``node`` and everything below it that is of one of ``types``, in the order of the source."""
    if node.type in types:
        yield node
    for child in node.children:
        yield from below(child, *types)


def above(node: Node, *types: str) -> Node | None:
    """The nearest ancestor of one of ``types``."""
    found = node.parent
    while found is not None and found.type not in types:
        found = found.parent
    return found


@dataclass(frozen=True)
class Command:
    """A command: its name in lower case, its parameters with their values, all of its arguments."""

    node: Node
    name: str
    parameters: dict[str, Node | None]
    arguments: list[Node]

    def parameter(self, name: str) -> tuple[bool, Node | None]:
        """Whether ``-name`` is given, in full or as its first three letters or more; its value."""
        for given, value in self.parameters.items():
            if len(given) >= min(len(name), _SHORTEST) and name.casefold().startswith(given):
                return True, value
        return False, None


def command(node: Node) -> Command:
    """Read a node of type ``command``."""
    name = plain(node.child_by_field_name("command_name")).rpartition("\\")[2]
    parameters: dict[str, Node | None] = {}
    arguments: list[Node] = []
    last = ""
    for part in (c for e in node.children if e.type == "command_elements" for c in e.children):
        if part.type == "command_parameter":
            last = text(part).lstrip("-").rstrip(":").casefold()
            parameters[last] = None
        elif part.type != "command_argument_sep":
            arguments.append(part)
            if last:
                parameters[last] = part
            last = ""
    return Command(node, name, parameters, arguments)


@dataclass(frozen=True)
class Script:
    """A piece of PowerShell; ``first`` is the line that it begins at in the file ``name``."""

    name: str
    source: bytes
    first: int = 1
    is_file: bool = True

    @cached_property
    def root(self) -> Node:
        return _PARSER.parse(self.source).root_node

    @cached_property
    def nodes(self) -> dict[str, list[Node]]:
        """Every node by its type, in the order of the source; one walk for all rules."""
        found: dict[str, list[Node]] = {}
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            found.setdefault(node.type, []).append(node)
            waiting += reversed(node.children)
        return found

    @cached_property
    def commands(self) -> list[Command]:
        return [command(node) for node in self.each("command")]

    @cached_property
    def code(self) -> str:
        """The source with every comment blanked, lines kept."""
        source = bytearray(self.source)
        for node in self.each("comment"):
            blank = bytes(b if b == ord("\n") else ord(" ") for b in node.text or b"")
            source[node.start_byte : node.end_byte] = blank
        return source.decode("utf-8", "replace")

    def each(self, *types: str) -> Iterator[Node]:
        """Every node of one of ``types``."""
        yield from (node for type_ in types for node in self.nodes.get(type_, ()))


def run_bodies(name: str, dockerfile: str) -> Iterator[Script]:
    """The ``RUN`` bodies of a Dockerfile that go to PowerShell, as Docker joins their lines."""
    escape = re.match(r"(?i)#\s*escape\s*=\s*(\S)", dockerfile)
    tail = escape[1] if escape else "\\"
    powershell = False
    lines = iter(enumerate(dockerfile.splitlines(), 1))
    for number, line in lines:
        body = line
        while body.rstrip().endswith(tail):
            _, more = next(lines, (0, ""))
            body = body.rstrip()[:-1] + ("" if more.lstrip().startswith("#") else more)
            if more.lstrip().startswith("#"):
                body += tail
        word, _, rest = body.strip().partition(" ")
        if word.upper() == "FROM":
            powershell = False
        elif word.upper() == "SHELL":
            powershell = (
                re.match(r'\[\s*"(powershell|pwsh)', rest.strip(), re.IGNORECASE) is not None
            )
        elif word.upper() == "RUN" and powershell:
            yield Script(name, rest.encode(), number, is_file=False)


def repository() -> list[Script]:
    """All PowerShell of the repository, new files included, ignored ones not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    scripts: list[Script] = []
    for name in sorted({name for name in listed.split("\0") if (ROOT / name).is_file()}):
        path = ROOT / name
        if path.suffix.lower() in (".ps1", ".psm1", ".psd1"):
            scripts.append(Script(name, path.read_bytes()))
        elif "dockerfile" in path.name.casefold():
            scripts += run_bodies(name, path.read_text("utf-8"))
    return scripts
