"""A bridge in one Windows: whether there is one, its variables, what it warns of."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.core import hosttext
from pipelines.core.errors import HostError

#: In ``PREFIX/bridge``: marks a Windows that has one; the programs' warnings.
INSTALLED, LOG = "installed.json", "warnings.log"
_LOG_SIZE = 64 << 10  # bytes; the bridge ends at about that
_WARNINGS = 50
#: Wine's folder names below WINEDLLPATH, and the one for Windows' own.
WINDOWS, UNIX, SYSTEM = "x86_64-windows", "x86_64-unix", "system32"


def is_bridge_installed(prefix: Path) -> bool:
    """Whether the Windows in ``prefix`` has a bridge."""
    return (prefix / "bridge" / INSTALLED).is_file()


def bridge_environment(prefix: Path) -> dict[str, str]:
    """Variables for every process of the Windows in ``prefix``; none without a bridge."""
    home = prefix / "bridge"
    try:
        data = json.loads((home / INSTALLED).read_text("utf-8"))
        library_dir = data["library_dir"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError):
        raise HostError(
            f"the GPU bridge in {prefix} is damaged: {INSTALLED} cannot be read",
            hint="Type: invoke host remove provision",
        ) from None
    variables = {"WINEDLLPATH": str(home), "WCW_BRIDGE_LOG": str(home / LOG)}
    return variables | ({"LD_LIBRARY_PATH": str(library_dir)} if library_dir else {})


def bridge_warnings(prefix: Path) -> tuple[str, ...]:
    """The distinct warnings of programs since the sandbox started, safe to display."""
    try:
        with (prefix / "bridge" / LOG).open("rb") as file:
            text = file.read(_LOG_SIZE).decode("ascii", "replace")
    except OSError:
        return ()
    lines = dict.fromkeys(hosttext.safe_text(line, 400) for line in text.splitlines() if line)
    shown, more = list(lines)[:_WARNINGS], len(lines) - _WARNINGS
    return (*shown, f"... and {more} more") if more > 0 else tuple(shown)
