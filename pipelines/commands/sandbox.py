"""``invoke sandbox.start`` and its like: hosts that the pipeline itself makes and starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.commands.command import Command
from pipelines.commands.options import Options

if TYPE_CHECKING:
    from pipelines.hosts.base import Lifecycle
    from pipelines.stages.line import Line


class SandboxOptions(Options):
    """Flags of the ``sandbox`` commands."""

    axes = ("host", "python")
    shared = ("verbose",)


def start(line: Line, _: SandboxOptions) -> None:
    """Start the sandbox and leave it running: later commands need no start-up."""
    from pipelines.console import say

    _lifecycle(line).start(tied=False)
    say(f"running, {_lifecycle(line).address()}", style="green")


def stop(line: Line, _: SandboxOptions) -> None:
    """Stop the sandbox and every Windows process in it."""
    from pipelines.console import say

    say("stopped" if _lifecycle(line).stop() else "it was not running", style="green")


def status(line: Line, _: SandboxOptions) -> None:
    """Say whether the sandbox is absent, broken, stopped or running."""
    from pipelines.console import say

    say(_lifecycle(line).describe())


def teardown(line: Line, _: SandboxOptions) -> None:
    """Stop the sandbox and remove it; downloads stay in the cache."""
    from pipelines.console import say

    _lifecycle(line).teardown()
    say("removed", style="green")


def _lifecycle(line: Line) -> Lifecycle:
    from pipelines.errors import ConfigError

    found = line.plan.host.lifecycle
    if found is None:
        raise ConfigError(
            f"host '{line.plan.host.name}' is no sandbox",
            advice="Name one of kind sandbox with --host.",
        )
    return found


COMMANDS = tuple(
    Command(function, SandboxOptions, on_line=True) for function in (start, stop, status, teardown)
)
