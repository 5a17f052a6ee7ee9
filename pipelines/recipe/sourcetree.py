"""A recipe's source as one reproducible .tar.gz, wherever it comes from.

Equal sources give equal bytes: the names are sorted, the times are one, the modes are one.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import logging
import posixpath
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipelines.core import units
from pipelines.core.checkout import Checkout
from pipelines.core.console import say
from pipelines.core.errors import ConfigError, LockError
from pipelines.core.files import atomic_output, own_part
from pipelines.core.hosttext import safe_line
from pipelines.core.logs import log_duration
from pipelines.core.paths import PACKAGE, project_dir
from pipelines.recipe.commits import MADE, Member, commit_files
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import Also, FileSource, GitSource, PathSource
from pipelines.recipe.patches import apply_patches
from pipelines.recipe.worktree import (
    PROJECT,
    Listing,
    inspect_checkout,
    list_project_files,
    matches_any_glob,
)
from pipelines.remote.safe_paths import tree_faults
from pipelines.toolchain.lock import Cache, Tool
from pipelines.toolchain.obtaining import FetchProgress
from pipelines.toolchain.sources import describe_pin_mismatch

_log = logging.getLogger(__name__)

#: 2024-01-01: sources get one time, so that equal trees are equal archives.
EPOCH = 1704067200

_MOST = 2 << 30  # bytes of a source tree


@dataclass(frozen=True)
class Packed:
    """A source as it is sent to a host."""

    data: bytes
    """The .tar.gz."""
    checkout: Checkout | None = None
    """Of a directory here that is in git."""

    @cached_property
    def sha256(self) -> str:
        """Of the archive."""
        return hashlib.sha256(self.data).hexdigest()


class SourceTree:
    """The source of a recipe: its files are listed once, a directory's again to be packed."""

    def __init__(self, recipe: Recipe, cache: Cache) -> None:
        self.recipe, self.cache = recipe, cache
        self._names: tuple[str, ...] | None = None

    def fetch(self, progress: FetchProgress | None = None) -> None:
        """Download the source into the cache; raises what :meth:`pack` raises."""
        if isinstance(self.recipe.source, FileSource):
            fetch_file(self.recipe.source, self.recipe, self.cache, progress)
        elif isinstance(self.recipe.source, GitSource):
            _git_archive(self.recipe.source, self.recipe, self.cache)

    def is_here(self) -> bool:
        """Whether :meth:`fetch` needs no network."""
        source = self.recipe.source
        if isinstance(source, FileSource):
            return self.cache.is_here(source.file, source.sha256, source.size)
        return isinstance(source, PathSource) or bool(archive_if_here(self.recipe, self.cache))

    def names(self) -> tuple[str, ...] | None:
        """The files of the tree without going to the network; ``None`` when it is not here yet.

        Raises :class:`ConfigError` for a directory here that cannot be packed.
        """
        if self._names is None:
            self._names = self._find_names()
        return self._names

    def _find_names(self) -> tuple[str, ...] | None:
        recipe, source = self.recipe, self.recipe.source
        if isinstance(source, PathSource):
            return tuple(self._list_directory().files)
        if (archive := archive_if_here(recipe, self.cache)) is None:
            return None
        found = _cached_archive_names(archive)
        if isinstance(source, FileSource):
            found = [
                name
                for one in found
                if not matches_any_glob(name := _strip_top_directory(one), recipe.exclude)
            ]
            found += _collect_extra_files(source.also, found, source.file)
        return tuple(found)

    def _list_directory(self) -> Listing:
        """The files of a directory here; :class:`ConfigError` when they are no project."""
        recipe, source = self.recipe, self.recipe.source
        assert isinstance(source, PathSource)  # noqa: S101 - its callers have looked
        tree = _directory(source.path)
        found = list_project_files(tree, source.include, recipe.exclude)
        _refuse_other(found.files, str(tree))
        added = _collect_extra_files(source.also, found.files, str(tree))
        found.files.update(
            {n: f for n, f in added.items() if not matches_any_glob(n, recipe.exclude)}
        )
        return found

    def pack(self, progress: FetchProgress | None = None) -> Packed:
        """Pack the source: verified, patched, without what ``exclude`` names.

        Raises :class:`LockError` when it cannot be had or is not what was pinned, and
        :class:`ConfigError` when it is no source tree, or a patch does not fit.
        """
        recipe, source = self.recipe, self.recipe.source
        if isinstance(source, PathSource):
            return self._pack_directory(_directory(source.path))
        if isinstance(source, FileSource):
            path = fetch_file(source, recipe, self.cache, progress)
            members = apply_patches(recipe, _published(sdist_files(path)))
            return Packed(_pack_with(source, recipe, members))
        packed = _git_archive(source, recipe, self.cache)
        if not recipe.patches:
            return Packed(packed.read_bytes())
        return Packed(
            pack_source_tree(apply_patches(recipe, _iter_archive_files(packed)), where=source.git)
        )

    def _pack_directory(self, tree: Path) -> Packed:
        """A directory here; prints what it consists of."""
        found = self._list_directory()  # as it is now: its commit is, too
        self._names = tuple(found.files)
        try:
            size = sum(path.stat().st_size for path in found.files.values())
            if size > _MOST:
                raise ConfigError(
                    f"{tree} has {units.format_size(size)} of source, more than "
                    f"{units.format_size(_MOST)}",
                    hint="Leave out what the build does not need with 'exclude' in the recipe.",
                )
            files = {name: path.read_bytes() for name, path in found.files.items()}
        except OSError as error:  # such as one that was deleted since it was listed
            raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from None
        say(
            f"source: {units.pluralize(len(files), 'file')}, {units.format_size(size)} "
            f"of {tree.resolve()} ({found.by})"
        )
        at = inspect_checkout(tree, found, self.recipe.exclude)
        if at is not None and at.count:
            many = units.pluralize(at.count, "file")
            say(f"note: {many} not as committed: {', '.join(at.changed[:5])}", style="yellow")
        for name in found.empty:
            say(f"note: the submodule {name} is empty: git submodule update --init", style="yellow")
        return Packed(pack_source_tree(files.items(), where=str(tree)), at)


def directories_of(source: PathSource | FileSource, *, at_top: bool = False) -> list[Path]:
    """All directories on this machine from which files are packed.

    Those of the project, or of an example in the package; :class:`ConfigError` for others.
    """
    own = [source.path] if isinstance(source, PathSource) else []
    also = [path for place, path in source.also.items() if place == "." or not at_top]
    return [_directory(path) for path in (*own, *also)]


def _directory(path: str) -> Path:
    own = project_dir() / path
    shipped = PACKAGE / path
    found = next((path for path in (own, shipped) if path.is_dir()), None)
    if found is None:
        raise ConfigError(
            f"source.path: there is no directory {own}",
            hint="It is relative to the project, where pipeline.yaml is, or absolute.",
        )
    return found


def _collect_extra_files(also: Also, there: Iterable[str], where: str) -> dict[str, Path]:
    """The files of ``also`` by their names in the tree; none may be ``there`` already."""
    added: dict[str, Path] = {}
    for place, path in also.items():
        files = list_project_files(_directory(path)).files
        named = {posixpath.normpath(f"{place}/{name}"): file for name, file in files.items()}
        if twice := sorted(named.keys() & {*there, *added}):
            raise ConfigError(
                f"source: also: {place}: {where} has a {twice[0]} of its own",
                hint="Give it another name there, or leave that out with 'exclude'.",
            )
        added |= named
    return added


def _pack_with(source: FileSource, recipe: Recipe, members: Iterable[Member]) -> bytes:
    """An archive without what ``exclude`` names, and with the directories of ``also``."""
    kept = {name: data for name, data in members if not matches_any_glob(name, recipe.exclude)}
    added = _collect_extra_files(source.also, kept, source.file)
    ours = {name: path.read_bytes() for name, path in added.items()}
    return pack_source_tree({**kept, **ours}.items(), where=source.file)


def _git_archive(source: GitSource, recipe: Recipe, cache: Cache) -> Path:
    """The commit in the cache, packed as it is sent."""
    path = cache.place(f"{recipe.name}-{source.commit[:12]}.tar.gz", _git_key(recipe, source))
    stated = _stated(path)
    if stated.is_file() and cache.has(path, stated.read_text("utf-8")):
        return path
    if cache.offline:
        state = "is damaged" if path.is_file() else "is not there"
        raise LockError(
            f"{recipe.name} {recipe.version} is not here, and nothing is fetched: {path} {state}",
            hint="Build once without --offline, or bring that file there.",
        )
    with log_duration(_log, logging.INFO, "%s: fetch commit %s", recipe.name, source.commit[:12]):
        where = f"{source.git} {source.commit[:12]}"
        made = pack_source_tree(_published(commit_files(source)), recipe.exclude, where=where)
    with atomic_output(path, own_part(path)) as part:
        part.write_bytes(made)
        # No pin says what the bytes are: what was packed of the commit says it from now on.
        stated.write_text(hashlib.sha256(made).hexdigest(), "utf-8")
    return path


def _stated(path: Path) -> Path:
    """Where the sha256 of a packed commit is kept."""
    return path.with_name(f"{path.name}.sha256")


def archive_if_here(recipe: Recipe, cache: Cache) -> Path | None:
    """The cache's archive of a source that is fetched; ``None`` when it is not here, or damaged."""
    source = recipe.source
    if isinstance(source, PathSource):
        return None
    if isinstance(source, FileSource):
        path, sha256 = cache.place(source.file, source.sha256), source.sha256
    else:
        name = f"{recipe.name}-{source.commit[:12]}.tar.gz"
        path = cache.place(name, _git_key(recipe, source))
        sha256 = _stated(path).read_text("utf-8") if _stated(path).is_file() else ""
    return path if sha256 and path.is_file() and not describe_pin_mismatch(path, sha256) else None


def _cached_archive_names(path: Path) -> list[str]:
    """The files in an archive of the cache. Kept next to it: unpacking thousands takes a second."""
    kept = path.with_name(f"{path.name}.names")
    if kept.is_file():
        return kept.read_text("utf-8").splitlines()
    with tarfile.open(path) as members:
        names = [member.name for member in members if member.isfile()]
    # a cache that cannot be written is only slower
    with contextlib.suppress(OSError), atomic_output(kept, own_part(kept)) as part:
        part.write_text("\n".join(names), "utf-8")
    return names


def fetch_file(
    source: FileSource, recipe: Recipe, cache: Cache, progress: FetchProgress | None = None
) -> Path:
    """The pinned file in the cache; :class:`LockError` when its bytes are not the pinned ones."""
    return cache.kept(recipe.name, Tool(version=recipe.version, sources=(source,)), progress)


def pack_source_tree(
    members: Iterable[Member], exclude: Iterable[str] = (), *, where: str = ""
) -> bytes:
    """A reproducible .tar.gz of ``members`` (name with ``/``, bytes) but those in ``exclude``."""
    globs = tuple(exclude)
    kept = {name: data for name, data in members if not matches_any_glob(name, globs)}
    _refuse_other(kept, where)
    if faults := tree_faults(kept):
        shown = units.join_first([f"{name} ({reason})" for name, reason in faults.items()])
        raise ConfigError(
            f"{where}: Windows cannot have these files: {safe_line(shown, 1000)}",
            hint="Rename them, or leave them out with 'exclude' in the recipe.",
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(kept, key=lambda name: name.split("/")):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(kept[name]), EPOCH, 0o644
            try:
                archive.addfile(info, io.BytesIO(kept[name]))
            except ValueError:
                raise ConfigError(
                    f"{where}: {name[:80]}... is too long for an archive",
                    hint="Leave that part of the tree out with 'exclude' in the recipe.",
                ) from None
    return gzip.compress(buffer.getvalue(), mtime=0)


def _refuse_other(names: Iterable[str], where: str) -> None:
    if not {*PROJECT} & {*names}:
        raise ConfigError(
            f"{where} is not a source tree: it has neither {', '.join(PROJECT[:-1])} "
            f"nor {PROJECT[-1]}",
            hint="Fix source and exclude in the recipe.",
        )


def _published(members: Iterable[Member]) -> Iterator[Member]:
    """Without what builds leave, as it may be in what others have packed or committed."""
    for name, data in members:
        parts = name.split("/")
        if not MADE & {*parts} and not parts[0].endswith(".egg-info"):
            yield name, data


def sdist_files(path: Path) -> Iterator[Member]:
    """The files of a source distribution, as seen from the directory at its top."""
    return _iter_archive_files(path, _strip_top_directory)


def _iter_archive_files(path: Path, seen_from: Callable[[str], str] = str) -> Iterator[Member]:
    """The files of an archive; whatever else is in it is refused."""
    total = 0
    with tarfile.open(path) as members:
        for member in members:
            if member.isdir():
                continue
            name = seen_from(member.name)
            if not member.isfile() or not name or {"..", "."} & {*name.split("/")}:
                raise LockError(f"{path.name}: {member.name} is not a regular file inside it")
            total += member.size
            if total > _MOST:
                raise LockError(f"{path.name} unpacks to more than {_MOST >> 30} GiB")
            stream = members.extractfile(member)
            assert stream is not None  # noqa: S101 - it is a file
            yield name, stream.read()


def _strip_top_directory(name: str) -> str:
    """Without the directory that source distributions have at their top."""
    return name.partition("/")[2]


def cache_key(recipe: Recipe) -> str | None:
    """The sha256 under which the cache keeps the source; ``None`` for a directory here."""
    if isinstance(recipe.source, PathSource):
        return None
    if isinstance(recipe.source, FileSource):
        return recipe.source.sha256
    return _git_key(recipe, recipe.source)


def _git_key(recipe: Recipe, source: GitSource) -> str:
    """Names what comes out: the commit, and what is taken of it."""
    parts = (source.commit, *source.submodules, str(source.directory), "-", *recipe.exclude)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
