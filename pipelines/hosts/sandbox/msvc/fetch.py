"""Microsoft's tree in the cache: fetched by its pins, unpacked once, compared at each use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.core.errors import LockError
from pipelines.core.files import disk_errors, sha256_of, write_atomic
from pipelines.hosts.base import Kept
from pipelines.hosts.sandbox.making import alone, scratch_for
from pipelines.hosts.sandbox.msvc import unpack
from pipelines.hosts.sandbox.msvc.finder import Tree, find
from pipelines.hosts.sandbox.msvc.pins import Payload, Pins, load_packages, load_pins
from pipelines.session.base import Bars
from pipelines.toolchain.lock import Cache

_FILES = "files.json"


def place(cache: Cache, pins: Pins) -> Path:
    """Where the tree is, or will be."""
    return cache.root / "msvc" / pins.key


def fetched(cache: Cache, pins: Pins, step: Callable[[str], object], bars: Bars) -> Tree:
    """The tree of ``pins``, whole and verified; fetched and unpacked unless it is there.

    Its licence is the caller's to ask for. Raises :class:`SetupError` without msitools,
    :class:`StorageError` on a full disk, :class:`LockError` for files that are not the pinned ones
    and :class:`ConfigError` when they are no tree.
    """
    target = place(cache, pins)
    with disk_errors(target.parent), alone(target):
        if not _whole(target):
            unpack.require_msitools()
            _make(cache, pins, target, step, bars)
    return find(target, version=pins.toolset, sdk=pins.sdk)


def kept(cache: Cache) -> Iterator[Kept]:
    """Trees in the cache, of which that of today's pins is useful."""
    try:
        current = load_pins().key
    except LockError:
        current = ""
    folder = cache.root / "msvc"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and not path.name.startswith("."):
            yield Kept("MSVC from Microsoft", path, path.name == current)


def _make(
    cache: Cache, pins: Pins, target: Path, step: Callable[[str], object], bars: Bars
) -> None:
    wanted = load_packages()
    store = Cache(pins.as_tools(), cache.root, wheelhouse=cache.wheelhouse, offline=cache.offline)
    archives = [one for name in wanted.packages for one in pins.of(name)]
    sdk = {one.file: one for one in pins.of(wanted.sdk.package)}
    installers = [sdk[name] for name in wanted.sdk.files]
    step("fetching MSVC and the Windows SDK from Microsoft")
    store.fetch_all([one.sha256 for one in (*archives, *installers)], bars)
    needs = {one.file: _cabinets(store, one, sdk) for one in installers}
    store.fetch_all([cab.sha256 for cabs in needs.values() for cab in cabs], bars)
    step("unpacking them")
    with scratch_for(target) as scratch:
        tree = unpack.Target(scratch)
        for one in archives:
            unpack.unpack_vsix(store.fetch(one.sha256), tree)
        for one in installers:
            beside = {cab.file: store.fetch(cab.sha256) for cab in needs[one.file]}
            unpack.unpack_msi(store.fetch(one.sha256), beside, tree)
        find(scratch, version=pins.toolset, sdk=pins.sdk)
        write_atomic(scratch / _FILES, json.dumps(_listed(scratch)).encode())
        scratch.rename(target)


def _cabinets(store: Cache, installer: Payload, sdk: dict[str, Payload]) -> list[Payload]:
    names = unpack.cabinets(store.fetch(installer.sha256))
    if unknown := [name for name in names if name not in sdk]:
        raise LockError(
            f"{installer.file} needs {', '.join(unknown[:5])}, of which there are no pins",
            hint="Type: invoke lock --only vs-channel-2022,msvc",
        )
    return [sdk[name] for name in names]


def _listed(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Size, time (ns) and sha256 of each file.

    The time is that of its last change by anybody, which unlike that of its content nobody can set.
    """
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        stat = path.stat()
        name = path.relative_to(folder).as_posix()
        found[name] = (stat.st_size, stat.st_ctime_ns, sha256_of(path))
    return found


def _whole(target: Path) -> bool:
    """Whether each file is as it was unpacked; one that was changed since then is hashed."""
    try:
        told = json.loads((target / _FILES).read_text("utf-8"))
        if {p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()} != {
            *told,
            _FILES,
        }:
            return False
        for name, (size, time, sha256) in told.items():
            stat = (target / name).stat()
            if stat.st_size != size:
                return False
            if stat.st_ctime_ns != time and sha256_of(target / name) != sha256:
                return False
    except (OSError, ValueError, TypeError, AttributeError):
        return False
    return bool(told)
