"""A program that must already be installed; the pipeline never installs it."""

from __future__ import annotations

import pathlib
import re

from ..process import capture
from . import Check, Kind, Proof, RefusedError

_TIMEOUT = 60.0
_SHOWN = 200


class Spec(Kind):
    """The desired state."""

    path: str
    check: Proof
    otherwise: str
    """What to do if it is missing or has another version."""


def check(spec: Spec) -> Check:
    """Run it and check its output; values: the matching line as ``version``."""
    if not pathlib.Path(spec["path"]).is_file():
        return {"ok": False, "found": "nothing", "values": {}}
    code, output = capture(spec["check"]["command"], timeout=_TIMEOUT)
    match = re.search(spec["check"]["prints"], output, re.MULTILINE)
    # The whole line: it says more than the version number, and determines the output.
    lines = output.strip().splitlines()
    text = next((x for x in lines if match and match[0] in x), " ".join(lines[-2:]))
    text = text.strip()[:_SHOWN]
    values = {"version": text} if match else {}
    return {"ok": not code and bool(match), "found": text or f"exit code {code}", "values": values}


def plan(spec: Spec) -> str:
    """What the user has to do."""
    return f"not managed by the pipeline: {spec['otherwise']}"


def apply(spec: Spec) -> None:
    """Refuse."""
    raise RefusedError("it is used unchanged", hint=spec["otherwise"])
