"""What a terminal of some width shows of a command, and which of its words are broken there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable
from pathlib import Path

_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?]*[A-Za-z]")
_LINES = 500


def environment(**more: str) -> dict[str, str]:
    """This process' own without what decides about widths and colours."""
    left_out = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI", "GITHUB_ACTIONS")
    return {k: v for k, v in os.environ.items() if k not in left_out} | {
        "TERM": "xterm-256color",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        **more,
    }


def command(words: Iterable[str]) -> list[str]:
    return [sys.executable, "-m", "pipelines", *words]


def screen(words: Iterable[str], cwd: Path, columns: int) -> list[str]:
    """What is written to a terminal with so many columns, line by line, but for progress bars."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, columns, 0, 0))
    with subprocess.Popen(
        command(words), cwd=cwd, env=environment(), stdin=its, stdout=its, stderr=its
    ) as process:
        os.close(its)
        data = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            data += part
        process.wait(60)
    os.close(ours)
    lines = _ESCAPES.sub("", data.decode()).splitlines()
    return [line for line in lines if "━" not in line]


def broken(lines: Iterable[str], whole: str, columns: int) -> list[str]:
    """Words that a terminal breaks, or that are not what they are in ``whole``, which has no width.

    A terminal breaks a line anywhere; only a word that begins one may be too long for it. Words of
    ``whole`` that ``lines`` do not have are broken too, unless a line says which columns of a table
    there was no room for.
    """
    lines = [*lines]
    found = [
        word[0]
        for line in lines
        for word in re.finditer(r"\S+", line)
        if word.start() // columns < (word.end() - 1) // columns and line[: word.start()].strip()
    ]
    known, shown = {*whole.split()}, {word for line in lines for word in line.split()}
    spared = next((line for line in lines if line.startswith("Columns hidden to fit:")), "")
    strange = {word for word in shown - known if word not in spared}
    return sorted({*found, *strange} | (set() if spared else known - shown))
