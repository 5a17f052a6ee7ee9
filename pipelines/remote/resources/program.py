"""A program that must be there already. Never installed by us."""

from __future__ import annotations

import pathlib
import re

from ..process import capture
from . import Check, Kind, Proof, RefusedError

_TIMEOUT = 60.0
_SHOWN = 200


class Spec(Kind):
    """What is wanted."""

    path: str
    check: Proof
    otherwise: str
    """What to do when it is missing or another."""


def check(spec: Spec) -> Check:
    """Run it and look at what it prints; values: the line that is wanted as ``version``."""
    if not pathlib.Path(spec["path"]).is_file():
        return {"ok": False, "found": "nothing", "values": {}}
    code, output = capture(spec["check"]["command"], timeout=_TIMEOUT)
    found = re.search(spec["check"]["prints"], output, re.MULTILINE)
    # The whole line: a release says less than a version, which decides what is compiled.
    lines = output.strip().splitlines()
    said = next((x for x in lines if found and found[0] in x), " ".join(lines[-2:]))
    said = said.strip()[:_SHOWN]
    values = {"version": said} if found else {}
    return {"ok": not code and bool(found), "found": said or f"exit code {code}", "values": values}


def plan(spec: Spec) -> str:
    """What a person has to do."""
    return f"not ours to install: {spec['otherwise']}"


def apply(spec: Spec) -> None:
    """Refuse."""
    raise RefusedError("it is used as it is there", hint=spec["otherwise"])
