"""Recipes as they are found, flat, a version at a time.

``recipes/<name>.yaml`` of the user's repository, of a package, or built in, in the order that
:mod:`pipelines.core.plugins` says.
A file describes a package once, and below ``versions`` what differs from release to release; a
key of a version replaces the package's, ``environment`` is merged.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipelines.core import plugins
from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe_line
from pipelines.core.model import PythonVersion, format_validation_error, unknown_name_error
from pipelines.core.versions import release_in_range
from pipelines.core.yamlfile import read_yaml
from pipelines.recipe.checks import check_alone, check_surroundings
from pipelines.recipe.model import Recipe

#: Those that are built in.
RECIPES = Path(__file__).resolve().parent.parent / "recipes"
#: Keys that a version may have.
VARIES = frozenset(Recipe.model_fields) - {"name", "summary", "kind", "project", "version"}

#: The directory of recipes within an origin.
KIND = "recipes"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
#: How a release of Python, torch or CUDA is written.
RELEASE = re.compile(r"\d+\.\d+")
_python = TypeAdapter(PythonVersion)


def recipe_names(folder: Path | None = None) -> tuple[str, ...]:
    """The recipes that there are; of ``folder`` alone if one is given."""
    folders = [folder] if folder else [*(o.path / KIND for o in plugins.plugin_origins()), RECIPES]
    return tuple(sorted({path.stem for each in folders for path in each.glob("*.yaml")}))


def recipe_file(name: str, folder: Path | None = None) -> plugins.Found:
    """The recipe's file and where it is from; :class:`ConfigError` when there is none."""
    if _NAME.fullmatch(name):
        if folder is None and (
            found := plugins.find_plugin_file(KIND, f"{name}.yaml", f"recipe {name}")
        ):
            return found
        if (path := (folder or RECIPES) / f"{name}.yaml").is_file():
            return plugins.Found(path, plugins.BUILT_IN)
    where = f"{plugins.FOLDER}/{KIND}, packages, and those built in"
    raise unknown_name_error("recipe", name, recipe_names(folder), where)


def shown_file(name: str) -> str:
    """A recipe's file as who reads of it finds it: of the project, built in, or whose it is."""
    try:
        found = recipe_file(name)
    except ConfigError:  # one that stands for a wheel has none
        return f"recipe {name}"
    if found.says == plugins.BUILT_IN:
        return f"pipelines/recipes/{name}.yaml"
    if found.own:
        return f"{plugins.FOLDER}/{KIND}/{name}.yaml"
    return safe_line(f"{KIND}/{name}.yaml, {found.says}", 200)


def load_recipe(name: str, folder: Path | None = None, *, version: str | None = None) -> Recipe:
    """The recipe ``name`` in ``version``, or in its default one.

    Raises :class:`ConfigError` when there is none, when the file is wrong in any of its versions,
    and when one of them names what is not there: a directory, a smoke suite, a tool of the lock.
    """
    found = _read_recipe_versions(name, folder)
    for where, recipe in found.values():
        check_surroundings(recipe, where)
    versions = {each: recipe for each, (_, recipe) in found.items()}
    if version is None:
        return next(iter(versions.values()))
    if version not in versions:
        if not any(versions):
            raise ConfigError(
                f"--recipe-version {version}: {name} is a directory, which has no versions",
                hint="Leave it out.",
            )
        raise unknown_name_error("version", version, filter(None, versions), f"recipe {name}")
    return versions[version]


def check_torch(recipe: Recipe, torch: str) -> None:
    """Raise :class:`ConfigError` where torch was asked for and the package is built without."""
    if recipe.torch is None:
        raise ConfigError(
            f"--torch {torch}: {recipe.name} is built without torch", hint="Leave it out."
        )


def _single_release_hint(typed: str, such: str) -> str:
    """What to type in place of what is no release, or of several."""
    if "," in typed:
        return f"One, such as {such}; for several type --select with names that invoke plan shows."
    return f"Say {such}."


def check_python(version: str, recipe: Recipe) -> str:
    """``version`` if the recipe supports it, else :class:`ConfigError`."""
    try:
        _python.validate_python(version)
    except ValidationError:
        raise ConfigError(
            f"--python {version}: expected a release of Python 3",
            hint=_single_release_hint(version, "3.11"),
        ) from None
    if recipe.pythons and version not in recipe.pythons:
        raise unknown_name_error("Python", version, recipe.pythons, f"recipe {recipe.name}")
    return version


def for_cell(recipe: Recipe, *, cuda: str | None = None, torch: str | None = None) -> Recipe:
    """``recipe`` built with these releases instead of its own defaults.

    Raises :class:`ConfigError` for what the package does not work with; rules on what goes with
    what are :mod:`pipelines.plan.matrix.compat`'s.
    """
    if torch is not None:
        check_torch(recipe, torch)
    asked = {"cuda": cuda or recipe.cuda, "torch": torch or recipe.torch}
    for name, value in asked.items():
        range_ = getattr(recipe.supports, name)
        if value is not None and not RELEASE.fullmatch(value):
            such = f"{value}.0" if value.isdecimal() else "12.8" if name == "cuda" else "2.8"
            such = _single_release_hint(value, such)
            raise ConfigError(f"--{name} {value}: expected MAJOR.MINOR", hint=such)
        if value is not None and not release_in_range(value, range_):
            raise ConfigError(
                f"--{name} {value}: {recipe.name} {recipe.version} works with {name} {range_}",
                hint=f"Its default is {getattr(recipe, name)}; invoke plan shows what there is.",
            )
    return recipe.model_copy(update=asked)


def load_versions(name: str, folder: Path | None = None) -> dict[str, Recipe]:
    """Every version of the recipe, the default one first; one called ``""`` if it names none.

    Raises :class:`ConfigError` for what is wrong in the file itself.
    """
    return {version: recipe for version, (_, recipe) in _read_recipe_versions(name, folder).items()}


def _read_recipe_versions(name: str, folder: Path | None) -> dict[str, tuple[str, Recipe]]:
    """Version -> how errors about it begin, and its recipe."""
    path = recipe_file(name, folder).path
    text = read_yaml(path)
    found = {}
    for version, keys in _flatten_versions(path, text).items():
        many = isinstance(text, dict) and "versions" in text
        where = f"{path}: versions.{version}" if many else str(path)
        try:
            made = Recipe.model_validate(keys)
        except ValidationError as error:
            raise ConfigError(
                format_validation_error(Path(where), error, Recipe),
                hint="docs/recipes.md has every key.",
            ) from None
        check_alone(made, where)
        found[version] = where, made
    if made.name != name:
        raise ConfigError(
            f"{path}: name: is '{made.name}', expected '{name}'", hint="Rename one of them."
        )
    return found


def _flatten_versions(path: Path, text: Any) -> dict[str, Any]:
    """The keys of each version, with the package's filled in; the default version first."""
    if not isinstance(text, dict) or "versions" not in text:
        said = text.get("version") if isinstance(text, dict) else None
        return {said if isinstance(said, str) else "": text}
    common = {key: value for key, value in text.items() if key not in ("versions", "default")}
    versions = text["versions"]
    if not isinstance(versions, dict) or not versions or "version" in common:
        raise ConfigError(
            f"{path}: versions: expected one or more, and no 'version' next to them",
            hint="Write: versions: {1.2.3: {source: ...}}, or leave it out.",
        )
    for version, keys in versions.items():
        if not isinstance(version, str) or not isinstance(keys, dict):
            raise ConfigError(
                f"{path}: versions: {version}: expected a name and keys below it",
                hint=f"Write: {version}: {{source: ...}}",
            )
        if strange := sorted({*keys} - VARIES):
            raise ConfigError(
                f"{path}: versions.{version}: {strange[0]}: does not vary from version to version",
                hint=f"These do: {', '.join(sorted(VARIES))}.",
            )
    first = text.get("default", next(iter(versions)))
    if first not in versions:
        raise unknown_name_error("default version", str(first), versions, str(path))
    flat = {}
    for version in (first, *(name for name in versions if name != first)):
        keys = versions[version]
        merged = {**common, **keys, "version": version}
        if isinstance(common.get("environment"), dict) and isinstance(
            keys.get("environment", {}), dict
        ):
            merged["environment"] = {**common["environment"], **keys.get("environment", {})}
        flat[version] = merged
    return flat
