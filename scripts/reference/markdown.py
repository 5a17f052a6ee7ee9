"""Texts of ours as Markdown: cells of tables, blocks, links to the documents that they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: A document that a text names, with its anchor if any.
_DOCUMENT = re.compile(r"(?<![\w/(\[])docs/([\w/-]+\.md)(#[\w-]+)?")
_ADDRESS = re.compile(r"https://\S+[\w/]")
_CODE = re.compile(r"(`[^`]+`|https://\S+)")
#: What Markdown would read: anywhere, and where a line begins.
_SIGN = re.compile(r"[\\*\[\]<>]|^[#+-]")
MADE = "<!-- Made by: python -m scripts.reference. What is changed here is lost. -->"


def text(words: str, *, up: str = "../") -> str:
    """``words`` on one line, so that nothing in them is a sign of Markdown, but code and links.

    ``up`` leads from the page to ``docs``.
    """
    parts = _CODE.split(" ".join(words.split()))
    for at, part in enumerate(parts):
        if part.startswith("https://"):
            parts[at] = _ADDRESS.sub(r"<\g<0>>", part)
        elif not part.startswith("`"):
            parts[at] = linked(_SIGN.sub(r"\\\g<0>", part), up=up)
    return "".join(parts)


def linked(markdown: str, *, up: str) -> str:
    """The documents that it names as links; ``up`` leads from the page to ``docs``."""
    return _DOCUMENT.sub(rf"[\1]({up}\1\2)", markdown)


def cell(words: str, *, up: str = "../") -> str:
    """``words`` as :func:`text` has them, in a cell of a table."""
    return text(words, up=up).replace("|", r"\|")


def code(words: str) -> str:
    """``words`` as they are typed or printed, in a cell."""
    return f"`{words}`".replace("|", r"\|") if words else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["-"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("  |", " |") for line in lines)


def block(lines: Iterable[str]) -> str:
    """What is printed, in a fence that nothing in it ends."""
    body = "\n".join(lines)
    longest = max((len(found) for found in re.findall(r"`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{body}\n{fence}"


def page(title: str, *parts: str) -> str:
    """A page: its title, that it is made, and its parts with a line between them."""
    return "\n\n".join([f"# {title}", MADE, *(part for part in parts if part)]) + "\n"
