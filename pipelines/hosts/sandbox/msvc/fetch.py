"""Microsoft's tree in the cache: fetched by its pins, unpacked once, verified at each use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.core.errors import LockError
from pipelines.core.files import disk_errors, sha256_of, write_atomic
from pipelines.hosts.base import CacheEntry
from pipelines.hosts.sandbox.making import alone, scratch_for
from pipelines.hosts.sandbox.msvc import unpack
from pipelines.hosts.sandbox.msvc.finder import Tree, find
from pipelines.hosts.sandbox.msvc.pins import Payload, Pins, load_packages, load_pins
from pipelines.session.base import Bars
from pipelines.toolchain.lock import Cache

_FILES = "files.json"


def place(cache: Cache, pins: Pins) -> Path:
    """The path of the tree, existing or not."""
    return cache.root / "msvc" / pins.key


def fetched(cache: Cache, pins: Pins, step: Callable[[str], object], bars: Bars) -> Tree:
    """The complete, verified tree of ``pins``; fetched and unpacked unless it exists.

    The caller checks the license. Raises :class:`SetupError` without msitools,
    :class:`StorageError` on a full disk, :class:`LockError` for files that do not match their pins
    and :class:`ConfigError` if they are not a tree.
    """
    target = place(cache, pins)
    with disk_errors(target.parent), alone(target):
        if not _intact(target):
            unpack.require_msitools()
            _make(cache, pins, target, step, bars)
    return find(target, version=pins.toolset, sdk=pins.sdk)


def cache_entries(cache: Cache) -> Iterator[CacheEntry]:
    """Trees in the cache, of which the one of the current pins is useful."""
    try:
        current = load_pins().key
    except LockError:
        current = ""
    folder = cache.root / "msvc"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and not path.name.startswith("."):
            yield CacheEntry("MSVC from Microsoft", path, path.name == current)


def _make(
    cache: Cache, pins: Pins, target: Path, step: Callable[[str], object], bars: Bars
) -> None:
    packages = load_packages()
    store = Cache(pins.as_tools(), cache.root, wheelhouse=cache.wheelhouse, offline=cache.offline)
    archives = [payload for name in packages.packages for payload in pins.of(name)]
    sdk = {payload.file: payload for payload in pins.of(packages.sdk.package)}
    installers = [sdk[name] for name in packages.sdk.files]
    step("fetching MSVC and the Windows SDK from Microsoft")
    store.fetch_all([payload.sha256 for payload in (*archives, *installers)], bars)
    needs = {payload.file: _cabinets(store, payload, sdk) for payload in installers}
    store.fetch_all([cab.sha256 for cabs in needs.values() for cab in cabs], bars)
    step("unpacking them")
    with scratch_for(target) as scratch:
        tree = unpack.Target(scratch)
        for payload in archives:
            unpack.unpack_vsix(store.fetch(payload.sha256), tree)
        for payload in installers:
            cabinet_files = {cab.file: store.fetch(cab.sha256) for cab in needs[payload.file]}
            unpack.unpack_msi(store.fetch(payload.sha256), cabinet_files, tree)
        find(scratch, version=pins.toolset, sdk=pins.sdk)
        write_atomic(scratch / _FILES, json.dumps(_listed(scratch)).encode())
        scratch.rename(target)


def _cabinets(store: Cache, installer: Payload, sdk: dict[str, Payload]) -> list[Payload]:
    names = unpack.cabinets(store.fetch(installer.sha256))
    if unknown := [name for name in names if name not in sdk]:
        raise LockError(
            f"{installer.file} needs {', '.join(unknown[:5])}, which are not pinned",
            hint="Type: invoke lock --only vs-channel-2022,msvc",
        )
    return [sdk[name] for name in names]


def _listed(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Size, time (ns) and sha256 of each file.

    The time is that of the last inode change, which unlike the modification time cannot be set.
    """
    digests = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        stat = path.stat()
        name = path.relative_to(folder).as_posix()
        digests[name] = (stat.st_size, stat.st_ctime_ns, sha256_of(path))
    return digests


def _intact(target: Path) -> bool:
    """Whether each file is as unpacked; one with another time is hashed."""
    try:
        data = json.loads((target / _FILES).read_text("utf-8"))
        if {p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()} != {
            *data,
            _FILES,
        }:
            return False
        for name, (size, time, sha256) in data.items():
            stat = (target / name).stat()
            if stat.st_size != size:
                return False
            if stat.st_ctime_ns != time and sha256_of(target / name) != sha256:
                return False
    except (OSError, ValueError, TypeError, AttributeError):
        return False
    return bool(data)
