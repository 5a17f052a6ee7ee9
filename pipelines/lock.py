"""The tool-chain lock and the verified download cache.

``toolchain.lock.yaml`` names every file that is ever fetched, with its sha256 and size. A file
enters the cache only when both are right, by rename, under its own hash; what is in the cache is
therefore what was pinned, and is not fetched twice.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from pipelines.config import explain
from pipelines.errors import LockError, StorageError
from pipelines.sources import DISK_ERRNOS, Source, download

LOCK_FILE = Path(__file__).resolve().parent.parent / "toolchain.lock.yaml"

#: Called with (tool, bytes done, bytes in all).
FetchProgress = Callable[[str, int, int], None]


class Tool(BaseModel):
    """A pinned file and the places that have it, in the order in which they are tried."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Annotated[str, StringConstraints(min_length=1)]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        if len({(source.sha256, source.size) for source in self.sources}) != 1:
            raise ValueError("all sources of a tool must have the same sha256 and size")
        return self

    @property
    def file(self) -> str:
        """The file name under which the tool is cached."""
        return self.sources[0].file

    @property
    def sha256(self) -> str:
        """The hash of the first source, which names the file in manifests."""
        return self.sources[0].sha256

    @property
    def size(self) -> int:
        """In bytes."""
        return self.sources[0].size


class ToolchainLock(BaseModel):
    """``toolchain.lock.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Annotated[int, Field(ge=1, le=1)]
    tools: dict[str, Tool]

    def tool(self, name: str) -> Tool:
        """The entry called ``name``; :class:`LockError` names the ones there are."""
        try:
            return self.tools[name]
        except KeyError:
            known = ", ".join(sorted(self.tools))
            raise LockError(
                f"toolchain.lock.yaml has no tool '{name}'", advice=f"It has: {known}"
            ) from None


def load_lock(path: Path = LOCK_FILE) -> ToolchainLock:
    """Read and check the lock; :class:`LockError` names the key that is wrong."""
    try:
        return ToolchainLock.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except ValidationError as error:
        raise LockError(explain(path, error), advice="Put the pinned value back.") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LockError(f"{path}: {error}", advice="Restore it from git.") from None


def default_cache() -> Path:
    """Where downloads are kept: ``$XDG_CACHE_HOME/windows-cuda-wheels`` or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "windows-cuda-wheels"


class Cache:
    """Verified downloads below ``root``; safe for several threads and processes."""

    def __init__(self, lock: ToolchainLock, root: Path | None = None) -> None:
        self.lock = lock
        self.root = root or default_cache()

    def path(self, name: str) -> Path:
        """Where tool ``name`` is, or will be, in the cache."""
        tool = self.lock.tool(name)
        return self.root / "downloads" / tool.sha256[:16] / tool.file

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` that are not in the cache yet."""
        return [name for name in names if not self._present(name)]

    def _present(self, name: str) -> bool:
        path = self.path(name)
        return path.is_file() and path.stat().st_size == self.lock.tool(name).size

    def fetch_all(self, names: Iterable[str], progress: FetchProgress | None = None) -> None:
        """Bring ``names`` into the cache, four at a time, the largest first."""
        wanted = sorted(self.missing(names), key=lambda n: -self.lock.tool(n).size)
        with ThreadPoolExecutor(max_workers=4) as pool:
            jobs = [pool.submit(self.fetch, name, progress) for name in wanted]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def fetch(self, name: str, progress: FetchProgress | None = None) -> Path:
        """The cached file of tool ``name``, fetched and verified if it is not there yet.

        Raises :class:`LockError` when no source has it or its bytes are not the pinned ones, and
        :class:`StorageError` when the disk is full.
        """
        path = self.path(name)
        if self._present(name):
            return path
        tool = self.lock.tool(name)
        failures: list[str] = []
        for source in tool.sources:
            part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                download(source, part, lambda done, total: progress and progress(name, done, total))
                verify(part, source)
                part.replace(path)
            except OSError as error:
                if error.errno is not None and error.errno in DISK_ERRNOS:
                    raise StorageError(
                        f"cannot keep {tool.file} in {path.parent}: {error.strerror}",
                        advice=f"Free {tool.size >> 20} MiB, or point XDG_CACHE_HOME elsewhere.",
                    ) from error
                failures.append(f"{source.place}: {error}")
            except LockError as error:
                failures.append(f"{source.place}: {error.message}")
            else:
                return path
            finally:
                part.unlink(missing_ok=True)
        raise LockError(
            f"{name} {tool.version} could not be fetched:\n  " + "\n  ".join(failures),
            advice="Check the network and the package index; a wrong sha256 means that the file "
            "is not the one that was pinned: do not use it.",
        )


def verify(path: Path, source: Source) -> None:
    """Raise :class:`LockError` unless ``path`` has the size and sha256 of ``source``."""
    size = path.stat().st_size
    if size != source.size:
        raise LockError(f"{source.file} has {size} bytes, {source.size} were pinned")
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != source.sha256:
        raise LockError(f"{source.file} has sha256 {found}, pinned is {source.sha256}")


def wheel_name(file: str) -> str:
    """The distribution a wheel's file name stands for, normalised (PEP 503)."""
    return re.sub(r"[-_.]+", "-", file.split("-", 1)[0]).lower()
