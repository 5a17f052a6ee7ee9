"""``invoke doctor``: inspect, judge, show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipelines.config import SandboxHost
from pipelines.console import console, say
from pipelines.doctor import Order, diagnose, report
from pipelines.doctor.inspect import FindWine, inspect_controller, inspect_host
from pipelines.errors import ProvisionError

if TYPE_CHECKING:
    from pipelines.stages.work import Work


@contextmanager
def _stdout_kept(kept: bool) -> Iterator[None]:
    """Send what is told meanwhile (a sandbox that starts) to stderr: stdout is the answer's."""
    before, console.stderr = console.stderr, kept or console.stderr
    try:
        yield
    finally:
        console.stderr = before


def order_of(work: Work) -> Order:
    """What the host of ``work`` is judged for."""
    order, recipe, layout = work.order, work.recipe, work.resources.layout
    return Order(
        recipe=recipe.name,
        python=order.python,
        cuda=recipe.cuda,
        torch=getattr(recipe, "torch", None),
        archs=order.archs.sass,
        jobs=order.jobs,
        build_root=layout.build_root,
        temp=layout.temp,
        msvc=work.host.capabilities.msvc,
        gpu=work.host.capabilities.gpu,
    )


def run_doctor(work: Work | None, *, as_json: bool, wine: FindWine | None = None) -> int:
    """Print the verdicts and return the exit code: 0, or 7 when one of them is an error.

    ``None`` looks at this machine alone. ``wine`` answers with the version of this machine's Wine;
    it is asked only for a sandbox. A host that cannot be reached is a verdict, not an exception.
    """
    sandbox = work is not None and isinstance(work.config.host(work.order.host), SandboxHost)
    with _stdout_kept(as_json):
        found = inspect_controller(work, wine if sandbox else None)
        host = inspect_host(work) if work is not None else None
    name = work.host.name if work is not None else None
    facts = {"name": name, "controller": found, "host": host}
    order = order_of(work) if work is not None else None
    verdicts = diagnose(facts, host_name=name, sandbox=sandbox, order=order)
    if as_json:
        console.out(report.as_json(verdicts, facts), highlight=False)
    else:
        console.print(report.table(verdicts))
        errors = report.count(verdicts)["error"]
        say(report.summary(verdicts), style="red" if errors else "green")
    return ProvisionError.exit_code if report.count(verdicts)["error"] else 0
