"""The record of an image: what it was made from, and what was found in it when it was made.

``inputs`` follow from the checkout, the lock and the base alone: the same ones give the same key.
``found`` was decided elsewhere as well, by Debian's mirror or Visual Studio's channel: two images
of one key may differ there, and the record of each says in what.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, ValidationError

from pipelines.core.errors import HostError
from pipelines.core.hosttext import line
from pipelines.core.model import Data, Model
from pipelines.hosts.engine.boxes import LABEL
from pipelines.hosts.engine.engine import System
from pipelines.toolchain.bases import Digest
from pipelines.toolchain.sources import Sha256

SCHEMA = 1
#: The most of a record or survey that is read, in bytes: they come out of an image.
LIMIT = 256 << 20

#: Where an image has them, on Windows below drive C:.
RECORD, SURVEY, SURVEYOR = "/image/record.json", "/image/found.json", "/image/survey.py"

#: Labels of an image.
IMAGE, KEY, MADE_OF = f"{LABEL}image", f"{LABEL}key", f"{LABEL}inputs"
HASH, PYTHON, GIVEN = f"{LABEL}record", f"{LABEL}python", f"{LABEL}base"
VERSION = f"{LABEL}python-version"
#: Which checkout made it, and who. Not called as a container's labels are, which has these as well.
MADE_BY, MADE_WHO = f"{LABEL}made-by", f"{LABEL}made-who"

#: The Python of an image that has them all.
ANY = "any"

_START = ("Entrypoint", "Cmd", "Env", "User", "WorkingDir")

Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class Base(Model):
    """What an image stands on."""

    name: Text
    digest: Digest
    """Of the manifest in a registry, of an image's configuration, or of the tar file."""
    given: bool
    """Whether it was chosen with --base or --tree; else it is the lock's."""


class ToolFile(Model):
    """An entry of the lock."""

    version: Text
    file: Text
    sha256: Sha256
    size: int | None = None
    """In bytes, where the lock has it."""


class Inputs(Model):
    """All that we decide."""

    image: Text
    base: Base
    python: Text
    arguments: dict[str, str]
    files: dict[str, Sha256]
    """What is copied and what the Dockerfile itself is, by its name in the context."""
    sources: Sha256 | None
    """Of the service's modules: names and contents."""
    requirements: dict[str, str]
    """Python packages and their versions."""
    requirements_sha256: Sha256 | None
    """Of the list with the hashes that their files may have."""
    tools: dict[str, ToolFile]

    @property
    def key(self) -> str:
        """The hash of all of them."""
        return digest(self.model_dump(mode="json") | {"schema": SCHEMA})

    @property
    def made_of(self) -> str:
        """The hash of all but the base."""
        rest = self.model_dump(mode="json", exclude={"base"})
        return digest(rest | {"schema": SCHEMA})


class Tree(Model):
    """A directory of the image, in numbers."""

    path: Text
    files: int
    bytes: int
    sha256: Sha256
    """Of the list of its files with their hashes."""


class Found(Model):
    """What the image held when it was made."""

    says: str = "decided by mirrors and installers as well: another build may find other versions"
    packages: dict[str, str]
    wheels: dict[str, Sha256]
    trees: dict[str, Tree]
    survey: Sha256
    """Of the whole list, which is in the image as well."""
    layers: tuple[Digest, ...]
    """All of the image but the last, in which the record itself is: what was put upon them later
    was not looked at, though it has our labels."""
    start: dict[str, Any]
    """What a container of it starts with, unless it is told otherwise."""


class Record(Model):
    """``record.json`` of an image."""

    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    key: Sha256
    inputs: Inputs
    found: Found

    @classmethod
    def of(cls, inputs: Inputs, found: Found) -> Self:
        """The record of an image that was just made."""
        return cls.model_validate(
            {"schema": SCHEMA, "key": inputs.key, "inputs": inputs, "found": found}
        )

    @property
    def told(self) -> dict[str, Any]:
        """It as JSON has it."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def bytes(self) -> bytes:
        """The file: equal records give equal bytes."""
        return canonical(self.told) + b"\n"

    @property
    def sha256(self) -> str:
        """Of the file; the label says it."""
        return sha256(self.bytes)


class Content(Model):
    """One directory of a survey."""

    path: Text
    files: dict[str, tuple[int, str]]

    @property
    def tree(self) -> Tree:
        """It in numbers."""
        return Tree(
            path=self.path,
            files=len(self.files),
            bytes=sum(size for size, _ in self.files.values()),
            sha256=digest(self.model_dump(mode="json")["files"]),
        )


class Survey(Model):
    """What ``images/scripts/survey.py`` has found."""

    roots: dict[str, Content]
    packages: dict[str, str]


def read_record(data: bytes, said: str, where: str) -> Record:
    """The record whose hash an image's label says; :class:`HostError` for anything else."""
    found = sha256(data)
    if found != said:
        raise HostError(
            f"{where}: its record has sha256 {found}, its label says {line(said, 80)}",
            hint="Somebody changed that image: remove it (docker rmi), then: invoke image build",
        )
    record = _validated(Record, data, where)
    if record.key != record.inputs.key:
        raise HostError(
            f"{where}: its record says key {record.key}, its inputs give {record.inputs.key}",
            hint="Make it anew: invoke image build",
        )
    return record


def place(path: str, system: System) -> str:
    """Where a file of ours is in an image."""
    return f"C:{path}" if system == "windows" else path


def tag_of(listed: Mapping[str, Any]) -> str:
    """The name of an image in an engine's list; empty for one that has lost its name."""
    tag = str(next(iter(listed.get("RepoTags") or ()), ""))
    return "" if tag.startswith("<none>") else tag


def layers_of(about: Mapping[str, Any]) -> list[str]:
    """The layers of an image, as its engine tells it."""
    return list((about.get("RootFS") or {}).get("Layers") or ())


def start_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a container of an image starts with, as its engine tells it."""
    config = about.get("Config") or {}
    return {key: config.get(key) or None for key in _START}


def read_survey(data: bytes, where: str) -> Survey:
    """What a survey has printed; :class:`HostError` if it is none."""
    return _validated(Survey, data, where)


def _validated(model: type[Data], data: bytes, where: str) -> Data:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False)
        at = ".".join(map(str, first["loc"]))
        raise HostError(
            f"{where}: what it says of itself cannot be read: {line(at)}: {line(first['msg'])}",
            hint="Make it anew: invoke image build",
        ) from None


def canonical(data: Any) -> bytes:
    """JSON of which equal data give equal bytes."""
    return json.dumps(data, sort_keys=True, indent=1).encode()


def digest(data: Mapping[str, Any]) -> str:
    """The sha256 of data."""
    return sha256(canonical(data))


def sha256(data: bytes) -> str:
    """The sha256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()
