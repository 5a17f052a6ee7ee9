"""Images of ours on an engine, and which of them nobody needs any more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from docker.errors import NotFound

from pipelines.core.hosttext import line
from pipelines.hosts.base import Thing
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.images import record as names
from pipelines.hosts.images.finding import OLD, ours, state_of
from pipelines.toolchain.lock import Cache, load_lock

_OURS = "windows-cuda-wheels/"


def images(engine: Engine) -> Iterator[Thing]:
    """Each image; those that this checkout made of other inputs than today's are nobody's."""
    api: Any = engine.client.api
    with telling("list containers"):
        used = {str(one.get("ImageID")) for one in api.containers(all=True)}
    cache = Cache(load_lock(), offline=True)
    for found in ours(engine):
        image, labels = str(found["Id"]), found["Labels"]
        state = "in use" if image in used else state_of(engine, labels, cache)
        tags = [str(tag) for tag in found.get("RepoTags") or () if tag != "<none>:<none>"]
        # Of one with another name, to push it or to keep it, somebody thinks otherwise.
        mine = labels.get(names.MADE_BY) == owners.project() and all(
            tag.startswith(_OURS) for tag in tags
        )
        size = found.get("Size")
        yield Thing(
            what="image",
            name=line(tags[0].removeprefix(_OURS) if tags else image[:19], 100),
            host="",
            state=state,
            size=size if isinstance(size, int) else None,
            who=line(labels.get(names.MADE_WHO, ""), 100),
            unowned="made of what is not today's" if mine and state == OLD else "",
            remove=partial(_remove, engine, tags or [image]),
        )


def _remove(engine: Engine, called: Iterable[str]) -> None:
    """Not by force: what uses it since it was looked at keeps it."""
    api: Any = engine.client.api
    for name in called:
        with telling(f"remove image {line(name, 100)}"), contextlib.suppress(NotFound):
            api.remove_image(name)
