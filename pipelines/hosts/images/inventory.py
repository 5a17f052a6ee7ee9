"""What the pipeline has created on an engine: owner, size, and whether it is used."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from docker.errors import NotFound

from pipelines.core.hosttext import safe_line
from pipelines.hosts.base import OwnedItem
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.manager import LABEL
from pipelines.hosts.images import record as names
from pipelines.hosts.images.lookup import OLD, list_own_images, state_of
from pipelines.toolchain.lock import Cache, load_lock


def list_owned_items(
    engine: Engine, keeps: Mapping[str, bool], kinds: Collection[str]
) -> Iterator[OwnedItem]:
    """Everything of this and other checkouts.

    ``keeps``: this checkout's hosts, and whether their containers are persistent; ``kinds``:
    their kinds.
    """
    mine = owners.project_id()
    api: Any = engine.client.api
    with engine_errors("list containers and volumes"):
        containers = api.containers(all=True, size=True, filters={"label": f"{LABEL}project"})
        usage = {str(v["Name"]): v for v in api.df().get("Volumes") or ()}
        volumes = api.volumes(filters={"label": f"{LABEL}project"}).get("Volumes") or ()
    for item in containers:
        labels = _labels(item)
        own = labels.get("project") == mine
        name = safe_line(str((item.get("Names") or ["?"])[0]).lstrip("/"), 100)
        yield OwnedItem(
            what=labels.get("kind", "?"),
            name=name,
            host=labels.get("host", ""),
            state=safe_line(str(item.get("State", "")), 40),
            size=_nonnegative_int(item.get("SizeRw")),
            who=labels.get("who", "") + ("" if own else ", another checkout"),
            unowned=_unowned_container(labels, keeps) if own else "",
            remove=partial(_remove_container, engine, str(item.get("Id"))),
        )
    for item in volumes:
        labels = _labels(item)
        own = labels.get("project") == mine
        about = usage.get(str(item.get("Name")), {}).get("UsageData") or {}
        used = _nonnegative_int(about.get("RefCount"))
        yield OwnedItem(
            what=labels.get("what", "volume"),
            name=safe_line(str(item.get("Name", "?")), 100),
            host=labels.get("host", ""),
            state="in use" if used else "kept",
            size=_nonnegative_int(about.get("Size")),
            who=labels.get("who", "") + ("" if own else ", another checkout"),
            unowned=_unowned_volume(labels, keeps, kinds) if own and not used else "",
            remove=partial(_remove_volume, engine, str(item.get("Name"))),
        )


def _remove_container(engine: Engine, name: str) -> None:
    api: Any = engine.client.api
    with engine_errors(f"remove container {name[:12]}"), contextlib.suppress(NotFound):
        api.remove_container(name, force=True, v=True)


def _remove_volume(engine: Engine, name: str) -> None:
    api: Any = engine.client.api
    with engine_errors(f"remove volume {safe_line(name)}"), contextlib.suppress(NotFound):
        api.remove_volume(name)


def _labels(item: Mapping[str, Any]) -> dict[str, str]:
    labels = item.get("Labels") or {}
    return {
        str(key).removeprefix(LABEL): safe_line(value, 200)
        for key, value in dict(labels).items()
        if str(key).startswith(LABEL)
    }


def _nonnegative_int(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _unowned_container(labels: Mapping[str, str], keeps: Mapping[str, bool]) -> str:
    if labels.get("keep") == "1":
        return (
            ""
            if keeps.get(labels.get("host", ""))
            else "pipeline.yaml has no such host with keep: true"
        )
    if owners.is_owner_alive(labels.get("owner", "")) is False:
        return "its controller is gone"
    return ""


def _unowned_volume(
    labels: Mapping[str, str], keeps: Mapping[str, bool], kinds: Collection[str]
) -> str:
    # A golden disk has the label of the host that made it, but hosts with the same keys share it.
    if labels.get("kind") == "golden" and "vm" in kinds:
        return ""
    return "" if labels.get("host") in keeps else "pipeline.yaml has no such host"


_OURS = "windows-cuda-wheels/"


def list_image_items(engine: Engine) -> Iterator[OwnedItem]:
    """Each image; those of this checkout with outdated inputs are marked as unowned."""
    api: Any = engine.client.api
    with engine_errors("list containers"):
        used = {str(container.get("ImageID")) for container in api.containers(all=True)}
    cache = Cache(load_lock(), offline=True)
    for found in list_own_images(engine):
        image, labels = str(found["Id"]), found["Labels"]
        state = "in use" if image in used else state_of(engine, labels, cache)
        tags = [str(tag) for tag in found.get("RepoTags") or () if tag != "<none>:<none>"]
        # An image with an additional name may be kept or pushed on purpose.
        mine = labels.get(names.MADE_BY) == owners.project_id() and all(
            tag.startswith(_OURS) for tag in tags
        )
        size = found.get("Size")
        yield OwnedItem(
            what="image",
            name=safe_line(tags[0].removeprefix(_OURS) if tags else image[:19], 100),
            host="",
            state=state,
            size=size if isinstance(size, int) else None,
            who=safe_line(labels.get(names.MADE_WHO, ""), 100),
            unowned="its inputs have changed" if mine and state == OLD else "",
            remove=partial(_remove_unused_images, engine, tags or [image]),
        )


def _remove_unused_images(engine: Engine, called: Iterable[str]) -> None:
    """Not forced: if it has come into use meanwhile, it stays."""
    api: Any = engine.client.api
    for name in called:
        with engine_errors(f"remove image {safe_line(name, 100)}"), contextlib.suppress(NotFound):
            api.remove_image(name)
