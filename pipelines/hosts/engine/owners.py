"""Who created a container, and whether that process still runs."""

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

from pipelines.core.paths import CONFIG_NAME, config_file, project_dir

_MACHINE_ID = ("/etc/machine-id", "/var/lib/dbus/machine-id")


@cache
def machine_id() -> str:
    """A unique name of this machine, which changes when it is reinstalled."""
    for place in _MACHINE_ID:
        try:
            if text := Path(place).read_text().strip():
                return hashlib.sha256(f"windows-cuda-wheels {text}".encode()).hexdigest()[:12]
        except OSError:
            continue
    return hashlib.sha256(platform.node().encode()).hexdigest()[:12]


def project_id() -> str:
    """The checkout, its hosts file and its machine: engines are shared."""
    place = project_dir().resolve()
    config = config_file().resolve()
    text = f"{machine_id()} {place}" + ("" if config == place / CONFIG_NAME else f" {config}")
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def user_at_machine() -> str:
    """user@machine, for people."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, in a container
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{platform.node() or 'this machine'}"


def process_identity() -> str:
    """An identifier of this process that a later one with the same number does not have."""
    return f"{machine_id()}/{os.getpid()}/{_start_time(os.getpid())}"


def is_owner_alive(owner: str) -> bool | None:
    """Whether the process of a :func:`process_identity` runs; ``None``: it is another machine's."""
    where, _, process = owner.partition("/")
    number, _, began = process.partition("/")
    if where != machine_id() or not number.isdecimal():
        return None
    parts = began.split("-")
    if sys.platform == "linux" and len(parts) == 3 and parts[1] != _process_namespace():  # noqa: PLR2004
        return None  # from another process namespace
    return bool(began) and _start_time(int(number)) == began


@cache
def _process_namespace() -> str:
    """The process namespace: images and cloned machines share a machine id."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]


def _start_time(pid: int) -> str:
    """When a process started, as reported by its system; empty if it does not exist."""
    if sys.platform == "linux":
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            return ""
        return f"{boot[:8]}-{_process_namespace()}-{began}"
    if sys.platform == "win32":
        query = f"(Get-Process -Id {pid}).StartTime.ToFileTimeUtc()"
        command = ["powershell.exe", "-NoProfile", "-NonInteractive", "-Command", query]
    else:
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return re.sub(r"[^\w]+", "-", process.stdout.strip())  # also part of a tag
