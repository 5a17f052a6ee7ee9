"""What a WinRM service of the tests starts: programs of this machine, not of a Windows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

USER, PASSWORD = "builder", "Passw0rd!"


def launch(
    command_line: str, /, *, skip_cmd_shell: bool, env: Mapping[str, str], cwd: str | None
) -> subprocess.Popen[bytes]:
    """As a command line of ``sh``, in a session of its own."""
    return subprocess.Popen(
        ["sh", "-c", f"exec {command_line}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
        cwd=cwd,
        start_new_session=True,
    )
