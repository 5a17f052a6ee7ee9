"""What a host is wanted to have, in order, with the lock's pins.

``pipelines/provisioning/resources.yaml`` for hosts where the pipeline installs its tools,
``pipelines/provisioning/resources-existing.yaml`` for an environment that is used as it is. To the
former comes what ``resources.yaml`` of the user's repository and of packages adds or replaces.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable
from pathlib import Path

from pipelines.core import plugins
from pipelines.core.errors import ConfigError
from pipelines.core.model import Model, read_data
from pipelines.provisioning import resource_models
from pipelines.provisioning.base import Binding, Layout, Place, Wanted
from pipelines.recipe.model import Recipe
from pipelines.toolchain.lock import ToolchainLock

RESOURCES_FILE = Path(__file__).resolve().with_name("resources.yaml")
EXISTING_FILE = RESOURCES_FILE.with_name("resources-existing.yaml")
__all__ = [
    "EXISTING_FILE",
    "RESOURCES_FILE",
    "Layout",
    "Place",
    "Resources",
    "Wanted",
    "bind",
    "in_order",
    "layout_of",
    "load_resources",
    "wanted_resources",
]
_HINT = "pipelines/provisioning/resource_models.py describes every kind."


class Resources(Model):
    """``resources.yaml``."""

    layout: Layout
    resources: tuple[resource_models.AnyResource, ...]


class More(Model):
    """``resources.yaml`` of a repository or a package: more of them, or others of the same name."""

    resources: tuple[resource_models.AnyResource, ...]


def load_resources(path: Path = RESOURCES_FILE) -> Resources:
    """Read the file, and what is brought besides; :class:`ConfigError` names the wrong key.

    A resource of a name that there is takes its place: the repository's own that of a package,
    which takes that of one built in. Two packages with one name are refused.
    """
    made = read_data(path, Resources, hint=_HINT)
    _check(made, path)
    if path != RESOURCES_FILE:
        return made
    brought = [
        (found, read_data(found.path, More, hint=_HINT))
        for found in plugins.each(plugins.RESOURCES)
    ]
    told = ((found, [one.id for one in more.resources]) for found, more in brought)
    plugins.refuse_doubles(told, "resource")
    for found, more in reversed(brought):
        rows = {one.id: one for one in made.resources} | {one.id: one for one in more.resources}
        made = made.model_copy(update={"resources": tuple(rows.values())})
        _check(made, found.path)
    return made


def _check(made: Resources, path: Path) -> None:
    try:
        in_order(made.resources)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None


def in_order(resources: Iterable[resource_models.AnyResource]) -> list[resource_models.AnyResource]:
    """What others come after first, otherwise as written.

    Raises :class:`ConfigError` for a name that is used twice, an unknown one, and a cycle.
    """
    by_id: dict[str, resource_models.AnyResource] = {}
    for resource in resources:
        if resource.id in by_id:
            raise ConfigError(f"two resources are called '{resource.id}'", hint="Rename one.")
        by_id[resource.id] = resource
    rank = {name: number for number, name in enumerate(by_id)}
    for resource in by_id.values():
        for name in resource.after:
            if name not in by_id:
                raise ConfigError(
                    f"resource '{resource.id}' comes after '{name}', which there is not",
                    hint=f"There are: {', '.join(by_id)}",
                )
    graph = graphlib.TopologicalSorter({name: r.after for name, r in by_id.items()})
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        circle = " after ".join(f"'{name}'" for name in reversed(error.args[1]))
        raise ConfigError(
            f"resources wait for each other: {circle}", hint="Take one 'after' out."
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
    filled: dict[str, str] = {}
    for name, text in resources.layout.model_dump().items():
        filled[name] = place.text(text, filled)
    if place.existing is None and place.capabilities["emulated"]:  # it is made with one
        filled |= {"python": place.executable}
    if place.existing is None and not place.capabilities["msvc"]:  # none of them is unpacked there
        filled |= {"python": place.executable, "sccache": "", "ninja": ""}
    return Layout.model_validate(filled)


def bind(resources: Resources, recipe: Recipe, lock: ToolchainLock, place: Place) -> Binding:
    """The resources that concern this host, filled in, with all that they are bound with."""
    layout = layout_of(resources, place)
    names = layout.model_dump()
    concerned = tuple(
        resource.filled(lambda text: place.text(text, names))
        for resource in in_order(resources.resources)
        if resource.concerns(place)
    )
    return Binding(recipe, lock, layout, place, concerned)


def wanted_resources(
    resources: Resources, recipe: Recipe, lock: ToolchainLock, place: Place
) -> list[Wanted]:
    """Every resource that concerns this host, with its pins, in order.

    Raises :class:`LockError` for a tool that the lock does not have.
    """
    binding = bind(resources, recipe, lock, place)
    bound = (resource.bind(binding) for resource in binding.resources)
    return [wanted for wanted in bound if wanted is not None]


def surely_lacking(every: Iterable[Wanted], lock: ToolchainLock) -> list[str]:
    """Entries without a pin that no host has already: what they bring is known by it alone.

    An installer is another matter: the host is asked for what it installs.
    """
    brought = (one.uploads for one in every if one.spec["kind"] != "installer")
    names = dict.fromkeys(name for uploads in brought for name in uploads)
    return [name for name in names if not lock.tools[name].pinned]
