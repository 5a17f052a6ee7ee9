"""The program: every command as a task of invoke, and one line of them as one order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from invoke.collection import Collection
from invoke.executor import Executor
from invoke.program import Program
from invoke.tasks import Task

from pipelines import __version__
from pipelines.commands import (
    build,
    cache,
    compare,
    diagnose,
    doctor,
    jobs,
    lock,
    plan,
    provision,
    report,
    runs,
    sandbox,
    test,
    wheelhouse,
)
from pipelines.commands.cells import open_matrix
from pipelines.commands.command import SHARED, as_task, guarded
from pipelines.commands.lines import open_line, require_cells, settle, tell_line

if TYPE_CHECKING:
    from pipelines.stages.line import Line

#: Every command, in the order of a day's work.
COMMANDS = (
    *(provision.COMMAND, build.COMMAND, test.COMMAND, report.COMMAND, compare.COMMAND),
    *(doctor.COMMAND, plan.COMMAND, jobs.COMMAND, runs.COMMAND, diagnose.COMMAND, cache.COMMAND),
    *(lock.COMMAND, wheelhouse.COMMAND),
)


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
                for flag in SHARED & call.kwargs.keys():
                    if not call.kwargs[flag] and flag in self.line:
                        call.kwargs[flag] = self.line[flag]
                    if call.kwargs[flag]:
                        self.line[flag] = call.kwargs[flag]
        return calls

    def execute(self, *tasks: Any) -> Any:
        """Run the calls; however they end, it is said how the runs stand."""
        try:
            done = super().execute(*tasks)
        finally:
            tell_line()
        guarded(require_cells)()
        return done


def _on_line(given: dict[str, Any], step: Callable[[Line], int | None]) -> int | None:
    """Do it with the line of a task's flags, and of those that others on its command line have."""
    said = OneOrder.line | {flag: value for flag, value in given.items() if value}
    if "select" in given and said.get("select"):
        open_matrix(said).each(step)
        return None
    return step(open_line(said))


def namespace() -> Collection:
    """All tasks."""
    made = Collection(*(as_task(command, _on_line) for command in COMMANDS))
    inner: list[Task[Any]] = [as_task(command, _on_line) for command in sandbox.COMMANDS]
    made.add_collection(Collection("sandbox", *inner))
    settle()
    return made


def main() -> None:
    """The console program."""
    Program(
        name="windows-cuda-wheels",
        binary="wcw",
        version=__version__,
        namespace=namespace(),
        executor_class=OneOrder,
    ).run()
