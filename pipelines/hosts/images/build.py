"""Build an image: to a scratch name, looked into, sealed with its record, and only then named."""

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
from pipelines.core.hosttext import safe
from pipelines.hosts.base import Events
from pipelines.hosts.engine import containerfiles, owners
from pipelines.hosts.engine.boxes import of_a_moment
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.refusals import telling, understood
from pipelines.hosts.images import record as names
from pipelines.hosts.images.bases import Ground
from pipelines.hosts.images.context import Plan
from pipelines.hosts.images.record import Found, Record, read_survey
from pipelines.session.base import Bars

_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")
#: At the end of a scratch name: who builds.
_SCRATCH = re.compile(r"-([0-9a-f]{12}_\d+_[\w-]*)\.part$")
_RECENT = 3600  # seconds
#: What takes time; the other instructions only note something.
_SHOWN_STEPS = ("RUN", "FROM")
_SHOWN = 30  # lines of a failed build's log


def build(engine: Engine, plan: Plan, ground: Ground, events: Events) -> tuple[str, Record]:
    """Build the image that ``plan`` describes; its id and its record.

    Until it is whole it has a scratch name, which goes whatever happens. Raises what the engine
    refuses as our errors, with the last lines of the log, which is kept.
    """
    _sweep(engine, plan)
    scratch = f"{plan.tag}-{owners.me().replace('/', '_')}.part"
    log = plan.cache.root / "image-logs" / f"{plan.name}-{plan.inputs.key[:12]}.log"
    with disk_errors(log.parent):
        log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(_scratch_directory(plan.cache.root)))
        events.step(f"image {plan.name}: gathering what it is made of")
        with events.bars() as bars:
            reference = _brought(engine, plan, ground, bars)
            wheels = plan.write(work / "context.tar", bars)
        stack.callback(_forget, engine, scratch)
        arguments = {**plan.inputs.arguments, "BASE": reference}
        with _logged(log, events, plan.name) as say:
            about = engine.build_image(
                work / "context.tar", scratch, say, buildargs=arguments, **plan.wanted.build
            )
        record = _survey(engine, scratch, about, plan, wheels)
        image = _seal(engine, scratch, plan, record, work)
        _prune(engine, plan)
        return image, record


def _brought(engine: Engine, plan: Plan, ground: Ground, bars: Bars) -> str:
    try:
        return ground.bring(engine, bars, offline=plan.cache.offline)
    except (HostError, LockError) as error:
        if ground.base.given or plan.wanted.system != "linux":
            raise
        typed = f"invoke image build --image {plan.name}"
        typed += f" --python {plan.inputs.python}" if plan.wanted.per_python else ""
        typed += f" --engine {engine.name}" if engine.name else ""
        # An engine does not know the digest of what docker load brings: its id is what is left.
        raise type(error)(
            error.message,
            hint=f"Type: {typed} --tree DIR, with a Debian that debootstrap --variant=minbase "
            f"bookworm DIR has made as root. Or: docker save that image where it is reached, "
            f"docker load here, then {typed} --base sha256:..., the id that docker load prints.",
        ) from error


@contextlib.contextmanager
def _scratch_directory(root: Path) -> Iterator[str]:
    """Below the cache: a context is too large for a small /tmp."""
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".image-", dir=root) as work:
            yield work


@contextlib.contextmanager
def _logged(log: Path, events: Events, name: str) -> Iterator[Any]:
    """Tell the steps, keep every line; of a build that fails the last ones are in the error."""
    last: collections.deque[str] = collections.deque(maxlen=_SHOWN)
    began = time.monotonic()
    with disk_errors(log.parent), log.open("w", encoding="utf-8") as stream:

        def say(text: str) -> None:
            last.append(text)
            stream.write(f"{time.monotonic() - began:7.1f} {text}\n")
            stream.flush()
            if (step := _STEP.match(text)) and step[3].startswith(_SHOWN_STEPS):
                what = shorten(step[3], 44, placeholder=" ...")  # a line of 80 columns
                events.step(f"image {name}: {step[1]} of {step[2]}: {what}")

        try:
            yield say
        except PipelineError as error:
            tail = "\n".join(last)
            kind = type(error)
            if (known := understood(tail)) and known[0].kind == "StorageError":
                kind = StorageError  # the engine itself says no more than "a non-zero code"
            raise kind(
                f"{error.message}\n{safe(tail, 12_000)}",
                hint=f"{error.hint} The whole log: {log}".strip(),
            ) from error


def _survey(
    engine: Engine, scratch: str, about: dict[str, Any], plan: Plan, wheels: dict[str, str]
) -> Record:
    """The record of what has just been built."""
    data = read_file(engine, scratch, names.SURVEY)
    survey = read_survey(data, f"image {plan.name}")
    found = Found(
        packages=survey.packages,
        wheels=wheels,
        trees={name: content.tree for name, content in survey.roots.items()},
        survey=names.sha256(data),
        layers=tuple(names.layers_of(about)),
        start=names.start_of(about),
    )
    return Record.of(plan.inputs, found)


def _seal(engine: Engine, scratch: str, plan: Plan, record: Record, work: Path) -> str:
    """Put the record and its labels on it, then give it its name; its id."""
    labels = {
        names.IMAGE: plan.name,
        names.KEY: record.key,
        names.MADE_OF: record.inputs.made_of,
        names.HASH: record.sha256,
        names.PYTHON: plan.wanted.python if not plan.wanted.per_python else plan.python,
        names.VERSION: plan.inputs.python,
        names.GIVEN: "given" if record.inputs.base.given else "lock",
        names.MADE_BY: owners.project(),
        names.MADE_WHO: owners.who(),
    }
    lines = [f"FROM {scratch}", f"COPY record.json {names.place(names.RECORD, engine.system)}"]
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
    with telling(f"tag image {plan.tag}"):
        engine.client.api.tag(image, repository, tag)
    return image


def read_file(engine: Engine, image: str, path: str) -> bytes:
    """A file of an image, from a container that is never started."""
    path = names.place(path, engine.system)
    with telling(f"read {path} of image {image}"):
        container = engine.client.containers.create(image, labels=of_a_moment("look"))
        try:
            found = containerfiles.read_file(container, path, names.LIMIT)
        finally:
            container.remove(force=True)
    if found is None:
        raise HostError(f"image {image} has no {path}", hint="Type: invoke image build")
    return found


def _sweep(engine: Engine, plan: Plan) -> None:
    """Forget the scratch names of builds whose controllers are gone: killed, they could not."""
    with telling("list images"):
        listed = engine.client.api.images(name=plan.tag.partition(":")[0])
    for tag in (tag for one in listed for tag in one.get("RepoTags") or ()):
        owner = _SCRATCH.search(tag)
        if owner and owners.alive(owner[1].replace("_", "/", 2)) is False:
            _forget(engine, tag)


def _prune(engine: Engine, plan: Plan) -> None:
    """Remove what earlier builds of this image have left: 0.5 GB each of stages without a name.

    The latest stay as the engine's cache, and those of a build that may be going on.
    """
    mine = {"dangling": True, "label": f"{names.IMAGE}={plan.name}"}
    with contextlib.suppress(DockerException, OSError):
        for old in outdated(engine.client.api.images(filters=mine)):
            with contextlib.suppress(DockerException):  # a container of it, or one that needs it
                engine.client.api.remove_image(old)


def outdated(listed: Iterable[Mapping[str, Any]]) -> list[str]:
    """Of the images in an engine's list, those that are an hour older than the latest; ids."""
    made = {str(one["Id"]): int(one["Created"]) for one in listed}
    return [image for image, created in made.items() if created < max(made.values()) - _RECENT]


def _forget(engine: Engine, scratch: str) -> None:
    """Take the scratch name away; what has its final name keeps that."""
    with contextlib.suppress(DockerException, OSError):
        engine.client.api.remove_image(scratch, noprune=True)
