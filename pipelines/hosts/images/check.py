"""Compare a running container with the record of its image: by the hash of every file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from docker.models.containers import Container

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.hosttext import line
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.images import record as names
from pipelines.hosts.images.build import read_file
from pipelines.hosts.images.finding import record_of
from pipelines.hosts.images.record import Record, Survey, read_survey
from pipelines.hosts.images.wanted import image_named
from pipelines.toolchain.lock import Cache

_SHOWN = 5  # names of what differs


@dataclass(frozen=True)
class Part:
    """A directory, or the packages: what was recorded, and what is there."""

    name: str
    recorded: int
    there: int
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    bytecode: int = 0
    """Files that Python has written there since; they are not compared."""

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.changed or self.missing or self.added)

    @property
    def told(self) -> str:
        """In what it differs, in words."""
        kinds = {"changed": self.changed, "missing": self.missing, "added": self.added}
        rows = [
            f"{len(found)} {word}: {', '.join(line(name, 120) for name in found[:_SHOWN])}"
            + (" ..." if len(found) > _SHOWN else "")
            for word, found in kinds.items()
            if found
        ]
        if self.bytecode:
            rows.append(f"{self.bytecode} files of byte code: not checked")
        return "; ".join(rows)


@dataclass(frozen=True)
class Checked:
    """A container beside its image."""

    container: str
    image: str
    record: Record
    parts: tuple[Part, ...]
    unchecked: tuple[str, ...] = field(default=())
    """What could not be looked at, and why."""

    @property
    def same(self) -> bool:
        """Whether nothing differs, and all was looked at."""
        return not self.unchecked and all(part.same for part in self.parts)


def check(engine: Engine, container: Container, cache: Cache) -> Checked:
    """Survey a running container as its image was surveyed, and compare.

    Raises :class:`ConfigError` for an image that has no record, :class:`HostError` where image or
    container do not tell.
    """
    image = str((container.attrs or {})["Image"])
    about = engine.image(image)
    labels = ((about or {}).get("Config") or {}).get("Labels") or {}
    if about is None or names.HASH not in labels:
        raise ConfigError(
            f"container '{container.name}' is of image {image}, which has no record of ours",
            hint="Only images that invoke image build has made have one.",
        )
    record = record_of(engine, about, cache)
    data = read_file(engine, image, names.SURVEY)
    script = read_file(engine, image, names.SURVEYOR)
    expected = {
        "survey": (names.sha256(data), record.found.survey),
        "surveyor": (names.sha256(script), record.inputs.files.get("scripts/survey.py")),
    }
    for what, (found, said) in expected.items():
        if found != said:
            raise HostError(
                f"image {image}: its {what} has sha256 {found}, its record says {said}",
                hint="Somebody changed that image: remove it, then: invoke image build",
            )
    then = read_survey(data, f"image {image}")
    now = _survey(engine, container, record, then, script.decode("utf-8"))
    parts = [_files(name, then, now) for name in then.roots if name in now.roots]
    lacking = [name for name in then.roots if name not in now.roots]
    packages = _compared("packages", then.packages, now.packages)
    return Checked(
        container=str(container.name),
        image=image,
        record=record,
        parts=(*parts, packages),
        unchecked=tuple(f"{name}: the container says nothing of it" for name in lacking),
    )


def _survey(
    engine: Engine, container: Container, record: Record, then: Survey, script: str
) -> Survey:
    """What is in the container now, by the surveyor of its image and not by its own."""
    program = image_named(record.inputs.image).survey
    roots = [f"{name}={content.path}" for name, content in then.roots.items()]
    where = f"container '{container.name}'"
    with telling(f"look into {where}"):
        api = engine.client.api
        made = api.exec_create(container.id, [program, "-c", script, *roots])
        out, err, size = [], [], 0
        for text, said in api.exec_start(made["Id"], stream=True, demux=True):
            out.append(text or b"")
            err.append(said or b"")
            size += len(out[-1]) + len(err[-1])
            if size > names.LIMIT:
                raise HostError(f"{where} says more than a survey of it can be")
        code = api.exec_inspect(made["Id"]).get("ExitCode")
    if code:
        last = line(b"".join(err).decode("utf-8", "replace")[-600:], 600)
        raise HostError(
            f"{where} could not be surveyed, exit code {code}: {last}",
            hint="Does it still run? Type: docker ps",
        )
    return read_survey(b"".join(out), where)


def _files(name: str, then: Survey, now: Survey) -> Part:
    return _compared(name, then.roots[name].files, now.roots[name].files)


def _compared(name: str, then: dict[str, Any], now: dict[str, Any]) -> Part:
    added = [path for path in now if path not in then]
    bytecode = [path for path in added if _is_bytecode(path)]
    return Part(
        name=name,
        recorded=len(then),
        there=len(now),
        changed=_sorted(path for path in then if path in now and now[path] != then[path]),
        missing=_sorted(path for path in then if path not in now),
        added=_sorted(path for path in added if not _is_bytecode(path)),
        bytecode=len(bytecode),
    )


def _is_bytecode(path: str) -> bool:
    return path.endswith(".pyc") and "__pycache__/" in path


def _sorted(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(paths))


def as_json(found: Checked) -> dict[str, Any]:
    """For programs."""
    parts = [
        {
            **{key: getattr(part, key) for key in ("name", "recorded", "there", "bytecode")},
            **{key: list(getattr(part, key)) for key in ("changed", "missing", "added")},
        }
        for part in found.parts
    ]
    made = {
        "container": found.container,
        "image": found.image,
        "key": found.record.key,
        "same": found.same,
        "parts": parts,
        "unchecked": list(found.unchecked),
    }
    return dict(json.loads(json.dumps(made)))
