"""What users type on this machine: on Windows in PowerShell."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence

_WINDOWS = sys.platform == "win32"
INSTALL_GIT = "winget install Git.Git" if _WINDOWS else "sudo apt-get install git"


def format_command_line(words: Sequence[str]) -> str:
    """``words`` as one line."""
    return in_powershell(words) if _WINDOWS else shlex.join(words)


def pip_install(*packages: str) -> str:
    """The line that installs ``packages`` for this Python."""
    return format_command_line([sys.executable, "-m", "pip", "install", *packages])


def in_powershell(words: Sequence[str]) -> str:
    """``words`` as one line of PowerShell, which runs a quoted program only after ``&``."""
    plain = re.compile(r"[\w.:/\\+~=-]+").fullmatch
    quoted = [word if plain(word) else "'" + word.replace("'", "''") + "'" for word in words]
    return ("" if plain(words[0]) else "& ") + " ".join(quoted)
