"""What a bridge that was made consists of, and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pipelines.core.files import sha256_of

#: Names the files of a bridge with their sha256; written last.
FILES = "files.json"
#: Folders as Wine calls them below WINEDLLPATH, and what belongs into Windows' own.
WINDOWS, UNIX, SYSTEM = "x86_64-windows", "x86_64-unix", "system32"
_EXPECTED = frozenset(
    {f"{WINDOWS}/{dll}.dll" for dll in ("nvcuda", "nvml")}
    | {f"{UNIX}/{dll}.so" for dll in ("nvcuda", "nvml")}
    | {f"{SYSTEM}/{dll}.dll" for dll in ("nvcuda", "nvml", "nvcudart_hybrid64")}
)


def listed(folder: Path) -> Mapping[str, str] | None:
    """The sha256 of each file of the bridge in ``folder``; ``None`` unless each is as it was."""
    try:
        told = json.loads((folder / FILES).read_text("utf-8"))
        if not isinstance(told, dict) or told.keys() != _EXPECTED:
            return None
        whole = all(sha256_of(folder / name) == sha256 for name, sha256 in told.items())
    except (OSError, ValueError):
        return None
    return told if whole else None
