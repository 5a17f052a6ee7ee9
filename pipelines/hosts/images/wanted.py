"""Which images there are, and what each is made of: ``images.yaml``."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field, RootModel

from pipelines.core.errors import ConfigError
from pipelines.core.model import Model, PythonVersion, nearest, read_data
from pipelines.core.paths import CHECKOUT
from pipelines.hosts.engine.engine import System
from pipelines.toolchain.lock import ToolchainLock

_FILE = Path(__file__).with_name("images.yaml")


class Wanted(Model):
    """One image, as ``images.yaml`` describes it; its head says what the keys mean."""

    system: System
    dockerfile: str
    base: dict[str, str]
    arguments: dict[str, str] = Field(default_factory=dict)
    per_python: bool = True
    cuda: str = ""
    carried: tuple[str, ...] = ()
    place: str = ""
    fetched: tuple[str, ...] = ()
    files: dict[str, str]
    sources: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    interpreter: PythonVersion | None = None
    requirements: tuple[str, ...] = ()
    python: str
    survey: str
    build: dict[str, dict[str, int]] = Field(default_factory=dict)

    def values(self, python: str) -> dict[str, str]:
        """What stands for the names in braces."""
        return {"python": python, "cp": python.replace(".", ""), "cuda": self.cuda}

    def entries(
        self, lock: ToolchainLock, patterns: Iterable[str], values: Mapping[str, str]
    ) -> list[str]:
        """The entries of the lock of such names, sorted; :class:`ConfigError` if there is none."""
        found: set[str] = set()
        for pattern in patterns:
            name = pattern.format_map(values)
            fitting = fnmatch.filter(lock.tools, name)
            if not fitting:
                raise ConfigError(
                    f"toolchain.lock.yaml has no '{name}', of which that image is made",
                    hint="Ask for another Python, or add it to toolchain.yaml: invoke lock",
                )
            found |= {*fitting}
        return sorted(found)


class _Images(RootModel[dict[str, Wanted]]):
    pass


@functools.cache
def images() -> dict[str, Wanted]:
    """Every image that we make, by its name."""
    return read_data(_FILE, _Images, hint="").root


def image_named(name: str) -> Wanted:
    """The image of that name; :class:`ConfigError` with those that there are."""
    if (found := images().get(name)) is not None:
        return found
    known = ", ".join(images())
    raise ConfigError(
        f"we make no image '{name}'{nearest(name, images())}",
        hint=f"There are {known}; another one is named by its digest: NAME@sha256:...",
    )


def checkout() -> Path:
    """The repository, which alone has the Dockerfiles; :class:`ConfigError` where it is not."""
    if CHECKOUT is None:
        raise ConfigError(
            "images are made in a checkout: images/ is not in the installed package",
            hint="Type it in a checkout and bring the image with invoke image push, or with "
            "docker save and docker load; then name it by its digest: 'image: NAME@sha256:...'.",
        )
    return CHECKOUT
