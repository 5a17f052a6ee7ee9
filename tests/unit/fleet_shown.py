"""Fleets for the tests of what is shown of them: small, large, hostile."""

from __future__ import annotations

from pipelines.core.units import GIB
from pipelines.fleet.history import (
    FleetState,
    HostView,
    Trouble,
    Waiting,
)
from pipelines.fleet.model import (
    Machine,
    Progress,
)
from pipelines.record.results import ErrorResult

BEGAN = 1_790_000_000.0
GONE = ErrorResult(
    kind="HostError",
    title="host",
    message="no answer from 10.0.0.7:5986 for 60 s",
    hint="Look at its console.",
)
WRONG = ErrorResult(
    kind="BuildError",
    title="build",
    message="nvcc: out of memory in flash_bwd_hdim256_bf16_sm80.cu",
    hint="Fewer jobs: --jobs 4",
)
HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\u202egnp::error::x\n" + "A" * 400


def machine(number: int, **keys: object) -> Machine:
    given = {"name": f"lab{number}", "cores": 16, "memory": 64 * GIB, "slots": 2}
    return Machine.model_validate(given | keys)


def cell(number: int) -> str:
    python, cuda = 310 + number % 4, ("cu126", "cu128", "cu130")[number // 4 % 3]
    return f"flash-attn-2.8.3-cp{python}-torch2.{6 + number // 12}-{cuda}-sm80.90"


def state(hosts: int = 4, tasks: int = 200, /, **keys: object) -> FleetState:
    """A fleet in its 18th minute: some host is lost, some cell has failed."""
    made = []
    for number in range(hosts):
        running_now = tuple(
            Progress(
                key=cell(number * 2 + slot) + ("/3of8" if slot else ""),
                kind="shard" if slot else "cell",
                began=BEGAN + 60 * (number % 13) + 7,
                stage=("provision", "build", "audit")[number % 3],
                done=(7 * number + 3) % 73 if number % 3 == 1 else None,
                total=73 if number % 3 == 1 else None,
            )
            for slot in range(2 if number % 5 else 1)
        )
        status = (
            "lost"
            if number == 3
            else "draining"
            if number == 1
            else "starting"
            if number % 17 == 9
            else "ready"
        )
        made.append(
            HostView.model_validate(
                {
                    "machine": machine(number),
                    "status": status,
                    "why": GONE.message if status == "lost" else "",
                    "running": running_now
                    if status in ("ready", "draining") and number % 11 != 10
                    else (),
                    "done": number % 4,
                }
            )
        )
    running = sum(len(host.running) for host in made)
    given = {
        "name": "fleet-20260921-220000",
        "began": BEGAN,
        "now": BEGAN + 1085,
        "tasks": {
            "done": tasks // 10,
            "running": running,
            "waiting": max(0, tasks - tasks // 10 - running - 1),
            "failed": 1,
        },
        "hosts": tuple(made),
        "waiting": (
            Waiting(
                key=cell(90), kind="link", after=tuple(f"{cell(90)}/{k}of5" for k in range(1, 6))
            ),
            Waiting(key=cell(91), kind="cell"),
            Waiting(key=cell(92), kind="cell", why="no host has room: 30 GiB of memory"),
        ),
        "troubles": (
            Trouble(key=cell(40), state="failed", host="lab1", at=BEGAN + 900, error=WRONG),
            Trouble(key=cell(41), state="running", host="lab3", at=BEGAN + 800, error=GONE),
        ),
    }
    return FleetState.model_validate(given | keys)
