"""What an index holds of a cell, by its catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding
from pipelines.core.hosttext import remember_secret, safe_line, shown_url
from pipelines.core.target import Target
from pipelines.core.versions import parse_version
from pipelines.publish.index.catalogue import CATALOGUE, MOST, Catalogue, Wheel, parse_catalogue
from pipelines.publish.index.lock import LOCK
from pipelines.publish.index.store import Store
from pipelines.publish.watch.pages import read_texts
from pipelines.publish.watch.released import Torch, release_warning
from pipelines.publish.which.choosing import runs_python
from pipelines.recipe.model import Recipe

#: What a branch of pages has before anything is published; the last two, where the first publish
#: broke off.
_BESIDE = frozenset(
    {".git", ".gitignore", ".nojekyll", "CNAME", "LICENSE", "README.md", "files", LOCK}
)
#: What to do where a wheel is to be replaced: files of an index never change.
TAKEN = "Its file name is taken: build with another version or local_version."
_PLATFORMS = ("win_amd64", "any")


def catalogue_of(index: str) -> Catalogue:
    """That of an index: a directory, what fsspec knows, or an https address.

    An empty directory, or fresh branch of pages, is one in which nothing was published yet. Raises
    :class:`ConfigError` for one that is not there, is damaged, or has other files and no catalogue,
    and :class:`LockError` where it cannot be fetched.
    """
    with suppress(ValueError):  # errors of a store have the address
        remember_secret(urlsplit(index).password or "")
    if index.startswith("http://"):
        raise ConfigError(
            f"--index {shown_url(index)}: without https anyone could change it in transit",
            hint="Use its https address.",
        )
    if index.startswith("https://"):
        url = f"{index.rstrip('/')}/{CATALOGUE}"
        return parse_catalogue(read_texts([url], MOST)[url], shown_url(index).rstrip("/"))
    store = Store(index)
    data = store.read(CATALOGUE, MOST)
    if data is not None:
        return parse_catalogue(data, index)
    if not Path(index).is_dir() or any(one.name not in _BESIDE for one in Path(index).iterdir()):
        raise ConfigError(
            f"{safe_line(index, 200)} is not a wcw index: it has no {CATALOGUE}",
            hint="Name one created by wcw publish, or an empty directory for a new one.",
        )
    return Catalogue()


def wheels_of_recipe(catalogue: Catalogue, recipe: Recipe) -> list[Wheel]:
    """The plain wheels of that release of a recipe; of one without a version, of any."""
    version = parse_version(recipe.version)  # a directory's own build says which it is
    return [
        one
        for one in catalogue.wheels
        if not one.name.label
        and is_of(one, recipe)
        and version in (None, Version(one.name.version.public))
    ]


def is_of(wheel: Wheel, recipe: Recipe) -> bool:
    """Whether it is of the recipe's project and, where several recipes build that, of its tag."""
    return wheel.name.project == canonicalize_name(recipe.distribution) and (
        recipe.wheel_tag is None
        or any(tag.startswith(f"{recipe.wheel_tag}-") for tag in wheel.name.tags)
    )


def wheels_for_cell(wheels: Iterable[Wheel], target: Target) -> list[Wheel]:
    """Those that are for the cell, yanked ones too."""
    return [
        one
        for one in wheels
        if one.cuda == target.cuda
        and _matches_cell_torch(one, target.torch)
        and _matches_cell_python(one, target)
    ]


def _matches_cell_torch(wheel: Wheel, torch: str) -> bool:
    if wheel.stable and wheel.torch and torch:
        return Version(wheel.torch) <= Version(torch)
    return wheel.torch == torch


def _matches_cell_python(wheel: Wheel, target: Target) -> bool:
    tags = (tag.split("-") for tag in wheel.name.tags)
    return any(
        platform in _PLATFORMS and runs_python(interpreter, abi, target.python)
        for interpreter, abi, platform in tags
    )


def no_code(wheels: Iterable[Wheel], recipe: Recipe, wanted: Iterable[str]) -> Iterator[Finding]:
    """Wheels that have less machine code than the recipe has now: their names are taken."""
    asked = {*wanted}
    for one in wheels:
        if one.yanked is None and (missing := sorted(asked - {*one.sass})):
            says = f"{one.file} in the index has no code for {', '.join(missing)}"
            yield release_warning("code-missing", recipe.name, says, TAKEN)


def reason_to_build(wheels: Iterable[Wheel], target: Target, torch: Torch | None) -> str:
    """Why a cell without a wheel is to be built, in a line."""
    there = [one for one in wheels if one.yanked is None]
    release = " ".join(filter(None, (target.recipe, target.version)))
    if not there:
        return f"the index has no wheel of {release}"
    if torch is not None:
        there = [one for one in there if _matches_cell_torch(one, target.torch)]
        if not there:
            return f"torch {torch.version} is out; {release} has no wheel for it"
    there = [one for one in there if one.cuda == target.cuda]
    suffix = f" with torch {target.torch}" if target.torch else ""
    if not there:
        return f"no wheel for CUDA {target.cuda}{suffix}"
    return f"no wheel for Python {target.python} and CUDA {target.cuda}{suffix}"
