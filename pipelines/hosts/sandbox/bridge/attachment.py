"""A sandbox's bridge: installed before Windows starts, tested afterwards, reported at any time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from pipelines.core.errors import HostError
from pipelines.core.evidence import Bridge
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import safe_last_lines, safe_line
from pipelines.core.model import Model
from pipelines.hosts.base import CacheEntry, supply_of_sandbox
from pipelines.hosts.sandbox import bridged
from pipelines.hosts.sandbox.bridge import building, driver, installing, selftest
from pipelines.hosts.sandbox.bridge.driver import Driver, Gpu
from pipelines.hosts.sandbox.bridge.problems import find_driver_problems, require_usable_driver
from pipelines.hosts.sandbox.state import read_live_state
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache

#: In ``HOME/run``: the result of the last self-test.
TESTED = "bridge.json"
_WARNINGS = 20


class _Tested(Model):
    pid: int
    """Of the service it was started with."""
    started: str
    """Its start time, since process numbers are reused."""
    version: str
    """Version of the driver."""
    gpus: tuple[str, ...]
    """The tested GPUs: bus addresses and UUIDs."""
    result: str

    def is_of(self, pid: int, current: Driver, numbers: tuple[int, ...]) -> bool:
        """Whether it was for this service, with this driver, on these GPUs."""
        own = (pid, _process_start_time(pid), current.version, _ids(current.chosen(numbers)))
        return (self.pid, self.started, self.version, self.gpus) == own


class Attachment:
    """The bridge of the sandbox in ``home`` to the GPUs with these numbers; empty: all."""

    def __init__(self, home: Path, numbers: tuple[int, ...], step: Callable[[str], object]) -> None:
        self.home = home
        self.numbers = numbers
        self.step = step

    @property
    def tools(self) -> tuple[str, ...]:
        """The lock entries it is built from, besides those of the image."""
        return (building.RUNTIME,)

    @property
    def prefix(self) -> Path:
        """The Windows it belongs to."""
        return self.home / "prefix"

    def require(self) -> Driver:
        """Query this machine's driver; raises the first problem, with a hint."""
        gpu_driver = driver.inspect_gpu_driver()
        require_usable_driver(gpu_driver, self.numbers)
        return gpu_driver

    def problems(self) -> bool:
        """The problems of this machine's driver."""
        return bool(find_driver_problems(driver.inspect_gpu_driver(), self.numbers))

    def install(self, cache: Cache) -> None:
        """Install the bridge to the current driver, unless it is there and intact.

        Raises what :meth:`require` does, and what building it raises.
        """
        gpu_driver = self.require()
        prefix = Prefix(self.prefix)
        made = building.ensure_bridge(prefix, cache, gpu_driver.libraries, self.step)
        installing.install_bridge(made, prefix, gpu_driver.directory)

    def test(self, python: str, pid: int) -> None:
        """Test it once per start, identified by the service's ``pid``; raises :class:`HostError`.

        ``python`` is the Windows path of the Python that runs builds and tests.
        """
        gpu_driver = self.require()
        if (tested := _tested(self.home)) and tested.is_of(pid, gpu_driver, self.numbers):
            return
        chosen = gpu_driver.chosen(self.numbers)
        passed = selftest.run_bridge_selftest(Prefix(self.prefix), python, chosen)
        record = _Tested(
            pid=pid,
            started=_process_start_time(pid),
            version=gpu_driver.version,
            gpus=_ids(chosen),
            result=str(passed),
        )
        write_atomic(self.home / "run" / TESTED, record.model_dump_json().encode())
        self.step(f"GPU bridge: {gpu_driver}, {'; '.join(map(str, chosen))}")
        self.step(f"GPU bridge: {passed}")

    def summary(self) -> Bridge:
        """What is known about it; nothing is started."""
        gpu_driver = driver.inspect_gpu_driver()
        state = read_live_state(self.home / "run")
        tested = _tested(self.home)
        current = bool(tested and state and tested.is_of(state["pid"], gpu_driver, self.numbers))
        return Bridge(
            driver=gpu_driver.version,
            cuda=gpu_driver.cuda,
            gpus=tuple(map(str, gpu_driver.chosen(self.numbers))),
            built=bridged.is_bridge_installed(self.prefix),
            selftest=safe_line(tested.result, 200) if tested and current else "",
            warnings=tuple(safe_last_lines(bridged.bridge_warnings(self.prefix), _WARNINGS)),
        )


def cache_entries(cache: Cache) -> Iterator[CacheEntry]:
    """Bridges in the cache; those to the current driver are useful: one per Python."""
    folder = cache.root / "bridges"
    folders = sorted(folder.iterdir()) if folder.is_dir() else []
    libraries = driver.inspect_gpu_driver().libraries if folders else ()
    current: set[str] = set()
    with contextlib.suppress(HostError):  # without a driver there is no bridge
        for python in (supply_of_sandbox(cache.lock).python or ()) if libraries else ():
            current.add(building.current_bridge_key(cache, python, libraries))
    for path in folders:
        if path.is_dir() and not path.name.startswith("."):
            yield CacheEntry("GPU bridges", path, path.name in current)


def _process_start_time(pid: int) -> str:
    """When a process started, in ticks since which boot of the machine; empty: unknown."""
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


def bridge_plan_notes(base: Path, numbers: tuple[int, ...]) -> Iterator[str]:
    """For a plan: the GPUs and their driver, and the bridge of each Python's sandbox."""
    gpu_driver = driver.inspect_gpu_driver()
    if find_driver_problems(gpu_driver, numbers):
        return  # a rule reports it
    yield f"GPU through a bridge: {'; '.join(map(str, gpu_driver.chosen(numbers)))}; {gpu_driver}"
    homes = sorted(base.parent.glob(f"{base.name}-py*-gpu")) if base.parent.is_dir() else []
    there = [home for home in homes if bridged.is_bridge_installed(home / "prefix")]
    for home in there:
        tested = Attachment(home, numbers, lambda _: None).summary().selftest
        yield f"bridge in {home.name}: {f'self-test: {tested}' if tested else 'not tested yet'}"
    if not there:
        yield "bridge: not built yet; it is built and tested when the sandbox starts"
