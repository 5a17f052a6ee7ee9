"""The pipeline's own containers: created, found by their labels, removed.

An ephemeral container ends with its controller, however that ends. Its standard input is a
keep-alive pipe, which the engine closes with the connection: the program inside reads the end of
its input and exits, and the engine removes the container (``AutoRemove``) with its anonymous
volumes. A persistent one stays until it is removed. Names act as locks: an engine gives each to one
container.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from docker.errors import APIError, NotFound
from docker.models.containers import RUN_CREATE_KWARGS, Container
from docker.models.volumes import Volume
from docker.types import Mount

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.hosttext import safe_line
from pipelines.core.logs import log_duration
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.container import ContainerSpec, ManagedContainer
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.error_patterns import engine_errors

_log = logging.getLogger(__name__)

# The SDK knows it but does not pass it on (docker-py 7.2): without it, stopping a container from
# elsewhere, such as at an engine's shutdown, kills Windows after 10 s.
if "stop_timeout" not in RUN_CREATE_KWARGS:
    RUN_CREATE_KWARGS.append("stop_timeout")

#: Prefix of all our labels.
LABEL = "windows-cuda-wheels."
_MOST = 64  # containers at a time of one host
_POLL = 0.05
_LAST_WORDS = 2.0  # seconds
_GONE = 20.0  # seconds that an engine may take to remove a container
_CONFLICT = 409
T = TypeVar("T")
#: Whether a container is ready: returns the result, or ``None`` for not yet.
Ready = Callable[[ManagedContainer], T | None]


class ContainerManager:
    """The containers of this checkout on one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.project = owners.project_id()

    # -- existing ones ---------------------------------------------------------------------------

    def all(self, host: str = "") -> list[Container]:
        """Those of this checkout, running or not."""
        with engine_errors("list containers"):
            containers = self.engine.client.containers.list(
                all=True, filters=self._filters(host), ignore_removed=True
            )
        return [container for container in containers if self._ours(container, host)]

    def _filters(self, host: str) -> dict[str, Any]:
        mine = [f"{LABEL}project={self.project}"]
        return {"label": [*mine, f"{LABEL}host={host}"] if host else mine}

    def _ours(self, thing: Container | Volume, host: str) -> bool:
        """Checked again after the engine's filter, because matching objects may be removed."""
        return label_value(thing, "project") == self.project and (
            not host or label_value(thing, "host") == host
        )

    def orphans(self, host: str = "") -> list[Container]:
        """Ephemeral ones whose controller is gone."""
        return [
            container
            for container in self.all(host)
            if label_value(container, "keep") != "1"
            and owners.is_owner_alive(label_value(container, "owner")) is False
        ]

    def persistent(self, host: str) -> Container | None:
        """The persistent one of a host."""
        return next(
            (container for container in self.all(host) if label_value(container, "keep") == "1"),
            None,
        )

    def unused(self, host: str) -> list[Container]:
        """Those of a host; :class:`HostError` while another command uses one."""
        containers = self.all(host)
        for container in containers:
            if label_value(container, "keep") != "1" and owners.is_owner_alive(
                label_value(container, "owner")
            ):
                raise HostError(
                    f"container '{container.name}' is in use by another command of this checkout",
                    hint="Wait for that command, or stop it; its container is removed with it.",
                )
        return containers

    def volumes(self, host: str = "") -> list[Volume]:
        """Named volumes of this checkout."""
        with engine_errors("list volumes"):
            volumes = self.engine.client.volumes.list(filters=self._filters(host))
        return [volume for volume in volumes if self._ours(volume, host)]

    # -- one host --------------------------------------------------------------------------------

    def open(self, spec: ContainerSpec, ready: Ready[T]) -> tuple[ManagedContainer, T]:
        """A container that is ready: the persistent one if configured, else a new one.

        Raises :class:`ConfigError` if the persistent one has another definition, :class:`HostError`
        if it ends or is not ready in time, and what ``engine_errors`` does. Containers created in
        vain are removed.
        """
        for orphan in self.orphans(spec.host):
            _log.info("remove container %s, whose controller is gone", orphan.name)
            self.discard(orphan)
        if not spec.keep:
            return self._make(spec, ready)
        container = self._started(spec)
        if container is None:
            try:
                return self._make(spec, ready)
            except _NameTakenError:  # by another command of ours meanwhile
                container = self._started(spec)
                if container is None:
                    raise
        return self._adopt(container, spec, ready)

    def _started(self, spec: ContainerSpec) -> Container | None:
        """The persistent one, once it was started: before that its files may be missing.

        Waits for the process that creates it; removes the container if that process is gone.
        """
        deadline = time.monotonic() + spec.start_seconds
        while (
            container := self.persistent(spec.host)
        ) is not None and container.status == "created":
            if owners.is_owner_alive(label_value(container, "owner")) is False:
                _log.info("remove container %s, which was never started", container.name)
                self.remove(container)
                return None
            if time.monotonic() > deadline:
                raise HostError(
                    f"container '{container.name}' was created by "
                    f"{label_value(container, 'who')} and "
                    f"not started within {spec.start_seconds:.0f} s",
                    hint=f"If nothing is creating it: invoke host remove --host {spec.host} "
                    "--force",
                )
            time.sleep(_POLL)
        return container

    def _adopt(
        self, container: Container, spec: ContainerSpec, ready: Ready[T]
    ) -> tuple[ManagedContainer, T]:
        # Labels are a claim; the image id is a fact.
        if (
            label_value(container, "spec") != spec.digest
            or (container.attrs or {}).get("Image") != spec.image
        ):
            raise changed_error(container, spec.host)
        managed = ManagedContainer(container, spec)
        if container.status != "running":
            with engine_errors(f"start container '{container.name}'"):
                container.start()
        with log_duration(_log, logging.INFO, "%s: adopt container %s", spec.host, container.name):
            return managed, self.await_ready(managed, ready)

    def _names(self, spec: ContainerSpec) -> Iterator[tuple[int, str]]:
        name = f"wcw-{self.project[:6]}-{spec.host}"
        if spec.keep:
            yield 0, name
        else:
            for slot in range(1, _MOST + 1):
                yield slot, f"{name}.{slot}"  # not a valid host name, unlike 'a-1'

    def _make(self, spec: ContainerSpec, ready: Ready[T]) -> tuple[ManagedContainer, T]:
        taken: _NameTakenError | None = None
        for slot, name in self._names(spec):
            try:
                container = self._create(spec, slot, name)
            except _NameTakenError as error:
                taken = error
                continue
            managed = ManagedContainer(container, spec)
            try:
                with log_duration(_log, logging.INFO, "%s: start container %s", spec.host, name):
                    spec.fill(container)
                    with engine_errors(f"start container '{name}'"):
                        managed.start()
                    return managed, self.await_ready(managed, ready)
            except BaseException:
                with contextlib.suppress(PipelineError):  # the original error matters more
                    self.remove(managed.container)
                managed.close()
                raise
        assert taken is not None  # noqa: S101 - otherwise it has returned
        raise taken

    def _create(self, spec: ContainerSpec, slot: int, name: str) -> Container:
        labels = {
            f"{LABEL}project": self.project,
            f"{LABEL}host": spec.host,
            f"{LABEL}kind": spec.kind,
            f"{LABEL}who": owners.user_at_machine(),
        }
        values = labels | {f"{LABEL}slot": str(slot)}
        start = f"wcw-{self.project[:6]}-{spec.host}-{slot}-"
        self._require_own(start, {start + cache for cache in spec.caches}, values)
        mounts = [
            Mount(path, start + cache, type="volume", labels=values)
            for cache, path in spec.caches.items()
        ]
        keys = {**spec.keys, **({} if spec.keep else spec.ephemeral_keys)}
        keys["stop_timeout"] = spec.stop_seconds
        with engine_errors(f"make container '{name}'"):
            try:
                return self.engine.client.containers.create(
                    spec.image,
                    name=name,
                    labels={
                        **labels,
                        f"{LABEL}slot": str(slot),
                        f"{LABEL}spec": spec.digest,
                        f"{LABEL}owner": owners.process_identity(),
                        f"{LABEL}keep": "1" if spec.keep else "0",
                    },
                    stdin_open=not spec.keep,
                    auto_remove=not spec.keep,
                    **{**keys, "mounts": [*keys.get("mounts", ()), *mounts]},
                )
            except APIError as error:
                if error.status_code == _CONFLICT and re.search("already in use", str(error)):
                    raise _NameTakenError(
                        f"a container '{name}' already exists and was not created by this pipeline",
                        hint="Type: docker rename, or give this host another name.",
                    ) from error
                raise

    def _require_own(self, start: str, names: set[str], labels: Mapping[str, str]) -> None:
        """Raises :class:`ConfigError` for another's volume: an engine accepts any of that name."""
        if not names:
            return
        with engine_errors("list volumes"):
            volumes = self.engine.client.volumes.list(filters={"name": start})
        for volume in volumes:
            actual = (volume.attrs or {}).get("Labels") or {}
            if volume.name in names and any(
                actual.get(f"{LABEL}{key}") != labels[f"{LABEL}{key}"]
                for key in ("project", "host", "slot")
            ):
                raise ConfigError(
                    f"volume '{volume.name}' does not belong to this host and checkout: its "
                    "labels are missing or different",
                    hint=f"Check its contents, then type: docker volume rm {volume.name}",
                )

    def await_ready(self, managed: ManagedContainer, ready: Ready[T]) -> T:
        """Wait until it is ready; :class:`HostError` with the reason if it does not get there.

        One without the requested limits is refused at once.
        """
        managed.require_limits()
        deadline = time.monotonic() + managed.spec.start_seconds
        while time.monotonic() < deadline:
            try:
                if (result := ready(managed)) is not None:
                    return result
            except HostError as error:
                raise self._end_of(managed) or error from error
            if ended := managed.ended():
                raise ended
            time.sleep(_POLL)
        raise HostError(
            f"container '{managed.name}' was not ready after {managed.spec.start_seconds:.0f} s: "
            f"{managed.output() or 'it has printed nothing'}",
            hint="Raise 'start_minutes' of the host. To see what it does: docker logs "
            f"{managed.name}",
        )

    def _end_of(self, managed: ManagedContainer) -> PipelineError | None:
        """How it ended; while it is ending, engines report odd errors for a moment."""
        deadline = time.monotonic() + _LAST_WORDS
        while (ended := managed.ended()) is None and time.monotonic() < deadline:
            time.sleep(_POLL)
        return ended

    def remove(self, container: Container) -> None:
        """Stop and remove it with its anonymous volumes, and wait until it is gone.

        Harmless if it is gone or being removed.
        """
        with engine_errors(f"remove container '{container.name}'"):
            with contextlib.suppress(NotFound):
                try:
                    container.remove(force=True, v=True)
                except APIError as error:
                    if error.status_code != _CONFLICT:  # already being removed
                        raise
            deadline = time.monotonic() + _GONE
            while time.monotonic() < deadline:
                try:
                    container.reload()
                except NotFound:
                    return
                time.sleep(_POLL)
        raise HostError(
            f"container '{container.name}' cannot be removed",
            hint=f"Type: docker rm --force {container.name}",
        )

    def discard(self, container: Container) -> None:
        """As :meth:`remove`, but failing to is not an error; it is found again later.

        A Windows engine may take weeks: https://github.com/moby/moby/issues/40162.
        """
        try:
            self.remove(container)
        except HostError as error:
            _log.warning("%s: %s", error.message, error.hint)


class _NameTakenError(HostError):
    """Another container has the name."""


def changed_error(container: Container, host: str) -> ConfigError:
    """That a persistent container has another definition than its host has now."""
    return ConfigError(
        f"the container '{container.name}' does not match host '{host}' any more: "
        "its image or its keys in pipeline.yaml have changed",
        hint="Restore the keys, or remove the container and everything running in it: "
        f"invoke host remove --host {host} --force",
    )


def label_value(thing: Container | Volume, name: str) -> str:
    """The value of one of our labels, safe to display; empty if it is missing."""
    labels = (
        thing.labels if isinstance(thing, Container) else (thing.attrs or {}).get("Labels") or {}
    )
    return safe_line(labels.get(f"{LABEL}{name}", ""))


def of_a_moment(kind: str) -> dict[str, str]:
    """Labels of a short-lived container of no host: it is swept up if this process is killed."""
    labels = {
        "project": owners.project_id(),
        "kind": kind,
        "who": owners.user_at_machine(),
        "keep": "0",
    }
    return {
        f"{LABEL}{name}": text
        for name, text in {**labels, "owner": owners.process_identity()}.items()
    }
