"""Which builds of torch there are for Windows: ``torch.yaml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Self

from packaging.version import Version
from pydantic import Field, model_validator

from pipelines.core.model import Dated, Link, Model, PythonVersion, read_data
from pipelines.core.versions import Release

TORCH_FILE = Path(__file__).resolve().with_name("torch.yaml")
_RELEASES = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"


class TorchBuild(Dated):
    """A release: for which CUDA versions and Pythons it has wheels."""

    cuda: tuple[Release, ...]
    """Those whose wheels for Windows are known."""
    python: Annotated[tuple[PythonVersion, ...], Field(min_length=1)]
    announced: dict[Release, Link] = Field(default={})
    """Others that were announced, with the source; no list of their wheels was found."""
    source: Link = _RELEASES
    """The source of the CUDA versions."""

    @model_validator(mode="after")
    def _some_and_once(self) -> Self:
        if not self.cudas:
            raise ValueError("cuda: expected one, or one under announced")
        if both := sorted({*self.cuda} & {*self.announced}):
            raise ValueError(f"announced: {both[0]} is under cuda: it is known to be there")
        return self

    @property
    def cudas(self) -> tuple[str, ...]:
        """All, also those that are only announced, oldest first."""
        return tuple(sorted({*self.cuda, *self.announced}, key=Version))


class Torches(Model):
    """``torch.yaml``."""

    torches: dict[Release, TorchBuild]


@cache
def load_torches(path: Path = TORCH_FILE) -> dict[str, TorchBuild]:
    """The table, oldest first; :class:`ConfigError` names the file and the key that is wrong."""
    table = read_data(path, Torches).torches
    return {name: table[name] for name in sorted(table, key=Version)}
