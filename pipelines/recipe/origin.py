"""Where a recipe's source comes from: a directory here, a pinned file, a commit."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from pipelines.model import Model
from pipelines.toolchain import sources

Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Inside = Annotated[str, StringConstraints(pattern=r"^[^/\\:*?\"<>|\s.][^\\:*?\"<>|\s]*$")]


class PathSource(Model):
    """A directory on this machine, as seen from ``pipeline.yaml``: what git lists of it."""

    path: str
    include: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    """Globs of files that are packed as well, though git ignores them."""


class FileSource(sources.Source):
    """A .tar.gz with one directory at its top, as source distributions are; always pinned."""

    sha256: sources.Sha256
    size: Annotated[int, Field(gt=0)]


class GitSource(Model):
    """One commit, which pins the submodules as well."""

    git: Annotated[str, StringConstraints(pattern=r"^https://[^\s@]+$")]
    commit: Commit
    submodules: tuple[Inside, ...] = ()
    """Paths of those that the build needs; the others stay empty."""
    directory: Inside | None = None
    """The project's directory below the top, when it is not the top itself."""


Source = PathSource | FileSource | GitSource
