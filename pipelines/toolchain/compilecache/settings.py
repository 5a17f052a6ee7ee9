"""``compile_cache`` of ``pipeline.yaml``: where compiled units are kept between builds.

No key here takes a password or a token. Those come from environment variables of the controller,
which :mod:`pipelines.toolchain.compilecache.spec` names.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from pipelines.core.model import Model

_Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
#: Below what all keys of one cache stand.
Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{0,200}$")]
# No user, no password, no query: all three can hold a secret.
_Web = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@?#]+$")]


class NoCache(Model):
    """Every unit is compiled anew; a build's own directory is kept all the same."""

    kind: Literal["off"]
    """Nothing is kept."""


class DiskCache(Model):
    """On the host's own disk; also what a build falls back to when a remote one does not answer."""

    kind: Literal["disk"] = "disk"
    """On the host's disk."""
    size_gib: Annotated[int, Field(ge=1, le=4096)] = 20
    """What was used longest ago goes when there is more."""


class S3Cache(Model):
    """A bucket of S3, or of what speaks its protocol."""

    kind: Literal["s3"]
    """In a bucket."""
    bucket: _Word
    """Its name."""
    region: _Word = "auto"
    """Its region."""
    endpoint: _Web | None = None
    """For services other than AWS."""
    prefix: Prefix = ""
    """What all keys in it begin with."""
    read_only: bool = False
    """Take from it, and put nothing there."""


class RedisCache(Model):
    """A Redis server; ``rediss://`` is TLS."""

    kind: Literal["redis"]
    """In a Redis server."""
    endpoint: Annotated[str, StringConstraints(pattern=r"^(rediss?|tcp)://[^\s@?#]+$")]
    """Such as ``rediss://cache.example.org:6379``; no password in it."""
    prefix: Prefix = ""
    """What all keys in it begin with."""
    read_only: bool = False
    """Take from it, and put nothing there."""


class WebdavCache(Model):
    """A WebDAV server."""

    kind: Literal["webdav"]
    """On a WebDAV server."""
    endpoint: _Web
    """Such as ``https://dav.example.org/cache``; no password in it."""
    prefix: Prefix = ""
    """What all keys in it begin with."""
    read_only: bool = False
    """Take from it, and put nothing there."""


class GhaCache(Model):
    """The cache of GitHub Actions; works within a workflow only."""

    kind: Literal["gha"]
    """In the cache of GitHub Actions."""
    version: _Word = "wcw"
    """Another value begins an empty cache."""
    read_only: bool = False
    """Take from it, and put nothing there."""


CompileCache = Annotated[
    DiskCache | NoCache | S3Cache | RedisCache | WebdavCache | GhaCache,
    Field(discriminator="kind"),
]
