"""A randomised campaign of a fleet: many builds on a few hosts, faults at random moments.

Controllers are killed between any two of their steps, hosts restarted, runners and connections cut.
Nothing may be lost, nothing run twice at once on whatever hosts, every byte must be right.
``FLEET_SEED``, ``FLEET_BUILDS`` and ``FLEET_HOSTS`` choose another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from simulator import SimulatedHost, hang_up, refuse, reset, slow
from winrm_programs import PASSWORD

from pipelines.core.paths import PACKAGE
from pipelines.fleet.ledger import Ledger
from pipelines.hosts.sandbox.wsman import faults

BUILDS = int(os.environ.get("FLEET_BUILDS", "20"))
HOSTS = int(os.environ.get("FLEET_HOSTS", "4"))
SEED = int(os.environ.get("FLEET_SEED", "20261123"))
HERE = Path(__file__).parent
PATIENCE = 900.0
KILLS = 6


class Campaign:
    """The hosts, what is to be built, and the controller of the moment."""

    def __init__(self, place: Path) -> None:
        self.random = random.Random(SEED)
        self.place, self.home, self.out = place, place / "home", place / "out"
        self.home.mkdir()
        self.hosts = {f"h{n}": SimulatedHost(place / f"h{n}") for n in range(HOSTS)}
        self.tasks: dict[str, dict[str, int]] = {}
        for number in range(BUILDS):
            self._order(f"w{number:03}")
        (place / "password").write_text(PASSWORD)
        self.done: Counter[str] = Counter()
        self.controllers = 0
        self.controller = self.start()

    def _order(self, key: str) -> None:
        folder = self.home / key
        folder.mkdir()
        units, size = self.random.randrange(3, 8), self.random.randrange(1000, 200_000)
        order = {
            "units": units,
            "size": size,
            "seconds": self.random.uniform(0.05, 0.4),
            "place": str(folder),
        }
        (folder / "source").write_bytes(self.random.randbytes(self.random.randrange(1000, 500_000)))
        (folder / "order.json").write_text(json.dumps(order))
        self.tasks[key] = {"units": units, "size": size}

    def start(self) -> subprocess.Popen[bytes]:
        self.controllers += 1
        order = {
            "out": str(self.out),
            "home": str(self.home),
            "password": str(self.place / "password"),
            "program": str(HERE / "unit_build.py"),
            "tasks": {key: one["units"] for key, one in self.tasks.items()},
            "hosts": {
                name: {"url": host.endpoint().url, "root": str(host.place / "b")}
                for name, host in self.hosts.items()
            },
        }
        (self.place / "order.json").write_text(json.dumps(order))
        with (self.place / "controller.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(HERE / "fleet_controller.py"), str(self.place / "order.json")],
                cwd=PACKAGE.parent,
                env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wheels(self) -> int:
        return len([*self.home.glob("*/wheel")])

    def kill_runner(self, host: SimulatedHost) -> None:
        """What the kernel does when memory is short."""
        for state in sorted((host.place / "b").glob("*/state.json")):
            with contextlib.suppress(OSError, ValueError):
                os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)

    def run(self) -> None:
        """Until all is built: a fault every now and then, kills spread over the campaign."""
        kills = [BUILDS * (n + 1) // (KILLS + 1) for n in range(KILLS)]
        deadline = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < deadline, self.told()
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.controller.wait(self.random.uniform(0.3, 1.5))
                if code == 0:
                    return
                raise AssertionError(f"the controller exited with {code}: {self.told()}")
            if kills and self.wheels() >= kills[0]:
                kills.pop(0)
                self.done["controller killed"] += 1
                self.controller.kill()
                self.controller.wait()
                with self.ledger() as ledger:
                    if ledger.fact(
                        "ended"
                    ):  # killed on its way out: another one would begin a new fleet
                        return
                self.controller = self.start()
                continue
            name = self.random.choice(list(ACTS))
            self.done[name] += 1
            ACTS[name](self, self.random.choice([*self.hosts.values()]))

    def told(self) -> str:
        return (self.place / "controller.log").read_text()[-4000:]

    def ledger(self) -> contextlib.closing[Ledger]:
        (file,) = self.out.glob("fleet-*/fleet.sqlite")
        return contextlib.closing(Ledger(file.parent))

    def check(self) -> None:
        """What was promised."""
        for key, one in self.tasks.items():
            source = (self.home / key / "source").read_bytes()
            wheel = b"".join(
                hashlib.shake_256(source + bytes([unit])).digest(one["size"])
                for unit in range(one["units"])
            )
            assert (self.home / key / "wheel").read_bytes() == wheel, f"{key}: a byte is wrong"
            assert not (self.home / key / "twice").exists(), f"{key} ran twice at once"
        with self.ledger() as ledger:
            assert [entry.state for entry in ledger.tasks()] == ["done"] * BUILDS, self.told()
            ended = [one for one in ledger.attempts() if one.outcome == "done"]
            assert len(ended) == BUILDS, "each was done once"


Act = Callable[[Campaign, SimulatedHost], None]
ACTS: dict[str, Act] = {
    "host restarted": lambda c, h: h.reboot(down=c.random.uniform(0.05, 1.0)),
    "runner killed": lambda c, h: c.kill_runner(h),
    "shells killed": lambda _, h: h.kill_shells(),
    "Receive reset": lambda c, h: h.faults.plan("Receive", reset(c.random.randrange(60))),
    "Receive hung up": lambda _, h: h.faults.plan("Receive", hang_up),
    "Send reset": lambda _, h: h.faults.plan("Send", reset()),
    "busy": lambda _, h: h.faults.plan("Send", refuse(faults.BUSY), times=2),
    "slow": lambda _, h: h.faults.plan("Receive", slow(0.5), times=2),
}


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    made = Campaign(tmp_path)
    yield made
    made.controller.kill()
    made.controller.wait()
    for host in made.hosts.values():
        host.stop()


def test_a_fleet_loses_nothing(campaign: Campaign) -> None:
    began = time.monotonic()
    campaign.run()
    campaign.check()
    sys.stdout.write(
        f"\nFLEET seed {SEED}: {BUILDS} builds on {HOSTS} hosts, {campaign.controllers} "
        f"controllers, {sum(campaign.done.values())} faults, 0 lost, wrong or run twice, "
        f"{time.monotonic() - began:.0f} s; {dict(campaign.done)}\n"
    )
