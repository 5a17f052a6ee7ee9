"""Where the exports of torch, of CUDA's libraries and of MSVC's run-time come from.

What was read once is kept; else a wheel of the download cache is read; else the index's, of which
only the parts that are needed are fetched where the server gives parts. Of these no hash can be
compared but those in the wheel's own RECORD.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from pipelines.audit.exports.kept import Kept, every, place
from pipelines.audit.exports.ranged import NoRangesError, open_ranged
from pipelines.audit.exports.reading import read_archive, read_folder
from pipelines.audit.exports.table import ExportTable
from pipelines.core.console import say
from pipelines.core.errors import ConfigError, LockError
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import line
from pipelines.prebuilt.candidates import Offer, obtain_offer, offers_of
from pipelines.toolchain.lock import Cache, Tool
from pipelines.toolchain.sources import index_url, session
from pipelines.wheels.libraries import Library, bringers, is_torchs

_VERSION = re.compile(r"^__version__ = '([\w.+-]{1,60})'$", re.MULTILINE)
_MSVC, _LOCK = "msvc-runtime", "lock"
#: Packed bytes of a DLL that are fetched for its names: cublasLt has 400 MB, torch_cuda 700 MB.
_LARGEST, _TORCHS = 128 << 20, 4 << 30
_SUCH = "Such as --torch 2.8.0, or the file or directory of a torch."


def of_torch(asked: str, cache: Cache, *, python: str = "") -> ExportTable:
    """Of a release (``2.8.0``, ``2.8.0+cu128``), a wheel or a directory of torch.

    ``python`` (``3.11``, ``3.13t``) chooses among the wheels of a release; without it one is taken
    that is kept already, or the newest. Raises :class:`ConfigError` for what is none,
    :class:`LockError` for what cannot be had or is another one than it says.
    """
    path = Path(asked).expanduser()
    if path.is_dir():
        return _of_folder(path, cache.root)
    if path.suffix == ".whl" or path.is_file():
        if not path.is_file():
            raise ConfigError(f"--torch {line(asked, 200)}: there is no such file", hint=_SUCH)
        return _torch(of_wheel(path, sha256_of(path), cache, is_torchs))
    try:
        version = Version(asked)
    except InvalidVersion:
        raise ConfigError(
            f"--torch {line(asked, 200)}: no release, no wheel and no directory of torch",
            hint=_SUCH,
        ) from None
    return _torch(_of_release(version, cache, python))


def of_pinned(tool: Tool, cache: Cache) -> ExportTable | None:
    """Of a pinned wheel of torch; ``None``: neither is it in the cache, nor are its exports."""
    kept, _ = _kept(cache, tool.sha256, is_torchs)
    path = cache.place(tool.file, tool.sha256)
    if (kept is None or not kept.head.whole) and cache.has(path, tool.sha256, tool.size):
        kept = of_wheel(path, tool.sha256, cache, is_torchs)
    if kept and not kept.head.listed:
        kept = kept.listed(cache.root, tool.file, _LOCK)
    return _torch(kept) if kept else None


def _torch(kept: Kept) -> ExportTable:
    head = kept.head
    *_, python, _ = head.file.removesuffix(".whl").split("-")  # as its ABI has it: cp313t
    if not is_torchs_wheel(head.file):
        raise ConfigError(f"--torch {line(head.file, 200)}: that is not torch", hint=_SUCH)
    said = f"torch {head.version} ({python})"
    return ExportTable(said, kept.path, head.sha256, stated=not head.whole)


def is_torchs_wheel(file: str) -> bool:
    """Whether that is the name of a wheel of torch."""
    return file.lower().startswith("torch-")


def of_wheel(path: Path, sha256: str, cache: Cache, wanted: Callable[[str], bool]) -> Kept:
    """Of the DLLs that are ``wanted`` in a wheel that is here, whose sha256 was computed."""
    kept, more = _kept(cache, sha256, wanted)
    if kept is not None and kept.head.whole:  # of fetched parts a server alone says whose they are
        return kept
    try:
        with zipfile.ZipFile(path) as archive:
            made = read_archive(archive, path.name, sha256, more, cache.root, whole=True)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise LockError(
            f"{line(path.name, 200)} cannot be read: {line(str(error), 200)}",
            hint="Download it again.",
        ) from None
    if kept is not None and kept.head.listed:
        return made.listed(cache.root, kept.head.file, kept.head.listed)
    return made


def _kept(
    cache: Cache, sha256: str, wanted: Callable[[str], bool]
) -> tuple[Kept | None, Callable[[str], bool]]:
    """What is kept of a wheel, if that is enough; what to read of it otherwise."""
    path = place(cache.root, sha256)
    try:
        if not path.exists():
            return None, wanted
        found = Kept(path)
    except LockError as error:
        say(f"{line(error.message, 300)}; it is made anew", "yellow")
        return None, wanted
    if found.head.sha256 != sha256:
        return None, wanted
    if any(map(wanted, found.head.others)):
        return None, lambda name: wanted(name) or name in found.head.libraries
    return found, wanted


def _of_folder(folder: Path, root: Path) -> ExportTable:
    """Of ``site-packages``, its ``torch`` or its ``torch/lib``."""
    for lib in (folder / "torch" / "lib", folder / "lib", folder):
        if (lib / "c10.dll").is_file():
            break
    else:
        raise ConfigError(f"--torch {line(folder, 200)}: no c10.dll is there", hint=_SUCH)
    try:
        found = _VERSION.search((lib.parent / "version.py").read_text("utf-8", "replace")[:4096])
    except OSError:
        found = None
    kept = read_folder(lib, found[1] if found else "", is_torchs, root)
    said = f"torch {kept.head.version} " if kept.head.version else "torch "
    return ExportTable(f"{said}in {line(folder, 120)}", kept.path, "")


def _of_release(version: Version, cache: Cache, python: str) -> Kept:
    # Of the very version, for the index may have more; and of those that an index or the lock has
    # called so. What somebody named as a file may be anybody's build, whatever it is called.
    # Another index may mean another one by that name: it is asked, unless nothing may be.
    here = [
        one
        for one in _called_so(cache)
        if is_torchs_wheel(one.head.file)
        and _own_version(one.head.file) == version
        and _fits(one.head.file, version, python)
    ]
    if here:
        file = max((one.head.file for one in here), key=_cpython)
        found = [one for one in here if one.head.file == file]
        if len(found) > 1:
            raise ConfigError(
                f"torch {version}: indexes have called several so: "
                + ", ".join(sorted(one.head.sha256 for one in found)[:4]),
                hint="Name its wheel or its directory: --torch PATH.",
            )
        return found[0]
    offers = [one for one in _offers("torch", cache) if _fits(one.file, version, python)]
    known = {str(parse_wheel_filename(one.file)[1]) for one in offers}
    if not offers:
        of = f" for Python {python}" if python else ""
        raise LockError(
            f"torch {version}: the index has no wheel of it for Windows{of}",
            hint="Name its wheel or its directory: --torch PATH. Of CUDA builds the index is "
            "PyTorch's own: set UV_DEFAULT_INDEX.",
        )
    if len(known) > 1:
        raise ConfigError(
            f"torch {version}: the index has {', '.join(sorted(known)[:8])}",
            hint="Name one of these.",
        )
    return _of_offer(max(offers, key=lambda one: _cpython(one.file)), cache, is_torchs)


def _called_so(cache: Cache) -> list[Kept]:
    """What is kept of releases that the user's index or the lock, or with --offline any index."""
    own = {_index_mark(), _LOCK}
    kept = every(cache.root)
    return [one for one in kept if one.head.listed and (cache.offline or one.head.listed in own)]


def _fits(file: str, version: Version, python: str) -> bool:
    tags = _tags(file)
    own = _own_version(file)
    same = own is not None and (own == version or (not version.local and _public(own) == version))
    threads = python.endswith("t")  # that of a Python without its lock
    cp = f"cp{python.removesuffix('t').replace('.', '')}" if python else ""
    return same and any(
        tag.platform == "win_amd64"
        and tag.abi.endswith("t") == threads
        and cp in ("", tag.interpreter)
        for tag in tags
    )


def _tags(file: str) -> frozenset[Tag]:
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()


def _own_version(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1]
    except InvalidWheelFilename:
        return None


def _release(file: str) -> object:
    """All that a wheel's name says, but its build number."""
    try:
        name, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return file
    return name, version, tags


def _index_mark() -> str:
    """What stands for the user's index: its address may be one that nobody should read."""
    try:
        parts = urlsplit(index_url())
        said = f"{parts.hostname}:{parts.port or ''}{parts.path.rstrip('/')}"
    except ValueError:  # whatever is in it may be a password
        raise ConfigError(
            "the address of the package index is none",
            hint="Mend UV_DEFAULT_INDEX or PIP_INDEX_URL.",
        ) from None
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _public(version: Version) -> Version:
    return Version(version.public)


def _cpython(file: str) -> int:
    """Of the least Python that a wheel is for: 11 of cp311."""
    numbers = [re.fullmatch(r"cp3(\d{1,2})", tag.interpreter) for tag in _tags(file)]
    return min((int(one[1]) for one in numbers if one), default=0)


def _offers(project: str, cache: Cache) -> list[Offer]:
    if cache.offline:
        raise LockError(
            f"the exports of {project} are not kept here, and nothing is fetched",
            hint="Leave --offline out once, or name a wheel or a directory.",
        )
    return [one for one in offers_of(index_url(), project) if _own_version(one.file)]


def _of_offer(offer: Offer, cache: Cache, wanted: Callable[[str], bool]) -> Kept:
    """Of a wheel on an index: in parts if that can be, else whole."""
    if not offer.sha256 or not offer.place.startswith("https://"):
        raise LockError(
            f"{offer.file}: its index states no sha256, or no https address",
            hint="Download it yourself, and name the file.",
        )
    kept = _read(offer, offer.sha256, cache, wanted)
    # What was kept before may have come by another name, against which it was held then.
    if (found := kept.head.file) != offer.file and _release(found) != _release(offer.file):
        raise LockError(
            f"{offer.file}: its index states the sha256 of {line(found, 200)}",
            hint="Tell the one who keeps the index, or name the file that is meant.",
        )
    return kept.listed(cache.root, offer.file, _index_mark())


def _read(offer: Offer, sha256: str, cache: Cache, wanted: Callable[[str], bool]) -> Kept:
    kept, more = _kept(cache, sha256, wanted)
    if kept is not None:
        return kept
    path = cache.place(offer.file, sha256)
    if not cache.has(path, sha256):
        say(f"What {offer.file} exports is fetched", "dim")
        try:
            with (
                session() as client,
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
                    largest=_LARGEST if wanted is not is_torchs else _TORCHS,
                )
        except NoRangesError:
            path = obtain_offer(offer, cache)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise LockError(
                f"{offer.file} cannot be fetched: {line(str(error), 200)}",
                hint="Try again, or download it yourself and name the file.",
            ) from None
    return of_wheel(path, sha256, cache, wanted)


def of_cuda(libraries: Iterable[str], cuda: str, cache: Cache) -> tuple[ExportTable, ...]:
    """Of those DLLs that NVIDIA's wheels bring for the major release ``cuda``: the newest of each.

    Within a major release they only gain names. Raises :class:`LockError`.
    """
    rows: dict[str, Library] = {}
    for library in libraries:
        for row in bringers(library):
            if row.cuda == cuda:
                rows[row.project] = row
    return tuple(_newest(row, {*libraries}, cache) for row in rows.values())


def _newest(row: Library, libraries: set[str], cache: Cache) -> ExportTable:
    own = _Brings(row.project, row.cuda)
    wanted = {one for one in libraries if own(one)}
    here = [one for one in _called_so(cache) if own.is_of(one.head.file)]
    for one in sorted(here, key=lambda kept: Version(kept.head.version), reverse=True):
        if wanted <= {*one.head.libraries}:
            return _cuda(one, row, own)
    offers = [one for one in _offers(row.project, cache) if own.is_of(one.file)]
    if not offers:
        raise LockError(
            f"{row.project}: the index has no wheel of it for Windows", hint="Ask another index."
        )
    newest = max(offers, key=lambda one: _own_version(one.file) or Version("0"))
    return _cuda(_of_offer(newest, cache, wanted.__contains__), row, own)


def _cuda(kept: Kept, row: Library, own: Callable[[str], bool]) -> ExportTable:
    head = kept.head
    said = f"{row.project} {head.version}"
    return ExportTable(said, kept.path, head.sha256, own, stated=not head.whole)


class _Brings:
    """Whether one of NVIDIA's projects brings a DLL; to be sent to other processes."""

    def __init__(self, project: str, cuda: str) -> None:
        self._project, self._cuda = project, cuda

    def __call__(self, library: str) -> bool:
        return any(
            row.project == self._project and row.cuda == self._cuda for row in bringers(library)
        )

    def is_of(self, file: str) -> bool:
        """Whether that wheel is of the project, for Windows and of that major release."""
        try:
            name, version, _, tags = parse_wheel_filename(file)
        except InvalidWheelFilename:
            return False
        right = self._project.rpartition("-cu")[2].isdigit() or str(version.major) == self._cuda
        windows = any(tag.platform == "win_amd64" for tag in tags)
        return name == self._project and right and windows and not version.is_prerelease


def of_msvc_runtime(cache: Cache) -> ExportTable:
    """Of the run-time of C++ that is pinned; raises :class:`LockError`."""
    tool_id = next(id_ for id_, tool in cache.lock.tools.items() if tool.name == _MSVC)
    tool = cache.lock.tool(tool_id)
    kept, _ = _kept(cache, tool.sha256, _any)
    kept = kept or of_wheel(cache.fetch(tool_id), tool.sha256, cache, _any)
    return ExportTable(f"MSVC's run-time {tool.version}", kept.path, tool.sha256, _of_msvc)


def _any(_: str) -> bool:
    return True


def _of_msvc(library: str) -> bool:
    return library.startswith(("msvcp", "vcruntime", "concrt", "vcomp", "vccorlib"))
