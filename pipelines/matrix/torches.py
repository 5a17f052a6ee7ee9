"""Which builds of torch there are for Windows: ``torch.yaml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

from packaging.version import Version
from pydantic import Field

from pipelines.model import Model, PythonVersion, read_data
from pipelines.versions import Release

TORCH_FILE = Path(__file__).resolve().with_name("torch.yaml")


class TorchBuild(Model):
    """A release: for which CUDA versions and Pythons it has wheels."""

    cuda: Annotated[tuple[Release, ...], Field(min_length=1)]
    python: Annotated[tuple[PythonVersion, ...], Field(min_length=1)]


class Torches(Model):
    """``torch.yaml``."""

    torches: dict[Release, TorchBuild]


@cache
def load_torches(path: Path = TORCH_FILE) -> dict[str, TorchBuild]:
    """The table, oldest first; :class:`ConfigError` names the file and the key that is wrong."""
    table = read_data(path, Torches).torches
    return {name: table[name] for name in sorted(table, key=Version)}
