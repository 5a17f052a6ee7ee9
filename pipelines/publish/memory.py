"""What was seen last of each index and signed wheel, to notice an older one that is put back.

An older catalogue or statement is signed as well: it would offer what was yanked, or a wheel that
has failed since.
"""

from __future__ import annotations

import json

from pipelines.core.errors import ConfigError
from pipelines.core.files import write_atomic
from pipelines.core.jsonfile import as_dict, parse, read_bytes
from pipelines.record.seal import key_file

_FILE = "seen.json"


def older(name: str, serial: int, digest: str) -> str:
    """Why this is not what was seen last of ``name``, or later; empty: it is."""
    path = key_file().with_name(_FILE)
    try:
        seen = as_dict(parse(read_bytes(path)).get(name)) if path.is_file() else {}
        last = int(seen.get("serial", 0))
    except (ValueError, TypeError):
        raise ConfigError(f"{path} cannot be read", hint="Remove it.") from None
    if serial > last or (serial == last and seen.get("sha256", digest) == digest):
        return ""
    what = "older than" if serial < last else "another than"
    return f"serial {serial} is {what} serial {last}, which was seen from here ({path})"


def remember(name: str, serial: int, digest: str) -> None:
    """Keep what was seen last."""
    path = key_file().with_name(_FILE)
    known = parse(read_bytes(path)) if path.is_file() else {}
    known[name] = {"serial": serial, "sha256": digest}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, json.dumps(known, indent=1).encode())
