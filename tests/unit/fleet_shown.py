"""Fleets for the tests of what is shown of them: small, large, hostile."""

from __future__ import annotations

import random

from pipelines.core.units import GIB
from pipelines.fleet.history import (
    FleetHistory,
    FleetState,
    HostView,
    Stretch,
    Trouble,
    Waiting,
)
from pipelines.fleet.model import (
    Kind,
    Machine,
    Outcome,
    Progress,
    Span,
    Task,
    TaskEntry,
    TaskState,
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


def history(hosts: int = 4, tasks: int = 40, *, seed: int = 1) -> FleetHistory:
    """A night: boots, a host that is lost, an attempt that goes elsewhere, one quarantined cell."""
    rolled = random.Random(seed)
    machines = tuple(machine(n, slots=1 + n % 2, made=n % 4 == 2) for n in range(hosts))
    free = [[BEGAN] * one.slots for one in machines]
    spans: list[Span] = []
    stretches: list[Stretch] = []
    done: list[TaskEntry] = []
    for number, one in enumerate(machines):
        if one.made:
            free[number] = [BEGAN + 140] * one.slots
            stretches.append(
                Stretch(host=one.name, status="starting", began=BEGAN, ended=BEGAN + 140)
            )
    for number in range(tasks):
        kind: Kind = "test" if number % 9 == 8 else "shard" if number % 5 == 4 else "cell"
        key = cell(number) + (f"/{number % 8 + 1}of8" if kind == "shard" else "")
        task = Task(key=key, kind=kind, cell=cell(number), core_seconds=9_000, width=16)
        attempts = 3 if number == tasks - 2 else 2 if number % 13 == 7 else 1
        stand: TaskState = "done"
        for attempt in range(1, attempts + 1):
            soonest = min(range(hosts), key=lambda host: min(free[host]))
            slot = free[soonest].index(min(free[soonest]))
            began = free[soonest][slot]
            outcome: Outcome = "done"
            if attempt < attempts:
                outcome = "lost"
            elif number == tasks - 1:
                outcome, stand = "failed", "failed"
            elif attempts > 2:  # the one that is quarantined
                outcome, stand = "lost", "quarantined"
            ended = began + rolled.uniform(400, 1300) * (0.5 if outcome == "lost" else 1)
            spans.append(
                Span(
                    key=key,
                    kind=kind,
                    host=machines[soonest].name,
                    began=began,
                    ended=ended,
                    outcome=outcome,
                    attempt=attempt,
                    run=f"{key.replace('/', '-')}-run",
                    error={"done": None, "lost": GONE, "failed": WRONG}[outcome],
                )
            )
            free[soonest][slot] = ended + 20
            if outcome == "lost":
                free[soonest] = [max(times, ended + 300) for times in free[soonest]]
                stretches.append(
                    Stretch(
                        host=machines[soonest].name,
                        status="lost",
                        began=ended,
                        ended=ended + 300,
                        why=GONE.message,
                    )
                )
        error = {"done": None, "quarantined": GONE, "failed": WRONG}[stand]
        done.append(TaskEntry(task=task, state=stand, error=error))
    return FleetHistory(
        name="fleet-20260921-220000",
        began=BEGAN,
        ended=max(span.ended or BEGAN for span in spans),
        machines=machines,
        tasks=tuple(done),
        spans=tuple(spans),
        stretches=tuple(stretches),
        resumed=(BEGAN + 900,),
        refused={"lab99": "its clock is 61 min ahead"},
    )


def hard() -> FleetHistory:
    """What no honest ledger holds: hostile names everywhere, times that run backwards."""
    wrong = WRONG.model_copy(update={"message": HOSTILE, "hint": HOSTILE})
    task = Task(key=HOSTILE, kind="cell", cell=HOSTILE, core_seconds=1, hosts=(HOSTILE,))
    return FleetHistory(
        name=HOSTILE,
        began=BEGAN,
        ended=BEGAN - 7200,
        machines=(machine(1, name=HOSTILE), machine(2), machine(3, name="lab3" * 30)),
        tasks=(TaskEntry(task=task, state="failed", error=wrong),),
        spans=(
            Span(
                key=HOSTILE,
                kind="cell",
                host=HOSTILE,
                began=BEGAN + 60,
                ended=BEGAN - 60,
                outcome="failed",
                run="/etc",
                error=wrong,
            ),
            Span(key="nobody's", kind="test", host="gone", began=BEGAN, outcome=None),
        ),
        stretches=(
            Stretch(host=HOSTILE, status="lost", began=BEGAN + 5, ended=BEGAN - 5, why=HOSTILE),
        ),
        refused={HOSTILE: HOSTILE},
    )
