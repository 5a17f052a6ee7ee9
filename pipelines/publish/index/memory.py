"""The last catalogue of each index that was published to from here, to notice one that is put back.

An older catalogue is signed as well: it would offer what was yanked, and forget what is new.
"""

from __future__ import annotations

import json

from pipelines.core.errors import ConfigError
from pipelines.core.files import write_atomic
from pipelines.core.jsonfile import as_dict, parse, read_bytes
from pipelines.publish.index.catalogue import CATALOGUE, Catalogue
from pipelines.record.seal import key_file

_FILE = "indexes.json"


def require_newest(name: str, found: Catalogue) -> None:
    """Refuse a catalogue older than the last that was seen, or another of the same generation."""
    path = key_file().with_name(_FILE)
    if not path.is_file():
        return
    try:
        seen = as_dict(parse(read_bytes(path)).get(name))
        last = int(seen.get("generation", 0))
    except (ValueError, TypeError):
        raise ConfigError(f"{path} cannot be read", hint="Remove it.") from None
    other = found.generation == last and seen.get("sha256") not in (None, found.digest)
    if found.generation < last or other:
        raise ConfigError(
            f"{name}/{CATALOGUE} is of publish {found.generation}, and publish {last} was seen "
            "from here: somebody has put an older one there, or another",
            hint=f"Put the last one back. If it is as you want it, remove the index from {path}.",
        )


def remember(name: str, catalogue: Catalogue) -> None:
    """Keep which catalogue was seen last."""
    path = key_file().with_name(_FILE)
    known = parse(read_bytes(path)) if path.is_file() else {}
    known[name] = {"generation": catalogue.generation, "sha256": catalogue.digest}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, json.dumps(known, indent=1).encode())
