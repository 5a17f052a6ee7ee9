"""The record of an image: its inputs, and its contents when it was built.

``inputs`` follow from the checkout, the lock and the base alone: the same ones give the same key.
``found`` also depends on Debian's mirror or Visual Studio's channel: two images with the same key
may differ there, and each record says how.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, ValidationError

from pipelines.core.errors import HostError
from pipelines.core.hosttext import safe_line
from pipelines.core.model import Data, Model
from pipelines.hosts.engine.engine import System
from pipelines.hosts.engine.manager import LABEL
from pipelines.toolchain.sources import Digest, Sha256

SCHEMA = 1
#: Size limit for reading a record or survey, in bytes: they come from inside an image.
LIMIT = 256 << 20

#: Paths in an image, on Windows below drive C:.
RECORD, SURVEY, SURVEYOR = "/image/record.json", "/image/found.json", "/image/survey.py"

#: Labels of an image.
IMAGE, KEY, MADE_OF = f"{LABEL}image", f"{LABEL}key", f"{LABEL}inputs"
HASH, PYTHON, GIVEN = f"{LABEL}record", f"{LABEL}python", f"{LABEL}base"
VERSION = f"{LABEL}python-version"
#: The checkout and the user that built it. Named differently from the labels of containers, which
#: inherit these.
MADE_BY, MADE_WHO = f"{LABEL}made-by", f"{LABEL}made-who"

#: The Python of an image that contains all of them.
ANY = "any"

_START = ("Entrypoint", "Cmd", "Env", "User", "WorkingDir")

Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class Base(Model):
    """The base of an image."""

    name: Text
    digest: Digest
    """Digest of the manifest in a registry, of the image configuration, or of the tar file."""
    given: bool
    """Whether it was chosen with --base or --tree; otherwise it is the lock's."""


class ToolFile(Model):
    """An entry of the lock."""

    version: Text
    file: Text
    sha256: Sha256
    size: int | None = None
    """In bytes, if the lock has it."""


class Inputs(Model):
    """Everything the pipeline determines."""

    image: Text
    base: Base
    python: Text
    arguments: dict[str, str]
    files: dict[str, Sha256]
    """Files that are copied, and the Dockerfile, by their name in the context."""
    sources: Sha256 | None
    """Hash of the service's modules, names and contents."""
    requirements: dict[str, str]
    """Python packages and their versions."""
    requirements_sha256: Sha256 | None
    """Hash of the list of allowed file hashes."""
    tools: dict[str, ToolFile]

    @property
    def key(self) -> str:
        """The hash of all inputs."""
        return json_sha256(self.model_dump(mode="json") | {"schema": SCHEMA})

    @property
    def made_of(self) -> str:
        """The hash of all inputs but the base."""
        rest = self.model_dump(mode="json", exclude={"base"})
        return json_sha256(rest | {"schema": SCHEMA})


class Tree(Model):
    """A directory of the image: summary."""

    path: Text
    files: int
    bytes: int
    sha256: Sha256
    """Hash of the list of its files with their hashes."""


class ImageContents(Model):
    """The contents of the image when it was built."""

    says: str = "resolved by mirrors and installers: another build may get different versions"
    packages: dict[str, str]
    wheels: dict[str, Sha256]
    trees: dict[str, Tree]
    survey: Sha256
    """Hash of the complete list, which is stored in the image too."""
    layers: tuple[Digest, ...]
    """All layers but the last, which holds the record itself; layers added later have our labels
    but were not inspected."""
    start: dict[str, Any]
    """The default command of its containers."""


class Record(Model):
    """``record.json`` of an image."""

    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    key: Sha256
    inputs: Inputs
    found: ImageContents

    @classmethod
    def of(cls, inputs: Inputs, contents: ImageContents) -> Self:
        """The record of an image just built."""
        return cls.model_validate(
            {"schema": SCHEMA, "key": inputs.key, "inputs": inputs, "found": contents}
        )

    @property
    def summary(self) -> dict[str, Any]:
        """As JSON data."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def bytes(self) -> bytes:
        """The file's contents: equal records give equal bytes."""
        return canonical_json(self.summary) + b"\n"

    @property
    def sha256(self) -> str:
        """Hash of the file, as in the label."""
        return sha256_of_bytes(self.bytes)


class Content(Model):
    """One directory of a survey."""

    path: Text
    files: dict[str, tuple[int, str]]

    @property
    def tree(self) -> Tree:
        """Its summary."""
        return Tree(
            path=self.path,
            files=len(self.files),
            bytes=sum(size for size, _ in self.files.values()),
            sha256=json_sha256(self.model_dump(mode="json")["files"]),
        )


class Survey(Model):
    """The output of ``images/scripts/survey.py``."""

    roots: dict[str, Content]
    packages: dict[str, str]


def read_record(data: bytes, label: str, where: str) -> Record:
    """The record with the hash in an image's label; :class:`HostError` for any other."""
    actual = sha256_of_bytes(data)
    if actual != label:
        raise HostError(
            f"{where}: its record has sha256 {actual}, its label says {safe_line(label, 80)}",
            hint="The image was modified: remove it (docker rmi), then: invoke image build",
        )
    record = _validated(Record, data, where)
    if record.key != record.inputs.key:
        raise HostError(
            f"{where}: its record has key {record.key}, its inputs give {record.inputs.key}",
            hint="Rebuild it: invoke image build",
        )
    return record


def image_file_path(path: str, system: System) -> str:
    """The path of one of our files in an image."""
    return f"C:{path}" if system == "windows" else path


def listed_image_tag(listed: Mapping[str, Any]) -> str:
    """The name of an image in an engine's list; empty if it has none."""
    tag = str(next(iter(listed.get("RepoTags") or ()), ""))
    return "" if tag.startswith("<none>") else tag


def layers_of(about: Mapping[str, Any]) -> list[str]:
    """The layers of an image, from its engine's description."""
    return list((about.get("RootFS") or {}).get("Layers") or ())


def start_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """The default command of an image, from its engine's description."""
    config = about.get("Config") or {}
    return {key: config.get(key) or None for key in _START}


def read_survey(data: bytes, where: str) -> Survey:
    """A survey's output; :class:`HostError` if it is not valid."""
    return _validated(Survey, data, where)


def _validated(model: type[Data], data: bytes, where: str) -> Data:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False)
        at = ".".join(map(str, first["loc"]))
        raise HostError(
            f"{where}: its description cannot be read: {safe_line(at)}: {safe_line(first['msg'])}",
            hint="Rebuild it: invoke image build",
        ) from None


def canonical_json(data: Any) -> bytes:
    """JSON with equal bytes for equal data."""
    return json.dumps(data, sort_keys=True, indent=1).encode()


def json_sha256(data: Mapping[str, Any]) -> str:
    """The sha256 of data."""
    return sha256_of_bytes(canonical_json(data))


def sha256_of_bytes(data: bytes) -> str:
    """The sha256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()
