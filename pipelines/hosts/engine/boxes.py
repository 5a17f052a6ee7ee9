"""Containers that the pipeline makes for itself: made, found again by their labels, removed.

An ephemeral one ends with its controller, however that ends. Its standard input is a
leash, which the engine closes with the connection: what runs inside sees the end of its input and
leaves, and the engine removes it (``AutoRemove``) with its anonymous volumes. A kept one stays
until it is removed. Names are the lock: an engine gives each to one container.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from docker.errors import APIError, NotFound
from docker.models.containers import RUN_CREATE_KWARGS, Container
from docker.models.volumes import Volume
from docker.types import Mount

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.hosttext import line
from pipelines.core.logs import timed
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.asked import require_as_asked
from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.refusals import telling

_log = logging.getLogger(__name__)

# The SDK knows it and does not let it through (docker-py 7.2): without it whoever else stops a
# container, the engine that goes down among them, cuts a Windows off after 10 s.
if "stop_timeout" not in RUN_CREATE_KWARGS:
    RUN_CREATE_KWARGS.append("stop_timeout")

#: What every label of ours begins with.
LABEL = "windows-cuda-wheels."
_MOST = 64  # containers at a time from one definition
_POLL = 0.05
_LAST_WORDS = 2.0  # seconds
_GONE = 20.0  # seconds that an engine may take to remove a container
_CONFLICT = 409
T = TypeVar("T")
#: Whether a container can be used: what is then needed of it, or ``None`` for not yet.
Ready = Callable[[Box], T | None]


@dataclass(frozen=True, kw_only=True)
class Order:
    """A container as it is asked for."""

    host: str
    kind: str
    image: str
    """Its id."""
    keys: Mapping[str, Any]
    """What the SDK's ``create`` is given: no name, no labels, nothing secret."""
    tied: Mapping[str, Any] = field(default_factory=dict)
    """The same, for one that ends with us."""
    caches: Mapping[str, str] = field(default_factory=dict)
    """Name -> directory that is a named volume, kept from one container to the next."""
    fill: Callable[[Container], object] = field(default=lambda _: None, repr=False)
    """Puts files into it before it starts; secrets come in that way."""
    explain: Callable[[int, str, str], PipelineError | None] = field(
        default=lambda _code, _name, _said: None, repr=False
    )
    """What an exit code means, given the container's name and what it printed last."""
    keep: bool = False
    start_seconds: float = 120.0
    stop_seconds: int = 20
    """How long it may take to end in good order, whoever stops it."""

    @property
    def spec(self) -> str:
        """A hash of all that was asked for."""
        told = [self.kind, self.image, dict(self.keys), dict(self.caches)]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


class Boxes:
    """The containers of this checkout on one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.project = owners.project()

    # -- what there is ---------------------------------------------------------------------------

    def all(self, host: str = "") -> list[Container]:
        """Those of this checkout, running or not."""
        with telling("list containers"):
            found = self.engine.client.containers.list(
                all=True, filters=self._filters(host), ignore_removed=True
            )
        return [box for box in found if self._ours(box, host)]

    def _filters(self, host: str) -> dict[str, Any]:
        mine = [f"{LABEL}project={self.project}"]
        return {"label": [*mine, f"{LABEL}host={host}"] if host else mine}

    def _ours(self, thing: Container | Volume, host: str) -> bool:
        """Once more than the engine's filters say: what is found may be removed."""
        return label(thing, "project") == self.project and (
            not host or label(thing, "host") == host
        )

    def orphans(self, host: str = "") -> list[Container]:
        """Those that were to end with a controller which is gone."""
        return [
            box
            for box in self.all(host)
            if label(box, "keep") != "1" and owners.alive(label(box, "owner")) is False
        ]

    def kept(self, host: str) -> Container | None:
        """The lasting one of a host."""
        return next((box for box in self.all(host) if label(box, "keep") == "1"), None)

    def unused(self, host: str) -> list[Container]:
        """Those of a host; :class:`HostError` while another command of ours uses one."""
        found = self.all(host)
        for one in found:
            if label(one, "keep") != "1" and owners.alive(label(one, "owner")):
                raise HostError(
                    f"container '{one.name}' is in use by another command of this checkout",
                    hint="Wait for it, or end it; its container goes with it.",
                )
        return found

    def volumes(self, host: str = "") -> list[Volume]:
        """Named volumes of this checkout."""
        with telling("list volumes"):
            found = self.engine.client.volumes.list(filters=self._filters(host))
        return [volume for volume in found if self._ours(volume, host)]

    # -- one host --------------------------------------------------------------------------------

    def open(self, order: Order, ready: Ready[T]) -> tuple[Box, T]:
        """A container that is ready: the lasting one if that is asked for, else a fresh one.

        Raises :class:`ConfigError` where the lasting one is of another order, :class:`HostError`
        where it ends by itself or is not ready in time, and what ``telling`` does. What was made
        for nothing is removed.
        """
        for orphan in self.orphans(order.host):
            _log.info("remove container %s, whose controller is gone", orphan.name)
            self.discard(orphan)
        if not order.keep:
            return self._make(order, ready)
        found = self._begun(order)
        if found is None:
            try:
                return self._make(order, ready)
            except _NameTakenError:  # by another command of ours, just now
                found = self._begun(order)
                if found is None:
                    raise
        return self._adopt(found, order, ready)

    def _begun(self, order: Order) -> Container | None:
        """The lasting one, once it was started: before that it need not have been filled.

        Whoever makes it is waited for; what he left, if he is gone, is removed.
        """
        deadline = time.monotonic() + order.start_seconds
        while (found := self.kept(order.host)) is not None and found.status == "created":
            if owners.alive(label(found, "owner")) is False:
                _log.info("remove container %s, which was never started", found.name)
                self.remove(found)
                return None
            if time.monotonic() > deadline:
                raise HostError(
                    f"container '{found.name}' was made by {label(found, 'who')} and not started "
                    f"within {order.start_seconds:.0f} s",
                    hint=f"If nobody makes it: invoke host remove --host {order.host} --force",
                )
            time.sleep(_POLL)
        return found

    def _adopt(self, found: Container, order: Order, ready: Ready[T]) -> tuple[Box, T]:
        # Labels are what somebody has said; the image is what is in it.
        if label(found, "spec") != order.spec or (found.attrs or {}).get("Image") != order.image:
            raise ConfigError(
                f"the container '{found.name}' was made from another order than host "
                f"'{order.host}' is now: its image or its keys in pipeline.yaml have changed",
                hint="Put the keys back, or give it up with all that runs in it: "
                f"invoke host remove --host {order.host} --force",
            )
        box = Box(found, order)
        if found.status != "running":
            with telling(f"start container '{found.name}'"):
                found.start()
        with timed(_log, logging.INFO, "%s: adopt container %s", order.host, found.name):
            return box, self.await_ready(box, ready)

    def _names(self, order: Order) -> Iterator[tuple[int, str]]:
        name = f"wcw-{self.project[:6]}-{order.host}"
        if order.keep:
            yield 0, name
        else:
            for slot in range(1, _MOST + 1):
                yield slot, f"{name}.{slot}"  # as no host can be called: 'a-1' is one

    def _make(self, order: Order, ready: Ready[T]) -> tuple[Box, T]:
        taken: _NameTakenError | None = None
        for slot, name in self._names(order):
            try:
                container = self._create(order, slot, name)
            except _NameTakenError as error:
                taken = error
                continue
            box = Box(container, order)
            try:
                with timed(_log, logging.INFO, "%s: start container %s", order.host, name):
                    order.fill(container)
                    with telling(f"start container '{name}'"):
                        box.start()
                    return box, self.await_ready(box, ready)
            except BaseException:
                with contextlib.suppress(PipelineError):  # why it came to that matters more
                    self.remove(box.container)
                box.close()
                raise
        assert taken is not None  # noqa: S101 - or it had returned
        raise taken

    def _create(self, order: Order, slot: int, name: str) -> Container:
        labels = {
            f"{LABEL}project": self.project,
            f"{LABEL}host": order.host,
            f"{LABEL}kind": order.kind,
            f"{LABEL}who": owners.who(),
        }
        kept = labels | {f"{LABEL}slot": str(slot)}
        start = f"wcw-{self.project[:6]}-{order.host}-{slot}-"
        self._require_own(start, {start + cache for cache in order.caches}, kept)
        mounts = [
            Mount(path, start + cache, type="volume", labels=kept)
            for cache, path in order.caches.items()
        ]
        keys = {**order.keys, **({} if order.keep else order.tied)}
        keys["stop_timeout"] = order.stop_seconds
        with telling(f"make container '{name}'"):
            try:
                return self.engine.client.containers.create(
                    order.image,
                    name=name,
                    labels={
                        **labels,
                        f"{LABEL}slot": str(slot),
                        f"{LABEL}spec": order.spec,
                        f"{LABEL}owner": owners.me(),
                        f"{LABEL}keep": "1" if order.keep else "0",
                    },
                    stdin_open=not order.keep,
                    auto_remove=not order.keep,
                    **{**keys, "mounts": [*keys.get("mounts", ()), *mounts]},
                )
            except APIError as error:
                if error.status_code == _CONFLICT and re.search("already in use", str(error)):
                    raise _NameTakenError(
                        f"there is a container '{name}' already, which this pipeline did not make",
                        hint="Type: docker rename, or give this host another name.",
                    ) from error
                raise

    def _require_own(self, start: str, names: set[str], labels: Mapping[str, str]) -> None:
        """:class:`ConfigError` for a volume of another: an engine takes whatever has the name."""
        if not names:
            return
        with telling("list volumes"):
            found = self.engine.client.volumes.list(filters={"name": start})
        for volume in found:
            told = (volume.attrs or {}).get("Labels") or {}
            if volume.name in names and any(
                told.get(f"{LABEL}{key}") != labels[f"{LABEL}{key}"]
                for key in ("project", "host", "slot")
            ):
                raise ConfigError(
                    f"volume '{volume.name}' is not of this host and checkout: its labels are "
                    "another's, or it has none",
                    hint=f"See what is in it, then type: docker volume rm {volume.name}",
                )

    def await_ready(self, box: Box, ready: Ready[T]) -> T:
        """Wait until it can be used; :class:`HostError` says why it does not come to that.

        One that is not what was asked for is not waited for.
        """
        require_as_asked(box)
        deadline = time.monotonic() + box.order.start_seconds
        while time.monotonic() < deadline:
            try:
                if (found := ready(box)) is not None:
                    return found
            except HostError as error:
                raise self._end_of(box) or error from error
            if ended := box.ended():
                raise ended
            time.sleep(_POLL)
        raise HostError(
            f"container '{box.name}' was not ready after {box.order.start_seconds:.0f} s: "
            f"{box.said() or 'it has printed nothing'}",
            hint=f"Give it more: 'start_minutes' of the host. What it does: docker logs {box.name}",
        )

    def _end_of(self, box: Box) -> PipelineError | None:
        """How it has ended; of one that is just ending engines say odd things for a moment."""
        deadline = time.monotonic() + _LAST_WORDS
        while (ended := box.ended()) is None and time.monotonic() < deadline:
            time.sleep(_POLL)
        return ended

    def remove(self, container: Container) -> None:
        """Stop and remove it and its anonymous volumes, and wait until it is gone.

        Harmless when it is gone, or going.
        """
        with telling(f"remove container '{container.name}'"):
            with contextlib.suppress(NotFound):
                try:
                    container.remove(force=True, v=True)
                except APIError as error:
                    if error.status_code != _CONFLICT:  # on its way already
                        raise
            deadline = time.monotonic() + _GONE
            while time.monotonic() < deadline:
                try:
                    container.reload()
                except NotFound:
                    return
                time.sleep(_POLL)
        raise HostError(
            f"container '{container.name}' does not go away",
            hint=f"Type: docker rm --force {container.name}",
        )

    def discard(self, container: Container) -> None:
        """As :meth:`remove`; one that stays is no reason to fail, and is found again.

        Windows' engine may take weeks: https://github.com/moby/moby/issues/40162.
        """
        try:
            self.remove(container)
        except HostError as error:
            _log.warning("%s: %s", error.message, error.hint)


class _NameTakenError(HostError):
    """Another container has the name."""


def label(thing: Container | Volume, name: str) -> str:
    """What one of our labels says, harmless to show; empty when there is none."""
    found = (
        thing.labels if isinstance(thing, Container) else (thing.attrs or {}).get("Labels") or {}
    )
    return line(found.get(f"{LABEL}{name}", ""))


def of_a_moment(kind: str) -> dict[str, str]:
    """Labels of a container that is of no host: it is swept up if this process is killed."""
    told = {"project": owners.project(), "kind": kind, "who": owners.who(), "keep": "0"}
    return {f"{LABEL}{name}": text for name, text in {**told, "owner": owners.me()}.items()}
