"""``invoke verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from pipelines.commands.command import Command
from pipelines.commands.options import FETCH, Flag, Json, Options
from pipelines.errors import ConfigError, PipelineError

if TYPE_CHECKING:
    from pipelines.provenance.verifying import Check, Verified


def _enough(text: Any) -> Any:
    """The words between the commas, each of which is known."""
    from pipelines.provenance.verifying import ACCEPTED

    words = [word.strip() for word in (text or "").split(",")] if text is not None else []
    for word in words:
        if word not in ACCEPTED:
            raise ConfigError(
                f"--accept {word}: expected {' or '.join(ACCEPTED)}",
                advice="Such as --accept unsigned.",
            )
    return tuple(words)


class VerifyOptions(Options):
    """Flags of ``verify``."""

    axes = ("host",)
    shared = ("jobs", "minutes", *FETCH)
    wheel: Annotated[str, Flag("the wheel")]
    provenance: Annotated[
        str | None, Flag("its provenance (default: WHEEL.intoto.jsonl with it)")
    ] = None
    key: Annotated[
        tuple[str, ...], Flag("a public key that must have signed it; may be repeated")
    ] = ()
    accept: Annotated[
        tuple[str, ...] | str | None,
        Flag("what is enough: 'unsigned', and 'lock' for another lock than today's; by commas"),
        BeforeValidator(_enough),
    ] = None
    rebuild: Annotated[bool, Flag("build it again as well, and compare the bytes")] = False
    as_json: Json = False


_MARKS = {
    "ok": "[green]ok[/green]",
    "said": "[dim]said[/dim]",
    "mind": "[yellow]mind[/yellow]",
    "unknown": "[yellow]--[/yellow]",
    "no": "[bold red]no[/bold red]",
}
_SHOWN = 20


def verify(options: VerifyOptions, given: dict[str, Any]) -> int | None:
    """Check who vouches for a wheel, and what it was made of: hash, signature, manifest, lock.

    Leaves with 9 where something is wrong or nobody's signature was checked, with 3 where the lock
    has other files today.
    """
    from pipelines.console import answer
    from pipelines.provenance.signing import load_public
    from pipelines.provenance.verifying import find
    from pipelines.provenance.verifying import verify as look
    from pipelines.toolchain.lock import load_lock

    wheel = Path(options.wheel).expanduser()
    beside = find(wheel) if options.provenance is None else Path(options.provenance).expanduser()
    if not wheel.is_file() or not beside.is_file():
        missing = beside if wheel.is_file() else wheel
        raise ConfigError(f"{missing}: there is no such file", advice="Name one that is here.")
    paths = [Path(name).expanduser() for name in options.key]
    keys = [(path, load_public(path)) for path in paths]
    found = look(wheel, beside, keys, load_lock()).accepting(tuple(options.accept or ()))
    told: dict[str, Any] = {"schema": 1, **found.model_dump(mode="json"), "exit": found.code}
    if not options.as_json:
        _show(found)
    try:
        if options.rebuild and not found.code:
            told |= {"exit": None, "rebuild": None}
            _rebuild(wheel, given, told)
            told["exit"] = 0
    except PipelineError as error:
        told["exit"] = error.exit_code
        raise
    finally:
        if options.as_json:
            answer(told)
    return found.code


def _rebuild(wheel: Path, given: dict[str, Any], told: dict[str, Any]) -> None:
    """Build it again and note the verdict in ``told``; errors are those of ``rebuild``."""
    from pipelines.commands.lines import open_line
    from pipelines.commands.options import axis_flag
    from pipelines.stages import rebuild
    from pipelines.stages.published import read_published

    published = read_published(str(wheel))
    axes = {axis_flag(axis): text for axis, text in published.axes.items()}
    line = open_line({**given, **axes})
    try:
        rebuild.run_rebuild(line, published)
    finally:
        if line.begun:
            told["rebuild"] = rebuild.told(line.run)


def _show(found: Verified) -> None:
    """A table: a line a check, what differs below it."""
    from rich.markup import escape
    from rich.table import Table

    from pipelines.console import console, say
    from pipelines.hosttext import safe

    say(found.wheel, style="bold")
    say(f"sha256 {found.sha256}\nby {found.provenance}", style="dim")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in found.checks:
        text = "\n".join([escape(safe(one.found, 500)), *_details(one)])
        table.add_row(_MARKS[one.state], one.name, text)
    console.print(table)
    if found.code:
        say("It is not verified.", style="bold red")
    elif any(one.name == "signature" and one.state != "ok" for one in found.checks):
        say("Nobody's signature was checked, as you said is enough.", style="yellow")


def _details(one: Check) -> list[str]:
    from rich.markup import escape

    from pipelines.hosttext import safe

    rows = [f"[dim]{escape(safe(text, 400))}[/dim]" for text in one.detail[:_SHOWN]]
    more = len(one.detail) - _SHOWN
    return rows + ([f"[dim]and {more} more, see --json[/dim]"] if more > 0 else [])


COMMAND = Command(verify, VerifyOptions)
