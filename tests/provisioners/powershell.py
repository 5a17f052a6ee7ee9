"""Parses PowerShell with tree-sitter's grammar; run by the Python of ``.venv-ansible``.

Takes directories and Dockerfiles: scripts below the former, ``RUN`` bodies of the latter. Prints
``file:line: text`` for what is no PowerShell or builds code from text, and leaves with 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import tree_sitter_powershell  # type: ignore[import-not-found,unused-ignore]
from tree_sitter import Language, Node, Parser  # type: ignore[import-not-found,unused-ignore]

#: What runs text as code.
CODE_FROM_TEXT = re.compile(
    rb"(?i)\b(iex|invoke-expression|-encodedcommand|\[scriptblock\]::create)\b"
)


def sources(path: Path) -> Iterator[tuple[str, int, bytes]]:
    """``(name, first line, source)`` of every script in it."""
    if path.is_dir():
        for script in sorted([*path.rglob("*.ps1"), *path.rglob("*.psm1")]):
            yield str(script), 1, script.read_bytes()
        return
    lines = path.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        first = number
        body = lines[number].removeprefix("RUN ")
        found = lines[number].startswith("RUN ")
        while lines[number].rstrip().endswith("`"):
            number += 1
            body = body.rstrip()[:-1] + "\n" + lines[number]
        if found:
            yield str(path), first + 1, body.encode()
        number += 1


def mistakes(node: Node) -> Iterator[Node]:
    """The innermost nodes that the grammar could not make sense of."""
    if node.is_missing or (node.is_error and not any(c.has_error for c in node.children)):
        yield node
    elif node.has_error:
        for child in node.children:
            yield from mistakes(child)


def check(name: str, first: int, source: bytes, parser: Parser) -> list[str]:
    """One line for each thing that is wrong in ``source``."""
    wrong = []
    for node in mistakes(parser.parse(source).root_node):
        text = source[node.start_byte : node.end_byte][:60].decode("utf-8", "replace")
        wrong.append(f"{name}:{first + node.start_point[0]}: no PowerShell: {text!r}")
    for found in CODE_FROM_TEXT.finditer(source):
        line = first + source.count(b"\n", 0, found.start())
        wrong.append(f"{name}:{line}: runs text as code: {found[0].decode()!r}")
    return wrong


def main(arguments: list[str]) -> int:
    """Check what is named; the number of scripts goes to standard output."""
    parser = Parser(Language(tree_sitter_powershell.language()))
    found = [entry for path in arguments for entry in sources(Path(path))]
    wrong = [line for entry in found for line in check(*entry, parser)]
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(found)} scripts, {len(wrong)} mistakes")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
