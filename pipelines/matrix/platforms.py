"""What it takes to build for another platform than the host's: ``platforms.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import Field, StringConstraints, model_validator

from pipelines.architectures.archs import ArchList
from pipelines.errors import ConfigError
from pipelines.model import Model, nearest, read_data
from pipelines.recipe.archmap import Arch
from pipelines.target import Target
from pipelines.toolchain.lock import ToolchainLock
from pipelines.versions import Range, python_release, within

PLATFORMS_FILE = Path(__file__).with_name("platforms.yaml")
#: What every cell is for that names no platform.
USUAL = "win_amd64"
_BUILD_TOOLS = "vs-buildtools-2022"

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Link = Annotated[str, StringConstraints(pattern=r"^https://\S+$")]
Tag = Annotated[str, StringConstraints(pattern=r"^win_[a-z0-9_]{1,20}$")]


class Need(Model):
    """Something that a build for it takes."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    says: Text
    """What is missing."""
    cure: Text
    source: Link
    component: str | None = None
    """Of Visual Studio, among those that are installed."""
    tool: str | None = None
    """Of the lock."""
    tag: str | None = None
    """In the name of that tool's file."""
    torch: bool = False
    """Only where it is built against torch."""

    @model_validator(mode="after")
    def _tool_and_tag(self) -> Self:
        if bool(self.tool) != bool(self.tag) or (self.tool and self.component):
            raise ValueError("expected tool and tag, or component, or neither")
        return self

    def met(self, lock: ToolchainLock) -> bool:
        """Whether the lock has it."""
        if self.component:
            tools = lock.tools.get(_BUILD_TOOLS)
            return tools is not None and self.component in tools.components
        named = (one for one in lock.tools.values() if self.tool and one.name == self.tool)
        return any(str(self.tag) in one.file for one in named)


class Platform(Model):
    """A platform of wheels, from which releases on there is anything for it, and what it takes."""

    says: Text
    cuda: Range
    cuda_source: Link
    python: Range
    python_source: Link
    archs: Annotated[tuple[Arch, ...], Field(min_length=1)]
    """The architectures of its GPUs."""
    archs_source: Link
    needs: Annotated[tuple[Need, ...], Field(min_length=1)]


class Platforms(Model):
    """``platforms.yaml``."""

    platforms: dict[Tag, Platform]


class Misses(NamedTuple):
    """One thing that a cell lacks for its platform, as a finding has it."""

    rule: str
    says: str
    source: str
    cure: str
    error: bool = True


@cache
def load_platforms(path: Path = PLATFORMS_FILE) -> dict[str, Platform]:
    """By tag; :class:`ConfigError` names the key that is wrong."""
    return read_data(path, Platforms).platforms


def check_platform(name: str) -> str:
    """A platform as a target has it: empty for the usual one.

    Raises :class:`ConfigError` for one that is not known, with the nearest.
    """
    known = [USUAL, *load_platforms()]
    if name not in known:
        raise ConfigError(
            f"--platform {name[:40]}: unknown{nearest(name, known, '; did you mean {}?')}",
            advice=f"There are: {', '.join(known)}.",
        )
    return "" if name == USUAL else name


def misses(target: Target, lock: ToolchainLock) -> Iterator[Misses]:
    """Everything that a cell lacks; nothing for one of the usual platform."""
    if not target.platform:
        return
    own = load_platforms()[target.platform]
    name = f"{own.says} ({target.platform})"
    if not within(target.cuda, own.cuda):
        says = f"CUDA {target.cuda} has nothing for {name}: it takes {own.cuda}"
        yield Misses("platform-cuda", says, own.cuda_source, f"--cuda {own.cuda.lstrip('>=')}")
    if target.python and not within(python_release(target.python), own.python):
        says = f"Python {target.python} has nothing for {name}: it takes {own.python}"
        cure = f"--python {own.python.lstrip('>=')} or newer"
        yield Misses("platform-python", says, own.python_source, cure)
    if not _served(target.archs, own):
        says = f"no code for the GPUs of {name}, sm_{own.archs[0]}: {target.archs}"
        yield Misses("platform-archs", says, own.archs_source, f"--archs {own.archs[0]}")
    for need in own.needs:
        if (target.torch or not need.torch) and not need.met(lock):
            yield Misses(need.id, f"{name}: {need.says}", need.source, need.cure)


def _served(archs: ArchList, own: Platform) -> bool:
    """Whether its GPUs run any of the code: their own, an older one's of their family, PTX."""
    from pipelines.architectures.serving import serves

    gpu = own.archs[0]
    return any(serves(one, gpu) for one in archs.sass) or any(
        serves(one, gpu, ptx=True) for one in archs.ptx
    )
