"""What was seen last of each index and signed wheel, to notice an older one that is put back.

An older catalogue or statement is signed as well: it would offer what was yanked, or a wheel that
has failed since. ``which.py`` has this module too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def memory_file() -> Path:
    """``$XDG_CONFIG_HOME/windows-cuda-wheels/seen.json``, or below ``~/.config``."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    home = os.path.expanduser(base)  # noqa: PTH111 - Path.expanduser raises where there is no home
    return Path(home) / "windows-cuda-wheels" / "seen.json"


def rollback_problem(name: str, serial: int, digest: str, yanked: Iterable[str] = ()) -> str:
    """Why this is not what was seen last of ``name``, or later; empty: it is.

    ``yanked``: the files that are withdrawn, and stay so.
    """
    try:
        seen = _seen().get(name, {})
        last, back = int(seen.get("serial", 0)), {*seen.get("yanked", ())} - {*yanked}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return f"{memory_file()} cannot be read; remove it"
    if serial < last:
        return f"serial {serial} is older than serial {last}, which was seen before"
    if serial == last and seen.get("sha256", digest) != digest:
        return f"it differs from the one seen before with serial {serial}"
    return f"{min(back)} was yanked but no longer is" if back else ""


def record_last_seen(name: str, serial: int, digest: str, yanked: Iterable[str] = ()) -> None:
    """Keep what was seen last; ``OSError`` where it cannot be written."""
    path = memory_file()
    if not path.is_absolute():
        raise OSError("this user has no home directory")
    known = {**_seen(), name: {"serial": serial, "sha256": digest, "yanked": sorted(yanked)}}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(known, indent=1), encoding="utf-8")
    part.replace(path)


def _seen() -> dict[str, Any]:
    try:
        return dict(json.loads(memory_file().read_bytes()))
    except FileNotFoundError:
        return {}
