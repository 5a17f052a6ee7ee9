"""The command line: ``invoke provision build test``.

Tasks parse flags, call one function of :mod:`pipelines`, and leave with the error's exit code.
A flag given to one task holds for every other task on the line that knows it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import task

from pipelines.commandline import (
    CELL,
    FETCH,
    OneOrder,
    amount,
    guarded,
    number,
    order_task,
    settle,
)

__all__ = ["OneOrder"]  # invoke.yaml names it

settle()


@order_task(*CELL, *FETCH, dry_run="only show what would change")
def provision(work: Any, dry_run: bool = False) -> None:
    """Make a host ready: long paths, short TEMP, CUDA compiler, build tools."""
    from pipelines.pipeline import run_provision

    run_provision(work, dry_run=dry_run)


@order_task(*CELL, "archs", "jobs", "minutes", *FETCH)
def build(work: Any) -> None:
    """Build the wheel on the host, bring it and its log home, look inside it."""
    from pipelines.pipeline import run_build

    run_build(work)


@order_task(
    *(*CELL, "archs", *FETCH),
    run="whose wheel: a name below out/, or a run's directory (default: the latest)",
)
def test(work: Any, run: str | None = None) -> None:
    """Smoke-test the latest wheel on the host and publish JUnit."""
    from pipelines.pipeline import run_test

    run_test(work, run=run)


@order_task(*CELL, "archs", json="print one JSON object")
def doctor(work: Any, json: bool = False) -> int:
    """Say what is wrong with this machine and the host, and what cures it."""
    from pipelines.pipeline import run_doctor

    return run_doctor(work, as_json=json)


@task(
    help={
        "only": "complete these tools alone: names, separated by commas",
        "sync": "only write the pins into images/ and ansible/",
        "check": "only say whether images/ and ansible/ have these pins",
        "stage": "only put the wheels that images/ and ansible/ install into this directory",
    }
)
@guarded
def lock(
    _: Context,
    only: str | None = None,
    sync: bool = False,
    check: bool = False,
    stage: str | None = None,
) -> None:
    """Pin what toolchain.lock.yaml lacks (needs the internet) and sync image and playbook."""
    from pipelines.toolchain import command

    if stage is not None:
        command.run_stage(Path(stage))
    if sync or check:
        command.run_sync(check=check)
    elif stage is None:
        command.run_complete(only)


@order_task(
    *("host", "python"),
    follow="print the log of this job until it ends",
    cancel="end this job and everything it started",
)
def jobs(work: Any, follow: str | None = None, cancel: str | None = None) -> None:
    """List a host's builds, which go on without us; follow or end one."""
    from pipelines.stages import jobs as stage

    if cancel is not None:
        stage.cancel(work, cancel)
    elif follow is not None:
        stage.follow(work, follow)
    else:
        stage.show(work)


@task(
    help={
        "host": "a name from pipeline.yaml (default: sandbox)",
        "recipe": "what to build: a name from pipelines/recipes",
        "recipe_version": "release of the package, as the recipe lists them (default: its first)",
        "python": "Pythons, separated by commas",
        "archs": "GPU architectures; several lists stand between |",
        "jobs": "compile units at a time (default: the host's cores)",
        "torch": "releases of torch, separated by commas",
        "cuda": "releases of CUDA, separated by commas",
        "select": "only the cells whose name fits, such as 'cp312-torch2.8-*'",
        "format": "table, json, or gha (a matrix of GitHub Actions)",
        "ask": "ask the host for its memory, cores and GPUs, instead of taking this machine's",
    }
)
@guarded
def plan(
    _: Context,
    host: str | None = None,
    recipe: str | None = None,
    python: str | None = None,
    archs: str | None = None,
    jobs: str | None = None,
    recipe_version: str | None = None,
    torch: str | None = None,
    cuda: str | None = None,
    select: str | None = None,
    format: str = "table",
    ask: bool = False,
) -> int:
    """Show what can be built, what not and why, how long it takes and whether it fits."""
    from pipelines.pipeline import run_plan

    return run_plan(
        ask=ask,
        host=host,
        recipe=recipe,
        python=python,
        archs=archs,
        jobs=number("jobs", jobs),
        version=recipe_version,
        torch=torch,
        cuda=cuda,
        select=select,
        format=format,
    )


@task(
    help={
        "run": "a name below out/, latest, a run's directory, or a directory of runs",
        "also": "one more for the same page; may be repeated",
    },
    iterable=["also"],
)
@guarded
def report(_: Context, run: str, also: list[str]) -> None:
    """Make the reports of runs again: one HTML page, summaries for GitHub and terminal."""
    from pipelines.stages.reporting import run_report

    run_report([run, *also])


@task(help={"before": "a run", "after": "the run to compare with it"})
@guarded
def compare(_: Context, before: str, after: str) -> int:
    """Show what got slower, larger or lost a capability; leaves with 15 when something did."""
    from pipelines.stages.reporting import run_compare

    return run_compare(before, after)


@task(help={"log": "a build's log, such as out/latest/build.log"})
@guarded
def diagnose(_: Context, log: str) -> None:
    """Say why a build failed, from its log: the first real cause, and what cures it."""
    from pipelines.console import console
    from pipelines.diagnosis import diagnose_file
    from pipelines.diagnosis.report import render

    console.print(render(diagnose_file(Path(log)), log))


@order_task(
    *("host", "python"),
    prune="remove what no command would use, and old builds on the host",
    days="builds not heard of for so many days are old (default 14)",
)
def cache(work: Any, prune: bool = False, days: str = "14") -> None:
    """Show what is kept to make the next command fast; --prune gives room back."""
    from pipelines import caches

    if prune:
        caches.prune(work, amount("days", days) or 0.0)
    else:
        caches.show(work)


@order_task(
    *CELL,
    folder="where to put it",
    controller_python="Python of the machine it is for, such as 3.12 (default: this one)",
)
def wheelhouse(work: Any, folder: str, controller_python: str | None = None) -> None:
    """Gather all that an order needs into a directory, for a machine without a network."""
    from pipelines.pipeline import run_wheelhouse

    run_wheelhouse(work, Path(folder), controller_python=controller_python)


@order_task("host", "python")
def start(work: Any) -> None:
    """Start the sandbox and leave it running: later commands need no start-up."""
    from pipelines.console import say

    state = _sandbox(work).start(tied=False)
    say(f"running, process {state['pid']}: {state['https']} and {state['http']}", style="green")


@order_task("host", "python")
def stop(work: Any) -> None:
    """Stop the sandbox and every Windows process in it."""
    from pipelines.console import say

    say("stopped" if _sandbox(work).stop() else "it was not running", style="green")


@order_task("host", "python")
def status(work: Any) -> None:
    """Say whether the sandbox is absent, broken, stopped or running."""
    from pipelines.console import say

    sandbox = _sandbox(work)
    say(f"{sandbox.status()}  {sandbox.home}")


@order_task("host", "python")
def teardown(work: Any) -> None:
    """Stop the sandbox and remove it; downloads stay in the cache."""
    from pipelines.console import say

    _sandbox(work).teardown()
    say("removed", style="green")


def _sandbox(work: Any) -> Any:
    from pipelines.errors import ConfigError
    from pipelines.hosts.sandbox.host import Sandbox

    if not isinstance(work.host, Sandbox):
        raise ConfigError(
            f"host '{work.host.name}' is no sandbox", advice="Name one of kind sandbox with --host."
        )
    return work.host


namespace = Collection(
    *(provision, build, test, report, compare, doctor),
    *(plan, jobs, diagnose, cache, lock, wheelhouse),
)
namespace.add_collection(Collection("sandbox", start, stop, status, teardown))
