"""What a sandbox's service leaves for whoever looks for it: where it is, whether it lives.

In ``HOME/run``: ``state.json`` while clients may connect, ``alive`` locked as long as the process
lives, ``in-use`` from its start until Windows has ended in good order.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict, cast

from pipelines.core.errors import HostError, SetupError
from pipelines.hosts.sandbox.making import lock
from pipelines.session.base import DeadHostError

#: There while Windows runs, and afterwards if it did not end in good order.
IN_USE = "in-use"
_TURN = 30.0  # seconds that a service which is ending may take


class NotWholeError(DeadHostError):
    """A prefix that is damaged or does not come up: only a new one would help."""


class State(TypedDict):
    """Its process, where it listens, its certificate."""

    pid: int
    https: str
    http: str
    certificate_sha256: str


def make_run(run: Path) -> None:
    """Make the directory, which its owner alone may enter: there is a password in it.

    Raises :class:`SetupError` where a file system keeps no permissions, as WSL's of a Windows
    drive: https://learn.microsoft.com/windows/wsl/file-permissions.
    """
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(PermissionError):
        run.chmod(0o700)
    if (mode := run.stat().st_mode & 0o777) & 0o077:
        raise SetupError(
            f"the file system of {run} does not keep its passwords from others: a directory for "
            f"its owner alone has mode {mode:04o} there",
            hint="Clone the project into a directory of Linux' own, such as your home; in WSL "
            "not below /mnt.",
        )


def publish(run: Path, state: State) -> None:
    """Write ``state.json`` in one step, readable by its owner only."""
    part = run / ".state.json.part"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(state, stream, indent=1)
    part.replace(run / "state.json")


def withdraw(run: Path) -> None:
    """Nobody may connect any more: the service is about to end."""
    (run / "state.json").unlink(missing_ok=True)


def published(run: Path) -> State | None:
    """What the running service wrote, or ``None`` when none runs."""
    try:
        state = cast(State, json.loads((run / "state.json").read_text()))
        command = Path(f"/proc/{state['pid']}/cmdline").read_bytes()
    except (OSError, ValueError, KeyError):
        return None
    # Else it is another process' number: of no service, or of another sandbox's.
    own = os.fsencode(run.parent) in command.split(b"\0")
    return state if own and b"sandbox.daemon" in command else None


def alive(run: Path) -> bool:
    """Whether a service is there: starting, running, or still ending."""
    try:
        with (run / "alive").open("r+") as file:
            return not lock(file)
    except FileNotFoundError:
        return False


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """Be the one service of ``run`` for as long as this lasts, or :class:`HostError`."""
    deadline = time.monotonic() + _TURN
    with (run / "alive").open("a") as file:
        while not lock(file):
            if time.monotonic() > deadline:
                raise HostError(
                    "another service of this sandbox does not end",
                    hint="Type: invoke host stop --force",
                )
            time.sleep(0.02)
        yield
