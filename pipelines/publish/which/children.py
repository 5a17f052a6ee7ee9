"""Processes that may hang, crash or print without end: bounded in time and in what is kept."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

_MARK = "wcw1 "
_MOST_OUTPUT = 16 << 20
_GONE = 5.0  # seconds in which a killed process is away
_READ = 1 << 16


@dataclass(frozen=True)
class Ended:
    """What became of a process."""

    code: int | None
    """Its exit code; ``None``: it was ended, ``why`` says for what."""
    output: str
    """The end of what it has printed, both streams together unless they were kept apart."""
    why: str = ""
    errors: str = ""
    """The end of its standard error, where that was kept by itself."""

    @property
    def result(self) -> dict[str, Any]:
        """The object of its last marked line; empty where there is none."""
        for line in reversed(self.output.splitlines()):
            if line.startswith(_MARK):
                try:
                    found = json.loads(line[len(_MARK) :])
                except (ValueError, RecursionError):
                    return {}
                return found if isinstance(found, dict) else {}
        return {}


def run_child(
    command: Sequence[str], seconds: float, *, most: int = 1 << 16, apart: bool = False
) -> Ended:
    """Run it with nothing to read; at most ``seconds``, of its output the last ``most`` bytes.

    With ``apart`` its standard error is kept by itself.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        )
    except (OSError, ValueError) as error:
        return Ended(None, "", f"it cannot be started: {error}")
    over = threading.Event()
    kept = [bytearray(), bytearray()]

    def read(stream: IO[bytes], into: bytearray) -> None:
        total = 0
        while piece := os.read(stream.fileno(), _READ):
            into.extend(piece)
            total += len(piece)
            del into[: max(len(into) - most, 0)]
            if total > _MOST_OUTPUT:
                over.set()
                process.kill()
                return

    readers = [
        threading.Thread(target=read, args=(stream, kept[at]), daemon=True)
        for at, stream in enumerate((process.stdout, process.stderr))
        if stream is not None
    ]
    for one in readers:
        one.start()
    why = ""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        why = f"it was killed after {seconds:.0f} s"
        process.kill()
    for one in readers:
        one.join(_GONE)
    if over.is_set():
        why = f"it printed more than {_MOST_OUTPUT >> 20} MiB"
    output, errors = (bytes(one).decode("utf-8", "replace") for one in kept)
    return Ended(None if why else process.wait(_GONE), output, why, errors)
