"""Starts a sandbox's service and waits for it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from pipelines.core.paths import PACKAGE
from pipelines.hosts.sandbox.state import DamagedSandboxError, State, published
from pipelines.session.base import DeadHostError

_START_TIMEOUT = 60.0


def start_service(
    home: Path, log: IO[bytes], http_port: int, https_port: int, *, tied: bool
) -> subprocess.Popen[bytes]:
    """Start the service's process; if ``ephemeral``, it ends when its standard input does."""
    arguments = [sys.executable, "-m", "pipelines.hosts.sandbox.daemon", str(home)]
    arguments += ["--http-port", str(http_port), "--https-port", str(https_port)]
    return subprocess.Popen(
        [*arguments, *(["--tied"] if tied else [])],
        cwd=PACKAGE.parent,
        stdin=subprocess.PIPE if tied else subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C goes to the controller, which shuts it down
    )


def await_service(name: str, run: Path, process: subprocess.Popen[bytes], log: IO[bytes]) -> State:
    """Wait for the state that the service of sandbox ``name`` publishes in ``run``.

    Raises ``DeadHostError`` with the end of its ``log`` if it ends or takes too long,
    :class:`DamagedSandboxError` if its files are the cause.
    """
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        if state := published(run):
            return state
        if process.poll() is not None:
            break
        time.sleep(0.01)
    log.seek(0)
    text = log.read().decode("utf-8", "replace").strip()
    failed = DeadHostError
    try:
        report = json.loads(text.splitlines()[-1])
        message, hint = report["error"], report["hint"]
        if report["whole"] is False:
            failed = DamagedSandboxError
    except (ValueError, IndexError, KeyError, TypeError):
        message, hint = text[-1500:] or "no output", "Type: invoke host remove, then try again."
    raise failed(f"the sandbox '{name}' did not start: {message}", hint=hint)
