"""The intended tool chain: ``toolchain.yaml``, from which the lock is generated.

Groups of tools, which share where they come from; what differs between Pythons, releases of torch
and of CUDA is written once. Here that becomes the lock's entries, which have no pins yet: those are
for :mod:`pipelines.toolchain.generate` to keep, and for :mod:`pipelines.toolchain.pinning` to find.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import quote, unquote

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from pipelines.core.errors import LockError
from pipelines.core.model import Model, format_validation_error
from pipelines.core.versions import python_tags
from pipelines.core.yamlfile import read_yaml
from pipelines.toolchain.lock import Tool
from pipelines.toolchain.sources import BaseImage, Sha256, Source
from pipelines.toolchain.variants import AXES

INTENT_FILE = Path(__file__).resolve().with_name("toolchain.yaml")
#: Next to it, of the same form: what `invoke watch --pins` has found, if it was put there.
WATCHED = "watched.yaml"
#: The same, one for each CUDA that `invoke lock --cuda` has added.
TOOLKIT = "toolkit-*.yaml"
_HINT = "The comment at its top describes it."

Text = Annotated[str, StringConstraints(min_length=1)]


def _normalize_axis(given: Any) -> Any:
    """``"3.12"`` and ``["3.12"]`` as tables without versions."""
    values = given if isinstance(given, list) else [given]
    if all(isinstance(value, str | float) for value in values):
        return dict.fromkeys(values, "")
    return given


#: What an entry is for -> its version, empty where one version is for all.
Axis = Annotated[dict[Text, str], BeforeValidator(_normalize_axis), Field(min_length=1)]


class Place(Model):
    """A source, with ``{version}`` and its like in its strings."""

    pypi: Text | None = None
    apt: Text | None = None
    url: Text | None = None
    file: Text | None = None

    def filled(self, values: Mapping[str, str], sha256: str | None, size: int | None) -> Source:
        """The source of one entry; ``ValueError`` for braces that hold no name of ours."""
        quoted = {name: quote(value, safe="") for name, value in values.items()}
        given = self.model_dump(exclude_none=True)
        made = {
            k: _fill_placeholders(text, quoted if k == "url" else values)
            for k, text in given.items()
        }
        if "file" not in made and "pypi" in made:
            project, _, version = made["pypi"].partition("==")
            wheel = re.sub(r"[-_.]+", "_", project)
            made["file"] = _fill_placeholders(f"{wheel}-{version}-{{tag}}.whl", values)
        elif "file" not in made and "url" in made:
            made["file"] = unquote(made["url"].rpartition("/")[2])
        return Source.model_validate({**made, "sha256": sha256, "size": size})


class Row(Model):
    """A tool: one entry, or one for each of its Pythons, releases of torch and of CUDA."""

    version: Text | None = None
    torch: Axis | None = None
    cuda: Axis | None = None
    python: Axis | None = None
    id: Text | None = None
    tag: Text | None = None
    sources: tuple[Place, ...] = ()
    requires: tuple[Text, ...] = ()
    components: tuple[str, ...] = ()
    toolset: str | None = None
    signer: str | None = None
    prepare: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    sha256: Sha256 | None = None
    size: Annotated[int, Field(gt=0)] | None = None

    @property
    def axes(self) -> dict[str, dict[str, str]]:
        """What the tool has an entry for each of."""
        return {axis: given for axis in AXES if (given := getattr(self, axis))}

    @model_validator(mode="after")
    def _one_version(self) -> Self:
        versions = [{*axis.values()} for axis in self.axes.values() if any(axis.values())]
        if len(versions) + (self.version is not None) != 1 or any("" in axis for axis in versions):
            raise ValueError("expected one version, or one for each Python, torch or CUDA")
        return self

    def cells(self) -> Iterator[dict[str, str]]:
        """What each entry is for, and its version."""
        axes = self.axes
        for chosen in itertools.product(*axes.values()):
            cell = dict(zip(axes, chosen, strict=True))
            versions = (axes[axis][value] for axis, value in cell.items())
            yield cell | {"version": self.version or next(filter(None, versions))}

    def entries(self, name: str) -> Iterator[tuple[str, Tool]]:
        """Ids and entries, without pins; ``ValueError`` for what the lock would not take."""
        cells = list(self.cells())
        if self.sha256 and len(cells) > 1:
            raise ValueError(f"one sha256, but {len(cells)} files")
        own = ("requires", "components", "toolset", "signer", "prepare", "arguments")
        shared = {"name": name, **{key: getattr(self, key) for key in own}}
        for cell in cells:
            values = {"name": name, **cell}
            python = cell.get("python")
            short = {"cp": python, "cu": cell.get("cuda")}
            values |= {key: text.replace(".", "") for key, text in short.items() if text}
            if python:
                values["tags"] = "-".join(python_tags(python))
            if self.tag:
                values["tag"] = _fill_placeholders(self.tag, values)
            sources = [place.filled(values, self.sha256, self.size) for place in self.sources]
            made = {**shared, **cell, "sources": sources}
            yield _fill_placeholders(self.id or _id(cell), values), Tool.model_validate(made)


def _normalize_tool_rows(tools: Any) -> Any:
    """Every tool as a list of rows."""
    if not isinstance(tools, dict):
        return tools
    rows = {name: row if isinstance(row, list) else [row] for name, row in tools.items()}
    return {
        name: [row if isinstance(row, dict) else {"version": row} for row in given]
        for name, given in rows.items()
    }


class Group(Model):
    """Tools, and what those have in common that do not say otherwise."""

    tools: Annotated[dict[Text, list[Row]], BeforeValidator(_normalize_tool_rows)]
    id: Text | None = None
    tag: Text | None = None
    sources: tuple[Place, ...] = ()


class Intent(Model):
    """``toolchain.yaml``."""

    version: Annotated[int, Field(ge=1, le=1)]
    groups: tuple[Group, ...]
    images: dict[Text, BaseImage] = Field(default_factory=dict)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Key, name and row of every tool, with what is its group's."""
        for number, group in enumerate(self.groups):
            shared = {"id": group.id, "tag": group.tag, "sources": group.sources}
            for name, rows in group.tools.items():
                for row in rows:
                    missing = {k: value for k, value in shared.items() if not getattr(row, k)}
                    yield f"groups.{number}.tools.{name}", name, row.model_copy(update=missing)


def load_intent(path: Path = INTENT_FILE) -> dict[str, Tool]:
    """The entries that the lock is to have, by their ids; of pins, only what the file says itself.

    Raises :class:`LockError` that names the file and the key that is wrong.
    """
    made: dict[str, Tool] = {}
    origin: dict[str, str] = {}
    others = (*path.parent.glob(WATCHED), *sorted(path.parent.glob(TOOLKIT)))
    for file in (path, *others):
        for key, name, row in _read_intent(file).rows():
            for id_, tool in _expand_tool_row(file, key, name, row):
                if id_ in made:
                    raise LockError(
                        f"{file}: {key}: '{id_}' is what {origin[id_]} is called already",
                        hint="Give one of them another name, or an id of its own.",
                    )
                made[id_], origin[id_] = tool, key
    return made


def load_bases(path: Path = INTENT_FILE) -> dict[str, BaseImage]:
    """The images that the lock is to have."""
    return _read_intent(path).images


def _read_intent(path: Path) -> Intent:
    try:
        return Intent.model_validate(read_yaml(path, LockError, _HINT))
    except ValidationError as error:
        raise LockError(format_validation_error(path, error, Intent), hint=_HINT) from None


def _expand_tool_row(path: Path, key: str, name: str, row: Row) -> list[tuple[str, Tool]]:
    try:
        return list(row.entries(name))
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False)
        where = ".".join((key, *map(str, first["loc"])))
        said = first["msg"].removeprefix("Value error, ")
        raise LockError(f"{path}: {where}: {said}", hint=_HINT) from None
    except ValueError as error:
        raise LockError(f"{path}: {key}: {error}", hint=_HINT) from None


def _id(cell: Mapping[str, str]) -> str:
    """How an entry is called that says nothing else."""
    parts = ["{name}"]
    if "torch" in cell:
        parts.append("{torch}" if "cuda" in cell else "torch{torch}")
    if "cuda" in cell:
        parts.append("cu{cu}")
    if "python" in cell:
        parts.append("cp{cp}")
    return "-".join(parts)


def _fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    try:
        return text.format_map(values)
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"cannot fill in '{text}': {error}") from None
