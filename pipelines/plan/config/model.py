"""``pipeline.yaml`` as a frozen model that refuses unknown keys."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterable, Mapping
from os.path import lexists
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from pipelines.core.errors import ConfigError
from pipelines.core.evidence import TRUST
from pipelines.core.model import (
    Model,
    Name,
    PythonVersion,
    first_problem,
    format_validation_error,
    suggest_nearest,
    unknown_name_error,
)
from pipelines.core.paths import CONFIG_NAME, config_file, project_dir
from pipelines.core.yamlfile import read_yaml
from pipelines.hosts.base import HostConfig, Supply
from pipelines.hosts.gpus import is_wanted
from pipelines.hosts.kinds import KINDS
from pipelines.plan.config.fleet import FleetSettings
from pipelines.toolchain.compilecache import CompileCache, DiskCache
from pipelines.toolchain.lock import ToolchainLock


@functools.cache
def _host_union_adapter(kinds: tuple[type[HostConfig], ...]) -> TypeAdapter[HostConfig]:
    union = functools.reduce(operator.or_, kinds)
    return TypeAdapter(Annotated[union, Field(discriminator="kind")])  # type: ignore[arg-type]


def host_models() -> tuple[type[HostConfig], ...]:
    """The model of every kind of host that there is."""
    return tuple(KINDS.values())


def _read_host(keys: Any) -> HostConfig:
    """A host by its kind: which there are is looked up when a file is read, not before."""
    return _host_union_adapter(host_models()).validate_python(keys)


class Defaults(Model):
    """The defaults of flags."""

    host: Name = "sandbox"
    """One of ``hosts``."""
    recipe: Name = "smoke-attention"
    """One of pipelines/recipes."""
    python: PythonVersion = "3.11"
    """The release to build for, such as 3.11."""
    archs: str | None = None
    """GPUs, such as "80;90+PTX" or "RTX 40xx"; default: those of the recipe."""
    jobs: Annotated[int, Field(ge=1, le=512)] | None = None
    """Compile units at a time; default: what cores and memory allow."""


class Provenance(Model):
    """What ``invoke attest`` signs with, and whose records are trusted."""

    key: str | None = None
    """File of a private key, ed25519 or ECDSA: absolute, or relative to the project."""
    passphrase_env: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    """Environment variable with the key's passphrase; default: ask for it."""
    trust: tuple[Annotated[str, StringConstraints(pattern=TRUST)], ...] = ()
    """``KEY=KIND``: keys of other controllers, each with a kind of their hosts (windows, linux or
    sandbox), whose runs may be signed and published here; docs/provenance.md."""


class Config(Model):
    """``pipeline.yaml``."""

    default: Defaults = Defaults()
    """The defaults of flags."""
    hosts: dict[Name, Annotated[HostConfig, PlainValidator(_read_host)]]
    """Name -> a machine that builds and tests: this one, another, or the sandbox."""
    out: str = "out"
    """Directory of the runs: absolute, or relative to the project."""
    compile_cache: CompileCache = DiskCache()
    """Where compiled units are cached."""
    offline: bool = False
    """Download nothing: a file that is neither in the cache nor in the wheelhouse is an error."""
    wheelhouse: str | None = None
    """Directory to search for pinned files before downloading them; see invoke wheelhouse."""
    provenance: Provenance = Provenance()
    """Who vouches for wheels that were built here; docs/provenance.md."""
    fleet: FleetSettings = FleetSettings()
    """How a matrix is built on many hosts at once; docs/fleet.md."""

    @model_validator(mode="after")
    def _fleet_has_hosts(self) -> Self:
        for name in self.fleet.hosts or ():
            if name not in self.hosts:
                near = suggest_nearest(name, self.hosts)
                raise ValueError(f"fleet.hosts: there is no host '{name}'{near}")
        return self

    def fleet_hosts(self, asked: Iterable[str] = ()) -> tuple[str, ...]:
        """Names of a fleet's hosts: those ``asked`` for, else ``fleet.hosts``, else all.

        Raises :class:`ConfigError` for one that does not exist or is asked for twice.
        """
        names = tuple(asked) or self.fleet.hosts or tuple(self.hosts)
        for number, name in enumerate(names):
            self.host(name)
            if name in names[:number]:
                raise ConfigError(
                    f"--hosts: '{name}' is named twice",
                    hint="Name it once; how many builds it takes at a time is its key 'slots'.",
                )
        return names

    def host(self, name: str) -> HostConfig:
        """The host called ``name``, or :class:`ConfigError` with the nearest name."""
        try:
            return self.hosts[name]
        except KeyError:
            place = config_file()
            chosen = name != self.default.host or "host" in self.default.model_fields_set
            if place.exists() and self.hosts and not chosen:
                raise ConfigError(
                    f"{place.name}: expected default.host, as there is no host '{name}'",
                    hint=f"Set it, or name one with --host: {', '.join(sorted(self.hosts)[:8])}.",
                ) from None
            where = f"{place.name}: hosts" if place.exists() else f"there is no {place.name} here"
            raise unknown_name_error("host", name, self.hosts, where) from None

    def with_gpu(self, name: str) -> Config:
        """The same with a GPU for the host called ``name``; :class:`ConfigError` if it has none.

        A host with configured GPUs keeps them.
        """
        host = self.host(name)
        if "gpu" not in type(host).model_fields:
            raise ConfigError(
                f"--gpu: host '{name}' is of kind {host.kind}, which has no GPU",
                hint="Name one of another kind with --host.",
            )
        if is_wanted(getattr(host, "gpu", None)):
            return self
        keys = host.model_dump(exclude_unset=True) | {"gpu": host.flagged_gpu}
        try:
            asking = type(host).model_validate(keys)
        except ValidationError as error:
            raise ConfigError(
                f"--gpu: host '{name}': {first_problem(error).removeprefix(': Value error, ')}",
                hint="Leave it out, or name another host with --host.",
            ) from None
        return self.model_copy(update={"hosts": {**self.hosts, name: asking}})

    def others(self, name: str, lock: ToolchainLock) -> Mapping[str, Supply]:
        """What the hosts except ``name`` provide; unusable ones are left out."""
        found = {}
        for other, host in self.hosts.items():
            if other != name:
                with contextlib.suppress(ConfigError):
                    found[other] = host.supply(lock)
        return found


def load_config(path: Path | None = None) -> Config:
    """Read ``pipeline.yaml`` or ``$WCW_CONFIG``; :class:`ConfigError` names file and key.

    Without either there is one host, a sandbox.
    """
    path = path or config_file()
    if not lexists(path) and path == project_dir() / CONFIG_NAME:
        return Config.model_validate({"hosts": {"sandbox": {"kind": "sandbox"}}})
    try:
        return Config.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(
            format_validation_error(path, error, Config),
            hint="docs/configuration.md has every key.",
        ) from None
