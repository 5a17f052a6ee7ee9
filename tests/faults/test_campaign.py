"""A randomised campaign: many builds, faults at random moments, controllers killed in mid-work.

Seeded: ``CAMPAIGN_SEED`` and ``CAMPAIGN_BUILDS`` choose another one. Nothing may be lost, nothing
may run twice at once, every byte must be right. The line that it prints is that of docs/use.md.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from simulator import SimulatedHost, hang_up, refuse, reset, slow
from winrm_programs import PASSWORD

from pipelines.core.paths import PACKAGE
from pipelines.hosts.sandbox.wsman import faults

BUILDS = int(os.environ.get("CAMPAIGN_BUILDS", "16"))
SEED = int(os.environ.get("CAMPAIGN_SEED", "20261121"))
HERE = Path(__file__).parent
#: Exit codes of a controller: host, sign-in, build (given up after too many losses), killed.
EXPECTED = {5, 6, 8, -signal.SIGKILL}
#: Acts that are done at once; the others wait for a request that they hit.
DIRECT = ("host restarted", "runner killed", "shells killed", "password rotated")
PATIENCE = 180.0  # seconds a build may take, faults and all

Act = Callable[["Build"], None]


class Build:
    """One order, its host, its controller of the moment, and what befalls them."""

    def __init__(self, number: int, place: Path) -> None:
        self.random = random.Random(SEED * 100_003 + number)
        self.place = place
        self.host = SimulatedHost(place / "host")
        self.there = self.host.place / "b"
        self.there.mkdir()
        self.home = place / "home"
        self.home.mkdir()
        self.password = place / "password"
        self.password.write_text(PASSWORD)
        self.source = self.random.randbytes(self.random.randrange(1000, 3_000_000))
        (place / "source").write_bytes(self.source)
        self.units = self.random.randrange(4, 10)
        self.size = self.random.randrange(1000, 400_000)
        order = {"units": self.units, "size": self.size, "seconds": self.random.uniform(0.02, 0.2)}
        (self.there / "order.json").write_text(json.dumps(order))
        self.restarts = 0
        self.done: Counter[str] = Counter()
        self.controller = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        order = {
            "url": self.host.endpoint().url,
            "password": str(self.password),
            "out": str(self.place / "out"),
            "home": str(self.home),
            "there": str(self.there),
            "source": str(self.place / "source"),
            "program": str(HERE / "unit_build.py"),
            "build": str(self.place),
        }
        (self.place / "order.json").write_text(json.dumps(order))
        self.log = (self.place / "controller.log").open("ab")
        return subprocess.Popen(
            [sys.executable, str(HERE / "controller.py"), str(self.place / "order.json")],
            cwd=PACKAGE.parent,
            env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

    def kill_runner(self) -> None:
        """What the kernel does when memory is short: the children live on for a moment."""
        state = self.there / "state.json"
        with contextlib.suppress(OSError, ValueError):
            os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)

    def kill_controller(self) -> None:
        self.controller.kill()
        self.controller.wait()

    def rotate(self) -> None:
        password = f"Rotated{self.random.randrange(10**6)}!"
        self.host.rotate_password(password)
        self.password.write_text(password)

    def run(self) -> None:
        """Until it is done: faults at random moments, and a user who types the command again."""
        left = self.random.randrange(2, 9)
        deadline = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < deadline, self.told()
            try:
                code = self.controller.wait(self.random.uniform(0.05, 0.6) if left else 1.0)
            except subprocess.TimeoutExpired:
                if left:
                    left -= 1
                    name = self.random.choice(list(ACTS))
                    self.done[name] += 1
                    ACTS[name](self)
                continue
            if code == 0:
                return
            assert code in EXPECTED, f"the controller exited with {code}: {self.told()}"
            self.restarts += 1
            assert self.restarts < 25, self.told()
            self.controller = self.start()

    def told(self) -> str:
        return (self.place / "controller.log").read_text()[-3000:]

    def check(self) -> None:
        """What was promised."""
        wheel = b"".join(
            hashlib.shake_256(self.source + bytes([unit])).digest(self.size)
            for unit in range(self.units)
        )
        assert (self.home / "wheel").read_bytes() == wheel, "a byte is wrong"
        assert not (self.there / "twice").exists(), "it ran twice at once"
        compiled = Counter((self.there / "compiled").read_text().split())
        assert compiled == {str(unit): 1 for unit in range(self.units)}, "a unit was made again"
        logs = sorted((self.place / "out").glob("2*/build.log"))
        told = logs[-1].read_text().splitlines()
        assert told[-1] == "done"
        assert told[-1 - self.units : -1] == [f"[{u + 1}/{self.units}]" for u in range(self.units)]
        there = sorted(self.there.glob("log.*"), key=lambda path: int(path.suffix[1:]))
        whole = b"".join(path.read_bytes() for path in there)
        if len(logs) == 1:
            assert logs[0].read_bytes() == whole, "the log is not the host's"
        else:  # given up after too many losses within an hour, and started again by the user
            assert whole.endswith(logs[-1].read_bytes()), "the log is not the host's"


ACTS: dict[str, Act] = {
    "controller killed": lambda b: b.kill_controller(),
    "host restarted": lambda b: b.host.reboot(down=b.random.uniform(0.05, 0.5)),
    "runner killed": lambda b: b.kill_runner(),
    "shells killed": lambda b: b.host.kill_shells(),
    "Receive reset": lambda b: b.host.faults.plan("Receive", reset(b.random.randrange(60))),
    "Receive hung up": lambda b: b.host.faults.plan("Receive", hang_up),
    "Send reset": lambda b: b.host.faults.plan("Send", reset()),
    "busy": lambda b: b.host.faults.plan("Send", refuse(faults.BUSY), times=2),
    "slow": lambda b: b.host.faults.plan("Receive", slow(0.5), times=2),
    "password rotated": lambda b: b.rotate(),
}


def test_nothing_is_lost(tmp_path: Path) -> None:
    began = time.monotonic()
    befell: Counter[str] = Counter()
    bad: list[str] = []
    hits: list[int] = []

    def one(number: int) -> None:
        place = tmp_path / str(number)
        place.mkdir()
        build = Build(number, place)
        try:
            build.run()
            build.check()
        except AssertionError as error:
            bad.append(f"build {number} of seed {SEED}: {error}\n{build.told()}")
        finally:
            build.kill_controller()
            build.host.stop()
            befell.update(build.done)
            hits.append(build.host.faults.hits)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(BUILDS)))
    kills = befell["controller killed"]
    done = sum(hits) + sum(befell[act] for act in DIRECT)
    sys.stdout.write(
        f"\nCAMPAIGN seed {SEED}: {BUILDS} builds, {done} faults, {kills} "
        f"controllers killed, {len(bad)} builds lost, wrong or run twice, "
        f"{time.monotonic() - began:.0f} s; {dict(befell)}\n"
    )
    assert not bad, "\n".join(bad)
