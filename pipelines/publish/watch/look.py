"""Reads every page that an order needs and tells what is out; what is wrong with one ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.core.finding import Finding
from pipelines.plan.matrix.torches import load_torches
from pipelines.publish.watch.pages import read_members, read_projects, read_tags
from pipelines.publish.watch.released import (
    CUDA,
    PYTHONS,
    STANDALONE,
    TOOLS,
    TORCH_BUILDS,
    Torch,
    find_missing_cudas,
    find_torch_drift,
    find_torch_releases,
    find_upstream_releases,
    find_withdrawn_pythons,
    is_source_yanked,
    pinned_from,
    places_of,
    release_warning,
    tools_out,
)
from pipelines.recipe.model import Recipe
from pipelines.toolchain.lock import ToolchainLock
from pipelines.toolchain.sources import index_url


@dataclass(frozen=True)
class Out:
    """What is out."""

    torches: Mapping[str, Torch]
    """By minor release, oldest first; empty where no recipe is built against torch."""
    notes: tuple[Finding, ...]
    yanked: frozenset[str]
    """Recipes whose upstream has taken back what they are built from."""


def read_all_releases(
    recipes: Mapping[str, Mapping[str, Recipe]], lock: ToolchainLock, *, pre: bool
) -> Out:
    """What is out that concerns these recipes: name -> version -> recipe, the default one first.

    Raises :class:`LockError` for a page that cannot be read, or lies.
    """
    index = index_url().rstrip("/")
    first = {name: next(iter(versions.values())) for name, versions in recipes.items()}
    places = {name: places_of(versions) for name, versions in recipes.items()}
    wanted = {CUDA, PYTHONS, *TOOLS}
    wanted |= {project for project, _ in places.values() if project}
    with_torch = any(recipe.torch for recipe in first.values())
    wanted |= {"torch"} if with_torch else set()
    addresses = {name: f"{index}/{name}/" for name in sorted(wanted)}
    here = read_projects(addresses)
    tags = read_tags(sorted({git for _, git in places.values() if git}))
    for name, page in here.items():
        page.require(pinned_from(lock, name))
    releases = here[PYTHONS].releases().values()
    lists = [one for files in releases for one in files if not one.tags]
    found = read_members([one.url for one in lists[-1:]], (STANDALONE,)).values()
    notes = [*find_withdrawn_pythons(b"".join(one.get(STANDALONE, b"") for one in found), lock)]
    out: Mapping[str, Torch] = {}
    if with_torch:
        (built,) = read_projects({"torch": TORCH_BUILDS}).values()
        built.require(pinned_from(lock, ""))
        out, lone = find_torch_releases(here["torch"], built, pre=pre)
        notes += [*lone, *find_torch_drift((here["torch"], built), load_torches())]
    notes += find_missing_cudas(here[CUDA], out, lock, pre=pre)
    notes += [found for name in TOOLS for found in tools_out(here[name], lock, pre=pre)]
    back = set()
    for name, versions in recipes.items():
        project, git = places[name]
        notes += find_upstream_releases(name, versions, here.get(project), tags.get(git), pre=pre)
        if is_source_yanked(first[name], here.get(project)):
            back.add(name)
            says = f"{name} {first[name].version} was yanked upstream, so it is not built"
            hint = "Choose another release as the recipe's default."
            notes.append(release_warning("upstream-yanked", name, says, hint))
    return Out(out, tuple(notes), frozenset(back))
