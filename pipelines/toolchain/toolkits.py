"""A CUDA toolkit more: its components as NVIDIA's own list of a release names them.

https://developer.download.nvidia.com/compute/cuda/redist/ has ``redistrib_<release>.json`` of each.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel, Field, ValidationError

from pipelines.errors import LockError
from pipelines.files import write_atomic
from pipelines.model import first_problem
from pipelines.toolchain.intent import TOOLKIT
from pipelines.toolchain.lock import ToolchainLock
from pipelines.toolchain.sources import Sha256, session

if TYPE_CHECKING:
    import requests

REDIST = "https://developer.download.nvidia.com/compute/cuda/redist"
_TIMEOUT = (15, 60)
_PATCHES = range(9, -1, -1)  # of a minor release, the newest first


class _File(BaseModel):
    relative_path: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)+\.zip$")
    sha256: Sha256
    size: int = Field(gt=0)


class _Component(BaseModel):
    version: str
    windows: _File | None = Field(None, alias="windows-x86_64")


def add_toolkit(cuda: str, folder: Path, lock: ToolchainLock) -> Path:
    """Write the components of CUDA ``cuda`` (13.6, or 13.6.1) beside the toolchain.yaml.

    They are those that the newest toolkit of ``lock`` has. Raises :class:`LockError` for a release
    that NVIDIA does not list, and for one that lacks a component.
    """
    if not re.fullmatch(r"\d{2}\.\d(\.\d)?", cuda):
        raise LockError(f"--cuda {cuda}: expected a release", advice="Such as 13.6, or 13.6.1.")
    release, listed = _listed(cuda)
    minor = release.rpartition(".")[0]
    newest = max(lock.toolkits, key=lambda one: [*map(int, one.split("."))])
    tools, lacking = {}, []
    for name in sorted(lock.tools[id_].name for id_ in lock.toolkits[newest]):
        try:  # cuda_cccl is called cccl from 13.4 on
            found = _Component.model_validate(listed.get(name, listed.get(name[len("cuda_") :])))
        except ValidationError as error:
            lacking.append(f"{name}: {first_problem(error)}")
            continue
        if found.windows is None:
            lacking.append(f"{name}: not for Windows")
            continue
        tools[name] = {
            "cuda": {minor: found.version},
            "sha256": found.windows.sha256,
            "size": found.windows.size,
            "sources": [{"url": f"{REDIST}/{found.windows.relative_path}"}],
        }
    if lacking:
        raise LockError(
            f"redistrib_{release}.json is not as those before it: {'; '.join(lacking)}",
            advice="Name what has moved in toolchain.yaml by hand.",
        )
    group = {"id": "cuda-{cuda}-{name}", "tools": tools}
    text = yaml.safe_dump({"version": 1, "groups": [group]}, sort_keys=False, width=1000)
    path = folder / TOOLKIT.replace("*", minor)
    write_atomic(path, f"# CUDA {release}: {REDIST}/redistrib_{release}.json\n{text}".encode())
    return path


def _listed(cuda: str) -> tuple[str, dict[str, object]]:
    """The release, and what NVIDIA lists of it: the newest patch where only a minor is named."""
    import requests

    releases = [f"{cuda}.{patch}" for patch in _PATCHES] if cuda.count(".") == 1 else [cuda]
    with session() as client:
        for release in releases:
            try:
                answer = client.get(f"{REDIST}/redistrib_{release}.json", timeout=_TIMEOUT)
                if answer.status_code == requests.codes.not_found:
                    continue
                answer.raise_for_status()
                return release, _right(answer, release)
            except (requests.RequestException, ValueError) as error:
                raise LockError(
                    f"NVIDIA's list of CUDA {release} cannot be had: {error}",
                    advice="Check the network, then run it again.",
                ) from None
    raise LockError(
        f"NVIDIA lists no CUDA {cuda}", advice=f"{REDIST}/ has the releases that there are."
    )


def _right(answer: requests.Response, release: str) -> dict[str, object]:
    """The list; ``ValueError`` unless it is that of ``release``."""
    told = answer.json()
    if not isinstance(told, dict) or told.get("release_label") != release:
        raise ValueError("what came is another list, or none")
    return told
