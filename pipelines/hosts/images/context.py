"""The inputs of an image, and the tar file with them that is sent to an engine.

Equal inputs give equal bytes: names are sorted, owners, modes and times are always the same.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pipelines.core.errors import ConfigError, LockError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.core.paths import PACKAGE
from pipelines.hosts.images import record as names
from pipelines.hosts.images.definitions import ImageDefinition, require_checkout
from pipelines.hosts.images.record import Base, Inputs, ToolFile
from pipelines.toolchain.generate import lock_text
from pipelines.toolchain.lock import Cache, ToolchainLock
from pipelines.toolchain.obtaining import FetchProgress
from pipelines.toolchain.wheelhouse import download_wheels

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Locked:
    """Some of the packages of requirements.lock, with their allowed file hashes."""

    def __init__(self, lock: Path, names: Iterable[str], python: str) -> None:
        """``python``: the image's, such as 3.11, on Linux.

        Raises :class:`LockError` for a name missing from the lock.
        """
        expected = {canonicalize_name(name) for name in names}
        selected = {
            name: requirement
            for name, requirement in _parse_locked_requirements(lock, python)
            if name in expected
        }
        if missing := expected - selected.keys():
            raise LockError(
                f"{lock} has no {', '.join(sorted(missing))} for Python {python}",
                hint="Restore it from git; 'requirements' in images.yaml lists the names.",
            )
        self.versions = {name: selected[name][0] for name in sorted(selected)}
        self.hashes = {name: selected[name][1] for name in sorted(selected)}

    @property
    def text(self) -> str:
        """A requirements file of these packages only, for pip's ``--require-hashes``."""
        return "".join(
            f"{name}=={version} "
            + " ".join(f"--hash=sha256:{sha256}" for sha256 in self.hashes[name])
            + "\n"
            for name, version in self.versions.items()
        )

    def wheels(self, cache: Cache, python: str, folder: Path) -> dict[str, str]:
        """Download their wheels to ``folder``: file -> sha256.

        Files that match the lock are kept, others are replaced. Raises :class:`LockError` if one
        cannot be downloaded.
        """
        if len(wheels := self._kept(folder)) == len(self.versions):
            return wheels
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as work:
            part = Path(work)  # separate: another process may download them at the same time
            listed = part / "requirements.txt"
            listed.write_text(self.text, "utf-8")
            sources = ["--find-links", str(cache.wheelhouse)] if cache.wheelhouse else []
            if cache.offline:
                sources.append("--no-index")
            locked = [*sources, "--require-hashes", "--requirement", str(listed)]
            download_wheels("the image's Python packages", locked, part, python)
            for name in self._kept(part):
                (part / name).replace(folder / name)
        wheels = self._kept(folder)
        if len(wheels) != len(self.versions):
            raise LockError(
                f"pip downloaded {len(wheels)} wheels to {folder}, expected {len(self.versions)}",
                hint=f"Remove {folder}, then type the command again.",
            )
        return wheels

    def _kept(self, folder: Path) -> dict[str, str]:
        """The wheels there that match the lock."""
        allowed = {digest for hashes in self.hashes.values() for digest in hashes}
        digests = {path.name: sha256_of(path) for path in sorted(folder.glob("*.whl"))}
        return {name: sha256 for name, sha256 in digests.items() if sha256 in allowed}


def _parse_locked_requirements(
    lock: Path, python: str
) -> Iterable[tuple[str, tuple[str, list[str]]]]:
    """Name, version and hashes of each requirement of the lock that applies to that Python."""
    where = {
        "python_version": python,
        "python_full_version": f"{python}.99",  # the newest patch release
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    try:
        entries = lock.read_text("utf-8").replace("\\\n", " ").splitlines()
    except OSError as error:
        raise LockError(
            f"{lock} cannot be read: {error.strerror}", hint="Restore it from git."
        ) from None
    for entry in entries:
        text = entry.partition("--hash")[0].strip()
        if not text or text.startswith("#"):
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise LockError(f"{lock}: {error}", hint="Restore it from git.") from None
        if requirement.marker is None or requirement.marker.evaluate(where):
            version = str(requirement.specifier).removeprefix("==")
            yield canonicalize_name(requirement.name), (version, sorted(_HASH.findall(entry)))


_LOCK = "pipelines/toolchain/toolchain.lock.yaml"


@dataclass(frozen=True)
class Plan:
    """An image as it would be built now; nothing is fetched to find out."""

    name: str
    definition: ImageDefinition
    values: Mapping[str, str]
    cache: Cache
    inputs: Inputs
    locked: Locked | None

    @property
    def python(self) -> str:
        """The path of the host's Python in it."""
        return self.definition.python.format_map(self.values)

    @property
    def tag(self) -> str:
        """Its name."""
        which = f"py{self.values['cp']}-" if self.definition.per_python else ""
        return f"windows-cuda-wheels/{self.name}:{which}{self.inputs.key[:12]}"

    def write(self, target: Path, progress: FetchProgress) -> dict[str, str]:
        """Fetch its inputs and write its context; returns the wheels in it: file -> sha256.

        Raises :class:`ConfigError` if a file has changed since the key was computed.
        """
        root = require_checkout()
        wheels: dict[str, str] = {}
        members: dict[str, Path | bytes] = {
            name: root / path for name, path in self.definition.files.items()
        }
        members["Dockerfile"] = root / self.definition.dockerfile
        if self.locked is not None:
            text = self.locked.text.encode()
            folder = self.cache.root / "wheels" / hashlib.sha256(text).hexdigest()[:16]
            python = self.definition.interpreter or ""
            wheels = self.locked.wheels(self.cache, python, folder)
            members |= {f"wheels/{name}": folder / name for name in wheels}
            members["requirements.txt"] = text
        if self.definition.sources:
            members |= dict(service_source_files(self.definition))
            members[_LOCK] = _small_lock(self.cache.lock, self.inputs.tools)
        carried = self.definition.entries(self.cache.lock, self.definition.carried, self.values)
        self.cache.fetch_all(carried, progress)
        for name in carried:
            path, tool = self.cache.fetch(name), self.inputs.tools[name]
            members[self.definition.place.format(sha256=tool.sha256, file=tool.file)] = path
        with (
            disk_errors(target.parent),
            tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name in sorted(members):
                _add(tar, name, members[name])
        python, base = self.values["python"], self.inputs.base
        if plan_image(self.name, self.definition, python, self.cache, base).inputs != self.inputs:
            raise ConfigError(
                f"the sources of image '{self.name}' changed while they were being collected",
                hint="Type the command again.",
            )
        return wheels


def plan_image(
    name: str, definition: ImageDefinition, python: str, cache: Cache, base: Base
) -> Plan:
    """The inputs of image ``name`` with ``python``.

    Raises :class:`ConfigError` without a checkout or for an unknown Python, :class:`LockError`
    for an unpinned input.
    """
    root = require_checkout()
    values = definition.values(python)
    tools = {}
    for entry in definition.entries(cache.lock, (*definition.carried, *definition.fetched), values):
        tool = cache.lock.tool(entry)
        tools[entry] = ToolFile(
            version=tool.version, file=tool.file, sha256=tool.sha256, size=tool.size or None
        )
    locked = None
    if definition.interpreter:
        locked = Locked(root / "requirements.lock", definition.requirements, definition.interpreter)
    inputs = Inputs(
        image=name,
        base=base,
        python=python if definition.per_python else names.ANY,
        arguments={key: text.format_map(values) for key, text in definition.arguments.items()},
        files={
            name: sha256_of(root / path)
            for name, path in {**definition.files, "Dockerfile": definition.dockerfile}.items()
        },
        sources=_sources_hash(definition) if definition.sources else None,
        requirements=locked.versions if locked else {},
        requirements_sha256=hashlib.sha256(locked.text.encode()).hexdigest() if locked else None,
        tools=tools,
    )
    return Plan(name, definition, values, cache, inputs, locked)


def service_source_files(definition: ImageDefinition) -> Iterator[tuple[str, Path]]:
    """The service's modules and its data: name in the context, and file."""
    without = [PACKAGE / name for name in definition.without]
    for name in definition.sources:
        path = PACKAGE / name
        if not path.exists():
            raise ConfigError(
                f"images.yaml names {name}, which is not in {PACKAGE}", hint="Correct images.yaml."
            )
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file != path and any(file.is_relative_to(other) for other in without):
                continue
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"pipelines/{file.relative_to(PACKAGE).as_posix()}", file


def _sources_hash(definition: ImageDefinition) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(service_source_files(definition)):
        digest.update(f"{name}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _small_lock(lock: ToolchainLock, tools: Mapping[str, ToolFile]) -> bytes:
    """A lock with only these tools, so that changes to other tools do not change the image."""
    pinned = {name: lock.tool(name) for name in tools}
    return lock_text(ToolchainLock(version=lock.version, tools=pinned)).encode()


def _add(tar: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    member = tarfile.TarInfo(name)
    member.mode = 0o644
    if isinstance(content, bytes):
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
        return
    member.size = content.stat().st_size
    with content.open("rb") as stream:
        tar.addfile(member, stream)
