"""``invoke host start`` and its like: hosts that the pipeline itself makes and starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command

if TYPE_CHECKING:
    from pipelines.hosts.base import Lifecycle
    from pipelines.stages.line import Line


_SHARED = ("host", "python", "gpu")
_FORCE = {"force": "even while builds run in it, which ends them"}


@command(shared=_SHARED, on_line=True)
def start(line: Line) -> None:
    """Start a host that the pipeline creates, and leave it running for later commands."""
    from pipelines.core.console import say

    _lifecycle(line).start(ephemeral=False)
    say(f"running, {_lifecycle(line).address()}", style="green")


@command(
    shared=_SHARED,
    help=_FORCE,
    on_line=True,
)
def stop(line: Line, *, force: bool = False) -> None:
    """Stop a host that the pipeline created; --force while builds run in it."""
    from pipelines.core.console import say

    _refuse_with_jobs(line, "stop", force=force)
    say("stopped" if _lifecycle(line).stop() else "it was not running", style="green")


@command(shared=_SHARED, on_line=True)
def status(line: Line) -> None:
    """Show whether a host that the pipeline creates exists and runs."""
    from pipelines.core.console import say

    say(_lifecycle(line).describe())


@command(
    shared=_SHARED,
    help=_FORCE,
    on_line=True,
)
def remove(line: Line, *, force: bool = False) -> None:
    """Stop and remove a host that the pipeline created; downloads and images stay."""
    from pipelines.core.console import say

    _refuse_with_jobs(line, "remove", force=force)
    say("removed" if _lifecycle(line).teardown() else "it did not exist", style="green")


def _refuse_with_jobs(line: Line, verb: str, *, force: bool) -> None:
    """:class:`ConfigError` with the jobs that would end, unless that is what was asked for."""
    from pipelines.core.errors import ConfigError, HostError, PipelineError
    from pipelines.stages.jobs import running_jobs

    if force or not _lifecycle(line).address():
        return
    gpu = " --gpu" if line.plan.host.gpu_way.bridged else ""
    forced = f"invoke host {verb} --host {line.plan.host.name}{gpu} --force"
    try:
        jobs = running_jobs(line)
    except PipelineError as error:  # also of one that was made from other keys
        raise HostError(
            f"what runs there is unknown: {error.message}", hint=f"Type: {forced}"
        ) from error
    finally:
        line.session.close()
    if jobs:
        several = "jobs run" if len(jobs) > 1 else "job runs"
        raise ConfigError(
            f"{len(jobs)} {several} on {line.plan.host.name}, and would end with it: "
            f"{'; '.join(jobs)}",
            hint=f"Wait (invoke jobs --follow {jobs[0].split()[0]}), or type: {forced}",
        )


def _lifecycle(line: Line) -> Lifecycle:
    from pipelines.core.errors import ConfigError

    found = line.plan.host.lifecycle
    if found is None:
        raise ConfigError(
            f"host '{line.plan.host.name}' is not ours to start or stop",
            hint="Name one of kind sandbox, container or vm with --host.",
        )
    return found


COMMANDS = (start, stop, status, remove)
