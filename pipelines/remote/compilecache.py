"""sccache for the duration of one build: its server, its statistics, its directory.

The server is started here and not by the first ``sccache nvcc``: that one would end with the
build's process group and might hold the pipe of its log. Only the server gets the secrets.
Compilers are its children, so it ends, with all of them, when the build does.

The cache key contains the absolute paths of a unit's source and of everything it includes. nvcc
passes the former to cicc and cudafe++, and sccache includes their arguments in the key, with or
without SCCACHE_BASEDIRS. Jobs have separate directories, so during compilation a tree is moved to
one fixed path, and back; the packages of the building Python are accessible there through a link.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypedDict

from . import buildwheel, locks, protected_dirs, sccache
from .fixed_paths import linked, moved_to
from .rpc import idempotent

#: Passes the secrets, as JSON, from the controller to this process; deleted at once.
SECRETS = "WCW_CACHE_SECRETS"

_LOCK = "in-use"
_ENTRY = re.compile(r"[0-9a-f]{32,64}")
_TURN = 10.0  # seconds to wait for a previous build to release it


class Spec(TypedDict):
    """The cache that a build is to use."""

    kind: str
    executable: str
    """sccache."""
    directory: str
    environment: dict[str, str]
    """sccache's variables, without secrets."""
    remote: list[str]
    """Variables of it to omit for the local cache; empty when the local cache was requested."""
    nvcc: str
    place: str
    """Directory to compile the source in; empty: where it is."""
    packages: str
    """Directory of the building Python's packages during the build; empty: where they are."""
    pinned: bool
    """Whether all tools are pinned."""
    without: dict[str, list[str]]
    """Words removed from variables of the build while the cache is used."""


class _Steps(TypedDict, total=False):
    """Counts of steps.

    A unit of nvcc has several (cudafe++, cicc, ptxas), and one with a miss takes as long as that
    step.
    """

    requests: int
    hits: int
    misses: int
    missed: dict[str, int]
    not_cached: int
    errors: int
    """Of all kinds."""
    most: int | None
    """Capacity of the cache in bytes."""
    version: str


class Figures(_Steps, total=False):
    """Statistics of a server; empty without a cache, or if it does not respond."""

    bytes: int | None
    """Size of the cache, if known."""


class Stats(_Steps):
    """Statistics of the local cache, and of a running build."""

    entries: int
    bytes: int


class Pruned(TypedDict):
    """What was removed: entries and bytes; ``bytes`` remain."""

    busy: bool
    """A build is using the cache, which was left alone."""
    removed: int
    freed: int
    bytes: int


@dataclass
class Running:
    """The parameters of a build: its source directory, and its additional environment."""

    source: pathlib.Path
    environment: dict[str, str] = field(default_factory=dict)
    """Empty when there is no cache; then ``said`` gives the reason."""
    launcher: list[str] = field(default_factory=list)
    """Words to put before a compiler that torch does not start."""
    without: dict[str, list[str]] = field(default_factory=dict)
    """Words to remove from variables."""
    status: str = ""
    _ask: list[str] = field(default_factory=list)

    def join(self, environment: dict[str, str]) -> None:
        """Add the cache to a build's environment."""
        environment |= self.environment
        for name in self.without.keys() & environment.keys():
            for word in self.without[name]:  # the others keep their spaces, which may be quoted
                pattern = rf"(?<!\S){re.escape(word)}(?!\S) ?"
                environment[name] = re.sub(pattern, "", environment[name]).strip()

    def line(self) -> bytes:
        """``said`` as a line for the build's log."""
        return f"compile cache: {self.status}\n".encode()

    def figures(self) -> Figures:
        """Of this build."""
        return _stats(self._ask, self.environment) if self._ask else {}


@contextlib.contextmanager
def running(spec: Spec | None, source: pathlib.Path) -> Iterator[Running]:
    """Provide a cache for the tree ``source`` while the block runs; work on ``.source`` within.

    If anything is wrong with the cache, the build continues without it.
    """
    secrets = _secrets()
    if spec is None:
        yield Running(source, status="off")
        return
    with contextlib.ExitStack() as stack:
        try:
            made = _enter(stack, spec, secrets, source)
        except OSError as error:
            stack.close()
            made = Running(source, status=f"not used: {error}")
        yield made


def _secrets() -> dict[str, str]:
    """The controller's secrets, removed from this process' environment."""
    try:
        secrets = json.loads(os.environ.pop(SECRETS, "{}"))
    except ValueError:
        return {}
    return (
        {str(key): str(value) for key, value in secrets.items()}
        if isinstance(secrets, dict)
        else {}
    )


def _enter(
    stack: contextlib.ExitStack,
    spec: Spec,
    secrets: dict[str, str],
    source: pathlib.Path,
) -> Running:
    if not os.path.isfile(spec["executable"]):  # noqa: PTH113 - a host's path, as a string
        return Running(source, status=f"not used: {spec['executable']} does not exist")
    directory = pathlib.Path(spec["directory"])
    protected_dirs.make(directory)
    # sccache: "the local storage only supports a single server at a time".
    if not stack.enter_context(locks.claim(directory / _LOCK, _TURN)):
        return Running(source, status="not used: another build on this host is using it")
    sccache.stop(spec["executable"], directory)  # left by a killed runner
    place, packages = source, None
    if spec["place"]:
        place = stack.enter_context(moved_to(source, pathlib.Path(spec["place"])))
    if spec["packages"]:
        packages = stack.enter_context(linked(pathlib.Path(spec["packages"])))
    requested, failed = dict(spec["environment"]), ""
    local = {key: value for key, value in requested.items() if key not in spec["remote"]}
    for environment, more in ((requested, secrets), (local, {}))[: 1 + bool(spec["remote"])]:
        try:
            address = stack.enter_context(
                sccache.server(spec["executable"], directory, {**environment, **more})
            )
        except OSError as error:
            failed = f"{spec['kind']} is not used: {error}"
            for value in more.values():
                failed = failed.replace(value, "***")
            continue
        variables = {**environment, **address, "SCCACHE_IGNORE_SERVER_IO_ERROR": "1"}
        variables["PYTORCH_NVCC"] = quoted([spec["executable"], spec["nvcc"]])
        if packages is not None:
            variables[buildwheel.PACKAGES] = str(packages)
        if spec["pinned"]:
            # If dependency files are generated, sccache runs nvcc's preprocessor again for them,
            # hit or miss. Pinned tools and sources do not need them: a change gives another job.
            variables["TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"] = "1"
        where = "local disk" if environment == local else spec["kind"]
        description = f"{failed}; {where} instead" if failed else f"{where}, {directory}"
        words = [spec["executable"]]
        return Running(place, variables, words, spec["without"], description, words)
    return Running(place, status=failed)


def quoted(words: list[str]) -> str:
    """``words`` as a command line of this system."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


# -- statistics and space
# -----------------------------------------------------------------------------


def _stats(command: list[str], address: dict[str, str]) -> Figures:
    return figures(sccache.query([*command, "--show-stats", "--stats-format=json"], address))


def figures(text: str) -> Figures:
    """The figures of ``sccache --show-stats --stats-format=json``; empty if it is invalid."""
    try:
        data = json.loads(text)
        stats = data["stats"]
        return {
            "requests": int(stats["compile_requests"]),
            "hits": sum(stats["cache_hits"]["counts"].values()),
            "misses": sum(stats["cache_misses"]["counts"].values()),
            "missed": dict(stats["cache_misses"]["adv_counts"]),
            "not_cached": sum(stats["not_cached"].values()),
            "errors": sum(stats["cache_errors"]["counts"].values())
            + sum(stats[key] for key in ("cache_read_errors", "cache_write_errors"))
            + stats["cache_timeouts"],
            "bytes": data.get("cache_size"),
            "most": data.get("max_cache_size"),
            "version": str(data.get("version", "")),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


@idempotent
def stats(executable: str, directory: str) -> Stats:
    """The local cache, and :func:`figures` of a running build.

    Nothing is started for it; a missing directory is an empty cache.
    """
    rows = _scan_cache_entries(pathlib.Path(directory))
    address = sccache.address_of(pathlib.Path(directory))
    answer: Figures = _stats([executable], address) if sccache.answers(address) else {}
    return {**answer, "entries": len(rows), "bytes": sum(size for _, size, _ in rows)}


@idempotent
def prune(directory: str, most: int) -> Pruned:
    """Remove the least recently used entries until the local cache has ``most`` bytes."""
    folder = pathlib.Path(directory)
    rows = sorted(_scan_cache_entries(folder), key=lambda row: row[2])
    size = sum(row[1] for row in rows)
    pruned: Pruned = {"busy": False, "removed": 0, "freed": 0, "bytes": size}
    if size <= most:
        return pruned
    with locks.claim(folder / _LOCK) as mine:
        if not mine:
            return {**pruned, "busy": True}
        for path, held, _ in rows:
            if pruned["bytes"] <= most:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                pruned["removed"] += 1
                pruned["freed"] += held
                pruned["bytes"] -= held
    return pruned


def _scan_cache_entries(folder: pathlib.Path) -> list[tuple[pathlib.Path, int, float]]:
    """Path, size and time of last use of sccache's entries, ignoring other files."""
    rows = []
    for base, _, names in os.walk(folder):
        for name in names:
            if _ENTRY.fullmatch(name):
                with contextlib.suppress(OSError):
                    path = pathlib.Path(base, name)
                    stat = path.stat()
                    rows.append((path, stat.st_size, stat.st_mtime))
    return rows
