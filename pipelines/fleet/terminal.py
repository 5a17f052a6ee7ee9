"""A fleet on the terminal: redrawn on a screen, a line for each event elsewhere.

Text from hosts is sanitized, and a line is never wider than the terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text

from pipelines.core import github, units
from pipelines.core.github import escape_commands
from pipelines.core.hosttext import safe_line
from pipelines.fleet.history import FleetState, HostView, Trouble, Waiting, natural_sort_key
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import HostStatus, Logged, Progress, TaskState

_STYLES = {
    "done": "green",
    "running": "cyan",
    "failed": "bold red",
    "quarantined": "bold red",
    "blocked": "red",
    "cancelled": "yellow",
    "lost": "bold red",
    "aside": "red",
    "draining": "yellow",
    "drained": "yellow",
}
_STATES: tuple[TaskState, ...] = (
    "done",
    "running",
    "waiting",
    "failed",
    "quarantined",
    "blocked",
    "cancelled",
)
#: Those that need a person's look come first.
_FIRST: tuple[HostStatus, ...] = (
    "lost",
    "aside",
    "draining",
    "ready",
    "starting",
    "drained",
)
#: Events that say nothing to people.
_SILENT = ("controller", "asked")
_SHOWN = 4


def render_fleet(state: FleetState, width: int, height: int = 40) -> Group:
    """Everything in at most ``height`` lines of at most ``width`` characters.

    Hosts without problems are folded first.
    """
    head, tail = (
        [*_head(state)],
        [*_render_waiting_tasks(state, width), *_render_troubles(state, width)],
    )
    room = max(3, height - len(head) - len(tail) - 1)
    lines = [*head, Text(), *_render_hosts(state, width, room), *tail]
    for one in lines:
        one.truncate(width, overflow="ellipsis")
        one.no_wrap = True
    return Group(*lines[:height])


def _head(state: FleetState) -> Iterator[Text]:
    took = units.format_elapsed((state.now if state.ended is None else state.ended) - state.began)
    first = Text(_sanitize_text(state.name, 40), style="bold")
    first.append(f"  {units.pluralize(sum(state.tasks.values()), 'task')}, {took}", style="dim")
    if state.ended is not None:
        first.append("  ended", style="dim")
    elif state.paused:
        first.append("  paused", style="bold yellow")
    elif state.left is not None:
        least, most = map(units.format_estimate, state.left)
        left = f"{least} to {most} left" if least != most else f"about {most} left"
        first.append(f"  {left if state.left[1] >= 1 else 'longer than estimated'}")
    yield first
    counts = [(one, state.tasks.get(one, 0)) for one in _STATES]
    sums = [Text(f"{many:,} {one}", _STYLES.get(one, "")) for one, many in counts if many]
    yield Text(", ").join(sums) if sums else Text("no tasks yet: the hosts are being checked")


def _render_hosts(state: FleetState, width: int, room: int) -> Iterator[Text]:
    """A line for each host and task; what has no room is counted."""
    ordered = sorted(
        state.hosts,
        key=lambda one: (
            _FIRST.index(one.status),
            not one.running,
            natural_sort_key(one.machine.name),
        ),
    )
    column = min(max((len(one.machine.name) for one in ordered), default=4), width // 5)
    shown, used = 0, 0
    for host in ordered:
        lines = [*_render_host(host, state.now, width, column)]
        if used + len(lines) + (shown < len(ordered) - 1) > room:
            break
        yield from lines
        used += len(lines)
        shown += 1
    if rest := ordered[shown:]:
        busy = [len(host.running) for host in rest if host.running]
        counts = Counter(host.status for host in rest if not host.running)
        said = [f"{len(busy)} busy with {units.pluralize(sum(busy), 'task')}"] if busy else []
        said += [
            f"{counts[one]} {'idle' if one == 'ready' else one}" for one in _FIRST if counts[one]
        ]
        folded = f"… and {units.pluralize(len(rest), 'more host')}: {', '.join(said)}"
        yield Text(folded, style="dim")


def _render_host(host: HostView, now: float, width: int, column: int) -> Iterator[Text]:
    name = f"{_shortened(host.machine.name, column):<{column}}  "
    status = "" if host.status == "ready" else str(host.status)
    said = ": ".join(filter(None, (status, _sanitize_text(host.why))))
    if not host.running:
        idle = f"idle, {host.done} done" if host.done else "idle"
        yield Text(name).append(said or idle, style=_STYLES.get(host.status, "dim"))
    for number, one in enumerate(host.running):
        row = Text(" " * len(name) if number else name)
        row.append_text(_render_task_progress(one, now, width - len(name)))
        yield (
            row
            if number or not said
            else row.append(f"  {said}", style=_STYLES.get(host.status, ""))
        )


def _render_task_progress(one: Progress, now: float, width: int) -> Text:
    """What a task is called, its stage, its units, and for how long it has run."""
    done = f"{min(one.done, one.total)}/{one.total}" if one.total and one.done is not None else ""
    column = min(max(12, width - 35), 72)
    row = Text(f"{_shortened(one.key, column):<{column}}  ")
    row.append(f"{_sanitize_text(one.stage or one.kind, 9):<9}  ", style="dim")
    return row.append(f"{done:>9}  ").append(
        f"{units.format_elapsed(now - one.began):>11}", style="dim"
    )


def _render_waiting_tasks(state: FleetState, width: int) -> Iterator[Text]:
    if count := state.tasks.get("waiting", 0):
        yield Text("waiting", style="bold")
        for one in state.waiting[:_SHOWN]:
            yield Text(f"  {_shortened(one.key, width // 2)}  ").append(
                _waiting_reason(one), style="dim"
            )
        if (more := count - len(state.waiting[:_SHOWN])) > 0:
            yield Text(f"  and {more:,} more", style="dim")


def _waiting_reason(one: Waiting) -> str:
    if one.after:
        shards = (_sanitize_text(key.removeprefix(f"{one.key}/"), 60) for key in one.after)
        return f"after {units.join_first(shards, most=3)}"
    return _sanitize_text(one.why, 200) or "next"


def _render_troubles(state: FleetState, width: int) -> Iterator[Text]:
    if state.troubles:
        yield Text("trouble", style="bold")
    for one in state.troubles[:_SHOWN]:
        yield Text("  ").append_text(_trouble(one, width // 2))
    if (more := len(state.troubles) - _SHOWN) > 0:
        yield Text(f"  and {more:,} more", style="red")


def _trouble(one: Trouble, room: int) -> Text:
    lost = one.state in ("running", "waiting", "done")
    row = Text(_shortened(one.key, room), style="yellow" if lost else "red")
    row.append(f" {'lost' if lost else one.state}")
    if one.host:
        row.append(f" on {_sanitize_text(one.host, 41)}")
    if one.error is not None:
        row.append(f": {_sanitize_text(one.error.message)}", style="dim")
    return row


def event_lines(events: Iterable[Logged]) -> list[Text]:
    """A line for each event: for logs and dumb terminals."""
    found = []
    for one in events:
        if one.what not in _SILENT:
            subject = " ".join(
                filter(None, (_sanitize_text(one.key or one.host), _sanitize_text(one.what, 20)))
            )
            where = f" on {_sanitize_text(one.host, 41)}" if one.key and one.host else ""
            message = f": {_sanitize_text(one.message)}" if one.message else ""
            found.append(Text(subject + where + message, style=_STYLES.get(one.what, "")))
    return found


class LiveView:
    """Within it :meth:`update` shows each state that it is given."""

    def __init__(self, console: Console, ledger: Ledger) -> None:
        """Of events, those are shown that come from now on."""
        self._console, self._ledger = console, ledger
        self._last = max((one.id for one in ledger.events()), default=0)
        self._state: FleetState | None = None
        screen = console.is_terminal and not console.is_dumb_terminal and not github.in_ci
        live = Live(
            self,
            console=console,
            refresh_per_second=2,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live = live if screen else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, state: FleetState) -> None:
        """Show ``state``; without a screen what has happened since the last one."""
        self._state = state
        if self._live is None and (events := self._ledger.events(self._last)):
            self._last = events[-1].id
            lines = event_lines(events)
            done, total = state.tasks.get("done", 0), sum(state.tasks.values())
            for one in lines[-1:]:
                one.append(f"  ({done:,} of {total:,} done)", style="dim")
            for one in lines:
                self._console.print(one, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As large as the terminal is at this moment: it may be made larger or smaller."""
        if self._state is not None:
            yield render_fleet(self._state, options.max_width, console.height - 1)


def _sanitize_text(text: str, room: int = 300) -> str:
    """Text of somebody else's: on one line, harmless to terminals and to GitHub's runner."""
    return escape_commands(safe_line(text, room))


def _shortened(text: str, room: int) -> str:
    """A name in ``room`` characters: its middle goes first, as the ends are what differs."""
    text = _sanitize_text(text)
    if len(text) <= room:
        return text
    tail = max(1, room * 2 // 3 - 1)
    return f"{text[: max(0, room - tail - 1)]}…{text[-tail:]}"
