"""sccache for the length of one build: its server, its figures, its directory.

The server is started here and not by the first ``sccache nvcc``: that one would end with the
build's process group and might hold the pipe of its log. It alone is given secrets. Compilers are
its children, so it ends, with all of them, when the build does.

A unit is known by the absolute paths of its source and of all that it includes. nvcc hands the
first to cicc and cudafe++, and sccache takes their arguments into the key, with SCCACHE_BASEDIRS or
without. Jobs have directories of their own, so while it is compiled a tree is moved to one fixed
place, and back; so are, by a link, the packages of the Python that builds.
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
from .fixedplace import linked, moved
from .rpc import idempotent

#: Holds the secrets, as JSON, on their way from the controller to this process; gone at once.
SECRETS = "WCW_CACHE_SECRETS"

_LOCK = "in-use"
_ENTRY = re.compile(r"[0-9a-f]{32,64}")
_TURN = 10.0  # seconds that a build before this one may take to let go


class Spec(TypedDict):
    """The cache that a build is to use."""

    kind: str
    executable: str
    """sccache."""
    directory: str
    environment: dict[str, str]
    """sccache's variables, without secrets."""
    remote: list[str]
    """Names in it that are left out for the local cache; empty when that is the one asked for."""
    nvcc: str
    place: str
    """Where the source is compiled; empty: where it is."""
    packages: str
    """Where the packages of the Python that builds are found meanwhile; empty: where they are."""
    pinned: bool
    """Whether all tools are."""
    without: dict[str, list[str]]
    """Words that variables of the build do not have with the cache."""


class _Steps(TypedDict, total=False):
    """Counts of steps.

    A unit of nvcc is several (cudafe++, cicc, ptxas), and one with a miss costs what that step
    costs.
    """

    requests: int
    hits: int
    misses: int
    missed: dict[str, int]
    not_cached: int
    errors: int
    """Of all kinds."""
    most: int | None
    """Bytes that the cache may have."""
    version: str


class Figures(_Steps, total=False):
    """Of a server; empty without a cache, or when nobody answers."""

    bytes: int | None
    """Size of the cache, where that is known."""


class Stats(_Steps):
    """Of the local cache, and of a build that runs."""

    entries: int
    bytes: int


class Pruned(TypedDict):
    """What was removed: entries and bytes; ``bytes`` are left."""

    busy: bool
    """A build uses the cache: it was left alone."""
    removed: int
    freed: int
    bytes: int


@dataclass
class Running:
    """What a build is given: where its source is, and what to add to its environment."""

    source: pathlib.Path
    environment: dict[str, str] = field(default_factory=dict)
    """Empty when there is no cache; then ``said`` says why."""
    launcher: list[str] = field(default_factory=list)
    """Words to put before a compiler that torch does not start."""
    without: dict[str, list[str]] = field(default_factory=dict)
    """Words to leave out of variables."""
    said: str = ""
    _ask: list[str] = field(default_factory=list)

    def join(self, environment: dict[str, str]) -> None:
        """Make a build's environment one with the cache."""
        environment |= self.environment
        for name in self.without.keys() & environment.keys():
            for word in self.without[name]:  # the others keep the blanks that may be quoted
                one = rf"(?<!\S){re.escape(word)}(?!\S) ?"
                environment[name] = re.sub(one, "", environment[name]).strip()

    def line(self) -> bytes:
        """``said`` as a line for the build's log."""
        return f"compile cache: {self.said}\n".encode()

    def figures(self) -> Figures:
        """Of this build."""
        return _stats(self._ask, self.environment) if self._ask else {}


@contextlib.contextmanager
def running(spec: Spec | None, source: pathlib.Path) -> Iterator[Running]:
    """Have a cache for the tree ``source`` while the block runs; work on ``.source`` within.

    Whatever is wrong with the cache, the build goes on without it.
    """
    secrets = _secrets()
    if spec is None:
        yield Running(source, said="off")
        return
    with contextlib.ExitStack() as stack:
        try:
            made = _enter(stack, spec, secrets, source)
        except OSError as error:
            stack.close()
            made = Running(source, said=f"not used: {error}")
        yield made


def _secrets() -> dict[str, str]:
    """What the controller handed over, taken out of this process' environment."""
    try:
        told = json.loads(os.environ.pop(SECRETS, "{}"))
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in told.items()} if isinstance(told, dict) else {}


def _enter(
    stack: contextlib.ExitStack,
    spec: Spec,
    secrets: dict[str, str],
    source: pathlib.Path,
) -> Running:
    if not os.path.isfile(spec["executable"]):  # noqa: PTH113 - a host's path, as a string
        return Running(source, said=f"not used: there is no {spec['executable']}")
    directory = pathlib.Path(spec["directory"])
    protected_dirs.make(directory)
    # sccache: "the local storage only supports a single server at a time".
    if not stack.enter_context(locks.claim(directory / _LOCK, _TURN)):
        return Running(source, said="not used: another build on this host is at it")
    sccache.stop(spec["executable"], directory)  # one whose runner was killed
    place, packages = source, None
    if spec["place"]:
        place = stack.enter_context(moved(source, pathlib.Path(spec["place"])))
    if spec["packages"]:
        packages = stack.enter_context(linked(pathlib.Path(spec["packages"])))
    wanted, failed = dict(spec["environment"]), ""
    local = {key: value for key, value in wanted.items() if key not in spec["remote"]}
    for environment, more in ((wanted, secrets), (local, {}))[: 1 + bool(spec["remote"])]:
        try:
            address = stack.enter_context(
                sccache.server(spec["executable"], directory, {**environment, **more})
            )
        except OSError as error:
            failed = f"{spec['kind']} is not used: {error}"
            for value in more.values():
                failed = failed.replace(value, "***")
            continue
        told = {**environment, **address, "SCCACHE_IGNORE_SERVER_IO_ERROR": "1"}
        told["PYTORCH_NVCC"] = quoted([spec["executable"], spec["nvcc"]])
        if packages is not None:
            told[buildwheel.PACKAGES] = str(packages)
        if spec["pinned"]:
            # Where there are dependency files to be made, sccache runs nvcc's preprocessor once
            # more for them, hit or miss. Pinned tools and sources need none: others, other job.
            told["TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"] = "1"
        where = "local disk" if environment == local else spec["kind"]
        said = f"{failed}; {where} instead" if failed else f"{where}, {directory}"
        words = [spec["executable"]]
        return Running(place, told, words, spec["without"], said, words)
    return Running(place, said=failed)


def quoted(words: list[str]) -> str:
    """``words`` as one command line of this system."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


# -- figures and room -----------------------------------------------------------------------------


def _stats(command: list[str], address: dict[str, str]) -> Figures:
    return figures(sccache.tell([*command, "--show-stats", "--stats-format=json"], address))


def figures(text: str) -> Figures:
    """``sccache --show-stats --stats-format=json`` in a few numbers; empty if it is none."""
    try:
        told = json.loads(text)
        stats = told["stats"]
        return {
            "requests": int(stats["compile_requests"]),
            "hits": sum(stats["cache_hits"]["counts"].values()),
            "misses": sum(stats["cache_misses"]["counts"].values()),
            "missed": dict(stats["cache_misses"]["adv_counts"]),
            "not_cached": sum(stats["not_cached"].values()),
            "errors": sum(stats["cache_errors"]["counts"].values())
            + sum(stats[key] for key in ("cache_read_errors", "cache_write_errors"))
            + stats["cache_timeouts"],
            "bytes": told.get("cache_size"),
            "most": told.get("max_cache_size"),
            "version": str(told.get("version", "")),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


@idempotent
def stats(executable: str, directory: str) -> Stats:
    """The local cache, and :func:`figures` of a build that runs.

    Nothing is started for it; a missing directory is an empty cache.
    """
    rows = _entries(pathlib.Path(directory))
    address = sccache.address_of(pathlib.Path(directory))
    told: Figures = _stats([executable], address) if sccache.answers(address) else {}
    return {**told, "entries": len(rows), "bytes": sum(size for _, size, _ in rows)}


@idempotent
def prune(directory: str, most: int) -> Pruned:
    """Remove what was used longest ago until the local cache has ``most`` bytes."""
    folder = pathlib.Path(directory)
    rows = sorted(_entries(folder), key=lambda row: row[2])
    size = sum(row[1] for row in rows)
    told: Pruned = {"busy": False, "removed": 0, "freed": 0, "bytes": size}
    if size <= most:
        return told
    with locks.claim(folder / _LOCK) as mine:
        if not mine:
            return {**told, "busy": True}
        for path, held, _ in rows:
            if told["bytes"] <= most:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                told["removed"] += 1
                told["freed"] += held
                told["bytes"] -= held
    return told


def _entries(folder: pathlib.Path) -> list[tuple[pathlib.Path, int, float]]:
    """Path, size and time of last use of what sccache keeps; nothing else that lies there."""
    rows = []
    for base, _, names in os.walk(folder):
        for name in names:
            if _ENTRY.fullmatch(name):
                with contextlib.suppress(OSError):
                    path = pathlib.Path(base, name)
                    found = path.stat()
                    rows.append((path, found.st_size, found.st_mtime))
    return rows
