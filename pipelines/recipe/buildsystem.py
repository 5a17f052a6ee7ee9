"""What a package's own ``pyproject.toml`` wants of the environment that builds it (PEP 518)."""

from __future__ import annotations

import contextlib
import tarfile
import tomllib

from packaging.requirements import InvalidRequirement, Requirement

from pipelines.core.errors import ConfigError
from pipelines.core.versions import python_release
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import FileSource, GitSource
from pipelines.recipe.sourcetree import SourceTree, archive_if_here, directories_of
from pipelines.toolchain.lock import Cache

_FILE = "pyproject.toml"
_MOST = 1 << 20  # bytes of it that are read


def build_requires(
    recipe: Recipe, cache: Cache, python: str, windows: bool
) -> tuple[Requirement, ...]:
    """``build-system.requires`` as far as it concerns a Python such as 3.11 on that system.

    Without going to the network: nothing when the source is not here yet, and nothing when the
    package names nothing. Raises :class:`ConfigError` for a file that cannot be read.
    """
    text = _read_source_pyproject(recipe, cache)
    if text is None:
        return ()
    try:
        named = tomllib.loads(text).get("build-system", {}).get("requires", [])
        wanted = [Requirement(one) for one in named]
    except (tomllib.TOMLDecodeError, InvalidRequirement, AttributeError, TypeError) as error:
        raise ConfigError(
            f"recipe {recipe.name}: build-system.requires in {_FILE} of its source cannot be read: "
            f"{str(error)[:200]}",
            hint="Fix that file, or build another release: --recipe-version.",
        ) from None
    environment = {
        "python_version": python_release(python),
        "python_full_version": f"{python_release(python)}.0",
        "sys_platform": "win32" if windows else "linux",
        "os_name": "nt" if windows else "posix",
        "platform_system": "Windows" if windows else "Linux",
    }
    return tuple(one for one in wanted if not one.marker or one.marker.evaluate(environment))


def _read_source_pyproject(recipe: Recipe, cache: Cache) -> str | None:
    """The file at the root of the source, if both are here."""
    if not isinstance(recipe.source, GitSource):
        for folder in directories_of(recipe.source, at_top=True):
            if (path := folder / _FILE).is_file():
                return path.read_text("utf-8", "replace")
    archive = archive_if_here(recipe, cache)
    if archive is None or _FILE not in (SourceTree(recipe, cache).names() or ()):  # kept
        return None
    with contextlib.suppress(tarfile.TarError, OSError, EOFError), tarfile.open(archive) as members:
        above = isinstance(recipe.source, FileSource)  # a source distribution's one directory
        for member in members:
            inner = member.name.removeprefix("./").split("/")[above:]
            if member.isfile() and inner == [_FILE]:
                file = members.extractfile(member)
                return file.read(_MOST).decode("utf-8", "replace") if file else None
    return None
