"""Finds the exports of torch, of CUDA's libraries and of MSVC's runtime.

In order: the cache of exports, a wheel in the download cache, a wheel on the index. If the server
supports range requests only the needed parts of it are fetched; these can be checked only against
the hashes in the wheel's own RECORD.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from pipelines.audit.ranges import NoRangesError, open_ranged
from pipelines.core.console import say
from pipelines.core.errors import ConfigError, LockError
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import safe_line
from pipelines.plan.prebuilt.candidates import Offer, list_wheel_offers, obtain_offer
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.sources import index_url, system_trust_session
from pipelines.wheels.exports.cache import CacheEntry, list_cache_entries
from pipelines.wheels.exports.reader import read_archive, read_folder
from pipelines.wheels.exports.stored import (
    LOCK,
    find_cached_exports,
    is_torch_wheel,
    torch_table,
    wheel_exports,
)
from pipelines.wheels.exports.table import ExportTable
from pipelines.wheels.libraries import Library, is_torch_dll, library_providers
from pipelines.wheels.tags import parsed_name

_VERSION = re.compile(r"^__version__ = '([\w.+-]{1,60})'$", re.MULTILINE)
_MSVC = "msvc-runtime"
#: Most compressed bytes of a DLL to fetch: cublasLt has 400 MB, torch_cuda 700 MB.
_LARGEST, _TORCHS = 128 << 20, 4 << 30
_HINT = "Example: --torch 2.8.0, or the path of a torch wheel or directory."


def torch_exports(requested: str, cache: Cache, *, python: str = "") -> ExportTable:
    """The exports of a torch release (``2.8.0``, ``2.8.0+cu128``), wheel or directory.

    ``python`` (``3.11``, ``3.13t``) chooses among the wheels of a release; without it a cached one
    is used, or the newest. Raises :class:`ConfigError` for an invalid request, :class:`LockError`
    if it is unavailable or not what its name says.
    """
    path = Path(requested).expanduser()
    if path.is_dir():
        return _read_torch_folder(path, cache.root)
    if path.suffix == ".whl" or path.is_file():
        if not path.is_file():
            raise ConfigError(f"--torch {safe_line(requested, 200)}: no such file", hint=_HINT)
        entry = wheel_exports(path, sha256_of(path), cache, is_torch_dll)
        if not is_torch_wheel(entry.head.file):
            raise ConfigError(
                f"--torch {safe_line(entry.head.file, 200)}: not a torch wheel", hint=_HINT
            )
        return torch_table(entry)
    try:
        version = Version(requested)
    except InvalidVersion:
        raise ConfigError(
            f"--torch {safe_line(requested, 200)}: not a torch version, wheel or directory",
            hint=_HINT,
        ) from None
    return torch_table(_find_torch_exports(version, cache, python))


def _read_torch_folder(folder: Path, root: Path) -> ExportTable:
    """The exports of ``site-packages``, its ``torch`` or its ``torch/lib``."""
    for lib in (folder / "torch" / "lib", folder / "lib", folder):
        if (lib / "c10.dll").is_file():
            break
    else:
        raise ConfigError(f"--torch {safe_line(folder, 200)}: no c10.dll there", hint=_HINT)
    try:
        match = _VERSION.search((lib.parent / "version.py").read_text("utf-8", "replace")[:4096])
    except OSError:
        match = None
    entry = read_folder(lib, match[1] if match else "", is_torch_dll, root)
    title = f"torch {entry.head.version} " if entry.head.version else "torch "
    return ExportTable(f"{title}in {safe_line(folder, 120)}", entry.path, "")


def _find_torch_exports(version: Version, cache: Cache, python: str) -> CacheEntry:
    # Only the exact version, as the index may have more, and only what an index or the lock listed
    # by that name: a local file may be any build. Another index may have another file by that name,
    # so it is queried unless --offline.
    here = [
        entry
        for entry in _named_entries(cache)
        if is_torch_wheel(entry.head.file)
        and _is_matching_torch_wheel(entry.head.file, version, python)
        and parse_wheel_filename(entry.head.file)[1] == version
    ]
    if here:
        file = max((entry.head.file for entry in here), key=_cpython)
        same = [entry for entry in here if entry.head.file == file]
        if len(same) > 1:
            raise ConfigError(
                f"torch {version} is ambiguous, indexes list several files: "
                + ", ".join(sorted(entry.head.sha256 for entry in same)[:4]),
                hint="Name its wheel or its directory: --torch PATH.",
            )
        return same[0]
    offers = [
        offer
        for offer in _fetch_project_offers("torch", cache)
        if _is_matching_torch_wheel(offer.file, version, python)
    ]
    known = {str(parse_wheel_filename(offer.file)[1]) for offer in offers}
    if not offers:
        of = f" for Python {python}" if python else ""
        raise LockError(
            f"torch {version}: the index has no wheel for Windows{of}",
            hint="Name its wheel or its directory: --torch PATH. CUDA builds are on "
            "PyTorch's own index: set UV_DEFAULT_INDEX.",
        )
    if len(known) > 1:
        raise ConfigError(
            f"torch {version}: the index has {', '.join(sorted(known)[:8])}",
            hint="Use one of these.",
        )
    return _of_offer(max(offers, key=lambda offer: _cpython(offer.file)), cache, is_torch_dll)


def _named_entries(cache: Cache) -> list[CacheEntry]:
    """Cache entries listed by the user's index or the lock, with --offline by any index."""
    own = {_index_mark(), LOCK}
    cached = list_cache_entries(cache.root)
    return [
        entry
        for entry in cached
        if entry.head.listed and (cache.offline or entry.head.listed in own)
    ]


def _is_matching_torch_wheel(file: str, version: Version, python: str) -> bool:
    name = parsed_name(file)
    if name is None:
        return False
    same = version in (name.version, Version(name.version.public))
    threads = python.endswith("t")  # free-threaded
    cp = f"cp{python.removesuffix('t').replace('.', '')}" if python else ""
    return same and any(
        tag.platform == "win_amd64"
        and tag.abi.endswith("t") == threads
        and cp in ("", tag.interpreter)
        for tag in name.tags
    )


def _index_mark() -> str:
    """A hash for the user's index, whose address may contain a password."""
    try:
        parts = urlsplit(index_url())
        address = f"{parts.hostname}:{parts.port or ''}{parts.path.rstrip('/')}"
    except ValueError:  # not shown: it may contain a password
        raise ConfigError(
            "the package index's address is invalid",
            hint="Fix UV_DEFAULT_INDEX or PIP_INDEX_URL.",
        ) from None
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def _cpython(file: str) -> int:
    """The oldest Python that a wheel is for: 11 of cp311."""
    tags = parse_wheel_filename(file)[3]
    numbers = [re.fullmatch(r"cp3(\d{1,2})", tag.interpreter) for tag in tags]
    return min((int(match[1]) for match in numbers if match), default=0)


def _fetch_project_offers(project: str, cache: Cache) -> list[Offer]:
    if cache.offline:
        raise LockError(
            f"the exports of {project} are not cached, and --offline forbids fetching them",
            hint="Omit --offline once, or name a wheel or a directory.",
        )
    return [offer for offer in list_wheel_offers(index_url(), project) if parsed_name(offer.file)]


def _of_offer(offer: Offer, cache: Cache, needed: Callable[[str], bool]) -> CacheEntry:
    """The exports of a wheel on an index: in parts if possible."""
    if not offer.sha256 or not offer.place.startswith("https://"):
        raise LockError(
            f"{offer.file}: its index states no sha256, or no https address",
            hint="Download it yourself, and name the file.",
        )
    entry = _read_offer_exports(offer, offer.sha256, cache, needed)
    # The cache entry may stem from another name, against which it was checked then.
    if (file := entry.head.file) != offer.file and parsed_name(file) != parsed_name(offer.file):
        raise LockError(
            f"{offer.file}: its index states the sha256 of {safe_line(file, 200)}",
            hint="Report it to the index's maintainer, or name the file itself.",
        )
    return entry.listed(cache.root, offer.file, _index_mark())


def _read_offer_exports(
    offer: Offer, sha256: str, cache: Cache, needed: Callable[[str], bool]
) -> CacheEntry:
    entry, more = find_cached_exports(cache, sha256, needed)
    if entry is not None:
        return entry
    path = cache.place(offer.file, sha256)
    if not cache.has(path, sha256):
        say(f"Fetching the exports of {offer.file}", "dim")
        try:
            with (
                system_trust_session() as client,
                open_ranged(client, offer.place.partition("#")[0]) as part,
                zipfile.ZipFile(part) as archive,
            ):
                return read_archive(
                    archive,
                    offer.file,
                    sha256,
                    more,
                    cache.root,
                    whole=False,
                    largest=_LARGEST if needed is not is_torch_dll else _TORCHS,
                )
        except NoRangesError:
            path = obtain_offer(offer, cache)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise LockError(
                f"{offer.file} cannot be fetched: {safe_line(str(error), 200)}",
                hint="Try again, or download it yourself and name the file.",
            ) from None
    return wheel_exports(path, sha256, cache, needed)


def cuda_exports(libraries: Iterable[str], cuda: str, cache: Cache) -> tuple[ExportTable, ...]:
    """The newest of each DLL from NVIDIA's wheels for the CUDA major version ``cuda``.

    Within a major version they only gain symbols. Raises :class:`LockError`.
    """
    rows: dict[str, Library] = {}
    for library in libraries:
        for row in library_providers(library):
            if row.cuda == cuda:
                rows[row.project] = row
    return tuple(_newest(row, {*libraries}, cache) for row in rows.values())


def _newest(row: Library, libraries: set[str], cache: Cache) -> ExportTable:
    own = _Brings(row.project, row.cuda)
    needed = {library for library in libraries if own(library)}
    here = [entry for entry in _named_entries(cache) if own.is_of(entry.head.file)]
    for entry in sorted(here, key=lambda entry: Version(entry.head.version), reverse=True):
        if needed <= {*entry.head.libraries}:
            return _cuda(entry, row, own)
    offers = [offer for offer in _fetch_project_offers(row.project, cache) if own.is_of(offer.file)]
    if not offers:
        raise LockError(
            f"{row.project}: the index has no wheel for Windows", hint="Try another index."
        )
    newest = max(offers, key=lambda offer: parse_wheel_filename(offer.file)[1])
    return _cuda(_of_offer(newest, cache, needed.__contains__), row, own)


def _cuda(entry: CacheEntry, row: Library, own: Callable[[str], bool]) -> ExportTable:
    head = entry.head
    title = f"{row.project} {head.version}"
    return ExportTable(title, entry.path, head.sha256, own, stated=not head.whole)


class _Brings:
    """Whether one of NVIDIA's projects contains a DLL; picklable."""

    def __init__(self, project: str, cuda: str) -> None:
        self._project, self._cuda = project, cuda

    def __call__(self, library: str) -> bool:
        return any(
            row.project == self._project and row.cuda == self._cuda
            for row in library_providers(library)
        )

    def is_of(self, file: str) -> bool:
        """Whether that wheel is of the project, for Windows and that major version."""
        name = parsed_name(file)
        if name is None or name.project != self._project or name.version.is_prerelease:
            return False
        right = self._project.rpartition("-cu")[2].isdigit()
        return name.is_for("win_amd64") and (right or str(name.version.major) == self._cuda)


def msvc_runtime_exports(cache: Cache) -> ExportTable:
    """The exports of the pinned C++ runtime; raises :class:`LockError`."""
    tool_id = next(id_ for id_, tool in cache.lock.tools.items() if tool.name == _MSVC)
    tool = cache.lock.tool(tool_id)
    entry, _ = find_cached_exports(cache, tool.sha256, _accept_any_library)
    entry = entry or wheel_exports(cache.fetch(tool_id), tool.sha256, cache, _accept_any_library)
    return ExportTable(f"MSVC's runtime {tool.version}", entry.path, tool.sha256, _of_msvc)


def _accept_any_library(_: str) -> bool:
    return True


def _of_msvc(library: str) -> bool:
    return library.startswith(("msvcp", "vcruntime", "concrt", "vcomp", "vccorlib"))
