"""What the pipeline has made on an engine: whose it is, how large, and whether it is used."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from docker.errors import NotFound

from pipelines.core.hosttext import line
from pipelines.hosts.base import Thing
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.boxes import LABEL
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.refusals import telling


def items(engine: Engine, keeps: Mapping[str, bool], kinds: Collection[str]) -> Iterator[Thing]:
    """Everything of ours, and of other checkouts.

    ``keeps``: this checkout's hosts, and whether their containers are lasting ones; ``kinds``:
    what kinds of hosts they are.
    """
    mine = owners.project()
    api: Any = engine.client.api
    with telling("list containers and volumes"):
        containers = api.containers(all=True, size=True, filters={"label": f"{LABEL}project"})
        usage = {str(v["Name"]): v for v in api.df().get("Volumes") or ()}
        volumes = api.volumes(filters={"label": f"{LABEL}project"}).get("Volumes") or ()
    for found in containers:
        labels = _labels(found)
        ours = labels.get("project") == mine
        name = line(str((found.get("Names") or ["?"])[0]).lstrip("/"), 100)
        yield Thing(
            what=labels.get("kind", "?"),
            name=name,
            host=labels.get("host", ""),
            state=line(str(found.get("State", "")), 40),
            size=_number(found.get("SizeRw")),
            who=labels.get("who", "") + ("" if ours else ", another checkout"),
            unowned=_unowned_container(labels, keeps) if ours else "",
            remove=partial(_remove_container, engine, str(found.get("Id"))),
        )
    for found in volumes:
        labels = _labels(found)
        ours = labels.get("project") == mine
        about = usage.get(str(found.get("Name")), {}).get("UsageData") or {}
        used = _number(about.get("RefCount"))
        yield Thing(
            what=labels.get("what", "volume"),
            name=line(str(found.get("Name", "?")), 100),
            host=labels.get("host", ""),
            state="in use" if used else "kept",
            size=_number(about.get("Size")),
            who=labels.get("who", "") + ("" if ours else ", another checkout"),
            unowned=_unowned_volume(labels, keeps, kinds) if ours and not used else "",
            remove=partial(_remove_volume, engine, str(found.get("Name"))),
        )


def _remove_container(engine: Engine, name: str) -> None:
    api: Any = engine.client.api
    with telling(f"remove container {name[:12]}"), contextlib.suppress(NotFound):
        api.remove_container(name, force=True, v=True)


def _remove_volume(engine: Engine, name: str) -> None:
    api: Any = engine.client.api
    with telling(f"remove volume {line(name)}"), contextlib.suppress(NotFound):
        api.remove_volume(name)


def _labels(found: Mapping[str, Any]) -> dict[str, str]:
    told = found.get("Labels") or {}
    return {
        str(key).removeprefix(LABEL): line(value, 200)
        for key, value in dict(told).items()
        if str(key).startswith(LABEL)
    }


def _number(told: object) -> int | None:
    return told if isinstance(told, int) and told >= 0 else None


def _unowned_container(labels: Mapping[str, str], keeps: Mapping[str, bool]) -> str:
    if labels.get("keep") == "1":
        return "" if keeps.get(labels.get("host", "")) else "pipeline.yaml has no such lasting host"
    if owners.alive(labels.get("owner", "")) is False:
        return "its controller is gone"
    return ""


def _unowned_volume(
    labels: Mapping[str, str], keeps: Mapping[str, bool], kinds: Collection[str]
) -> str:
    # A golden disk has the label of the host that made it; others with the same keys use it, too.
    if labels.get("kind") == "golden" and "vm" in kinds:
        return ""
    return "" if labels.get("host") in keeps else "pipeline.yaml has no such host"
