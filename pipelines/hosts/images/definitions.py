"""The definitions of all images: ``images.yaml``."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field, RootModel

from pipelines.core.errors import ConfigError
from pipelines.core.model import Model, PythonVersion, read_data, suggest_nearest
from pipelines.core.paths import CHECKOUT
from pipelines.hosts.engine.engine import System
from pipelines.toolchain.lock import ToolchainLock

_FILE = Path(__file__).with_name("images.yaml")


class ImageDefinition(Model):
    """One image of ``images.yaml``, whose header describes the keys."""

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
    build: dict[str, dict[str, int]] = Field(default_factory=dict)

    def values(self, python: str) -> dict[str, str]:
        """The values of the names in braces."""
        return {"python": python, "cp": python.replace(".", ""), "cuda": self.cuda}

    def entries(
        self, lock: ToolchainLock, patterns: Iterable[str], values: Mapping[str, str]
    ) -> list[str]:
        """The matching entries of the lock, sorted; :class:`ConfigError` if there are none."""
        names: set[str] = set()
        for pattern in patterns:
            name = pattern.format_map(values)
            fitting = fnmatch.filter(lock.tools, name)
            if not fitting:
                raise ConfigError(
                    f"toolchain.lock.yaml has no '{name}', which the image needs",
                    hint="Use another Python, or add it to toolchain.yaml and run: invoke lock",
                )
            names |= {*fitting}
        return sorted(names)


class _Images(RootModel[dict[str, ImageDefinition]]):
    pass


def image_definitions() -> dict[str, ImageDefinition]:
    """Every image of the pipeline, by name."""
    return read_data(_FILE, _Images, hint="").root


def image_named(name: str) -> ImageDefinition:
    """The image of that name; :class:`ConfigError` with the known names."""
    if (definition := image_definitions().get(name)) is not None:
        return definition
    known = ", ".join(image_definitions())
    raise ConfigError(
        f"unknown image '{name}'{suggest_nearest(name, image_definitions())}",
        hint=f"Known images: {known}; name any other by its digest: NAME@sha256:...",
    )


def require_checkout() -> Path:
    """The checkout, which alone has the Dockerfiles; :class:`ConfigError` without one."""
    if CHECKOUT is None:
        raise ConfigError(
            "images are built in a checkout: images/ is not in the installed package",
            hint="Run it in a checkout and transfer the image with invoke image push, or with "
            "docker save and docker load; then name it by its digest: 'image: NAME@sha256:...'.",
        )
    return CHECKOUT
