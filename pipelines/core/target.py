"""What is built where: one type, from the command-line flag to the report's grid.

An axis is a field of :class:`Target` with its :class:`Axis`: flags, help, names of runs, labels,
comparisons and provenance all follow from these fields, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, StringConstraints

from pipelines.core.architectures.archs import ArchList, parse_arch_list
from pipelines.core.errors import ConfigError
from pipelines.core.model import Model
from pipelines.core.versions import minor_release


@dataclass(frozen=True)
class Axis:
    """How an axis is written; ``{}`` is its value, ``{plain}`` the value without dots.

    ``{minor}`` is its minor release: of 2.8.1 it is 2.8.
    """

    help: str
    flag: str = ""
    """The flag, if it differs from the field's name."""
    tag: str = ""
    """In the name of a cell: ``cp312``."""
    words: str = ""
    """In a label: ``CUDA 12.8``."""
    several: str = ""
    """The help for commands that accept several values."""


def _read_archs(value: object) -> object:
    """Parse a list; an empty text is an empty list."""
    if not isinstance(value, str):
        return value
    try:
        return parse_arch_list(value) if value else ArchList(())
    except ConfigError as error:
        raise ValueError(error.message) from None


Text = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{0,80}$")]
Archs = Annotated[ArchList, BeforeValidator(_read_archs), PlainSerializer(str)]


class Target(Model):
    """A cell of a package's matrix on a host; a missing or unknown axis is empty."""

    host: Annotated[Text, Axis("the host: a name from pipeline.yaml (default: sandbox)")] = ""
    recipe: Annotated[
        Text,
        Axis("what to build: a name from pipelines/recipes (default: smoke-attention)"),
    ] = ""
    version: Annotated[
        Text,
        Axis(
            "version of the package, as listed by the recipe (default: its first)",
            flag="recipe_version",
        ),
    ] = ""
    python: Annotated[
        Text,
        Axis(
            "Python of the target, such as 3.11; 3.14t is free-threaded",
            tag="cp{plain}",
            words="cp{plain}",
            several="Python versions, separated by commas",
        ),
    ] = ""
    torch: Annotated[
        Text,
        Axis(
            "torch version to build against, such as 2.8 (default: the recipe's)",
            tag="torch{minor}",
            words="torch {}",
            several="torch versions, separated by commas",
        ),
    ] = ""
    cuda: Annotated[
        Text,
        Axis(
            "CUDA version, such as 12.8 (default: the recipe's)",
            tag="cu{plain}",
            words="CUDA {}",
            several="CUDA versions, separated by commas",
        ),
    ] = ""
    archs: Annotated[
        Archs,
        Axis(
            "GPU architectures, such as '75;86;90+PTX'",
            words="{}",
            several="GPU architectures; several lists separated by |",
        ),
    ] = ArchList(())

    @property
    def cell(self) -> str:
        """Its place in the package's matrix: ``cp312-torch2.8-cu128``."""
        return "-".join(self._written("tag"))

    @property
    def id(self) -> str:
        """Names runs and jobs: ``flash-attn-2.8.3-cp312-torch2.8-cu128``."""
        return "-".join(filter(None, (self.recipe, self.version, self.cell)))

    @property
    def label(self) -> str:
        """For people: ``cp312, torch 2.8, CUDA 12.8, 80;90``."""
        return ", ".join(self._written("words")) or "an unrecorded cell"

    @property
    def package(self) -> str:
        """``flash-attn 2.8.3``."""
        return " ".join(filter(None, (self.recipe, self.version))) or "unknown package"

    def values(self) -> dict[str, str]:
        """Every axis with its value as text; empty if it has none."""
        return {name: str(getattr(self, name)) for name in AXES}

    @property
    def session(self) -> dict[str, str]:
        """What one session is for: all axes except architectures."""
        return {name: value for name, value in self.values().items() if name != "archs"}

    def fields(self) -> dict[str, str]:
        """Placeholders in data files: {python}, {torch}, {cuda}."""
        return {name: str(getattr(self, name)) for name, axis in AXES.items() if axis.tag}

    def _written(self, how: str) -> list[str]:
        """The axes that have a value, as ``tag`` or ``words`` of each says."""
        parts = []
        for name, value in self.values().items():
            template: str = getattr(AXES[name], how)
            if template and value:
                plain = value.replace(".", "")
                parts.append(template.format(value, plain=plain, minor=minor_release(value)))
        return parts


def _target_axes() -> Mapping[str, Axis]:
    axes = {}
    for name, field in Target.model_fields.items():
        (axes[name],) = (item for item in field.metadata if isinstance(item, Axis))
    return axes


#: Every axis, in order.
AXES = _target_axes()
