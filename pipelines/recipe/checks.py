"""What only the whole of a recipe shows: its templates can be filled in, what it names is there."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelines.core.architectures import gpus
from pipelines.core.errors import ConfigError
from pipelines.core.model import suggest_nearest
from pipelines.core.paths import CHECKOUT, project_dir
from pipelines.recipe import naming
from pipelines.recipe.archmap import translate_archs
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import GitSource, PathSource
from pipelines.recipe.patches import read_patch
from pipelines.recipe.sourcetree import directories_of
from pipelines.recipe.suite import suite_of
from pipelines.recipe.worktree import PROJECT
from pipelines.toolchain.intent import INTENT_FILE
from pipelines.toolchain.lock import load_lock, own_lock

_LISTED = 20  # of names that there are


def check_alone(recipe: Recipe, where: str) -> None:
    """What the file itself shows.

    ``where`` is the file, and the version in it; :class:`ConfigError` begins with it.
    """
    archs = translate_archs(
        recipe.arch_map, gpus.parse_gpu_archs(recipe.archs), recipe.cuda, recipe.name
    )
    try:
        local = naming.local_version(recipe, recipe.cuda, recipe.torch)
        naming.recipe_environment(recipe, archs, local=local, jobs=1)
    except ConfigError as error:
        said = error.message.removeprefix(f"recipe {recipe.name}: ")
        raise ConfigError(f"{where}: {said}", hint=error.hint) from None
    try:
        compile(recipe.verify, "verify", "exec")
    except (SyntaxError, ValueError) as error:
        raise ConfigError(
            f"{where}: verify: not valid Python: {error}", hint="Such as: import torch, my_package"
        ) from None


def check_surroundings(recipe: Recipe, where: str) -> None:
    """What it names on this machine and in the lock is there; else :class:`ConfigError`."""
    _check_source_directory(recipe, where)
    try:
        suite_of(recipe)
        for patch in recipe.patches:
            read_patch(patch)
    except ConfigError as error:
        said = error.message.removeprefix(f"recipe {recipe.name}: ")
        raise ConfigError(f"{where}: {said}", hint=error.hint) from None
    wheels = {id_: t.name for id_, t in load_lock().tools.items() if t.file.endswith(".whl")}
    tools = {*wheels, *wheels.values()}
    intent = INTENT_FILE if project_dir() == CHECKOUT else own_lock().with_name(INTENT_FILE.name)
    hint = f"Add it to {intent}, then type: invoke lock."
    for key in ("build_requires", "test_requires"):
        _require_known_names(where, key, getattr(recipe, key), tools, hint)
    _check_test_requirements(recipe, where)


def _check_test_requirements(recipe: Recipe, where: str) -> None:
    """What ``pyproject.toml`` says that the wheel requires is installed for its test."""
    if not isinstance(recipe.source, PathSource) or not recipe.is_wheel:
        return
    file = directories_of(recipe.source)[0] / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text("utf-8")).get("project", {})
        named = [Requirement(one) for one in project.get("dependencies", [])]
    except (OSError, ValueError, AttributeError, TypeError):
        return  # the build says so
    came, tools = {*recipe.test_tools}, load_lock().tools.values()
    while more := {r for t in tools if t.name in came for r in t.requires} - came:
        came |= more
    windows = {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows", "extra": ""}
    for one in named:
        name = canonicalize_name(one.name)
        if name not in came and (one.marker is None or one.marker.evaluate(windows)):
            raise ConfigError(
                f"{where}: test_requires: {file.name} requires {name}, which nothing here provides",
                hint=f"Add it: test_requires: [{', '.join((*recipe.test_requires, name))}]",
            )


def _check_source_directory(recipe: Recipe, where: str) -> None:
    if isinstance(recipe.source, GitSource):
        return
    try:
        directories = directories_of(recipe.source)
    except ConfigError as error:
        meant = ""
        if isinstance(recipe.source, PathSource):
            gone = project_dir() / recipe.source.path
            near = [path.name for path in gone.parent.iterdir()] if gone.parent.is_dir() else []
            meant = suggest_nearest(gone.name, near)
        raise ConfigError(f"{where}: {error.message}{meant}", hint=error.hint) from None
    if isinstance(recipe.source, PathSource) and not any(
        (directories[0] / name).is_file() for name in PROJECT
    ):
        raise ConfigError(
            f"{where}: source.path: {directories[0]} has neither {', '.join(PROJECT[:-1])} "
            f"nor {PROJECT[-1]}",
            hint="Name the directory of the project itself.",
        )


def _require_known_names(
    where: str, key: str, names: Iterable[str], known: Iterable[str], hint: str
) -> None:
    there = sorted(known)
    for name in names:
        if name not in there:
            raise ConfigError(
                f"{where}: {key}: there is no '{name}'{suggest_nearest(name, there)}",
                hint=hint if len(there) > _LISTED else f"{hint} There are: {', '.join(there)}.",
            )
