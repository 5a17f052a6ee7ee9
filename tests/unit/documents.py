"""The blocks of code in documents: what a reader copies."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: On Windows the first one on the path may be that of WSL.
BASH = None if sys.platform == "win32" else shutil.which("bash")
_FENCE = re.compile(r"^([ ]*)```(\w+)[ ]*\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
#: The first line of a block whose commands no test reads or runs, and why.
LABEL = re.compile(r"# not run by a test: \S.+")
#: A line goes on after it.
_TAIL = {"sh": "\\\n", "powershell": "`\n"}
#: Ours: parsed by the program itself. Those of the checkout: there.
OURS = re.compile(r"(?:\./wcw|wcw|invoke) ")
_CHECKOUT = re.compile(r"(?:make ([\w-]+)|(scripts/[\w.-]+)(?: --?\w+)*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block, without the indentation of what it stands in."""

    language: str
    source: str

    @property
    def labelled(self) -> bool:
        return LABEL.match(self.source) is not None

    def commands(self) -> Iterator[str]:
        """Its lines, continued ones joined; comments left out."""
        joined = self.source.replace(_TAIL[self.language], " ")
        for line in joined.splitlines():
            command = line.partition(" #")[0].strip()
            if command and not command.startswith("#"):
                yield " ".join(command.split())


def blocks(path: Path, *languages: str) -> list[Block]:
    """Those of a document that are in one of ``languages``."""
    found = _FENCE.finditer(path.read_text("utf-8"))
    every = (Block(match[2], textwrap.dedent(match[3])) for match in found)
    return [block for block in every if block.language in languages]


def unread(block: Block) -> list[str]:
    """Commands that neither the program nor the checkout knows, and that no label excuses."""
    return [
        line
        for line in block.commands()
        if not (block.labelled or OURS.match(line) or _there(line))
    ]


def _there(line: str) -> bool:
    found = _CHECKOUT.match(line)
    if found is None:
        return False
    if found[2]:
        return (ROOT / found[2]).is_file()
    return re.search(rf"^{found[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.M) is not None


def mistakes(block: Block) -> list[str]:
    """What its shell would not take; it is read, not run. tests/powershell reads PowerShell."""
    if block.language == "powershell" or BASH is None:
        return []
    done = subprocess.run(
        [BASH, "-n"], input=block.source, capture_output=True, text=True, check=False
    )
    return done.stderr.splitlines()
