"""What a person wants of a fleet: pause, drain a host, cancel a task."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.fleet.ledger import Transaction
from pipelines.fleet.model import HostEntry, Order, TaskEntry
from pipelines.fleet.policy import Limits
from pipelines.fleet.queue import TaskQueue
from pipelines.units import few


def obey(
    order: Order,
    change: Transaction,
    tasks: TaskQueue,
    hosts: Mapping[str, HostEntry],
    limits: Limits,
) -> list[TaskEntry]:
    """Do it, with its answer, in one transaction; what runs and is to be ended."""
    verb, subject = order.verb, order.subject
    mine = [e for e in tasks.entries.values() if subject in (e.task.key, e.task.cell)]
    running = [one for one in mine if one.state == "running"] if verb == "cancel" else []
    if verb in ("pause", "resume"):
        change.fact("paused", "yes" if verb == "pause" else "")
        for entry in tasks.waiting.values() if verb == "resume" else ():
            if entry.suspended:
                change.task(entry, suspended=False, wait_until=change.at + limits.grace)
    elif verb in ("drain", "undrain"):
        change.host(hosts[subject], drained=verb == "drain")
    elif verb == "priority":
        for entry in mine:
            change.task(entry, priority=order.number)
        tasks.reorder()
    touched = [*running]
    if verb == "cancel":
        touched += _cancel(change, tasks, mine)
    elif verb == "retry":
        touched = _retry(change, tasks, mine)
    tasks.block(change, hosts)
    nothing = verb in ("cancel", "retry") and not touched
    states = few(sorted({one.state for one in mine}))
    change.answer(order, f"nothing to do: it is {states}" if nothing else "done")
    host = subject if verb in ("drain", "undrain") else ""
    message = str(order.number) if verb == "priority" else ""
    change.event(verb, "" if host else subject, host, message)
    return running


def _cancel(change: Transaction, tasks: TaskQueue, mine: list[TaskEntry]) -> list[TaskEntry]:
    """What waits is cancelled now, what runs when it has been ended."""
    waiting = [one for one in mine if one.state == "waiting"]
    for entry in mine:
        if entry.state == "running":
            change.task(entry, cancelled=True)
        elif entry in waiting:
            tasks.finish(change, entry, "cancelled")
    return waiting


def _retry(change: Transaction, tasks: TaskQueue, mine: list[TaskEntry]) -> list[TaskEntry]:
    """What came to another end than was asked for begins again, as if nothing had been."""
    again = [one for one in mine if one.state in ("failed", "quarantined", "cancelled")]
    after = [one for one in tasks.entries.values() if one.state == "blocked" and again]
    for entry in again:
        change.task(entry, losses={}, died=(), avoid=(), cancelled=False)
    for entry in [*again, *after]:
        change.task(entry, state="waiting", error=None)
        tasks.file(entry)
    return again
