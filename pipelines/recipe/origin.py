"""Where a recipe's source comes from: a directory here, a pinned file, a commit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag

from pipelines.core.model import Model
from pipelines.toolchain import sources

Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
INSIDE = r'[^/\\:*?"<>|\s.][^\\:*?"<>|\s]*'
Inside = Annotated[str, StringConstraints(pattern=f"^{INSIDE}$")]
Also = dict[Inside | Literal["."], Annotated[str, StringConstraints(min_length=1)]]


class PathSource(Model):
    """A directory on this machine: what git lists of it."""

    path: Annotated[str, StringConstraints(min_length=1)]
    """Relative to the project, where ``pipeline.yaml`` is, or absolute."""
    include: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    """Globs of files that are packed as well, though git ignores them."""
    also: Also = Field(default={})
    """Directories elsewhere that the build needs, by the name that each gets in the source tree;
    ``.`` is its top."""


class FileSource(sources.Source):
    """A .tar.gz with one directory at its top, as source distributions are; always pinned."""

    sha256: sources.Sha256
    size: Annotated[int, Field(gt=0)]
    also: Also = Field(default={})
    """Directories of yours that are added to it, as for ``path``. A file of the archive that one
    replaces stands in ``exclude``, which is for the archive alone."""


class GitSource(Model):
    """One commit, which pins the submodules as well."""

    git: Annotated[str, StringConstraints(pattern=r"^https://[^\s@]+$")]
    """Address of the repository, with https."""
    commit: Commit
    """All 40 digits: a branch or tag is not the same tomorrow."""
    submodules: tuple[Inside, ...] = ()
    """Paths of those that the build needs; the others stay empty."""
    directory: Inside | None = None
    """The project's directory below the top, when it is not the top itself."""


#: Key that says where a source comes from -> the model of those that have it.
_BY_KEY: dict[str, type[Model]] = {
    "path": PathSource,
    "git": GitSource,
    **dict.fromkeys(("pypi", "url", "apt"), FileSource),
}


def _source_model_name(given: Any) -> str | None:
    """The name of the model that it is for; ``None`` when no key says so."""
    if isinstance(given, dict):
        return next((model.__name__ for key, model in _BY_KEY.items() if key in given), None)
    return type(given).__name__


Source = Annotated[
    Annotated[PathSource, Tag("PathSource")]
    | Annotated[FileSource, Tag("FileSource")]
    | Annotated[GitSource, Tag("GitSource")],
    Discriminator(
        _source_model_name,
        custom_error_type="source",
        custom_error_message=f"expected one of the keys {', '.join(_BY_KEY)}",
    ),
]
"""Chosen by the key that is there, so that what is wrong is said of that kind alone."""
