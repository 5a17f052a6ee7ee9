"""The state files of a sandbox's service: its addresses, and whether it is alive.

In ``HOME/run``: ``state.json`` while clients may connect, ``alive`` locked while the process
lives, ``in-use`` from its start until Windows has shut down properly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypedDict, cast

from pipelines.core.errors import HostError, SetupError
from pipelines.core.files import atomic_output
from pipelines.core.paths import PACKAGE
from pipelines.hosts.sandbox.making import try_lock_file
from pipelines.session.base import DeadHostError

#: Exists while Windows runs, and afterwards if it did not shut down properly.
IN_USE = "in-use"
_TURN = 30.0  # seconds that a service may take to end


class DamagedSandboxError(DeadHostError):
    """A prefix that is damaged or does not start: it must be replaced."""


class State(TypedDict):
    """Its process, its addresses, its certificate."""

    pid: int
    https: str
    http: str
    certificate_sha256: str


def make_run(run: Path) -> None:
    """Create the directory, accessible by its owner only: it contains a password.

    Raises :class:`SetupError` if the file system keeps no permissions, such as WSL's for Windows
    drives: https://learn.microsoft.com/windows/wsl/file-permissions.
    """
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):
        run.chmod(0o700)
    if (mode := run.stat().st_mode & 0o777) & 0o077:
        raise SetupError(
            f"the file system of {run} cannot protect the passwords stored there: a directory for "
            f"its owner alone gets mode {mode:04o}",
            hint="Clone the project into a directory on a Linux file system, such as your home; "
            "in WSL not below /mnt.",
        )


def publish_state(run: Path, state: State) -> None:
    """Write ``state.json`` in one step, readable by its owner only."""
    with atomic_output(run / "state.json") as part:
        part.touch(0o600)
        part.write_text(json.dumps(state, indent=1))


def withdraw_state(run: Path) -> None:
    """Stop publishing: the service is about to end."""
    (run / "state.json").unlink(missing_ok=True)


def read_live_state(run: Path) -> State | None:
    """The published state of the running service, or ``None``."""
    try:
        state = cast(State, json.loads((run / "state.json").read_text()))
        command = Path(f"/proc/{state['pid']}/cmdline").read_bytes()
    except (OSError, ValueError, KeyError):
        return None
    # Otherwise the number belongs to another process, or to another sandbox's service.
    own = os.fsencode(run.parent) in command.split(b"\0")
    return state if own and b"sandbox.daemon" in command else None


def is_service_alive(run: Path) -> bool:
    """Whether a service exists: starting, running, or still ending."""
    try:
        with (run / "alive").open("r+") as file:
            return not try_lock_file(file)
    except FileNotFoundError:
        return False


@contextmanager
def hold_service_lock(run: Path) -> Iterator[None]:
    """Be the only service of ``run`` while the context is active, or raise :class:`HostError`."""
    deadline = time.monotonic() + _TURN
    with (run / "alive").open("a") as file:
        while not try_lock_file(file):
            if time.monotonic() > deadline:
                raise HostError(
                    "another service of this sandbox cannot be stopped",
                    hint="Type: invoke host stop --force",
                )
            time.sleep(0.02)
        yield


_START_TIMEOUT = 60.0


def start_service(
    home: Path, wine: str, log: IO[bytes], http_port: int, https_port: int, *, tied: bool
) -> subprocess.Popen[bytes]:
    """Start the service's process with that ``wine``; ``tied``: it ends with its standard input."""
    arguments = [sys.executable, "-m", "pipelines.hosts.sandbox.daemon", str(home), "--wine", wine]
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
        if state := read_live_state(run):
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
