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

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pipelines.errors import ConfigError
from pipelines.recipe.archmap import Translated
from pipelines.recipe.model import Recipe
from pipelines.versions import minor


def local_version(recipe: Recipe, cuda: str, torch: str | None, stamp: str = "") -> str:
    """The local version as PEP 440 writes it: lower case, dots between the parts.

    Raises :class:`ConfigError` for a template with an unknown field or one that gives none.
    """
    values = {
        "cuda": cuda.replace(".", ""),
        "cuda_major": cuda.partition(".")[0],
        "torch": minor(torch or ""),
        "torch_full": torch or "",
        "stamp": stamp,
    }
    template = recipe.local_version
    try:
        made = template.format(**values)
        local = Version(f"0+{made}").local
    except (KeyError, IndexError, ValueError, InvalidVersion) as error:
        raise ConfigError(
            f"recipe {recipe.name}: local_version: {template!r} gives no local version: {error}",
            advice=f"Fields: {', '.join(values)}. Letters, digits and dots, as in cu128torch2.8.",
        ) from None
    return local or ""


def wheel_name(recipe: Recipe, local: str, python: str) -> str:
    """The file name that the build is expected to give; empty where the tree says the version."""
    try:
        version = Version(f"{recipe.version}+{local}")
    except InvalidVersion:  # "main", or a directory
        return ""
    tag = f"cp{python.replace('.', '')}"
    stem = canonicalize_name(recipe.distribution).replace("-", "_")
    return f"{stem}-{version}-{tag}-{tag}-win_amd64.whl"


def environment(
    recipe: Recipe, archs: Translated, *, local: str, jobs: int, threads: int = 1
) -> dict[str, str]:
    """What the recipe sets for a build: its own variables and those of the architectures.

    ``archs`` from :func:`pipelines.recipe.archmap.translate`, ``local`` from :func:`local_version`.
    """
    values = {
        "archs": archs.text,
        "jobs": str(jobs),
        "threads": str(threads),
        "local_version": local,
        "version": recipe.version,
    }
    try:
        asked = {key: text.format(**values) for key, text in recipe.environment.items()}
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigError(
            f"recipe {recipe.name}: environment: unknown field {error}",
            advice=f"There are: {', '.join(values)}",
        ) from None
    if twice := sorted(asked.keys() & archs.variables.keys()):
        raise ConfigError(
            f"recipe {recipe.name}: environment: {twice[0]} is set by arch_map",
            advice="Take it out of 'environment'.",
        )
    return asked | archs.variables
