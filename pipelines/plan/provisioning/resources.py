"""The desired state of a host, in order, with the lock's pins.

``resources.yaml`` next to this file is for hosts where the pipeline installs its tools,
``resources-existing.yaml`` for an environment used unchanged. The former is extended by
``resources.yaml`` of the user's repository and of packages.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable
from pathlib import Path

from pipelines.core import plugins
from pipelines.core.errors import ConfigError
from pipelines.core.model import Model, read_data, read_model_file
from pipelines.plan.provisioning import resource_models
from pipelines.plan.provisioning.base import Binding, DesiredResource, Layout, Place
from pipelines.recipe.model import Recipe
from pipelines.toolchain.lock import ToolchainLock

RESOURCES_FILE = Path(__file__).resolve().with_name("resources.yaml")
EXISTING_FILE = RESOURCES_FILE.with_name("resources-existing.yaml")
__all__ = [
    "EXISTING_FILE",
    "RESOURCES_FILE",
    "DesiredResource",
    "Layout",
    "Place",
    "Resources",
    "bind_resources",
    "desired_resources",
    "in_order",
    "layout_of",
    "load_resources",
]
_HINT = "pipelines/plan/provisioning/resource_models.py describes every kind."


class Resources(Model):
    """``resources.yaml``."""

    layout: Layout
    resources: tuple[resource_models.AnyResource, ...]


class More(Model):
    """``resources.yaml`` of a repository or a package: additional or replacement resources."""

    resources: tuple[resource_models.AnyResource, ...]


def load_resources(path: Path = RESOURCES_FILE) -> Resources:
    """Read the file and its extensions; :class:`ConfigError` names the invalid key.

    A resource replaces one of the same name: the repository's that of a package, a package's that
    of a built-in one. Two packages with the same name are refused.
    """
    made = read_data(path, Resources, hint=_HINT)
    _require_resource_order(made, path)
    if path != RESOURCES_FILE:
        return made
    brought = [
        (source, read_model_file(source.path, More, hint=_HINT))
        for source in plugins.plugin_files(plugins.RESOURCES)
    ]
    ids = ((source, [resource.id for resource in more.resources]) for source, more in brought)
    plugins.refuse_doubles(ids, "resource")
    for source, more in reversed(brought):
        rows = {resource.id: resource for resource in made.resources} | {
            resource.id: resource for resource in more.resources
        }
        made = made.model_copy(update={"resources": tuple(rows.values())})
        _require_resource_order(made, source.path)
    return made


def _require_resource_order(made: Resources, path: Path) -> None:
    try:
        in_order(made.resources)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None


def in_order(resources: Iterable[resource_models.AnyResource]) -> list[resource_models.AnyResource]:
    """Dependencies first, otherwise in the order written.

    Raises :class:`ConfigError` for a duplicate name, an unknown one, and a cycle.
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
                    f"resource '{resource.id}' comes after '{name}', which does not exist",
                    hint=f"Known resources: {', '.join(by_id)}",
                )
    graph = graphlib.TopologicalSorter({name: r.after for name, r in by_id.items()})
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        circle = " after ".join(f"'{name}'" for name in reversed(error.args[1]))
        raise ConfigError(
            f"resources depend on each other: {circle}", hint="Remove one 'after'."
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
    """The paths for this cell on this host."""
    filled: dict[str, str] = {}
    for name, text in resources.layout.model_dump().items():
        filled[name] = place.text(text, filled)
    if place.existing is None and place.capabilities["emulated"]:  # its image contains one
        filled |= {"python": place.executable}
    if place.existing is None and not place.capabilities["msvc"]:  # no tools are unpacked there
        filled |= {"python": place.executable, "sccache": "", "ninja": ""}
    return Layout.model_validate(filled)


def bind_resources(
    resources: Resources, recipe: Recipe, lock: ToolchainLock, place: Place
) -> Binding:
    """The resources that apply to this host, filled in, with everything they are bound to."""
    layout = layout_of(resources, place)
    names = layout.model_dump()
    concerned = tuple(
        resource.filled(lambda text: place.text(text, names))
        for resource in in_order(resources.resources)
        if resource.concerns(place)
    )
    return Binding(recipe, lock, layout, place, concerned)


def desired_resources(
    resources: Resources, recipe: Recipe, lock: ToolchainLock, place: Place
) -> list[DesiredResource]:
    """Every resource that applies to this host, with its pins, in order.

    Raises :class:`LockError` for a tool missing from the lock.
    """
    binding = bind_resources(resources, recipe, lock, place)
    bound = (resource.bind(binding) for resource in binding.resources)
    return [desired for desired in bound if desired is not None]


def known_missing(resources: Iterable[DesiredResource], lock: ToolchainLock) -> list[str]:
    """Unpinned entries that no host can already have: they are identified by their sha256 alone.

    Installers are different: the host is checked for what they install.
    """
    brought = (resource.uploads for resource in resources if resource.spec["kind"] != "installer")
    names = dict.fromkeys(name for uploads in brought for name in uploads)
    return [name for name in names if not lock.tools[name].pinned]
