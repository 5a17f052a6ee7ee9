"""``invoke fleet``."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, get_args

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.fleet.ledger import Ledger
    from pipelines.fleet.model import Verb

#: Verb -> what stands after it.
_AFTER = {
    "pause": (),
    "resume": (),
    "drain": ("HOST",),
    "undrain": ("HOST",),
    "cancel": ("TASK",),
    "retry": ("TASK",),
    "priority": ("TASK", "NUMBER"),
}
#: Seconds in which a controller that runs answers an order.
_PATIENCE = 5.0
_MOST = 1_000_000


@command(
    help={
        "order": "pause, resume, drain HOST, undrain HOST, cancel TASK, retry TASK, "
        "priority TASK N: docs/fleet.md",
        "name": "of the fleet, a directory below out/ (default: the latest)",
    },
    further="order",
)
def fleet(
    _: Flags,
    *,
    order: list[str] | None = None,
    name: str | None = None,
    json: bool = False,
) -> None:
    """Show the latest fleet, or give it an order: pause, drain a host, cancel a task."""
    from contextlib import closing

    from pipelines.core.paths import project_dir
    from pipelines.fleet.ledger import Ledger
    from pipelines.plan.config.model import load_config

    settings = load_config()
    if json and order:
        raise ConfigError("--json shows a fleet", hint="Give the order on a line of its own.")
    read = _parse_fleet_order(order) if order else None
    with closing(Ledger(_folder(project_dir() / settings.out, name))) as ledger:
        if read is not None:
            _give(ledger, *read)
        else:
            _show_fleet_state(ledger, as_json=json)


def _folder(out: Path, name: str | None) -> Path:
    """The directory of the fleet of that name, or of the latest."""
    from pipelines.fleet.ledger import FILE

    found = {path.parent.name: path.parent for path in sorted(out.glob(f"fleet-*/{FILE}"))}
    if name is None and found:
        return found[max(found)]
    if name in found:
        return found[name]
    last = ", ".join(sorted(found)[-5:])
    raise ConfigError(
        f"there is no fleet {name or ''}".rstrip() + f" in {out}",
        hint=f"There are: {last}" if last else "There is none yet. Type: invoke build --fleet",
    )


def _parse_fleet_order(words: list[str]) -> tuple[Verb, str, int]:
    """What an order says; :class:`ConfigError` for what is none."""
    from pipelines.fleet.model import Verb

    verb = next((one for one in get_args(Verb) if one == words[0]), None)
    if verb is None:
        raise ConfigError(
            f"fleet {words[0]}: unknown order",
            hint="invoke fleet shows how it stands; Ctrl-C where it was begun ends the controller, "
            f"and cancel ends a task. There are: {', '.join(_AFTER)}.",
        )
    if len(words) - 1 != len(_AFTER[verb]):
        raise ConfigError(
            f"fleet {' '.join(words)}: expected {' '.join((verb, *_AFTER[verb]))}",
            hint="invoke fleet shows the hosts and tasks.",
        )
    number = 0
    if verb == "priority":
        if not re.fullmatch(r"[0-9]{1,7}", words[2]) or int(words[2]) > _MOST:
            raise ConfigError(
                f"fleet priority {words[1]} {words[2][:20]}: expected a whole number",
                hint=f"Tasks with a higher number start first; the default is 0, at most {_MOST}.",
            )
        number = int(words[2])
    return verb, words[1] if len(words) > 1 else "", number


def _give(ledger: Ledger, verb: Verb, subject: str, number: int) -> None:
    """Leave an order, and say what the controller answered, if there is one."""
    from pipelines.core.console import say

    over = bool(ledger.fact("ended"))
    if over and verb != "retry":
        raise ConfigError(
            f"{ledger.path.name} has ended: there is nothing to {verb}",
            hint="invoke build --fleet starts another one.",
        )
    order = ledger.order(verb, subject, number, at=time.time())
    if over:
        with ledger.change(time.time()) as change:
            change.fact("ended", "")
        say(f"noted: the same command as before resumes {ledger.path.name}", "yellow")
        return
    deadline = time.monotonic() + _PATIENCE
    while (answer := ledger.answer(order)) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if answer is None:
        say("noted; this fleet is not running: the command that started it resumes it", "yellow")
    else:
        say(answer or "done", "green")


def _show_fleet_state(ledger: Ledger, *, as_json: bool) -> None:
    from pipelines.core.console import console, print_json, say
    from pipelines.fleet.history import fleet_state
    from pipelines.fleet.terminal import render_fleet

    now = fleet_state(ledger)
    if as_json:
        print_json({"schema": 2, **now.model_dump(mode="json")})
    else:
        console.print(render_fleet(now, console.width))
        if (page := ledger.path / "report.html").is_file():
            say(str(page), style="bold")
