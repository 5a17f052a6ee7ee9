"""Somebody else's code in a source tree: which release it is, by its own files."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe_line
from pipelines.recipe.model import Recipe, Vendored

_MOST = 1 << 20  # bytes of a file that says a version
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,60}")


@dataclass(frozen=True)
class Found:
    """What is declared, and what was found of it."""

    declared: Vendored
    version: str
    """As its own file has it; empty where the recipe names none."""


def vendored_in(recipe: Recipe, source: bytes) -> tuple[Found, ...]:
    """What the recipe declares, as it is in ``source``, the .tar.gz that is built.

    Raises :class:`ConfigError` for what is not there, or does not say which version it is: a
    bill of materials with another one would look as good as a true one.
    """
    if not recipe.vendored:
        return ()
    with tarfile.open(fileobj=io.BytesIO(source)) as archive:
        members = {one.name: one for one in archive if one.isfile()}
        return tuple(
            _identify_vendored_release(recipe, one, archive, members) for one in recipe.vendored
        )


def _identify_vendored_release(
    recipe: Recipe, one: Vendored, archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo]
) -> Found:
    what = f"vendored: {one.name}"
    if not any(name.startswith(f"{one.directory}/") for name in members):
        raise _vendored_error(recipe, f"{what}: the source has nothing below {one.directory}")
    if one.file is None:
        return Found(one, "")
    own, slash, top = one.file.partition("/")
    place = top if slash and not own else f"{one.directory}/{one.file}"
    member = members.get(place)
    if member is None or member.size > _MOST:
        why = "is not in the source" if member is None else f"has {member.size} bytes"
        raise _vendored_error(recipe, f"{what}: {place} {why}")
    stream = archive.extractfile(member)
    assert stream is not None  # noqa: S101 - it is a file
    text = stream.read().decode("utf-8", "replace")
    hits = [{hit[1] or "" for hit in re.finditer(pattern, text)} for pattern in one.version]
    version = ".".join(" or ".join(sorted(hit)) for hit in hits if hit)
    if not all(len(hit) == 1 and all(hit) for hit in hits) or not _VERSION.fullmatch(version):
        found = f"{safe_line(version, 60)!r}" if version else "no version"
        raise _vendored_error(recipe, f"{what}: {place} has {found} by {' and '.join(one.version)}")
    return Found(one, version)


def _vendored_error(recipe: Recipe, text: str) -> ConfigError:
    return ConfigError(
        f"recipe {recipe.name}: {text}",
        hint="Fix 'vendored' in the recipe: its directory, file and version; without file and "
        "version the bill of materials says that it is not known.",
    )
