"""The image of a host: the existing one if it is current, else built or fetched."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import safe_line
from pipelines.hosts.base import Events
from pipelines.hosts.engine.engine import Engine, Progress, System, report_layer_progress
from pipelines.hosts.engine.error_patterns import engine_errors, raise_event
from pipelines.hosts.images import record as names
from pipelines.hosts.images.bases import BaseImage, base_image_of, missing_base_error, pull_image
from pipelines.hosts.images.build import build_planned_image, read_image_file
from pipelines.hosts.images.context import Plan, plan_image
from pipelines.hosts.images.definitions import image_named
from pipelines.hosts.images.record import Inputs, Record, read_record
from pipelines.toolchain.lock import Cache

_BY_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
_log = logging.getLogger(__name__)

_ONE = "3.11"  # any: images with all Pythons are the same for each
TODAY, OLD = "today's", "old"
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Image:
    """An image on an engine."""

    id: str
    tag: str
    system: System
    python: str
    """Windows path of the Python inside."""
    record: dict[str, Any]
    """Its inputs; empty for an external image."""


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
    """The image that ``what`` names: one of ours, or a reference by digest. Created if missing.

    Ours are ``sandbox`` and ``windows``; the one with the current key is used. If neither ``base``
    nor ``tree`` is given, one with another base chosen by hand counts too. Raises
    :class:`ConfigError` for an unknown or unpinned name and an engine of the wrong system, and
    what fetching and building raise.
    """
    if "@" in what or ":" in what:
        return _fetched(engine, what, python, cache, events)
    definition = image_named(what)
    engine.require(definition.system, f"image '{what}'")
    base_image = base_image_of(definition, cache, engine.build, base=base, tree=tree)
    plan = current_plan(what, python, cache, base_image)
    if (existing := _existing(engine, plan, by_hand=not base and tree is None)) is not None:
        return _describe_image(engine, existing, python, cache)
    if base_image is None:
        raise missing_base_error(what, definition, engine.build)
    image, record = build_planned_image(engine, plan, base_image, events)
    _cache_image_record(cache, record.bytes, record.sha256)
    return Image(image, plan.tag, engine.system, plan.python, record.summary)


def find(engine: Engine, what: str, python: str, cache: Cache) -> Image | None:
    """The image of ours that a host would use, if the engine has it; nothing is created."""
    definition = image_named(what)
    engine.require(definition.system, f"image '{what}'")
    base_image = base_image_of(definition, cache, engine.build, base="", tree=None)
    image = _existing(engine, current_plan(what, python, cache, base_image), by_hand=True)
    return None if image is None else _describe_image(engine, image, python, cache)


def current_plan(what: str, python: str, cache: Cache, base_image: BaseImage | None) -> Plan:
    """The current inputs of an image; without a base image only the other inputs are right."""
    nothing = names.Base(name="none", digest=f"sha256:{'0' * 64}", given=False)
    return plan_image(
        what, image_named(what), python, cache, base_image.base if base_image else nothing
    )


def state_of(engine: Engine, labels: dict[str, str], cache: Cache) -> str:
    """Whether an image of ours is current: ``today's``, ``old`` or why unknown.

    One with a base chosen by hand is current if all its other inputs are.
    """
    what, python = labels.get(names.IMAGE, ""), labels.get(names.VERSION, "")
    if not what or not python:
        return OLD
    try:
        definition = image_named(what)
        base_image = base_image_of(definition, cache, engine.build, base="", tree=None)
        plan = current_plan(what, _ONE if python == names.ANY else python, cache, base_image)
    except PipelineError as error:
        return f"unknown: {error.message}"
    same = labels.get(names.KEY) == plan.inputs.key
    chosen = labels.get(names.GIVEN) == "given"
    return TODAY if same or (chosen and labels.get(names.MADE_OF) == plan.inputs.made_of) else OLD


def list_own_images(engine: Engine) -> list[dict[str, Any]]:
    """Every complete image of ours on the engine, as the engine lists it."""
    with engine_errors("list images"):
        return list(engine.client.api.images(filters={"label": names.HASH}))


def _existing(engine: Engine, plan: Plan, *, by_hand: bool) -> dict[str, Any] | None:
    """The newest image of ``plan``; with other bases only those chosen by hand."""
    candidates = sorted(
        list_own_images(engine), key=lambda candidate: -int(candidate.get("Created", 0))
    )
    same = [
        candidate
        for candidate in candidates
        if candidate["Labels"].get(names.KEY) == plan.inputs.key
    ]
    if not same and by_hand:
        made_of, chosen = plan.inputs.made_of, {names.GIVEN: "given"}
        same = [
            candidate
            for candidate in candidates
            if candidate["Labels"].get(names.MADE_OF) == made_of
            and chosen.items() <= candidate["Labels"].items()
        ]
    for candidate in same:
        about = engine.image(str(candidate["Id"]))
        record = _recorded(engine, about, plan.cache) if about is not None else None
        if record is not None and _matches_inputs(record.inputs, plan.inputs, by_hand=by_hand):
            return about
    return None


def _matches_inputs(made: Inputs, inputs: Inputs, *, by_hand: bool) -> bool:
    """Whether the record agrees: anybody can put another label on an image."""
    if made.key == inputs.key:
        return True
    return by_hand and made.base.given and made.made_of == inputs.made_of


def _recorded(engine: Engine, about: dict[str, Any], cache: Cache) -> Record | None:
    """The record of an image as we built it; an image derived from it has its labels, too."""
    try:
        return record_of(engine, about, cache)
    except HostError as error:
        _log.warning("%s", error.message)
        return None


def _fetched(engine: Engine, what: str, python: str, cache: Cache, events: Events) -> Image:
    """An image by its reference, which must have a digest."""
    if not _BY_DIGEST.fullmatch(what):
        raise ConfigError(
            f"image {what}: not one of our images, and has no digest",
            hint="Name it as NAME@sha256:...; docker images --digests shows the digest.",
        )
    about = engine.image(what)
    if about is None:
        events.step(f"fetching image {what}")
        with events.bars() as bars:
            about = pull_image(engine, what, bars, offline=cache.offline)
    digests = {str(digest).rpartition("@")[2] for digest in about.get("RepoDigests") or ()}
    if what.rpartition("@")[2] not in digests:
        raise ConfigError(
            f"image {what}: the engine has a different image under that name: {about['Id']}",
            hint="Remove it with docker rmi, then type the command again.",
        )
    return _describe_image(engine, about, python, cache)


def _describe_image(engine: Engine, about: dict[str, Any], python: str, cache: Cache) -> Image:
    """An image with its record, whose hash is in its label."""
    system = about.get("Os")
    if system != engine.system:
        raise ConfigError(
            f"image {about['Id']} is for {safe_line(system, 40)}, but {engine.title} runs "
            f"{engine.system.title()} images",
            hint="Name another image, or another engine.",
        )
    labels = (about.get("Config") or {}).get("Labels") or {}
    tag = next(iter(about.get("RepoTags") or ()), str(about["Id"]))
    record: dict[str, Any] = {}
    if names.HASH in labels and (known := _recorded(engine, about, cache)) is not None:
        record = known.summary
    inside = str(labels.get(names.PYTHON, "")).replace("{python}", python)
    return Image(str(about["Id"]), tag, engine.system, inside, record)


def record_of(engine: Engine, about: dict[str, Any], cache: Cache) -> Record:
    """The record of an image of ours, cached here by its hash to avoid creating a container.

    Raises :class:`HostError` if it does not match the image's label, and for an image derived
    from one of ours: it inherits the labels but has other contents.
    """
    sha256, image = str(about["Config"]["Labels"][names.HASH]), str(about["Id"])
    cached = cache.root / "image-records" / sha256 if _HASH.fullmatch(sha256) else None
    data = cached.read_bytes() if cached is not None and cached.is_file() else b""
    if fresh := names.sha256_of_bytes(data) != sha256:
        data = read_image_file(engine, image, names.RECORD)
    record = read_record(data, sha256, f"image {image}")
    there = (names.layers_of(about)[:-1], names.start_of(about))
    if there != ([*record.found.layers], record.found.start):
        raise HostError(
            f"image {image} has our labels but does not match its record",
            hint="It was derived from one of our images with docker commit or FROM: remove it "
            "(docker rmi), or name it by its digest.",
        )
    if fresh:
        _cache_image_record(cache, data, sha256)
    return record


def _cache_image_record(cache: Cache, data: bytes, sha256: str) -> None:
    write_atomic(cache.root / "image-records" / sha256, data)


_TAGGED = re.compile(r"(?P<name>[^\s@]*[^\s@:/]):(?P<tag>[\w][\w.-]{0,127})")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

#: License restrictions of images, by their system.
LICENCE = {
    "windows": "It contains Visual Studio Build Tools: only holders of a Visual Studio license may "
    "use it, so push it to a private registry "
    "(https://github.com/microsoft/vs-dockerfiles).",
    "linux": "It contains a stub toolchain, not Visual Studio: wheels built with it cannot be "
    "published.",
}


def push_image(engine: Engine, image: Image, to: str, progress: Progress) -> str:
    """Push ``image`` as ``to``, NAME:TAG; returns the reference for a host's configuration.

    Raises :class:`ConfigError` for a name without a tag, :class:`HostError` if the registry
    returns no digest, and what ``engine_errors`` does.
    """
    match = _TAGGED.fullmatch(to)
    if match is None:
        raise ConfigError(
            f"--to {to}: expected a name with a tag",
            hint="For example --to registry.example:5000/wcw/sandbox:1",
        )
    digest = ""
    with engine_errors(f"push image {to}"):
        engine.client.api.tag(image.id, match["name"], match["tag"])
        for event in engine.client.api.push(match["name"], match["tag"], stream=True, decode=True):
            raise_event(event)
            report_layer_progress(event, progress)
            pushed = event.get("aux")
            digest = (
                str(pushed["Digest"]) if isinstance(pushed, dict) and "Digest" in pushed else digest
            )
    if not _DIGEST.fullmatch(digest):
        raise HostError(
            f"push image {to}: the registry returned no digest",
            hint="Check that it is there: docker pull.",
        )
    return f"{match['name']}@{digest}"
