"""A program that must be there already: ``{path, check, otherwise}``. Never installed by us."""

from __future__ import annotations

import pathlib
import re
from typing import Any

from ..process import capture
from . import RefusedError

_TIMEOUT = 60.0
_SHOWN = 200


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Run it and look at what it prints."""
    if not pathlib.Path(spec["path"]).is_file():
        return {"ok": False, "found": "nothing"}
    code, output = capture(spec["check"]["command"], timeout=_TIMEOUT)
    found = re.search(spec["check"]["prints"], output, re.MULTILINE)
    # The whole line: a release says less than a version, which decides what is compiled.
    lines = output.strip().splitlines()
    said = next((x for x in lines if found and found[0] in x), " ".join(lines[-2:]))
    return {"ok": not code and bool(found), "found": said.strip()[:_SHOWN] or f"exit code {code}"}


def plan(spec: dict[str, Any]) -> str:
    """What a person has to do."""
    return f"not ours to install: {spec['otherwise']}"


def apply(spec: dict[str, Any]) -> None:
    """Refuse."""
    raise RefusedError("it is used as it is there", advice=spec["otherwise"])
