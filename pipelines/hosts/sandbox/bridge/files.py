"""The files of a built bridge, and whether they are intact."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pipelines.core.files import sha256_of

#: Lists the files of a bridge with their sha256; written last.
FILES = "files.json"
#: Wine's folder names below WINEDLLPATH, and the one for Windows' own.
WINDOWS, UNIX, SYSTEM = "x86_64-windows", "x86_64-unix", "system32"
_EXPECTED = frozenset(
    {f"{WINDOWS}/{dll}.dll" for dll in ("nvcuda", "nvml")}
    | {f"{UNIX}/{dll}.so" for dll in ("nvcuda", "nvml")}
    | {f"{SYSTEM}/{dll}.dll" for dll in ("nvcuda", "nvml", "nvcudart_hybrid64")}
)


def listed(folder: Path) -> Mapping[str, str] | None:
    """The sha256 of each file of the bridge in ``folder``; ``None`` if any has changed."""
    try:
        digests = json.loads((folder / FILES).read_text("utf-8"))
        if not isinstance(digests, dict) or digests.keys() != _EXPECTED:
            return None
        intact = all(sha256_of(folder / name) == sha256 for name, sha256 in digests.items())
    except (OSError, ValueError):
        return None
    return digests if intact else None
