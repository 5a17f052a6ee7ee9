"""A sandbox's bridge: put there before Windows starts, tested once it has, told of at any time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from pipelines.core.errors import HostError
from pipelines.core.evidence import Bridge
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import line, texts
from pipelines.core.model import Model
from pipelines.hosts.base import Kept, supply_of_sandbox
from pipelines.hosts.sandbox.bridge import building, driver, installing, selftest
from pipelines.hosts.sandbox.bridge.driver import Driver, Gpu
from pipelines.hosts.sandbox.bridge.lacks import lacks, require
from pipelines.hosts.sandbox.state import published
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache

#: In ``HOME/run``: how the last self-test went.
TESTED = "bridge.json"
_WARNINGS = 20


class _Tested(Model):
    pid: int
    """Of the service at whose start it was."""
    started: str
    """When that was, for numbers of processes come again."""
    version: str
    """Of the driver."""
    gpus: tuple[str, ...]
    """Those that were tested: their places on the bus and UUIDs."""
    told: str

    def is_of(self, pid: int, found: Driver, numbers: tuple[int, ...]) -> bool:
        """Whether it was of this service, with this driver, on these GPUs."""
        own = (pid, _started(pid), found.version, _ids(found.chosen(numbers)))
        return (self.pid, self.started, self.version, self.gpus) == own


class Attached:
    """The bridge of the sandbox in ``home`` to the GPUs of these numbers; empty: to all."""

    def __init__(self, home: Path, numbers: tuple[int, ...], step: Callable[[str], object]) -> None:
        self.home = home
        self.numbers = numbers
        self.step = step

    @property
    def tools(self) -> tuple[str, ...]:
        """The entries of the lock that it is made of, besides those of the image."""
        return (building.RUNTIME,)

    @property
    def prefix(self) -> Path:
        """The Windows that it belongs to."""
        return self.home / "prefix"

    def require(self) -> Driver:
        """Look at this machine's driver; raises what it lacks, with how to fix that."""
        found = driver.look()
        require(found, self.numbers)
        return found

    def lacks(self) -> bool:
        """Whether this machine's driver lacks something."""
        return bool(lacks(driver.look(), self.numbers))

    def install(self, cache: Cache) -> None:
        """Put the bridge to today's driver there, unless it is there and whole.

        Raises what :meth:`require` does, and what building it raises.
        """
        found = self.require()
        prefix = Prefix(self.prefix)
        made = building.built(prefix, cache, found.libraries, self.step)
        installing.install(made, prefix, found.directory)

    def test(self, python: str, pid: int) -> None:
        """Test it once a start, which the service's ``pid`` tells; :class:`HostError` if it fails.

        ``python`` is the Windows path of the one that runs builds and tests.
        """
        found = self.require()
        if (tested := _tested(self.home)) and tested.is_of(pid, found, self.numbers):
            return
        chosen = found.chosen(self.numbers)
        passed = selftest.run(Prefix(self.prefix), python, chosen)
        kept = _Tested(
            pid=pid,
            started=_started(pid),
            version=found.version,
            gpus=_ids(chosen),
            told=str(passed),
        )
        write_atomic(self.home / "run" / TESTED, kept.model_dump_json().encode())
        self.step(f"GPU bridge: {found}, {'; '.join(map(str, chosen))}")
        self.step(f"GPU bridge: {passed}")

    def told(self) -> Bridge:
        """What is known of it; nothing is started."""
        found = driver.look()
        state = published(self.home / "run")
        tested = _tested(self.home)
        current = bool(tested and state and tested.is_of(state["pid"], found, self.numbers))
        return Bridge(
            driver=found.version,
            cuda=found.cuda,
            gpus=tuple(map(str, found.chosen(self.numbers))),
            built=installing.is_installed(self.prefix),
            selftest=line(tested.told, 200) if tested and current else "",
            warnings=tuple(texts(installing.warnings(self.prefix), _WARNINGS)),
        )


def kept(cache: Cache) -> Iterator[Kept]:
    """Bridges in the cache, of which those to today's driver are useful: one a Python."""
    folder = cache.root / "bridges"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    libraries = driver.look().libraries if found else ()
    current: set[str] = set()
    with contextlib.suppress(HostError):  # what is no driver has no bridge
        for python in (supply_of_sandbox(cache.lock).python or ()) if libraries else ():
            current.add(building.key(cache, python, libraries))
    for path in found:
        if path.is_dir() and not path.name.startswith("."):
            yield Kept("GPU bridges", path, path.name in current)


def _started(pid: int) -> str:
    """When a process began, in ticks since which start of the machine; empty: unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
    return f"{boot} {text.rpartition(')')[2].split()[19]}"


def _ids(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    return tuple(f"{gpu.bus} {gpu.uuid}" for gpu in gpus)


def _tested(home: Path) -> _Tested | None:
    try:
        return _Tested.model_validate(json.loads((home / "run" / TESTED).read_text("utf-8")))
    except (OSError, ValueError, ValidationError):
        return None


def notes(base: Path, numbers: tuple[int, ...]) -> Iterator[str]:
    """For a plan: the GPUs and their driver, and the bridge of each Python's sandbox."""
    found = driver.look()
    if lacks(found, numbers):
        return  # a rule says so
    yield f"GPU through a bridge: {'; '.join(map(str, found.chosen(numbers)))}; {found}"
    homes = sorted(base.parent.glob(f"{base.name}-py*-gpu")) if base.parent.is_dir() else []
    there = [home for home in homes if installing.is_installed(home / "prefix")]
    for home in there:
        tested = Attached(home, numbers, lambda _: None).told().selftest
        yield f"bridge in {home.name}: {f'self-test: {tested}' if tested else 'not tested yet'}"
    if not there:
        yield "bridge: not built yet; it is, and is tested, when the sandbox starts"
