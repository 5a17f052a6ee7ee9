"""Our images on an engine, and which of them are unused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from docker.errors import NotFound

from pipelines.core.hosttext import line
from pipelines.hosts.base import OwnedItem
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.images import record as names
from pipelines.hosts.images.lookup import OLD, ours, state_of
from pipelines.toolchain.lock import Cache, load_lock

_OURS = "windows-cuda-wheels/"


def images(engine: Engine) -> Iterator[OwnedItem]:
    """Each image; those of this checkout with outdated inputs are marked as unowned."""
    api: Any = engine.client.api
    with engine_errors("list containers"):
        used = {str(container.get("ImageID")) for container in api.containers(all=True)}
    cache = Cache(load_lock(), offline=True)
    for found in ours(engine):
        image, labels = str(found["Id"]), found["Labels"]
        state = "in use" if image in used else state_of(engine, labels, cache)
        tags = [str(tag) for tag in found.get("RepoTags") or () if tag != "<none>:<none>"]
        # An image with an additional name may be kept or pushed on purpose.
        mine = labels.get(names.MADE_BY) == owners.project() and all(
            tag.startswith(_OURS) for tag in tags
        )
        size = found.get("Size")
        yield OwnedItem(
            what="image",
            name=line(tags[0].removeprefix(_OURS) if tags else image[:19], 100),
            host="",
            state=state,
            size=size if isinstance(size, int) else None,
            who=line(labels.get(names.MADE_WHO, ""), 100),
            unowned="its inputs have changed" if mine and state == OLD else "",
            remove=partial(_remove, engine, tags or [image]),
        )


def _remove(engine: Engine, called: Iterable[str]) -> None:
    """Not forced: if it has come into use meanwhile, it stays."""
    api: Any = engine.client.api
    for name in called:
        with engine_errors(f"remove image {line(name, 100)}"), contextlib.suppress(NotFound):
            api.remove_image(name)
