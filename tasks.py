"""The command line: ``invoke provision build test``.

Tasks parse flags, call one function of :mod:`pipelines`, and leave with the error's exit code.
A flag given to one task holds for every other task on the line that knows it.
"""

from __future__ import annotations

import atexit
import functools
import signal
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from invoke.collection import Collection
from invoke.context import Context
from invoke.executor import Executor
from invoke.tasks import task

from pipelines.errors import INTERRUPTED, PipelineError

_work: Any = None

_HELP = {
    "host": "where to build: a name from pipeline.yaml (default: sandbox)",
    "recipe": "what to build: a name from pipelines/recipes (default: smoke-attention)",
    "python": "Python to build for, such as 3.11",
    "archs": "GPU architectures, such as '75;86;90+PTX'",
    "jobs": "compile units at a time (default: the host's cores)",
}


class OneOrder(Executor):
    """``provision build test --python 3.13`` is one order, wherever on the line a flag stands.

    A task without a flag takes it from the nearest task before it that has it, else after it;
    what a task does not know (``provision`` knows no architectures) is checked all the same.
    """

    line: ClassVar[dict[str, Any]] = {}

    def normalize(self, tasks: Any) -> list[Any]:
        """The calls to make, each with its flags completed."""
        calls: list[Any] = super().normalize(tasks)
        for ordered in (calls, calls[::-1]):
            self.line.clear()
            for call in ordered:
                for flag in _HELP.keys() & call.kwargs.keys():
                    if call.kwargs[flag] is None:
                        call.kwargs[flag] = self.line.get(flag)
                    if call.kwargs[flag] is not None:
                        self.line[flag] = call.kwargs[flag]
        return calls


def _flags(*names: str) -> dict[str, str]:
    return {name: _HELP[name] for name in names}


def _guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Turn expected errors into a message and an exit code, and leave nothing running."""

    @functools.wraps(function)
    def guarded(*arguments: Any, **flags: Any) -> None:
        from pipelines.console import errors, print_error

        try:
            function(*arguments, **flags)
        except PipelineError as error:
            print_error(error)
            _close()
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            _close()
            errors.print(
                "[yellow]Interrupted.[/yellow] What was finished is kept; the same command goes on."
            )
            sys.exit(INTERRUPTED)

    return guarded


def _close() -> None:
    global _work
    work, _work = _work, None
    if work is not None:
        work.close()


def _number(flag: str, text: str | None) -> int | None:
    """Invoke hands over text when a flag has no default, whatever its annotation."""
    from pipelines.errors import ConfigError

    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"--{flag} {text}: expected a whole number", advice="Leave it out: all cores."
        ) from None


def _open(**flags: Any) -> Any:
    """The work of this command line: one, unless a flag takes a task to another host or Python."""
    global _work  # noqa: PLW0603
    from pipelines.config import load_config
    from pipelines.pipeline import open_work, take_order

    settings = load_config()
    flags = OneOrder.line | flags
    order = take_order(settings, **flags | {"jobs": _number("jobs", flags.get("jobs"))})
    if _work is not None and _work.order.place != order.place:
        _close()
    if _work is None:
        _work = open_work(order, settings)
    _work.order = order
    return _work


def _terminate(*_: object) -> None:
    raise KeyboardInterrupt


atexit.register(_close)
signal.signal(signal.SIGTERM, _terminate)


@task(help={**_flags("host", "recipe", "python"), "dry_run": "only show what would change"})
@_guarded
def provision(
    _: Context,
    host: str | None = None,
    recipe: str | None = None,
    python: str | None = None,
    dry_run: bool = False,
) -> None:
    """Make a host ready: long paths, short TEMP, CUDA compiler, build tools."""
    from pipelines.pipeline import run_provision

    run_provision(_open(host=host, recipe=recipe, python=python), dry_run=dry_run)


@task(help=_HELP)
@_guarded
def build(
    _: Context,
    host: str | None = None,
    recipe: str | None = None,
    python: str | None = None,
    archs: str | None = None,
    jobs: str | None = None,
) -> None:
    """Build the wheel on the host, bring it and its log home, look inside it."""
    from pipelines.pipeline import run_build

    run_build(_open(host=host, recipe=recipe, python=python, archs=archs, jobs=jobs))


@task(help=_flags("host", "recipe", "python", "archs"))
@_guarded
def test(
    _: Context,
    host: str | None = None,
    recipe: str | None = None,
    python: str | None = None,
    archs: str | None = None,
) -> None:
    """Smoke-test the latest wheel on the host and publish JUnit."""
    from pipelines.pipeline import run_test

    run_test(_open(host=host, recipe=recipe, python=python, archs=archs))


@task(help={**_flags("host", "recipe", "python", "archs"), "json": "print one JSON object"})
@_guarded
def doctor(
    _: Context,
    host: str | None = None,
    recipe: str | None = None,
    python: str | None = None,
    archs: str | None = None,
    json: bool = False,
) -> None:
    """Say what is wrong with this machine and the host, and what cures it."""
    from pipelines.pipeline import run_doctor

    work = _open(host=host, recipe=recipe, python=python, archs=archs)
    if code := run_doctor(work, as_json=json):
        _close()
        sys.exit(code)


@task(
    help={
        "only": "complete these tools alone: names, separated by commas",
        "sync": "only write the pins into images/ and ansible/",
        "check": "only say whether images/ and ansible/ have these pins",
        "stage": "only put the wheels that images/ and ansible/ install into this directory",
    }
)
@_guarded
def lock(
    _: Context,
    only: str | None = None,
    sync: bool = False,
    check: bool = False,
    stage: str | None = None,
) -> None:
    """Pin what toolchain.lock.yaml lacks (needs the internet) and sync image and playbook."""
    from pathlib import Path

    from pipelines.toolchain import command

    if stage is not None:
        command.run_stage(Path(stage))
    if sync or check:
        command.run_sync(check=check)
    elif stage is None:
        command.run_complete(only)


@task(
    help={
        **_flags("host", "python"),
        "follow": "print the log of this job until it ends",
        "cancel": "end this job and everything it started",
    }
)
@_guarded
def jobs(
    _: Context,
    host: str | None = None,
    python: str | None = None,
    follow: str | None = None,
    cancel: str | None = None,
) -> None:
    """List a host's builds, which go on without us; follow or end one."""
    from pipelines.stages import jobs as stage

    work = _open(host=host, python=python)
    if cancel is not None:
        stage.cancel(work, cancel)
    elif follow is not None:
        stage.follow(work, follow)
    else:
        stage.show(work)


@task(
    help={
        **_HELP,
        "recipe_version": "release of the package, as the recipe lists them (default: its first)",
        "torch": "versions of torch, separated by commas",
        "cuda": "releases of CUDA, separated by commas",
        "select": "only the cells whose name fits, such as 'cp312-torch2.8-*'",
        "format": "table, json, or gha (a matrix of GitHub Actions)",
        "ask": "ask the host for its memory, cores and GPUs, instead of taking this machine's",
    }
)
@_guarded
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
) -> None:
    """Show what can be built, what not and why, how long it takes and whether it fits."""
    from pipelines.pipeline import run_plan

    code = run_plan(
        ask=ask,
        host=host,
        recipe=recipe,
        python=python,
        archs=archs,
        jobs=_number("jobs", jobs),
        version=recipe_version,
        torch=torch,
        cuda=cuda,
        select=select,
        format=format,
    )
    if code:
        _close()
        sys.exit(code)


@task(help={"log": "a build's log, such as out/latest/build.log"})
@_guarded
def diagnose(_: Context, log: str) -> None:
    """Say why a build failed, from its log: the first real cause, and what cures it."""
    from pathlib import Path

    from pipelines.console import console
    from pipelines.diagnosis import diagnose_file
    from pipelines.diagnosis.report import render

    console.print(render(diagnose_file(Path(log)), log))


@task(
    help={
        **_flags("host", "python"),
        "prune": "remove what no command would use, and old builds on the host",
        "days": "builds not heard of for so many days are old (default 14)",
    }
)
@_guarded
def cache(
    _: Context,
    host: str | None = None,
    python: str | None = None,
    prune: bool = False,
    days: str = "14",
) -> None:
    """Show what is kept to make the next command fast; --prune gives room back."""
    from pipelines import caches
    from pipelines.errors import ConfigError

    if not days.replace(".", "", 1).isdecimal():
        raise ConfigError(f"--days {days}: expected a number", advice="Leave it out: 14.")
    work = _open(host=host, python=python)
    if prune:
        caches.prune(work, float(days))
    else:
        caches.show(work)


def _sandbox(host: str | None, python: str | None) -> Any:
    from pipelines.errors import ConfigError
    from pipelines.hosts.sandbox.host import Sandbox

    found = _open(host=host, python=python).host
    if not isinstance(found, Sandbox):
        raise ConfigError(f"host '{found.name}' is no sandbox", advice="Leave --host out.")
    return found


_SANDBOX_HELP = _flags("host", "python")


@task(help=_SANDBOX_HELP)
@_guarded
def start(_: Context, host: str | None = None, python: str | None = None) -> None:
    """Start the sandbox and leave it running: later commands need no start-up."""
    from pipelines.console import say

    state = _sandbox(host, python).start(tied=False)
    say(f"running, process {state['pid']}: {state['https']} and {state['http']}", style="green")


@task(help=_SANDBOX_HELP)
@_guarded
def stop(_: Context, host: str | None = None, python: str | None = None) -> None:
    """Stop the sandbox and every Windows process in it."""
    from pipelines.console import say

    say("stopped" if _sandbox(host, python).stop() else "it was not running", style="green")


@task(help=_SANDBOX_HELP)
@_guarded
def status(_: Context, host: str | None = None, python: str | None = None) -> None:
    """Say whether the sandbox is absent, broken, stopped or running."""
    from pipelines.console import say

    sandbox = _sandbox(host, python)
    say(f"{sandbox.status()}  {sandbox.home}")


@task(help=_SANDBOX_HELP)
@_guarded
def teardown(_: Context, host: str | None = None, python: str | None = None) -> None:
    """Stop the sandbox and remove it; downloads stay in the cache."""
    from pipelines.console import say

    _sandbox(host, python).teardown()
    say("removed", style="green")


namespace = Collection(provision, build, test, doctor, plan, jobs, diagnose, cache, lock)
namespace.add_collection(Collection("sandbox", start, stop, status, teardown))
