"""Which machine this is, by a name that was left on it: whatever it is called elsewhere."""

from __future__ import annotations

import os
import pathlib
import time
from typing import TypedDict

from . import awake, protected_dirs
from .facts import disk
from .reboot import boot_identity
from .rpc import idempotent

#: Below the directory of builds: what uses the same one must not be used as two hosts.
MARK = ".host-id"
_PATIENCE = 2.0  # seconds that another who makes the same file may take


class Identity(TypedDict):
    """Two that have ``place`` and ``boot`` alike are one; ``time`` is seconds since the epoch."""

    place: str
    boot: str
    time: float
    free: int
    """Bytes of the disk with the directory of builds."""


@idempotent
def identity(root: str) -> Identity:
    """Of the machine with the directory of builds ``root``, which is made. Raises ``OSError``.

    A fleet asks before it provisions, so this may be the first to make that directory.
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
    except OSError:  # a container without /proc, say: the place alone tells
        boot = ""
    return {"place": place, "boot": boot, "time": time.time(), "free": disk(root)["free"]}
