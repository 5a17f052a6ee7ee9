"""A fleet on the terminal: pure functions from :class:`FleetState` to lines of it.

Why something failed is told by hosts: everything is made harmless, and a line is never wider than
the terminal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group
from rich.text import Text

from pipelines import units
from pipelines.fleet.model import Doing, FleetState, HostState, Stand, Standing, Trouble, Waiting
from pipelines.github import inert
from pipelines.hosttext import line

#: How works that stand so are spoken of, in the order in which that is done.
_STANDS: dict[Stand, tuple[str, str]] = {
    "done": ("done", "green"),
    "running": ("running", "cyan"),
    "waiting": ("waiting", ""),
    "failed": ("failed", "bold red"),
    "quarantined": ("quarantined", "bold red"),
    "blocked": ("cannot begin", "red"),
    "cancelled": ("cancelled", "yellow"),
}
_STYLES = {"lost": "bold red", "aside": "red", "draining": "yellow", "drained": "yellow"}
#: Those that need a person's look come first.
_FIRST: tuple[Standing, ...] = ("lost", "aside", "draining", "ready", "starting", "drained", "off")
_WAITS, _TROUBLES = 4, 4
_HEAD = 6  # lines of headlines, sums and blanks
_WIDE, _BAR, _LONG = 100, 12, 72  # characters


def render(state: FleetState, width: int, height: int = 40) -> Group:
    """All of it in at most ``height`` lines of at most ``width`` characters.

    Hosts that are as they should be are folded first: those with trouble stay to be seen.
    """
    troubles = [*_troubles(state.troubles, width)]
    waiting = [*_waiting(state, width)]
    room = max(3, height - _HEAD - len(troubles) - len(waiting))
    lines = [*_head(state, width), Text(), *_hosts(state, width, room), *waiting, *troubles]
    return Group(*(_fitted(one, width) for one in lines[:height]))


def _head(state: FleetState, width: int) -> Iterator[Text]:
    took = units.elapsed((state.now if state.ended is None else state.ended) - state.began)
    total = sum(state.works.values())
    first = Text(_name(state.name, width // 2), style="bold")
    first.append(f"  {units.counted(total, 'work')}, {took}", style="dim")
    if state.ended is not None:
        first.append("  ended", style="dim")
    elif state.paused:
        first.append("  paused", style="bold yellow")
    yield first
    sums = Text()
    for stand, (word, style) in _STANDS.items():
        if count := state.works.get(stand, 0):
            sums.append(", " if sums else "").append(f"{count:,} {word}", style=style)
    yield sums if sums else Text("nothing to do")
    if state.dashboard:
        yield Text(f"dashboard: {_said(state.dashboard, 100)}", style="dim")


# -- hosts ----------------------------------------------------------------------------------------


def _hosts(state: FleetState, width: int, room: int) -> Iterator[Text]:
    """A line for each host and work; what has no room is counted."""
    ordered = sorted(
        state.hosts,
        key=lambda host: (_FIRST.index(host.standing), not host.doing, numbered(host.machine.name)),
    )
    name = min(max((len(host.machine.name) for host in ordered), default=4), width // 5)
    shown, used = 0, 0
    for host in ordered:
        needs = max(1, len(host.doing))
        last = shown == len(ordered) - 1
        if used + needs + (not last) > room:
            break
        yield from _host(host, state.now, width, name)
        used += needs
        shown += 1
    if rest := ordered[shown:]:
        yield Text(f"… and {units.counted(len(rest), 'more host')}: {_folded(rest)}", style="dim")


def _folded(hosts: Sequence[HostState]) -> str:
    """``80 busy with 96 works, 5 idle, 1 lost``."""
    works = sum(len(host.doing) for host in hosts)
    busy = sum(bool(host.doing) for host in hosts)
    counts = Counter(host.standing for host in hosts if not host.doing)
    said = [f"{busy} busy with {units.counted(works, 'work')}"] if busy else []
    said += [
        f"{counts[standing]} {'idle' if standing == 'ready' else standing}"
        for standing in _FIRST
        if counts[standing]
    ]
    return ", ".join(said)


def _host(host: HostState, now: float, width: int, column: int) -> Iterator[Text]:
    head = Text(f"{_name(host.machine.name, column):<{column}}  ")
    said = "" if host.standing == "ready" else str(host.standing)
    if host.why:
        said += f": {_said(host.why, width)}" if said else _said(host.why, width)
    if host.doing:  # its works are what is to be seen
        said = _cut(said, width // 4)
    if not host.doing:
        idle = f"idle, {host.done} done" if host.done else "idle"
        yield head.append(said or idle, style=_STYLES.get(host.standing, "dim"))
        return
    indent = len(head.plain)
    for number, doing in enumerate(host.doing):
        more = f"  {said}" if said and not number else ""
        row = Text(" " * indent) if number else head
        bar = _BAR if width >= _WIDE else 0
        row.append_text(_doing(doing, now, width - indent - len(more), bar))
        yield row.append(more, style=_STYLES.get(host.standing, ""))


def _doing(doing: Doing, now: float, width: int, bar: int) -> Text:
    """What a work is called, its stage, its units, and for how long it has gone on."""
    units_done = ""
    if doing.total and doing.done is not None:
        units_done = f"{min(doing.done, doing.total)}/{doing.total}"
    took = units.elapsed(now - doing.began)
    column = min(max(12, width - bar - 2 * (bar > 0) - 35), _LONG)
    row = Text(f"{_name(doing.key, column):<{column}}  ")
    row.append(f"{_said(doing.stage or doing.kind, 9):<9}  ", style="dim")
    row.append(f"{units_done:>9}  ")
    if bar:
        full = round(bar * min(1.0, (doing.done or 0) / doing.total)) if doing.total else 0
        rest = "─" if units_done else " "
        row.append("━" * full, style="green").append(rest * (bar - full) + "  ", style="dim")
    return row.append(f"{took:>11}", style="dim")


# -- what waits, and what went wrong --------------------------------------------------------------


def _waiting(state: FleetState, width: int) -> Iterator[Text]:
    count = max(state.works.get("waiting", 0), len(state.waiting))
    if not count:
        return
    yield Text("waiting", style="bold")
    for work in state.waiting[:_WAITS]:
        yield Text(f"  {_name(work.key, width // 2)}  ").append(_waits(work), style="dim")
    if (more := count - len(state.waiting[:_WAITS])) > 0:
        yield Text(f"  and {more:,} more", style="dim")


def _waits(work: Waiting) -> str:
    if work.after:
        shares = [key.removeprefix(f"{work.key}/") for key in work.after]
        return f"after {units.few((_said(key, 60) for key in shares), most=3)}"
    return _said(work.why, 200) or "next"


def _troubles(troubles: Sequence[Trouble], width: int) -> Iterator[Text]:
    if not troubles:
        return
    yield Text("trouble", style="bold")
    for trouble in troubles[:_TROUBLES]:
        yield Text("  ").append_text(_trouble(trouble, width // 2))
    if (more := len(troubles) - _TROUBLES) > 0:
        yield Text(f"  and {more:,} more", style="red")


def _trouble(trouble: Trouble, room: int) -> Text:
    lost = trouble.stand in ("running", "waiting", "done")
    row = Text(_name(trouble.key, room), style="yellow" if lost else "red")
    row.append(f" {'lost' if lost else _STANDS[trouble.stand][0]}")
    if trouble.host:
        row.append(f" on {_said(trouble.host, 41)}")
    if trouble.error is not None:
        row.append(f": {_said(trouble.error.message, 300)}", style="dim")
    return row


# -- a line for each event, where nothing can be drawn over ---------------------------------------


def told(before: FleetState | None, now: FleetState) -> list[Text]:
    """What has changed from one state to the next, a line each: for logs and dumb terminals."""
    old = {host.machine.name: host for host in before.hosts} if before else {}
    begun = {(d.key, host.machine.name, d.began) for host in old.values() for d in host.doing}
    known = {(span.key, span.attempt) for span in before.latest} if before else set()
    troubled = {(one.key, one.at) for one in before.troubles} if before else set()
    lines: list[Text] = []
    for host in now.hosts:
        name = _said(host.machine.name, 41)
        was = old.get(host.machine.name)
        if (was.standing if was else "ready") != host.standing:
            why = f": {_said(host.why, 300)}" if host.why else ""
            lines.append(Text(f"{name} {host.standing}{why}", style=_STYLES.get(host.standing, "")))
        for doing in host.doing:
            if (doing.key, host.machine.name, doing.began) not in begun:
                lines.append(Text(f"{_said(doing.key)} begins on {name}"))
    for span in reversed(now.latest):
        if (span.key, span.attempt) not in known and span.outcome == "done":
            took = units.elapsed((span.ended or span.began) - span.began)
            where = _said(span.host, 41)
            lines.append(Text(f"{_said(span.key)} done on {where}, {took}", style="green"))
    for trouble in reversed(now.troubles):
        if (trouble.key, trouble.at) not in troubled:
            lines.append(_trouble(trouble, 300))
    if now.paused != (before.paused if before else False):
        lines.append(Text("paused" if now.paused else "goes on", style="yellow"))
    if lines:
        done, total = now.works.get("done", 0), sum(now.works.values())
        lines[-1].append(f"  ({done:,} of {total:,} done)", style="dim")
    return lines


# -- text -----------------------------------------------------------------------------------------


def _said(text: str, room: int = 300) -> str:
    """Text of somebody else's: on one line, harmless to terminals and to GitHub's runner."""
    return inert(line(text, room))


def _name(text: str, room: int) -> str:
    """A name in ``room`` characters: its middle goes first, as the ends are what differs."""
    text = _said(text)
    if len(text) <= room:
        return text
    tail = max(1, room * 2 // 3 - 1)
    return f"{text[: max(0, room - tail - 1)]}…{text[-tail:]}"


def numbered(name: str) -> tuple[object, ...]:
    """The order of names in which ``lab2`` comes before ``lab10``."""
    parts = re.split(r"(\d{1,9})", name)
    return tuple((1, int(part)) if part.isdecimal() else (0, part) for part in parts)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


def _fitted(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.rstrip()
    text.no_wrap = True
    return text


def plain(lines: Iterable[Text]) -> list[str]:
    """The lines without their colours."""
    return [one.plain for one in lines]
