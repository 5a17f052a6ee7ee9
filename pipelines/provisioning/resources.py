"""What a host is wanted to have, in order, with the lock's pins.

``pipelines/provisioning/resources.yaml`` for hosts where the pipeline installs its tools,
``pipelines/provisioning/resources-existing.yaml`` for an environment that is used as it is.
"""

from __future__ import annotations

import fnmatch
import graphlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import ConfigError, LockError
from pipelines.hosts.base import Existing
from pipelines.model import Model, read_data
from pipelines.provisioning import resource_models
from pipelines.recipe.model import Recipe
from pipelines.target import Target
from pipelines.toolchain.lock import ToolchainLock

RESOURCES_FILE = Path(__file__).resolve().with_name("resources.yaml")
EXISTING_FILE = RESOURCES_FILE.with_name("resources-existing.yaml")
_HINT = "pipelines/provisioning/resource_models.py describes every kind."


class Layout(Model):
    """Where things are on a host; may use {cuda} and {python}."""

    build_root: str
    temp: str
    wheels: str
    uv: str
    """The program that makes environments; empty where the Python's own pip does."""
    cuda: str
    python: str
    marker: str
    sccache: str
    """The program; empty when there is none."""
    ninja: str
    """The program; empty: the one on PATH."""
    compile_cache: str
    """Directory of sccache's local cache."""

    def join(self, *parts: str) -> str:
        """A path below ``parts[0]``, which is one of the layout's, as the host writes it."""
        return ("\\" if "\\" in self.build_root else "/").join(parts)


class Resources(Model):
    """``resources.yaml``."""

    layout: Layout
    resources: tuple[resource_models.AnyResource, ...]


@dataclass(frozen=True)
class Place:
    """What decides the wanted state besides the file: the host's abilities and the cell."""

    capabilities: Mapping[str, bool]
    python: str
    """Minor version, such as 3.12."""
    cuda: str
    executable: str
    """The Python that the session runs in; builds use it where none is provisioned."""
    torch: str | None = None
    existing: Existing | None = None
    """An environment that is used as it is."""

    @property
    def cell(self) -> dict[str, str]:
        """What the strings of the file may use."""
        cell = {"cuda": self.cuda, "python": self.python, "torch": self.torch or ""}
        if self.existing is not None:
            exe = ".exe" if self.capabilities["windows"] else ""
            cell |= {"executable": self.executable, "exe": exe, "root": self.existing.root}
            cell |= {"toolkit": self.existing.toolkit, "sccache": self.existing.sccache}
            if not self.existing.toolkit:  # one is unpacked there, by the resource of this name
                cell["toolkit"] = f"{self.existing.root}/cuda/{self.cuda}"
        return cell

    @property
    def lock_cell(self) -> Target:
        """What decides which entry of the lock a recipe's tool is."""
        return Target(python=self.python, cuda=self.cuda, torch=self.torch or "")


@dataclass(frozen=True)
class Wanted:
    """One resource as the host is asked for it."""

    id: str
    why: str
    spec: dict[str, Any]
    uploads: dict[str, str]
    """Tool of the lock -> path on the host: what must be there before it is applied."""
    summary: str
    """The wanted state in a few words, for tables."""


def load_resources(path: Path = RESOURCES_FILE) -> Resources:
    """Read the file; :class:`ConfigError` names the key that is wrong."""
    made = read_data(path, Resources, advice=_HINT)
    try:
        in_order(made.resources)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", advice=error.advice) from None
    return made


def in_order(resources: Iterable[resource_models.AnyResource]) -> list[resource_models.AnyResource]:
    """What others come after first, otherwise as written.

    Raises :class:`ConfigError` for a name that is used twice, an unknown one, and a cycle.
    """
    by_id: dict[str, resource_models.AnyResource] = {}
    for resource in resources:
        if resource.id in by_id:
            raise ConfigError(f"two resources are called '{resource.id}'", advice="Rename one.")
        by_id[resource.id] = resource
    rank = {name: number for number, name in enumerate(by_id)}
    for resource in by_id.values():
        for name in resource.after:
            if name not in by_id:
                raise ConfigError(
                    f"resource '{resource.id}' comes after '{name}', which there is not",
                    advice=f"There are: {', '.join(by_id)}",
                )
    graph = graphlib.TopologicalSorter({name: r.after for name, r in by_id.items()})
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        circle = " after ".join(f"'{name}'" for name in reversed(error.args[1]))
        raise ConfigError(
            f"resources wait for each other: {circle}", advice="Take one 'after' out."
        ) from None
    order: list[resource_models.AnyResource] = []
    ready: list[str] = []
    while graph.is_active():
        ready = sorted([*ready, *graph.get_ready()], key=rank.__getitem__)
        first, *ready = ready
        order.append(by_id[first])
        graph.done(first)
    return order


def layout_of(resources: Resources, place: Place) -> Layout:
    """Where things are for this cell on this host."""
    filled = _native(_fill(resources.layout.model_dump(), place.cell), place)
    if place.existing is None and not place.capabilities["msvc"]:  # neither is unpacked there
        filled |= {"python": place.executable, "sccache": "", "ninja": ""}
    return Layout.model_validate(filled)


def _native(value: Any, place: Place) -> Any:
    """Paths of an existing environment as Windows writes them, if it is one."""
    if place.existing is None or not place.capabilities["windows"]:
        return value
    return _each(value, lambda text: text.replace("/", "\\"))


def wanted_resources(
    resources: Resources, recipe: Recipe, lock: ToolchainLock, place: Place
) -> list[Wanted]:
    """Every resource that concerns this host, with its pins, in order.

    Raises :class:`LockError` for a tool that the lock does not have or has not pinned.
    """
    layout = layout_of(resources, place)
    have = place.capabilities
    concerned = [
        resource
        for resource in in_order(resources.resources)
        if all(have[name] for name in resource.needs)
        and not any(have[name] for name in resource.without)
    ]
    return [_wanted(resource, recipe, lock, layout, place) for resource in concerned]


def _wanted(
    resource: resource_models.AnyResource,
    recipe: Recipe,
    lock: ToolchainLock,
    layout: Layout,
    place: Place,
) -> Wanted:
    cell = place.cell
    spec: dict[str, Any] = _fill(
        resource.model_dump(mode="json", exclude=set(resource.LOCAL), exclude_none=True), cell
    )
    spec = _native(spec, place)
    lists = {"{recipe.build}": recipe.build_requires, "{recipe.test}": recipe.test_requires}
    named: tuple[str, ...] = getattr(resource, "tools", ())
    if isinstance(resource, resource_models.Distributions):
        listed = [tool for name in named for tool in lists.get(name, (name,))]
        spare = spec.pop("spare")
        spec["names"] = [tool for tool in dict.fromkeys(listed) if tool not in spare]
        spec["python"] = layout.python
        if recipe.kind != "wheel":  # it is for no Python
            spec["release"] = ""
        return Wanted(resource.id, resource.why, spec, {}, resource.summary(spec))
    entries = _entries(named, lists, lock, place)
    tools = list(entries.values())
    pins = [lock.tool(name) for name in tools]
    folder = spec["path"] if isinstance(resource, resource_models.Files) else layout.temp
    rows = [
        {"name": n, "version": p.version, "sha256": p.sha256, "file": layout.join(folder, p.file)}
        for n, p in zip(tools, pins, strict=True)
    ]
    uploads = {row["name"]: row["file"] for row in rows}
    if isinstance(resource, resource_models.Archive):
        for row, pin in zip(rows, pins, strict=True):
            values = {"version": pin.version, "stem": pin.file.removesuffix(".zip")}
            row["strip"] = resource.strip.format(**values)
        spec["archives"] = rows
    elif isinstance(resource, resource_models.Files):
        spec["files"] = rows
    elif isinstance(resource, resource_models.Packages):
        spec["packages"] = {name: pin.version for name, pin in zip(entries, pins, strict=True)}
        spec |= {"installer": layout.uv, "wheels": layout.wheels, "python": layout.python}
        uploads = {}
    elif isinstance(resource, resource_models.Installer):
        spec |= {"name": tools[0], "version": pins[0].version, "file": rows[0]["file"]}
        adds = [word for component in pins[0].components for word in ("--add", component)]
        spec["arguments"] = _arguments(spec["arguments"], adds, uploads)
    return Wanted(resource.id, resource.why, spec, uploads, resource.summary(spec))


def _entries(
    named: Iterable[str],
    lists: Mapping[str, Iterable[str]],
    lock: ToolchainLock,
    place: Place,
) -> dict[str, str]:
    """The lock's entries: what is installed -> its entry; other files are called as the entry."""
    wanted = [tool for name in named for tool in lists.get(name, ())]
    found = lock.entries_for(wanted, place.lock_cell)
    for name in named:
        if name not in lists:
            found |= {tool: tool for tool in _matching(_text(name, place.cell), lock)}
    return found


def _matching(name: str, lock: ToolchainLock) -> list[str]:
    """The tools that a name with ``*`` stands for; any other name stands for itself."""
    if "*" not in name:
        return [name]
    found = fnmatch.filter(lock.tools, name)
    if not found:
        raise LockError(
            f"toolchain.lock.yaml has no tool '{name}'",
            advice="Another CUDA version, or one more in toolchain.yaml.",
        )
    return found


def _arguments(words: list[str], adds: list[str], files: Mapping[str, str]) -> list[str]:
    made: list[str] = []
    for word in words:
        if word == "{components}":
            made += adds
        else:
            for name, path in files.items():
                word = word.replace(f"{{{name}}}", path)  # noqa: PLW2901 - one word, filled in
            made.append(word)
    return made


def _text(text: str, cell: Mapping[str, str]) -> str:
    for key, value in cell.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def _fill(value: Any, cell: Mapping[str, str]) -> Any:
    """``value`` with {cuda}, {python} and their like replaced in every string of it."""
    return _each(value, lambda text: _text(text, cell))


def _each(value: Any, change: Callable[[str], str]) -> Any:
    """``value`` with every string in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _each(item, change) for key, item in value.items()}
    return value
