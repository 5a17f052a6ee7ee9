"""A cluster whose parties are killed at random moments, each of them again and again.

Nothing may be lost, nothing run twice at once, every wheel must be what its member has built.
``CLUSTER_SEED`` and ``CLUSTER_CELLS`` choose another campaign.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_controllers import source_of

from pipelines.files import sha256_of
from pipelines.fleet.cluster import certificates
from pipelines.fleet.kept import differs
from pipelines.fleet.ledger import Ledger
from pipelines.paths import PACKAGE
from pipelines.record import SmokeResult
from pipelines.run import Run

pytestmark = pytest.mark.faults

SEED = int(os.environ.get("CLUSTER_SEED", "20261123"))
CELLS = int(os.environ.get("CLUSTER_CELLS", "8"))
MEMBERS = ("one", "two")
KILLS = 9
PATIENCE = 600.0
SCRIPT = Path(__file__).parent / "cluster_controllers.py"


class Campaign:
    """What is to be built, and the parties of the moment."""

    def __init__(self, place: Path) -> None:
        self.random = random.Random(SEED)
        self.place = place
        certificates.make(place / "fleet.pem")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.cells = [f"pkg{number}" for number in range(CELLS)]
        for name in self.cells:
            source_of(place / "sources", name, self.random.uniform(0.5, 3.0))
        order = {
            "place": str(place),
            "address": f"tls://127.0.0.1:{port}",
            "certificate": str(place / "fleet.pem"),
            "cells": self.cells,
            "members": MEMBERS,
            "hosts": ["a"],
        }
        (place / "order.json").write_text(json.dumps(order))
        self.killed: Counter[str] = Counter()
        self.going = {"serve": self.start("serve")}
        self.going |= {name: self.start("join", name) for name in MEMBERS}
        time.sleep(4)
        self.going["ask"] = self.start("ask")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.place / f"{words[-1]}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-u", str(SCRIPT), str(self.place / "order.json"), *words],
                cwd=PACKAGE.parent,
                env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        self.killed[name] += 1
        self.going[name].kill()
        self.going[name].wait()
        time.sleep(self.random.uniform(0.0, 1.0))
        words = ("join", name) if name in MEMBERS else (name,)
        self.going[name] = self.start(*words)

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE
        victims = [name for name in ("serve", "ask", *MEMBERS) for _ in range(KILLS)]
        victims = self.random.sample(victims, KILLS)
        while not (self.place / "summary").exists():
            assert time.monotonic() < deadline, self.told()
            time.sleep(self.random.uniform(1.0, 5.0))
            if victims and not (self.place / "summary").exists():
                self.kill(victims.pop())
            elif self.going["ask"].poll() not in (None, 0):  # it came while nobody was there
                self.going["ask"] = self.start("ask")

    def told(self) -> str:
        return "\n".join(
            f"== {log.name}\n{log.read_text()[-3000:]}" for log in self.place.glob("*.log")
        )

    def check(self) -> None:
        assert json.loads((self.place / "summary").read_text()) == {"done": 2 * CELLS}, self.told()
        (folder,) = (self.place / "out").glob("fleet-*")
        with closing(Ledger(folder)) as ledger:
            attempts = ledger.attempts()
            assert {one.stand for one in ledger.works()} == {"done"}
        ended = {one.span.key: one for one in attempts if one.span.outcome == "done"}
        assert len(ended) == sum(one.span.outcome == "done" for one in attempts) == 2 * CELLS
        for name in self.cells:
            assert not (self.place / "sources" / name / "twice").exists(), f"{name} ran twice"
            run = Run(Path(ended[name].span.run))
            assert run.path.parent == self.place / "out"
            assert differs(run, share=False) == ""
            assert run.facts().target.recipe == name
            assert run.result(SmokeResult) is not None, "what its test found is in it"
            (wheel,) = (run.path / "wheels").iterdir()
            made = {
                sha256_of(path)
                for member in MEMBERS
                for path in self.place.glob(f"{member}/out/2*-{name}-*/wheels/*.whl")
            }
            assert sha256_of(wheel) in made
        assert not [*self.place.glob("out/.arriving*")]


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    made = Campaign(tmp_path)
    yield made
    for one in made.going.values():
        one.kill()
        one.wait()


def test_a_cluster_loses_nothing(campaign: Campaign) -> None:
    began = time.monotonic()
    campaign.run()
    campaign.check()
    begun = sum(
        len((campaign.place / "sources" / name / "begun").read_text()) for name in campaign.cells
    )
    sys.stdout.write(
        f"\nCLUSTER seed {SEED}: {CELLS} cells and their tests at 2 members, {begun} builds begun, "
        f"{dict(campaign.killed)} killed, 0 lost, wrong or run twice at once, "
        f"{time.monotonic() - began:.0f} s\n"
    )
