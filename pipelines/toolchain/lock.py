"""The tool-chain lock and the verified download cache.

``toolchain.lock.yaml``, which ``invoke lock`` generates from ``toolchain.yaml``, names every file
that is ever downloaded, with its sha256, which is the pin, and its size if known. A file enters the
cache only if they are right, by rename, under its own hash, and is hashed again when it is used: a
damaged one is downloaded again. Tools without a sha256 are listed as ``unpinned``, and only
:mod:`pipelines.toolchain.pinning` may use them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from pipelines.core import plugins, units
from pipelines.core.errors import LockError, StorageError
from pipelines.core.files import atomic_output, own_part
from pipelines.core.model import Model, PythonVersion, format_validation_error
from pipelines.core.paths import default_cache
from pipelines.core.target import Target
from pipelines.core.versions import Release
from pipelines.core.yamlfile import read_yaml
from pipelines.remote.files import replace
from pipelines.toolchain import sources, variants
from pipelines.toolchain.obtaining import FetchProgress, download_from_sources
from pipelines.toolchain.sources import BaseImage, Source

_log = logging.getLogger(__name__)

LOCK_FILE = Path(__file__).resolve().with_name("toolchain.lock.yaml")

#: An id of Visual Studio's component directory.
ComponentId = Annotated[str, StringConstraints(pattern=r"^Microsoft(\.[A-Za-z0-9_]+)+$")]


class Tool(Model):
    """A pinned file and its sources, in the order in which they are tried."""

    name: str = ""
    """Its name in recipes, see :mod:`pipelines.toolchain.variants`; default its id."""
    torch: Release | None = None
    """What it is for; None: for all."""
    cuda: Release | None = None
    python: PythonVersion | None = None
    version: Annotated[str, StringConstraints(min_length=1)]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    components: tuple[ComponentId, ...] = ()
    """Components for Visual Studio's installer."""
    toolset: Annotated[str, StringConstraints(pattern=r"^14\.\d\d$")] | None = None
    """The MSVC toolset among them, as for ``vcvarsall.bat -vcvars_ver=``."""
    signer: str | None = None  # the organisation whose signature an installer must have
    prepare: tuple[str, ...] = ()  # an installer's arguments of a first run
    arguments: tuple[str, ...] = ()  # and of the one that installs
    requires: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    """Names of what must be installed with it."""

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        hashes = {source.sha256 for source in self.sources} - {None}
        sizes = {source.size for source in self.sources} - {None}
        if len(hashes) > 1 or len(sizes) > 1:
            raise ValueError("all sources of a tool must have the same sha256 and size")
        return self

    @property
    def pinned(self) -> bool:
        """Whether every source has a sha256."""
        return all(source.sha256 for source in self.sources)

    @property
    def file(self) -> str:
        """The file name under which the tool is cached."""
        return self.sources[0].file

    @property
    def sha256(self) -> str:
        """The hash, which names the file in manifests; empty when no source has it."""
        return next((source.sha256 for source in self.sources if source.sha256), "")

    @property
    def size(self) -> int:
        """In bytes; 0 when no source has it."""
        return next((source.size for source in self.sources if source.size), 0)


class ToolchainLock(Model):
    """``toolchain.lock.yaml``."""

    version: Annotated[int, Field(ge=1, le=1)]
    unpinned: tuple[str, ...] = ()
    images: dict[str, BaseImage] = Field(default_factory=dict)
    """The base images of ours, and those that are used unchanged."""
    tools: dict[str, Tool]
    """Every entry as it is in the file, by its id; :meth:`tool` gives only pinned ones."""

    @field_validator("tools", mode="before")
    @classmethod
    def _named(cls, tools: Any) -> Any:
        if not isinstance(tools, dict):
            return tools
        return {
            id_: {"name": id_, **tool} if isinstance(tool, dict) else tool
            for id_, tool in tools.items()
        }

    @model_validator(mode="after")
    def _one_entry_a_cell(self) -> Self:
        seen: dict[tuple[str | None, ...], str] = {}
        for id_, tool in self.tools.items():
            first = seen.setdefault((tool.name, *variants.axis_values(tool)), id_)
            if first != id_:
                raise ValueError(f"tools.{first} and {id_} are the same tool for the same cell")
        return self

    @model_validator(mode="after")
    def _unpinned_is_right(self) -> Self:
        incomplete = sorted(name for name, tool in self.tools.items() if not tool.pinned)
        if incomplete != sorted(self.unpinned):
            raise ValueError(
                f"'unpinned' names {sorted(self.unpinned)}, and without a sha256 are {incomplete}"
            )
        return self

    @model_validator(mode="after")
    def _requires_are_there(self) -> Self:
        known = variants.Names(self.tools)
        wrong = [
            f"{name} requires '{other}', which does not exist"
            for name, tool in self.tools.items()
            for other in tool.requires
            if other not in known
        ]
        if wrong:
            raise ValueError("tools." + "; tools.".join(wrong))
        return self

    @property
    def toolkits(self) -> dict[str, list[str]]:
        """The ids of a tool kit's parts, such as cuda-12.8-cuda_nvcc, by release of CUDA."""
        found: dict[str, list[str]] = {}
        for id_, tool in self.tools.items():
            if tool.cuda and id_.startswith(f"cuda-{tool.cuda}-"):
                found.setdefault(tool.cuda, []).append(id_)
        return found

    def entries_for(
        self, names: Iterable[str], target: Target, instead: Mapping[str, str] = variants.NOTHING
    ) -> dict[str, str]:
        """The entries of ``names`` for a target, with those that they require: name -> entry.

        In the order of ``names``, then the others; they may not be pinned. ``instead`` is the
        host's: name -> the name of its replacement there. Raises :class:`LockError` for a name
        without an entry for this target, with the nearest.
        """
        return variants.Names(self.tools).expand(names, target, instead)

    def unavailable(
        self, names: Iterable[str], target: Target, instead: Mapping[str, str] = variants.NOTHING
    ) -> list[str]:
        """Of ``names`` and what they require: entries that are not pinned, names without one."""
        found: dict[str, bool] = {}
        known = variants.Names(self.tools)
        for name in names:
            try:
                entries = known.expand([name], target, instead)
            except LockError:
                found[name] = False
            else:
                found |= {entry: self.tools[entry].pinned for entry in entries.values()}
        return [name for name, pinned in found.items() if not pinned]

    def not_pinned(self, names: Iterable[str]) -> LockError:
        """The error for entries without a pin: all of them, and the command that pins them."""
        tools = {name: self.tools[name] for name in names}
        sizes = (f" ({units.format_size(t.size)})" if t.size else "" for t in tools.values())
        listed = (
            f"{n} {t.version}{size}" for (n, t), size in zip(tools.items(), sizes, strict=True)
        )
        return LockError(
            f"not pinned, for their sha256 is not known yet: {', '.join(listed)}",
            hint=f"Run `invoke lock --only {','.join(tools)}` on a machine with an internet "
            "connection, and commit the toolchain.lock.yaml that it completes.",
        )

    def tool(self, name: str) -> Tool:
        """The pinned entry called ``name``.

        Raises :class:`LockError` for an unknown name, and for a tool that is not pinned.
        """
        tool = self.tools.get(name)
        if tool is None:
            raise variants.unknown_tool(name, self.tools)
        if not tool.pinned:
            raise self.not_pinned([name])
        return tool


def own_lock() -> Path:
    """The lock of the user's repository, next to its ``toolchain.yaml``."""
    return plugins.repository_plugins().path / LOCK_FILE.name


def load_lock(path: Path | None = None) -> ToolchainLock:
    """Read and check the lock; :class:`LockError` names the key that is wrong.

    Without ``path`` it is the built-in one with the entries of the user's repository, which replace
    entries for the same cell. Cached while the files stay the same: recipes are checked against it.
    """
    if path is not None:
        return _read_lock(path)
    shipped = _read_lock(LOCK_FILE)
    if not (mine := own_lock()).is_file():
        return shipped
    return _joined(shipped, _read_lock(mine), mine)


def _joined(shipped: ToolchainLock, mine: ToolchainLock, path: Path) -> ToolchainLock:
    cells = {(tool.name, *variants.axis_values(tool)) for tool in mine.tools.values()}
    kept = {
        id_: tool
        for id_, tool in shipped.tools.items()
        if id_ not in mine.tools and (tool.name, *variants.axis_values(tool)) not in cells
    }
    tools = kept | mine.tools
    unpinned = tuple(id_ for id_, tool in tools.items() if not tool.pinned)
    try:
        return ToolchainLock(version=1, unpinned=unpinned, images=shipped.images, tools=tools)
    except ValidationError as error:
        raise LockError(
            format_validation_error(path, error, ToolchainLock),
            hint="Correct the toolchain.yaml next to it.",
        ) from None


def _read_lock(path: Path) -> ToolchainLock:
    try:
        stat = path.stat()
    except OSError:
        return _parse_toolchain_lock(path)  # which says so
    return _parse_toolchain_lock(path, (stat.st_ino, stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=4)
def _parse_toolchain_lock(path: Path, _state: tuple[int, ...] = ()) -> ToolchainLock:
    try:
        return ToolchainLock.model_validate(read_yaml(path, LockError, "Restore it from git."))
    except ValidationError as error:
        raise LockError(
            format_validation_error(path, error, ToolchainLock),
            hint="It is generated: restore it from git, then type: invoke lock",
        ) from None


class Cache:
    """Verified downloads below ``root``; safe for several threads and processes."""

    def __init__(
        self,
        lock: ToolchainLock,
        root: Path | None = None,
        *,
        wheelhouse: Path | None = None,
        offline: bool = False,
    ) -> None:
        """``wheelhouse`` is looked into first; ``offline`` forbids the network."""
        self.lock = lock
        self.root = root or default_cache()
        self.wheelhouse = wheelhouse
        self.offline = offline

    def path(self, name: str) -> Path:
        """Where tool ``name`` is, or will be, in the cache."""
        tool = self.lock.tool(name)
        return self.place(tool.file, tool.sha256)

    def place(self, file: str, sha256: str) -> Path:
        """Where a file of that name and content is, or will be, in the cache."""
        return self.root / "downloads" / sha256 / file

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` without the pinned file in the cache or the wheelhouse."""
        tools = {name: self.lock.tool(name) for name in names}
        return [n for n, t in tools.items() if not self.is_here(t.file, t.sha256, t.size)]

    def is_here(self, file: str, sha256: str, size: int) -> bool:
        """Whether :meth:`kept` needs no network for it."""
        places = [self.place(file, sha256)]
        places += [self.wheelhouse / file] if self.wheelhouse else []
        return any(
            path.is_file() and not sources.describe_pin_mismatch(path, sha256, size)
            for path in places
        )

    def size(self, name: str) -> int:
        """Bytes of a tool's file: as pinned, or as it is in the cache; 0 when neither is known."""
        here = self.place((tool := self.lock.tools[name]).file, tool.sha256)
        return tool.size or (here.stat().st_size if tool.pinned and here.is_file() else 0)

    def sizes(self, names: Iterable[str]) -> str:
        """The size of the files of ``names`` together, for people."""
        every = [self.size(name) for name in names]
        unknown, known = every.count(0), units.format_size(sum(every))
        return f"{known} and {unknown} of unknown size" if unknown else known

    def damaged(self, names: Iterable[str]) -> dict[Path, str]:
        """The files of ``names`` in the cache that are not what was pinned, and why."""
        tools = {self.path(name): self.lock.tool(name) for name in names}
        found = {
            p: sources.describe_pin_mismatch(p, t.sha256, t.size)
            for p, t in tools.items()
            if p.is_file()
        }
        return {path: why for path, why in found.items() if why}

    def has(self, path: Path, sha256: str, size: int | None = None) -> bool:
        """Whether a file of the cache has the pinned content; prints a message if damaged."""
        if not path.is_file():
            return False
        if why := sources.describe_pin_mismatch(path, sha256, size):
            from pipelines.core.console import say  # not for the service of a sandbox

            say(f"{path} on this machine is damaged: {why}", style="yellow")
        return not why

    def fetch_all(self, names: Iterable[str], progress: FetchProgress | None = None) -> None:
        """As :meth:`fetch` for all of ``names``, four at a time, the largest first."""
        every = dict.fromkeys(names)
        if unpinned := [name for name in every if name in self.lock.unpinned]:
            raise self.lock.not_pinned(unpinned)
        wanted = sorted(every, key=lambda n: -self.lock.tool(n).size)
        with ThreadPoolExecutor(max_workers=4) as pool:
            jobs = [pool.submit(self.fetch, name, progress) for name in wanted]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def fetch(self, name: str, progress: FetchProgress | None = None) -> Path:
        """The cached file of tool ``name``, verified; fetched if it is not there or damaged.

        Raises :class:`LockError` when no source has it or its bytes are not the pinned ones, and
        :class:`StorageError` when the disk is full.
        """
        return self.kept(name, self.lock.tool(name), progress)

    def kept(self, name: str, tool: Tool, progress: FetchProgress | None = None) -> Path:
        """As :meth:`fetch`, of a tool that need not be in the lock; ``name`` is for messages."""
        path = self.place(tool.file, tool.sha256)

        def keep(part: Path, source: Source) -> None:
            sources.verify_source_file(part, source)
            replace(part, path)

        if self.has(path, tool.sha256, tool.size):
            _log.debug("%s: in the cache", name)
        elif self.wheelhouse is not None and (here := self.wheelhouse / tool.file).is_file():
            _log.info("%s: %s from the wheelhouse", name, tool.file)
            _copy_from_wheelhouse(here, path, tool)
        elif self.offline:
            where = f", nor in {self.wheelhouse}" if self.wheelhouse else ""
            state = f"{path} is damaged" if path.is_file() else f"{tool.file} is not in {self.root}"
            raise LockError(
                f"{name} {tool.version} is not here, and nothing is fetched: {state}{where}",
                hint="On a connected machine type: invoke wheelhouse DIR, bring the directory "
                "here, and name it with --wheelhouse.",
            )
        else:
            download_from_sources(
                name, tool.version, tool.sources, own_part(path), keep=keep, progress=progress
            )
        return path


def _copy_from_wheelhouse(here: Path, path: Path, tool: Tool) -> None:
    """Copy a tool's file from the wheelhouse to ``path``, if it is the pinned one."""
    try:
        with atomic_output(path, own_part(path)) as part:
            shutil.copyfile(here, part)
            sources.verify_source_file(part, tool.sources[0])
    except LockError as error:
        raise LockError(
            f"{here}: {error.message}", hint="Replace it: invoke wheelhouse fetches it."
        ) from None
    except OSError as error:
        raise StorageError(
            f"cannot copy {here} to {path.parent}: {error.strerror}",
            hint=f"Make the one readable and the other writable, with {tool.size >> 20} MiB free.",
        ) from error
