"""``invoke host start`` and its like: hosts that the pipeline itself makes and starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Options

if TYPE_CHECKING:
    from pipelines.hosts.base import Lifecycle
    from pipelines.stages.line import Line


class HostOptions(Options):
    """Flags of the ``host`` commands."""

    axes = ("host", "python")
    shared = ("gpu", "verbose")


class StopOptions(HostOptions):
    """Flags of what ends the builds on a host."""

    force: Annotated[bool, Flag("also while builds run in it: they end")] = False


def start(line: Line, _: HostOptions) -> None:
    """Start a host that is ours and leave it running: later commands need no start-up."""
    from pipelines.console import say

    _lifecycle(line).start(tied=False)
    say(f"running, {_lifecycle(line).address()}", style="green")


def stop(line: Line, options: StopOptions) -> None:
    """Stop a host that is ours and what runs in it; --force while builds run there."""
    from pipelines.console import say

    _refuse_with_jobs(line, options, "stop")
    say("stopped" if _lifecycle(line).stop() else "it was not running", style="green")


def status(line: Line, _: HostOptions) -> None:
    """Say whether a host that is ours is there, and whether it runs."""
    from pipelines.console import say

    say(_lifecycle(line).describe())


def remove(line: Line, options: StopOptions) -> None:
    """Stop a host that is ours and remove it; downloads and images stay."""
    from pipelines.console import say

    _refuse_with_jobs(line, options, "remove")
    _lifecycle(line).teardown()
    say("removed", style="green")


def _refuse_with_jobs(line: Line, options: StopOptions, command: str) -> None:
    """:class:`ConfigError` with the jobs that would end, unless that is what was asked for."""
    from pipelines.errors import ConfigError, HostError, PipelineError
    from pipelines.stages.jobs import running

    if options.force or not _lifecycle(line).address():
        return
    gpu = " --gpu" if line.plan.host.gpu_way.bridged else ""
    forced = f"invoke host {command} --host {line.plan.host.name}{gpu} --force"
    try:
        jobs = running(line)
    except PipelineError as error:  # also of one that was made from other keys
        raise HostError(
            f"what runs there cannot be told: {error.message}", advice=f"Type: {forced}"
        ) from error
    finally:
        line.session.close()
    if jobs:
        several = "jobs run" if len(jobs) > 1 else "job runs"
        raise ConfigError(
            f"{len(jobs)} {several} on {line.plan.host.name}, and would end with it: "
            f"{'; '.join(jobs)}",
            advice=f"Wait (invoke jobs --follow {jobs[0].split()[0]}), or type: {forced}",
        )


def _lifecycle(line: Line) -> Lifecycle:
    from pipelines.errors import ConfigError

    found = line.plan.host.lifecycle
    if found is None:
        raise ConfigError(
            f"host '{line.plan.host.name}' is not ours to start or stop",
            advice="Name one of kind sandbox, container or vm with --host.",
        )
    return found


COMMANDS = (
    Command(start, HostOptions, on_line=True),
    Command(stop, StopOptions, on_line=True),
    Command(status, HostOptions, on_line=True),
    Command(remove, StopOptions, on_line=True),
)
