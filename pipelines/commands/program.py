"""The program: every command as a task of invoke, and one line of them as one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from invoke.collection import Collection
from invoke.completion.complete import complete, print_completion_script
from invoke.config import Config
from invoke.exceptions import ParseError
from invoke.executor import Executor
from invoke.parser import Parser
from invoke.parser.context import ParserContext
from invoke.parser.parser import ParseResult
from invoke.tasks import Task

from pipelines import __version__, called, output
from pipelines.commands import (
    attest,
    audit,
    build,
    cache,
    compare,
    diagnose,
    doctor,
    fleet,
    host,
    hosts,
    image,
    init,
    jobs,
    lock,
    plan,
    provision,
    publish,
    rebuild,
    report,
    runs,
    sbom,
    test,
    verify,
    watch,
    wheelhouse,
    which,
)
from pipelines.commands.cells import open_matrix
from pipelines.commands.command import SHARED, as_task
from pipelines.commands.fleets import open_fleet, refuse_beside_fleet, refuse_without_fleet
from pipelines.commands.helptext import of_command, of_program
from pipelines.commands.leave import attempt
from pipelines.commands.lines import close_line, open_line, require_cells, settle, tell_line
from pipelines.commands.options import EVERYWHERE
from pipelines.commands.words import anywhere, flags_of, joined, parse, spread, wants_help
from pipelines.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from pipelines.stages.line import Line

#: Every command, in the order of a day's work.
COMMANDS = (
    init.COMMAND,
    *(
        provision.COMMAND,
        build.COMMAND,
        test.COMMAND,
        report.COMMAND,
        compare.COMMAND,
        rebuild.COMMAND,
        attest.COMMAND,
        verify.COMMAND,
        publish.COMMAND,
        watch.COMMAND,
        which.COMMAND,
    ),
    *(
        audit.COMMAND,
        sbom.COMMAND,
        doctor.COMMAND,
        hosts.COMMAND,
        plan.COMMAND,
        fleet.COMMAND,
        jobs.COMMAND,
        runs.COMMAND,
        diagnose.COMMAND,
        cache.COMMAND,
    ),
    *(lock.COMMAND, wheelhouse.COMMAND),
)
#: Those of two words, such as ``host start``, which is ``host.start`` as well.
INNER = {"host": host.COMMANDS, "image": image.COMMANDS}
#: Commands of which every further word is a value of that flag.
FURTHER = {command.called: command.further for command in COMMANDS if command.further}
#: What the program is called.
NAMES = ("wcw", "windows-cuda-wheels")


class OneOrder(Executor):
    """``provision build test --python 3.13`` is one order, wherever on the line a flag stands.

    A task without a flag takes it from the nearest task before it that has it, else after it, else
    from where it stood beside tasks that do not know it; what a task does not know (``provision``
    knows no architectures) is checked all the same.
    """

    line: ClassVar[dict[str, Any]] = {}
    steps: ClassVar[tuple[str, ...]] = ()
    """What the commands of the line are called."""

    def normalize(self, tasks: Any) -> list[Any]:
        """The calls to make, each with its flags completed; :class:`ConfigError` if one is idle."""
        calls: list[Any] = super().normalize(tasks)
        for ordered in (calls, calls[::-1]):
            self.line.clear()
            for call in ordered:
                for flag in SHARED & call.kwargs.keys():
                    if not call.kwargs[flag] and flag in self.line:
                        call.kwargs[flag] = self.line[flag]
                    if call.kwargs[flag]:
                        self.line[flag] = call.kwargs[flag]
        self._spread(calls, flags_of(self.core[0]) if self.core else {})
        _refuse_company(calls)
        _refuse_half_dry(calls)
        _refuse_one_of_many(calls)
        OneOrder.steps = tuple(call.called_as for call in calls)
        if self.line.get("fleet"):
            refuse_beside_fleet(calls)
            del calls[1:]  # one order: the fleet does all of its steps
        else:
            refuse_without_fleet(calls)
        return calls

    def _spread(self, calls: list[Any], typed: dict[str, Any]) -> None:
        """Give the flags that stood beside tasks that do not know them to those that do."""
        for flag, value in typed.items():
            if flag not in SHARED or not value or flag in EVERYWHERE:
                continue
            knowing = [call for call in calls if flag in call.kwargs]
            lacking = [call for call in knowing if call.kwargs[flag] in (None, value, False, "")]
            if not lacking:
                name = f"--{flag.strip('_').replace('_', '-')}"
                raise ConfigError(
                    f"{name}: {_named(calls)} takes no such flag"
                    if not knowing
                    else f"{name} {value}: another value stands at the command that it is for",
                    advice="Leave it out, or type: wcw --help",
                )
            for call in lacking:
                call.kwargs[flag] = value
            self.line.setdefault(flag, value)

    def execute(self, *tasks: Any) -> Any:
        """Run the calls; however they end, it is said how the runs stand."""
        try:
            done = super().execute(*tasks)
        finally:
            tell_line()
        require_cells()
        return done


def _named(calls: list[Any]) -> str:
    return ", ".join(dict.fromkeys(call.called_as for call in calls))


def _refuse_company(calls: list[Any]) -> None:
    """The flags of some commands would be taken for others' of the same name."""
    alone = {command.called for command in COMMANDS if command.alone}
    for call in calls:
        if call.called_as in alone and len(calls) > 1:
            raise ConfigError(
                f"{call.called_as} stands alone on its line, and here is {_named(calls)}",
                advice="Type them as two lines. A file called as a command is written ./NAME.",
            )


def _refuse_half_dry(calls: list[Any]) -> None:
    """A line that only shows what one command would do must not do the rest for real."""
    dry = [call for call in calls if call.kwargs.get("dry_run")]
    real = [call for call in calls if not call.kwargs.get("dry_run")]
    if dry and real:
        raise ConfigError(
            f"--dry-run is said to {_named(dry)}, but {_named(real)} would be done for real",
            advice="Type what is to be done and what is to be shown as two lines.",
        )


def _refuse_one_of_many(calls: list[Any]) -> None:
    """One run is not that of several cells: said before the first of them is built."""
    for call in calls:
        if call.kwargs.get("run") and call.kwargs.get("select"):
            raise ConfigError(
                "--run names one run, --select chooses several cells",
                advice="Leave one of them out: --select takes the latest run of each cell.",
            )
        if call.kwargs.get("wheel") and (call.kwargs.get("select") or call.kwargs.get("run")):
            raise ConfigError(
                "--wheel names a wheel of its own, --run and --select those that were built here",
                advice="Leave one of them out.",
            )


def _on_line(given: dict[str, Any], step: Callable[[Line], int | None]) -> int | None:
    """Do it with the line of a task's flags, and of those that others on its command line have."""
    said = OneOrder.line | {flag: value for flag, value in given.items() if value}
    if "fleet" in given and said.get("fleet"):
        open_fleet(said, OneOrder.steps)
        return None
    if "select" in given and said.get("select"):
        open_matrix(said).each(step)
        return None
    return step(open_line(said))


def namespace() -> Collection:
    """All tasks."""
    made = Collection(*(as_task(command, _on_line) for command in COMMANDS))
    for name, commands in INNER.items():
        inner: list[Task[Any]] = [as_task(command, _on_line) for command in commands]
        made.add_collection(Collection(name, *inner))
    return made


def run(words: Sequence[str]) -> int:
    """Do what a command line says; the exit code. What was opened for it is closed again."""
    settle()
    code = attempt(lambda: _do(list(words)))
    closed = attempt(close_line)
    OneOrder.line.clear()
    return code or closed


def _do(words: list[str]) -> None:
    commands = namespace()
    contexts = {str(one.name): one for one in commands.to_contexts()}
    called.commands_are(contexts)
    if words[:1] == ["--complete"]:
        _complete(words[2:], commands, [*contexts.values()])
    words = spread(joined(words, contexts), contexts, FURTHER)
    if (topic := wants_help(words, contexts)) is not None or not words:
        print(
            of_command(commands, contexts[topic], FURTHER.get(topic, ""))
            if topic
            else of_program(commands, contexts)
        )
        return
    typed = parse(words, [*contexts.values()])
    program = flags_of(typed[0])
    if program["version"]:
        print(f"{NAMES[1]} {__version__}")
    elif shell := program["print-completion-script"]:
        _completion(shell)
    elif program["list"]:
        print(of_program(commands, contexts))
    elif not typed[1:]:
        raise ConfigError("there is no command on this line", advice="Type: wcw --help")
    else:
        _execute(typed, commands)


def _execute(typed: ParseResult, commands: Collection) -> None:
    given = [flags_of(context) for context in typed]
    if verbosity := max(flags.get("verbose") or 0 for flags in given):
        from pipelines.logs import configure

        configure(verbosity)
    if given[0]["quiet"]:
        from pipelines.console import console

        console.quiet = True
    OneOrder(commands, Config(lazy=True), ParseResult(typed[:1])).execute(*typed[1:])
    if lost := output.lost():
        answers = any("json" in flags or "format" in flags for flags in given)
        _tell_lost(lost, fatal=answers)


def _tell_lost(lost: OSError, *, fatal: bool) -> None:
    """What was printed is not whole; that is an error where it is what was asked for."""
    from pipelines.console import print_error

    error = StorageError(
        f"standard output could not be written: {lost.strerror}",
        advice="What was printed is not whole. Free some space, or print to somewhere else.",
    )
    if fatal:
        raise error
    print_error(error)


def _complete(words: list[str], commands: Collection, contexts: list[ParserContext]) -> None:
    """Print what may follow; the first of ``words`` is what the program was called as."""
    typed = ParseResult()
    typed.remainder = " ".join(words[1:])
    parser = Parser(initial=anywhere(), contexts=contexts)
    complete(list(NAMES), typed, anywhere(), commands, parser)


def _completion(shell: str) -> None:
    try:
        print_completion_script(shell, list(NAMES))
    except ParseError as error:
        raise ConfigError(str(error), advice="Say bash, zsh or fish.") from None
