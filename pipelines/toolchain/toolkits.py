"""A CUDA toolkit more: its components as NVIDIA's own list of a release names them.

https://developer.download.nvidia.com/compute/cuda/redist/ has ``redistrib_<release>.json`` of each.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from pipelines.core.errors import LockError
from pipelines.core.files import write_atomic
from pipelines.toolchain.intent import TOOLKIT
from pipelines.toolchain.lock import ToolchainLock
from pipelines.toolchain.sources import system_trust_session

REDIST = "https://developer.download.nvidia.com/compute/cuda/redist"
_TIMEOUT = (15, 60)


def add_toolkit(cuda: str, folder: Path, lock: ToolchainLock) -> Path:
    """Write the components of CUDA ``cuda``, such as 13.6, next to ``folder``'s toolchain.yaml.

    They are those that the newest toolkit of ``lock`` has. Raises :class:`LockError` for a release
    that NVIDIA does not list, and for one with a component missing.
    """
    if not re.fullmatch(r"\d{2}\.\d", cuda):
        raise LockError(f"--cuda {cuda}: expected a release", hint="Such as 13.6.")
    release, listed = _fetch_cuda_manifest(cuda)
    if listed.get("release_label") != release:
        raise LockError(f"redistrib_{release}.json is another list", hint="Do not use it.")
    newest = max(lock.toolkits, key=lambda one: [*map(int, one.split("."))])
    tools: dict[str, dict[str, Any]] = {}
    for name in sorted(lock.tools[id_].name for id_ in lock.toolkits[newest]):
        found: Any = listed.get(name) or listed.get(name.removeprefix("cuda_"))  # cccl, from 13.4
        try:
            file = found["windows-x86_64"]
            tools[name] = {
                "cuda": {cuda: found["version"]},
                "sha256": file["sha256"],
                "size": int(file["size"]),
                "sources": [{"url": f"{REDIST}/{file['relative_path']}"}],
            }
        except (KeyError, TypeError, ValueError):
            raise LockError(
                f"redistrib_{release}.json has no {name} for Windows",
                hint="It is not as those before it: name what has moved in toolchain.yaml.",
            ) from None
    group = {"id": "cuda-{cuda}-{name}", "tools": tools}
    text = yaml.safe_dump({"version": 1, "groups": [group]}, sort_keys=False, width=1000)
    path = folder / TOOLKIT.replace("*", cuda)
    write_atomic(path, f"# CUDA {release}: {REDIST}/redistrib_{release}.json\n{text}".encode())
    return path


def _fetch_cuda_manifest(cuda: str) -> tuple[str, dict[str, Any]]:
    """The newest patch of a release, and what NVIDIA lists of it."""
    import requests

    try:
        with system_trust_session() as client:
            for release in (f"{cuda}.{patch}" for patch in range(9, -1, -1)):
                answer = client.get(f"{REDIST}/redistrib_{release}.json", timeout=_TIMEOUT)
                if answer.status_code != requests.codes.not_found:
                    answer.raise_for_status()
                    return release, dict(answer.json())
    except (requests.RequestException, TypeError, ValueError) as error:
        raise LockError(
            f"NVIDIA's list of CUDA {cuda} cannot be had: {error}",
            hint="Check the network, then run it again.",
        ) from None
    raise LockError(f"NVIDIA lists no CUDA {cuda}", hint=f"{REDIST}/ lists them.")
