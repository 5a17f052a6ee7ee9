"""What the pipeline has created on an engine: owner, size, and whether it is used."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from docker.errors import NotFound

from pipelines.core.hosttext import line
from pipelines.hosts.base import OwnedItem
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.manager import LABEL


def items(engine: Engine, keeps: Mapping[str, bool], kinds: Collection[str]) -> Iterator[OwnedItem]:
    """Everything of this and other checkouts.

    ``keeps``: this checkout's hosts, and whether their containers are persistent; ``kinds``:
    their kinds.
    """
    mine = owners.project()
    api: Any = engine.client.api
    with engine_errors("list containers and volumes"):
        containers = api.containers(all=True, size=True, filters={"label": f"{LABEL}project"})
        usage = {str(v["Name"]): v for v in api.df().get("Volumes") or ()}
        volumes = api.volumes(filters={"label": f"{LABEL}project"}).get("Volumes") or ()
    for item in containers:
        labels = _labels(item)
        ours = labels.get("project") == mine
        name = line(str((item.get("Names") or ["?"])[0]).lstrip("/"), 100)
        yield OwnedItem(
            what=labels.get("kind", "?"),
            name=name,
            host=labels.get("host", ""),
            state=line(str(item.get("State", "")), 40),
            size=_number(item.get("SizeRw")),
            who=labels.get("who", "") + ("" if ours else ", another checkout"),
            unowned=_unowned_container(labels, keeps) if ours else "",
            remove=partial(_remove_container, engine, str(item.get("Id"))),
        )
    for item in volumes:
        labels = _labels(item)
        ours = labels.get("project") == mine
        about = usage.get(str(item.get("Name")), {}).get("UsageData") or {}
        used = _number(about.get("RefCount"))
        yield OwnedItem(
            what=labels.get("what", "volume"),
            name=line(str(item.get("Name", "?")), 100),
            host=labels.get("host", ""),
            state="in use" if used else "kept",
            size=_number(about.get("Size")),
            who=labels.get("who", "") + ("" if ours else ", another checkout"),
            unowned=_unowned_volume(labels, keeps, kinds) if ours and not used else "",
            remove=partial(_remove_volume, engine, str(item.get("Name"))),
        )


def _remove_container(engine: Engine, name: str) -> None:
    api: Any = engine.client.api
    with engine_errors(f"remove container {name[:12]}"), contextlib.suppress(NotFound):
        api.remove_container(name, force=True, v=True)


def _remove_volume(engine: Engine, name: str) -> None:
    api: Any = engine.client.api
    with engine_errors(f"remove volume {line(name)}"), contextlib.suppress(NotFound):
        api.remove_volume(name)


def _labels(item: Mapping[str, Any]) -> dict[str, str]:
    labels = item.get("Labels") or {}
    return {
        str(key).removeprefix(LABEL): line(value, 200)
        for key, value in dict(labels).items()
        if str(key).startswith(LABEL)
    }


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _unowned_container(labels: Mapping[str, str], keeps: Mapping[str, bool]) -> str:
    if labels.get("keep") == "1":
        return (
            ""
            if keeps.get(labels.get("host", ""))
            else "pipeline.yaml has no such host with keep: true"
        )
    if owners.alive(labels.get("owner", "")) is False:
        return "its controller is gone"
    return ""


def _unowned_volume(
    labels: Mapping[str, str], keeps: Mapping[str, bool], kinds: Collection[str]
) -> str:
    # A golden disk has the label of the host that made it, but hosts with the same keys share it.
    if labels.get("kind") == "golden" and "vm" in kinds:
        return ""
    return "" if labels.get("host") in keeps else "pipeline.yaml has no such host"
