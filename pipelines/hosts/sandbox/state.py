"""What a running sandbox publishes of itself, between its service and whoever looks for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypedDict, cast


class State(TypedDict):
    """Its process, where it listens, its certificate."""

    pid: int
    https: str
    http: str
    certificate_sha256: str


def publish(run: Path, state: State) -> None:
    """Write ``state.json`` in one step, readable by its owner only."""
    part = run / ".state.json.part"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(state, stream, indent=1)
    part.replace(run / "state.json")


def published(run: Path) -> State | None:
    """What the running service wrote, or ``None`` when none runs."""
    try:
        state = cast(State, json.loads((run / "state.json").read_text()))
        command = Path(f"/proc/{state['pid']}/cmdline").read_bytes()
    except (OSError, ValueError, KeyError):
        return None
    return state if b"sandbox.daemon" in command else None  # else: another process' number
