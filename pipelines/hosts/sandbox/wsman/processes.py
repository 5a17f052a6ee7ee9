"""Ends a whole process tree, even if its members left their parents, groups and sessions.

Windows does this with a job object. Here every process of a command carries an environment variable
with the command's id. Parent ids do not help, because Wine starts each Windows process from its own
server; but the Unix environment is inherited all the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

TAG = "WSMAN_COMMAND"
_PROC = Path("/proc")
_PAUSE = 0.005


def end_tree(process: subprocess.Popen[bytes], command_id: str, *, timeout: float = 2.0) -> bool:
    """Kill everything the command started. True when a last look found nothing alive."""
    if process.poll() is None:
        # The leader is not reaped yet, so its group id cannot belong to anyone else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                os.kill(process.pid, signal.SIGKILL)
    give_up = time.monotonic() + timeout
    # More than once: a process may fork between the look and the kill.
    while result := tagged(command_id):
        for pid in result:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up:
            return False
        time.sleep(_PAUSE)
    return True


def tagged(command_id: str) -> list[int]:
    """Live processes with the tag. Zombies have no environment, so they are not included."""
    expected = f"{TAG}={command_id}".encode()
    result = []
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit():
            continue
        try:
            # One raw read each: this runs over every process of the machine.
            environment = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue  # gone, or of another user
        # Substring first: splitting every environment would cost ten times as much.
        if expected in environment and expected in environment.split(b"\0"):
            result.append(int(entry.name))
    return result
