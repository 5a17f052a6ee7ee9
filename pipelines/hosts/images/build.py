"""Build an image under a scratch name, inspect it, add its record, and then name it."""

from __future__ import annotations

import collections
import contextlib
import io
import re
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from docker.errors import DockerException

from pipelines.core.errors import HostError, LockError, PipelineError, StorageError
from pipelines.core.files import disk_errors
from pipelines.core.hosttext import safe_text
from pipelines.hosts.base import Events
from pipelines.hosts.engine import containerfiles, owners
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.error_patterns import engine_errors, match_pattern
from pipelines.hosts.engine.manager import of_a_moment
from pipelines.hosts.images import record as names
from pipelines.hosts.images.bases import BaseImage
from pipelines.hosts.images.context import Plan
from pipelines.hosts.images.record import ImageContents, Record, read_survey
from pipelines.session.base import Bars

_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")
#: At the end of a scratch name: the process that builds.
_SCRATCH = re.compile(r"-([0-9a-f]{12}_\d+_[\w-]*)\.part$")
_RECENT = 3600  # seconds
#: Instructions that take time; the others only set metadata.
_SHOWN_STEPS = ("RUN", "FROM")
_SHOWN = 30  # lines of a failed build's log


def build_planned_image(
    engine: Engine, plan: Plan, base_image: BaseImage, events: Events
) -> tuple[str, Record]:
    """Build the image that ``plan`` describes; its id and its record.

    Until it is complete it has a scratch name, which is always removed. Raises the engine's
    errors as ours, with the last lines of the log, which is kept.
    """
    _sweep(engine, plan)
    scratch = f"{plan.tag}-{owners.process_identity().replace('/', '_')}.part"
    log = plan.cache.root / "image-logs" / f"{plan.name}-{plan.inputs.key[:12]}.log"
    with disk_errors(log.parent):
        log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(_scratch_directory(plan.cache.root)))
        events.step(f"image {plan.name}: collecting inputs")
        with events.bars() as bars:
            reference = _fetch_base_image(engine, plan, base_image, bars)
            wheels = plan.write(work / "context.tar", bars)
        stack.callback(_remove_scratch_tag, engine, scratch)
        arguments = {**plan.inputs.arguments, "BASE": reference}
        with _log_build_output(log, events, plan.name) as say:
            about = engine.build_image(
                work / "context.tar", scratch, say, buildargs=arguments, **plan.definition.build
            )
        record = _survey(engine, scratch, about, plan, wheels)
        image = _label_and_tag_image(engine, scratch, plan, record, work)
        _prune(engine, plan)
        return image, record


def _fetch_base_image(engine: Engine, plan: Plan, base_image: BaseImage, bars: Bars) -> str:
    try:
        return base_image.bring(engine, bars, offline=plan.cache.offline)
    except (HostError, LockError) as error:
        if base_image.base.given or plan.definition.system != "linux":
            raise
        typed = f"invoke image build --image {plan.name}"
        typed += f" --python {plan.inputs.python}" if plan.definition.per_python else ""
        typed += f" --engine {engine.name}" if engine.name else ""
        # docker load does not keep the digest: only the id identifies the image.
        raise type(error)(
            error.message,
            hint=f"Type: {typed} --tree DIR, with a Debian created as root by debootstrap "
            "--variant=minbase bookworm DIR. Or: docker save that image on a machine that "
            f"reaches it, docker load here, then {typed} --base sha256:... with the id that "
            "docker load prints.",
        ) from error


@contextlib.contextmanager
def _scratch_directory(root: Path) -> Iterator[str]:
    """Below the cache: a context is too large for a small /tmp."""
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".image-", dir=root) as work:
            yield work


@contextlib.contextmanager
def _log_build_output(log: Path, events: Events, name: str) -> Iterator[Any]:
    """Report the steps and log every line; a failed build's error has the last ones."""
    last: collections.deque[str] = collections.deque(maxlen=_SHOWN)
    began = time.monotonic()
    with disk_errors(log.parent), log.open("w", encoding="utf-8") as stream:

        def say(text: str) -> None:
            last.append(text)
            stream.write(f"{time.monotonic() - began:7.1f} {text}\n")
            stream.flush()
            if (step := _STEP.match(text)) and step[3].startswith(_SHOWN_STEPS):
                what = shorten(step[3], 44, placeholder=" ...")  # for 80 columns
                events.step(f"image {name}: {step[1]} of {step[2]}: {what}")

        try:
            yield say
        except PipelineError as error:
            tail = "\n".join(last)
            kind = type(error)
            if (known := match_pattern(tail)) and known[0].kind == "StorageError":
                kind = StorageError  # the engine only reports "a non-zero code"
            raise kind(
                f"{error.message}\n{safe_text(tail, 12_000)}",
                hint=f"{error.hint} Full log: {log}".strip(),
            ) from error


def _survey(
    engine: Engine, scratch: str, about: dict[str, Any], plan: Plan, wheels: dict[str, str]
) -> Record:
    """The record of the image just built."""
    data = read_image_file(engine, scratch, names.SURVEY)
    survey = read_survey(data, f"image {plan.name}")
    contents = ImageContents(
        packages=survey.packages,
        wheels=wheels,
        trees={name: content.tree for name, content in survey.roots.items()},
        survey=names.sha256_of_bytes(data),
        layers=tuple(names.layers_of(about)),
        start=names.start_of(about),
    )
    return Record.of(plan.inputs, contents)


def _label_and_tag_image(
    engine: Engine, scratch: str, plan: Plan, record: Record, work: Path
) -> str:
    """Add the record and its labels, then name the image; its id."""
    labels = {
        names.IMAGE: plan.name,
        names.KEY: record.key,
        names.MADE_OF: record.inputs.made_of,
        names.HASH: record.sha256,
        names.PYTHON: plan.definition.python if not plan.definition.per_python else plan.python,
        names.VERSION: plan.inputs.python,
        names.GIVEN: "given" if record.inputs.base.given else "lock",
        names.MADE_BY: owners.project_id(),
        names.MADE_WHO: owners.user_at_machine(),
    }
    lines = [
        f"FROM {scratch}",
        f"COPY record.json {names.image_file_path(names.RECORD, engine.system)}",
    ]
    context = work / "seal.tar"
    with tarfile.open(context, "w") as tar:
        for name, data in (
            ("Dockerfile", "\n".join(lines).encode()),
            ("record.json", record.bytes),
        ):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    about = engine.build_image(context, scratch, lambda _: None, labels=labels)
    image = str(about["Id"])
    repository, _, tag = plan.tag.rpartition(":")
    with engine_errors(f"tag image {plan.tag}"):
        engine.client.api.tag(image, repository, tag)
    return image


def read_image_file(engine: Engine, image: str, path: str) -> bytes:
    """A file of an image, from a container that is never started."""
    path = names.image_file_path(path, engine.system)
    with engine_errors(f"read {path} of image {image}"):
        container = engine.client.containers.create(image, labels=of_a_moment("look"))
        try:
            data = containerfiles.read_container_file(container, path, names.LIMIT)
        finally:
            container.remove(force=True)
    if data is None:
        raise HostError(f"image {image} has no {path}", hint="Type: invoke image build")
    return data


def _sweep(engine: Engine, plan: Plan) -> None:
    """Remove the scratch names of builds whose controllers were killed."""
    with engine_errors("list images"):
        listed = engine.client.api.images(name=plan.tag.partition(":")[0])
    for tag in (tag for image in listed for tag in image.get("RepoTags") or ()):
        owner = _SCRATCH.search(tag)
        if owner and owners.is_owner_alive(owner[1].replace("_", "/", 2)) is False:
            _remove_scratch_tag(engine, tag)


def _prune(engine: Engine, plan: Plan) -> None:
    """Remove the stages that earlier builds of this image have left, 0.5 GB each.

    The latest stay as the engine's cache, and those of a build that may be running.
    """
    mine = {"dangling": True, "label": f"{names.IMAGE}={plan.name}"}
    with contextlib.suppress(DockerException, OSError):
        for old in superseded_image_ids(engine.client.api.images(filters=mine)):
            with contextlib.suppress(DockerException):  # it has a container or a child image
                engine.client.api.remove_image(old)


def superseded_image_ids(listed: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of images in an engine's list that are an hour older than the latest."""
    made = {str(info["Id"]): int(info["Created"]) for info in listed}
    return [image for image, created in made.items() if created < max(made.values()) - _RECENT]


def _remove_scratch_tag(engine: Engine, scratch: str) -> None:
    """Remove the scratch name; the final name stays."""
    with contextlib.suppress(DockerException, OSError):
        engine.client.api.remove_image(scratch, noprune=True)
