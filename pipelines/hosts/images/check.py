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
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.images import record as names
from pipelines.hosts.images.build import read_file
from pipelines.hosts.images.definitions import image_named
from pipelines.hosts.images.lookup import record_of
from pipelines.hosts.images.record import Record, Survey, read_survey
from pipelines.toolchain.lock import Cache

_SHOWN = 5  # names of differing files


@dataclass(frozen=True)
class Part:
    """A directory, or the packages: the recorded state and the current one."""

    name: str
    recorded: int
    there: int
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    bytecode: int = 0
    """Byte-code files that Python has written since; they are not compared."""

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.changed or self.missing or self.added)

    @property
    def summary(self) -> str:
        """A description of the differences."""
        kinds = {"changed": self.changed, "missing": self.missing, "added": self.added}
        rows = [
            f"{len(files)} {word}: {', '.join(line(name, 120) for name in files[:_SHOWN])}"
            + (" ..." if len(files) > _SHOWN else "")
            for word, files in kinds.items()
            if files
        ]
        if self.bytecode:
            rows.append(f"{self.bytecode} byte-code files: not checked")
        return "; ".join(rows)


@dataclass(frozen=True)
class Checked:
    """A container compared with its image."""

    container: str
    image: str
    record: Record
    parts: tuple[Part, ...]
    unchecked: tuple[str, ...] = field(default=())
    """What could not be inspected, and why."""

    @property
    def same(self) -> bool:
        """Whether nothing differs and everything was inspected."""
        return not self.unchecked and all(part.same for part in self.parts)


def check(engine: Engine, container: Container, cache: Cache) -> Checked:
    """Survey a running container in the same way as its image, and compare.

    Raises :class:`ConfigError` for an image without a record, :class:`HostError` if image or
    container cannot be read.
    """
    image = str((container.attrs or {})["Image"])
    about = engine.image(image)
    labels = ((about or {}).get("Config") or {}).get("Labels") or {}
    if about is None or names.HASH not in labels:
        raise ConfigError(
            f"container '{container.name}' uses image {image}, which has no record of ours",
            hint="Only images created by invoke image build have one.",
        )
    record = record_of(engine, about, cache)
    data = read_file(engine, image, names.SURVEY)
    script = read_file(engine, image, names.SURVEYOR)
    expected = {
        "survey": (names.sha256(data), record.found.survey),
        "surveyor": (names.sha256(script), record.inputs.files.get("scripts/survey.py")),
    }
    for what, (actual, recorded) in expected.items():
        if actual != recorded:
            raise HostError(
                f"image {image}: its {what} has sha256 {actual}, its record says {recorded}",
                hint="The image was modified: remove it, then: invoke image build",
            )
    then = read_survey(data, f"image {image}")
    now = _survey(engine, container, record, then, script.decode("utf-8"))
    parts = [_files(name, then, now) for name in then.roots if name in now.roots]
    missing = [name for name in then.roots if name not in now.roots]
    packages = _compared("packages", then.packages, now.packages)
    return Checked(
        container=str(container.name),
        image=image,
        record=record,
        parts=(*parts, packages),
        unchecked=tuple(f"{name}: not reported by the container" for name in missing),
    )


def _survey(
    engine: Engine, container: Container, record: Record, then: Survey, script: str
) -> Survey:
    """The container's current contents, by the surveyor of its image and not its own."""
    program = image_named(record.inputs.image).survey
    roots = [f"{name}={content.path}" for name, content in then.roots.items()]
    where = f"container '{container.name}'"
    with engine_errors(f"inspect {where}"):
        api = engine.client.api
        made = api.exec_create(container.id, [program, "-c", script, *roots])
        out, err, size = [], [], 0
        for text, errors in api.exec_start(made["Id"], stream=True, demux=True):
            out.append(text or b"")
            err.append(errors or b"")
            size += len(out[-1]) + len(err[-1])
            if size > names.LIMIT:
                raise HostError(f"the survey of {where} is too large")
        code = api.exec_inspect(made["Id"]).get("ExitCode")
    if code:
        last = line(b"".join(err).decode("utf-8", "replace")[-600:], 600)
        raise HostError(
            f"{where} could not be surveyed, exit code {code}: {last}",
            hint="Check that it is still running: docker ps",
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


def as_json(checked: Checked) -> dict[str, Any]:
    """For programs."""
    parts = [
        {
            **{key: getattr(part, key) for key in ("name", "recorded", "there", "bytecode")},
            **{key: list(getattr(part, key)) for key in ("changed", "missing", "added")},
        }
        for part in checked.parts
    ]
    made = {
        "container": checked.container,
        "image": checked.image,
        "key": checked.record.key,
        "same": checked.same,
        "parts": parts,
        "unchecked": list(checked.unchecked),
    }
    return dict(json.loads(json.dumps(made)))
