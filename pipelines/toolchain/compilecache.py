"""``compile_cache`` of ``pipeline.yaml``, where compiled units are kept; what a host gets of it.

Secrets never stand in what is written down: not in ``pipeline.yaml``, not in a job's ``spec.json``
and not in a run's record. :func:`sccache_secrets` takes them from the controller's environment;
they travel with the call that starts a job and reach nothing but sccache's server there.
Variables: https://github.com/mozilla/sccache/blob/main/docs/Configuration.md
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import remember_secret
from pipelines.core.model import Model

if TYPE_CHECKING:
    from pipelines.remote.compilecache import Spec

_Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
#: Below what all keys of one cache stand.
Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{0,200}$")]
# No user, no password, no query: all three can hold a secret.
_Web = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@?#]+$")]


class NoCache(Model):
    """Every unit is compiled again; a build's own directory is kept all the same."""

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


#: kind -> (variables that must be there, those that may be).
PASSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "off": ((), ()),
    "disk": ((), ()),
    "s3": ((), ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")),
    "redis": ((), ("SCCACHE_REDIS_USERNAME", "SCCACHE_REDIS_PASSWORD")),
    "webdav": (
        (),
        ("SCCACHE_WEBDAV_USERNAME", "SCCACHE_WEBDAV_PASSWORD", "SCCACHE_WEBDAV_TOKEN"),
    ),
    "gha": (("ACTIONS_RESULTS_URL", "ACTIONS_RUNTIME_TOKEN"), ()),
}


def disk_gib(cache: CompileCache) -> int:
    """How much the host's own disk keeps, GiB; builds fall back to it where another one is used."""
    return (cache if isinstance(cache, DiskCache) else DiskCache()).size_gib


def sccache_environment(cache: CompileCache, directory: str) -> dict[str, str]:
    """What sccache reads, without secrets; ``directory`` is the host's, for the local cache.

    The local cache is described as well where another one is used: builds fall back to it.
    """
    # Whatever lies in it counts as a unit to sccache, and may go: nothing else is put there.
    units = f"{directory}\\units" if "\\" in directory else f"{directory}/units"
    local = {"SCCACHE_DIR": units, "SCCACHE_CACHE_SIZE": f"{disk_gib(cache)}G"}
    return local | _remote(cache)


def _remote(cache: CompileCache) -> dict[str, str]:
    if isinstance(cache, NoCache | DiskCache):
        return {}
    if isinstance(cache, S3Cache):
        made = {
            "SCCACHE_BUCKET": cache.bucket,
            "SCCACHE_REGION": cache.region,
            "SCCACHE_ENDPOINT": cache.endpoint or "",
            "SCCACHE_S3_USE_SSL": "false"
            if cache.endpoint and cache.endpoint.startswith("http:")
            else "true",
            "SCCACHE_S3_KEY_PREFIX": cache.prefix,
        }
        rule = "SCCACHE_S3_RW_MODE"
    elif isinstance(cache, RedisCache):
        made = {
            "SCCACHE_REDIS_ENDPOINT": cache.endpoint,
            "SCCACHE_REDIS_KEY_PREFIX": cache.prefix,
        }
        rule = "SCCACHE_REDIS_RW_MODE"
    elif isinstance(cache, GhaCache):
        made = {"SCCACHE_GHA_ENABLED": "on", "SCCACHE_GHA_VERSION": cache.version}
        rule = "SCCACHE_GHA_RW_MODE"
    else:
        made = {
            "SCCACHE_WEBDAV_ENDPOINT": cache.endpoint,
            "SCCACHE_WEBDAV_KEY_PREFIX": cache.prefix,
        }
        rule = "SCCACHE_WEBDAV_RW_MODE"
    made[rule] = "READ_ONLY" if cache.read_only else ""
    return {key: value for key, value in made.items() if value}


def sccache_secrets(
    cache: CompileCache, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables to hand to sccache's server on the host, each remembered as a secret.

    Raises :class:`ConfigError` when one that the cache cannot do without is not set.
    """
    have = os.environ if environ is None else environ
    needed, welcome = PASSED[cache.kind]
    if missing := [name for name in needed if not have.get(name)]:
        raise ConfigError(
            f"compile_cache: kind: {cache.kind}: {' and '.join(missing)} not set",
            hint="GitHub gives them only to actions: hand them on in a step of "
            "actions/github-script (core.exportVariable), or use kind: disk with actions/cache.",
        )
    passed = {name: have[name] for name in (*needed, *welcome) if have.get(name)}
    if "AWS_ACCESS_KEY_ID" in passed and "AWS_SECRET_ACCESS_KEY" not in passed:
        raise ConfigError(
            "compile_cache: kind: s3: AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not",
            hint="Set both; or neither, and the host's own AWS profile or role is used.",
        )
    for value in passed.values():
        remember_secret(value)
    return passed


def host_spec(
    cache: CompileCache,
    *,
    executable: str,
    directory: str,
    nvcc: str,
    place: str,
    packages: str,
    pinned: bool,
) -> Spec | None:
    """What ``remote/compilecache.py`` is given; ``None`` when there is nothing to use.

    ``executable`` is sccache on the host, empty if it has none; ``nvcc`` the real compiler;
    ``place`` a directory next to the jobs' where sources stand while they are compiled, and
    ``packages`` the link through which their headers are read, for the cache knows units by
    absolute paths. ``pinned``: whether every tool is ours, and decides the job's id.
    """
    if isinstance(cache, NoCache) or not executable:
        return None
    return {
        "kind": cache.kind,
        "executable": executable,
        "directory": directory,
        "environment": sccache_environment(cache, directory),
        "remote": sorted(_remote(cache)),
        "nvcc": nvcc,
        "place": place,
        "packages": packages,
        "pinned": pinned,
        "without": {},
    }
