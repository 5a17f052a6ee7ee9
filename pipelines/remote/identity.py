"""Identifies this machine by a name stored on it, whatever it is called elsewhere."""

from __future__ import annotations

import os
import pathlib
import time
from typing import TypedDict

from . import awake, protected_dirs
from .facts import disk
from .reboot import boot_identity
from .rpc import idempotent

#: Below the build directory: hosts sharing it must not be used as two hosts.
MARK = ".host-id"
_PATIENCE = 2.0  # seconds that another process may take to create the same file


class Identity(TypedDict):
    """Equal ``place`` and ``boot`` mean one machine; ``time`` is seconds since the epoch."""

    place: str
    boot: str
    time: float
    free: int
    """Size in bytes of the disk with the build directory."""


@idempotent
def identity(root: str) -> Identity:
    """Of the machine with the build directory ``root``, which is created. Raises ``OSError``.

    A fleet asks before it provisions, so this may be the first to create that directory.
    """
    folder = pathlib.Path(root)
    protected_dirs.make(folder)
    mark = folder / MARK
    try:
        with mark.open("x", encoding="ascii") as file:
            file.write(os.urandom(16).hex())
    except FileExistsError:
        pass
    deadline = awake.seconds() + _PATIENCE
    while not (place := mark.read_text("ascii", "replace")[:64]) and awake.seconds() < deadline:
        time.sleep(0.05)
    try:
        boot = boot_identity()
    except OSError:  # such as a container without /proc: only the path identifies it
        boot = ""
    return {"place": place, "boot": boot, "time": time.time(), "free": disk(root)["free"]}
