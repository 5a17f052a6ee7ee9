"""Local versions, wheel names and the environment of a build.

The local version is given to the package's own build, so that file name and METADATA agree; a
file that is only renamed is refused by installers (https://github.com/astral-sh/uv/issues/3594).

Fields of a template: {cuda} ``128``, {cuda_major} ``12``, {torch} ``2.8``, {torch_full} as it was
asked for, {stamp} ``.sandbox`` on hosts whose wheels are not for publishing, else empty. Known
conventions are ``cu{cuda}torch{torch}`` (the default here),
``cu{cuda_major}torch{torch}cxx11abiFALSE`` (Dao-AILab's own wheels; the ABI is FALSE on Windows)
and ``cu{cuda}torch{torch_full}cxx11abiFALSE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pipelines.core.errors import ConfigError
from pipelines.core.model import suggest_nearest
from pipelines.core.versions import minor_release, python_tags
from pipelines.recipe.archmap import Translated, gencode_flags
from pipelines.recipe.model import Fix, Recipe


def local_version(recipe: Recipe, cuda: str, torch: str | None, stamp: str = "") -> str:
    """The local version as PEP 440 writes it: lower case, dots between the parts.

    Raises :class:`ConfigError` for a template with an unknown field or one that gives none.
    """
    values = {
        "cuda": cuda.replace(".", ""),
        "cuda_major": cuda.partition(".")[0],
        "torch": minor_release(torch or ""),
        "torch_full": torch or "",
        "stamp": stamp,
    }
    made = _fill_recipe_template(recipe, "local_version", recipe.local_version, values)
    try:
        return Version(f"0+{made}").local or ""
    except InvalidVersion:
        raise ConfigError(
            f"recipe {recipe.name}: local_version: '{made}' is not a local version",
            hint="Letters, digits and dots, as in cu128torch2.8.",
        ) from None


def expected_wheel_name(recipe: Recipe, local: str, python: str) -> str:
    """The file name that the build is expected to give; empty where the tree says the version.

    Of what has no compiled code there is one for all, and a local version in its name only where
    its build takes one: what it was built with is not in it.
    """
    pure = recipe.kind == "pure"
    takes_local = not pure or any("{local_version}" in text for text in recipe.environment.values())
    try:
        version = Version(f"{recipe.version}+{local}" if takes_local else recipe.version)
    except InvalidVersion:  # "main", or a directory
        return ""
    stem = canonicalize_name(recipe.distribution).replace("-", "_")
    if pure:
        return f"{stem}-{version}-py3-none-any.whl"
    return f"{stem}-{version}-{recipe.wheel_tag or '-'.join(python_tags(python))}-win_amd64.whl"


def recipe_environment(
    recipe: Recipe, archs: Translated, *, local: str, jobs: int, threads: int = 1
) -> dict[str, str]:
    """What the recipe sets for a build: its own variables and those of the architectures.

    ``archs`` from :func:`pipelines.recipe.archmap.translate_archs`, ``local`` from
    :func:`local_version`.
    """
    values = {
        "archs": archs.text,
        "gencode": gencode_flags(archs.effective),
        "jobs": str(jobs),
        "threads": str(threads),
        "local_version": local,
        "version": recipe.version,
    }
    asked = {
        key: _fill_recipe_template(recipe, f"environment.{key}", text, values)
        for key, text in recipe.environment.items()
    }
    if twice := sorted(asked.keys() & archs.variables.keys()):
        raise ConfigError(
            f"recipe {recipe.name}: environment: {twice[0]} is set by arch_map",
            hint="Remove it from 'environment'.",
        )
    return asked | archs.variables


def with_fixes(
    recipe: Recipe, environment: Mapping[str, str], cuda: str, torch: str | None
) -> dict[str, str]:
    """``environment`` of a build with MSVC, with the flags that these releases need."""
    made = dict(environment)
    for fix in fixes_of(recipe, cuda, torch):
        for name, flags in fix.flags.items():
            made[name] = f"{made[name]} {flags}" if made.get(name) else flags
    return made


def fixes_of(recipe: Recipe, cuda: str, torch: str | None) -> list[Fix]:
    """Those that these releases need of a build with MSVC."""
    return [fix for fix in recipe.fixes if fix.applies(cuda, torch)]


def _fill_recipe_template(
    recipe: Recipe, key: str, template: str, values: Mapping[str, str]
) -> str:
    """``template`` with its fields; :class:`ConfigError` for what is none of ``values``.

    Plain names only: a width, or an attribute of a value, is no business of a recipe.
    """
    there = f"There are: {', '.join(f'{{{name}}}' for name in values)}. A brace itself is written "
    there += "{{ or }}."
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(
            f"recipe {recipe.name}: {key}: '{template}' is not a template: {error}", hint=there
        ) from None
    for _, name, form, conversion in parts:
        if name is None:
            continue
        field = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
        if field not in values:
            raise ConfigError(
                f"recipe {recipe.name}: {key}: unknown field {{{field}}}"
                + suggest_nearest(field, values, "; did you mean {{{}}}?"),
                hint=there,
            )
    return "".join(text + (values[name] if name else "") for text, name, _, _ in parts)
