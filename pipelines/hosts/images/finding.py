"""The image of a host: the one that is there if it is today's, else built or fetched."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import line
from pipelines.hosts.base import Events
from pipelines.hosts.engine.engine import Engine, System
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.images import record as names
from pipelines.hosts.images.bases import Ground, ground_of, pulled, refused
from pipelines.hosts.images.build import build, read_file
from pipelines.hosts.images.context import Plan, plan_image
from pipelines.hosts.images.record import Inputs, Record, read_record
from pipelines.hosts.images.wanted import image_named
from pipelines.toolchain.lock import Cache

_BY_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
_log = logging.getLogger(__name__)

_ONE = "3.11"  # any: what has all Pythons is the same for each
TODAY, OLD = "today's", "old"
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Image:
    """An image that an engine has."""

    id: str
    tag: str
    system: System
    python: str
    """Path of the Python inside, as Windows says it."""
    record: dict[str, Any]
    """What it was made from; empty for one that is not ours."""


def ensure(
    engine: Engine,
    what: str,
    python: str,
    cache: Cache,
    events: Events,
    *,
    base: str = "",
    tree: Path | None = None,
) -> Image:
    """The image that ``what`` names: of ours, or a reference by digest. Made if it is not there.

    Ours are ``sandbox`` and ``windows``; of them the one is taken whose key is today's. Where
    neither ``base`` nor ``tree`` is given, one counts as well that was made for another base by
    hand. Raises :class:`ConfigError` for an unknown or unpinned name and an engine of the wrong
    system, and what fetching and building raise.
    """
    if "@" in what or ":" in what:
        return _fetched(engine, what, python, cache, events)
    wanted = image_named(what)
    engine.require(wanted.system, f"image '{what}'")
    ground = ground_of(wanted, cache, engine.build, base=base, tree=tree)
    plan = plan_today(what, python, cache, ground)
    if (found := _there(engine, plan, by_hand=not base and tree is None)) is not None:
        return _described(engine, found, python, cache)
    if ground is None:
        raise refused(what, wanted, engine.build)
    image, record = build(engine, plan, ground, events)
    _keep(cache, record.bytes, record.sha256)
    return Image(image, plan.tag, engine.system, plan.python, record.told)


def find(engine: Engine, what: str, python: str, cache: Cache) -> Image | None:
    """The image of ours that a host would use, if the engine has it; nothing is made."""
    wanted = image_named(what)
    engine.require(wanted.system, f"image '{what}'")
    ground = ground_of(wanted, cache, engine.build, base="", tree=None)
    found = _there(engine, plan_today(what, python, cache, ground), by_hand=True)
    return None if found is None else _described(engine, found, python, cache)


def plan_today(what: str, python: str, cache: Cache, ground: Ground | None) -> Plan:
    """What an image would be made from now; without a ground only the rest of it is right."""
    nothing = names.Base(name="none", digest=f"sha256:{'0' * 64}", given=False)
    return plan_image(what, image_named(what), python, cache, ground.base if ground else nothing)


def state_of(engine: Engine, labels: dict[str, str], cache: Cache) -> str:
    """Whether an image of ours is what would be made today: ``today's``, ``old`` or why not known.

    One that was made for a base given by hand is today's if all the rest is.
    """
    what, python = labels.get(names.IMAGE, ""), labels.get(names.VERSION, "")
    if not what or not python:
        return OLD
    try:
        wanted = image_named(what)
        ground = ground_of(wanted, cache, engine.build, base="", tree=None)
        plan = plan_today(what, _ONE if python == names.ANY else python, cache, ground)
    except PipelineError as error:
        return f"not known: {error.message}"
    same = labels.get(names.KEY) == plan.inputs.key
    given = labels.get(names.GIVEN) == "given"
    return TODAY if same or (given and labels.get(names.MADE_OF) == plan.inputs.made_of) else OLD


def ours(engine: Engine) -> list[dict[str, Any]]:
    """Every image of ours that the engine has and that is whole, as the engine lists it."""
    with telling("list images"):
        return list(engine.client.api.images(filters={"label": names.HASH}))


def _there(engine: Engine, plan: Plan, *, by_hand: bool) -> dict[str, Any] | None:
    """The newest image that is ``plan``'s; of other bases only those that were given by hand."""
    candidates = sorted(ours(engine), key=lambda one: -int(one.get("Created", 0)))
    same = [one for one in candidates if one["Labels"].get(names.KEY) == plan.inputs.key]
    if not same and by_hand:
        made_of, given = plan.inputs.made_of, {names.GIVEN: "given"}
        same = [
            one
            for one in candidates
            if one["Labels"].get(names.MADE_OF) == made_of
            and given.items() <= one["Labels"].items()
        ]
    for one in same:
        about = engine.image(str(one["Id"]))
        record = _recorded(engine, about, plan.cache) if about is not None else None
        if record is not None and _is_of(record.inputs, plan.inputs, by_hand=by_hand):
            return about
    return None


def _is_of(made: Inputs, wanted: Inputs, *, by_hand: bool) -> bool:
    """Whether the record says so as well: anybody can put another label on an image."""
    if made.key == wanted.key:
        return True
    return by_hand and made.base.given and made.made_of == wanted.made_of


def _recorded(engine: Engine, about: dict[str, Any], cache: Cache) -> Record | None:
    """The record of an image as we made it; what others made of one has its labels, too."""
    try:
        return record_of(engine, about, cache)
    except HostError as error:
        _log.warning("%s", error.message)
        return None


def _fetched(engine: Engine, what: str, python: str, cache: Cache, events: Events) -> Image:
    """An image by its reference, which must have a digest."""
    if not _BY_DIGEST.fullmatch(what):
        raise ConfigError(
            f"image {what}: that is no image of ours and has no digest",
            hint="Name it as NAME@sha256:...; docker images --digests shows which it is.",
        )
    about = engine.image(what)
    if about is None:
        events.step(f"fetching image {what}")
        with events.bars() as bars:
            about = pulled(engine, what, bars, offline=cache.offline)
    digests = {str(one).rpartition("@")[2] for one in about.get("RepoDigests") or ()}
    if what.rpartition("@")[2] not in digests:
        raise ConfigError(
            f"image {what}: the engine has another one under that name: {about['Id']}",
            hint="Remove that one with docker rmi, then type the command again.",
        )
    return _described(engine, about, python, cache)


def _described(engine: Engine, about: dict[str, Any], python: str, cache: Cache) -> Image:
    """An image with its record, whose hash its label says."""
    system = about.get("Os")
    if system != engine.system:
        raise ConfigError(
            f"image {about['Id']} is for {line(system, 40)}, {engine.title} runs "
            f"{engine.system.title()} ones",
            hint="Name another image, or another engine.",
        )
    labels = (about.get("Config") or {}).get("Labels") or {}
    tag = next(iter(about.get("RepoTags") or ()), str(about["Id"]))
    record: dict[str, Any] = {}
    if names.HASH in labels and (known := _recorded(engine, about, cache)) is not None:
        record = known.told
    inside = str(labels.get(names.PYTHON, "")).replace("{python}", python)
    return Image(str(about["Id"]), tag, engine.system, inside, record)


def record_of(engine: Engine, about: dict[str, Any], cache: Cache) -> Record:
    """The record of an image of ours, kept here by its hash: a container need not be made for it.

    Raises :class:`HostError` if it is not the one that the image's label says, and for an image
    that somebody made of ours: its labels are inherited, its content is another.
    """
    said, image = str(about["Config"]["Labels"][names.HASH]), str(about["Id"])
    kept = cache.root / "image-records" / said if _HASH.fullmatch(said) else None
    data = kept.read_bytes() if kept is not None and kept.is_file() else b""
    if fresh := names.sha256(data) != said:
        data = read_file(engine, image, names.RECORD)
    record = read_record(data, said, f"image {image}")
    there = (names.layers_of(about)[:-1], names.start_of(about))
    if there != ([*record.found.layers], record.found.start):
        raise HostError(
            f"image {image} has our labels, but is not as its record says",
            hint="Somebody made it of one of ours, with docker commit or FROM: remove it "
            "(docker rmi), or name it by its digest.",
        )
    if fresh:
        _keep(cache, data, said)
    return record


def _keep(cache: Cache, data: bytes, sha256: str) -> None:
    path = cache.root / "image-records" / sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data)
