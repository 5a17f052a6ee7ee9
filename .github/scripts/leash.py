"""Kill a command while its container runs: the container must end with it.

    leash.py HOST [SECONDS]    how long the container may take to be gone

What `finally` and signal handlers would do is not what is looked at: the process gets no warning.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import docker

_START = 900.0  # an image may have to be fetched first
_PATIENCE = 60.0
_KIND = "windows-cuda-wheels.kind"


def containers(client: Any, host: str, *, every: bool) -> list[str]:
    """Names of the host's containers: those that run, or every one."""
    label = f"windows-cuda-wheels.host={host}"
    found = client.containers.list(all=every, filters={"label": label}, ignore_removed=True)
    # Those that look into a golden disk's volume have the host's label, too.
    return [str(one.name) for one in found if one.labels.get(_KIND) != "golden"]


def killed(client: Any, host: str) -> list[str]:
    """Start a command, kill it as soon as its container runs; the names of those that ran."""
    command = [sys.executable, "-m", "pipelines", "doctor", "--host", host]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline and process.poll() is None:
            if names := containers(client, host, every=False):
                process.kill()
                return names
            time.sleep(0.05)
        process.kill()
    return []


def main(words: list[str]) -> int:
    """0 if it was gone in time."""
    host, patience = words[0], float(words[1]) if words[1:] else _PATIENCE
    client = docker.from_env()
    if left := containers(client, host, every=True):
        print(f"there is {', '.join(left)} already: this would prove nothing")
        return 2
    names = killed(client, host)
    if not names:
        print(f"the command ended before a container of '{host}' was seen")
        return 2
    begun = time.monotonic()
    while time.monotonic() < begun + patience:
        if not containers(client, host, every=True):
            print(f"{', '.join(names)}: gone {time.monotonic() - begun:.1f} s after the kill")
            return 0
        time.sleep(0.1)
    print(f"{', '.join(names)}: still there {patience:.0f} s after the kill")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
