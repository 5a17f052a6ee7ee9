"""Who made a container, and whether he is still there to use it."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from pipelines.core.paths import CONFIG_NAME, home

_MACHINE_ID = ("/etc/machine-id", "/var/lib/dbus/machine-id")


@cache
def machine() -> str:
    """A name of this machine that no other has, also not after it was installed anew."""
    for place in _MACHINE_ID:
        try:
            if found := Path(place).read_text().strip():
                return hashlib.sha256(f"windows-cuda-wheels {found}".encode()).hexdigest()[:12]
        except OSError:
            continue
    return hashlib.sha256(platform.node().encode()).hexdigest()[:12]


def project() -> str:
    """Of which checkout, and which file of hosts in it, on which machine: engines are shared."""
    place = home().resolve()
    config = Path(os.environ.get("WCW_CONFIG") or place / CONFIG_NAME).resolve()
    told = f"{machine()} {place}" + ("" if config == place / CONFIG_NAME else f" {config}")
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def who() -> str:
    """For people: user@machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a number without a name, in a container
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{platform.node() or 'this machine'}"


def me() -> str:
    """Name this process so that no later one with its number is taken for it."""
    return f"{machine()}/{os.getpid()}/{_started(os.getpid())}"


def alive(owner: str) -> bool | None:
    """Whether the process that :func:`me` named still runs; ``None``: it is another machine's."""
    where, _, process = owner.partition("/")
    number, _, began = process.partition("/")
    if where != machine() or not number.isdecimal():
        return None
    if sys.platform == "linux" and began.count("-") == 2 and began.split("-")[1] != _room():  # noqa: PLR2004
        return None  # its number means nothing here
    return bool(began) and _started(int(number)) == began


@cache
def _room() -> str:
    """Where a process' number is its own: images and cloned machines share an id of a machine."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]


def _started(pid: int) -> str:
    """When a process began, as its system tells it; empty when there is none."""
    if sys.platform == "linux":
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            return ""
        return f"{boot[:8]}-{_room()}-{began}"
    if sys.platform == "win32":
        query = f"(Get-Process -Id {pid}).StartTime.ToFileTimeUtc()"
        command = ["powershell.exe", "-NoProfile", "-NonInteractive", "-Command", query]
    else:
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return re.sub(r"[^\w]+", "-", told.stdout.strip())  # also part of a tag
