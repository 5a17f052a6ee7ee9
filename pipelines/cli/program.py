"""The program: the commands as tasks of invoke, and a line of them as one order."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from invoke.collection import Collection
from invoke.completion import complete as completion
from invoke.config import Config
from invoke.exceptions import Exit, ParseError
from invoke.executor import Executor
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.parser.parser import Parser, ParseResult
from invoke.program import Program

from pipelines import __version__
from pipelines.cli import helptext, host, image
from pipelines.cli.argv import normalize_command_line
from pipelines.cli.attest import attest
from pipelines.cli.audit import audit
from pipelines.cli.build import build
from pipelines.cli.cache import cache
from pipelines.cli.command import Command
from pipelines.cli.compare import compare
from pipelines.cli.diagnose import diagnose
from pipelines.cli.doctor import doctor
from pipelines.cli.exit import run_for_exit_code
from pipelines.cli.fleet import fleet
from pipelines.cli.fleets import open_fleet, refuse_with_fleet, refuse_without_fleet
from pipelines.cli.hosts import hosts
from pipelines.cli.init import init
from pipelines.cli.jobs import jobs
from pipelines.cli.lab import lab
from pipelines.cli.lines import close_line, register_cleanup, require_cells, tell_line
from pipelines.cli.lock import lock
from pipelines.cli.options import EVERYWHERE, LINE, program_arguments
from pipelines.cli.order import Call, propagate_flags, reject_conflicting_calls
from pipelines.cli.plan import plan
from pipelines.cli.provision import provision
from pipelines.cli.publish import publish
from pipelines.cli.rebuild import rebuild
from pipelines.cli.report import report
from pipelines.cli.runs import runs
from pipelines.cli.sbom import sbom
from pipelines.cli.survey import survey
from pipelines.cli.test import smoke_test
from pipelines.cli.verify import verify
from pipelines.cli.watch import watch
from pipelines.cli.wheelhouse import wheelhouse
from pipelines.cli.which import which
from pipelines.core import called, output
from pipelines.core.errors import ConfigError, StorageError

#: Every command, in the order of a day's work.
COMMANDS: dict[str, Command] = {
    one.task.name: one
    for one in (
        *(init, provision, build, smoke_test, report, compare, rebuild, attest, verify, publish),
        *(watch, which, audit, survey, lab, sbom, doctor, hosts, plan, fleet, jobs, runs, diagnose),
        *(cache, lock, wheelhouse),
    )
}
#: Those of two words, such as ``host start``, which is ``host.start`` as well.
_GROUPS = {"host": host.COMMANDS, "image": image.COMMANDS}
COMMANDS |= {
    f"{group}.{one.task.name}": one for group, commands in _GROUPS.items() for one in commands
}
#: What the program is called.
NAMES = ("wcw", "windows-cuda-wheels")
#: Arguments of invoke that its own code reads; they cannot be typed.
_INNER = ("complete", "debug", "list-depth", "list-format", "write-pyc")


def build_namespace() -> Collection:
    """All tasks."""
    made = Collection(*(COMMANDS[name].task for name in COMMANDS if "." not in name))
    for group, commands in _GROUPS.items():
        made.add_collection(Collection(group, *(one.task for one in commands)))
    return made


class Wcw(Program):
    """The program ``wcw``, to which ``tasks.py`` hands invoke's command line, too."""

    def __init__(self) -> None:
        super().__init__(__version__, build_namespace(), name=NAMES[1], binary_names=[*NAMES])
        self.contexts = {name: one.context(name) for name, one in COMMANDS.items()}
        self.anywhere = ParserContext(args=program_arguments())

    def core_args(self) -> list[Argument]:
        """Ours, and what invoke's code reads."""
        inner = [one for one in super().core_args() if one.name in _INNER]
        for one in inner:
            if one.name == "write-pyc":
                one.default = not sys.dont_write_bytecode  # as Python was started
        return [*program_arguments(), *inner]

    def create_config(self) -> None:
        """No file of invoke's is looked for; what is typed twice, such as doctor, is done twice."""
        self.config = Config(lazy=True, overrides={"tasks": {"dedupe": False}})

    def normalize_argv(self, argv: list[str] | None) -> None:
        """As :func:`normalize_command_line`; of a line to complete the program has its own name."""
        super().normalize_argv(argv)
        name, *words = self.argv
        if words[:1] == ["--complete"]:
            # A quotation that is still open is one word.
            typed = [shlex.quote(word) if word else word for word in words[3:]]
            words = ["--complete", "--", NAMES[0], *typed]
        else:
            words = normalize_command_line(words, self.anywhere, self.contexts)
        self.argv = [name, *words]

    def parse_core(self, argv: list[str] | None) -> None:
        """As invoke's, with our exit code."""
        try:
            super().parse_core(argv)
        except ParseError as error:  # of a shell that is not known
            raise ConfigError(str(error), hint="Type: wcw --help") from None

    def parse_tasks(self) -> None:
        """As invoke's; a command has the shared flags that it takes as well."""
        # Not all: the parser copies what it is given, which takes longer than to parse.
        named = self.contexts.keys() & {*self.core.unparsed, self.args.help.value}
        self.parser = Parser([self.contexts[name] for name in named], self.initial_context)
        self.tasks = ParseResult(self.parser.parse_argv(self.core.unparsed)[1:])

    def parse_cleanup(self) -> None:
        """As invoke's; flags are completed with all that a command takes."""
        if self.args.complete.value:
            everywhere = [one for one in program_arguments() if one.name in EVERYWHERE]
            contexts = [one.context(name, *everywhere) for name, one in COMMANDS.items()]
            parser = Parser(contexts, self.anywhere)
            completion.complete([*NAMES], self.core, self.anywhere, self.collection, parser)
        super().parse_cleanup()

    def print_help(self) -> None:
        """The commands and the flags of the program."""
        print(helptext.program_help(COMMANDS))

    list_tasks = print_help

    def print_task_help(self, name: str) -> None:
        """What a command does, and its flags."""
        print(helptext.command_help(name, COMMANDS[name]))

    def no_tasks_given(self) -> None:
        """Flags alone are no order."""
        raise ConfigError("no command was given", hint="Type: wcw --help")

    def update_config(self, merge: bool = True) -> None:  # noqa: ARG002 - of invoke's settings
        """How much is printed, which is all that there is to set."""
        if verbosity := self.args.verbose.value:
            from pipelines.core.logs import configure_logging

            configure_logging(verbosity)
        if self.args.quiet.value:
            from pipelines.core.console import console

            console.quiet = True

    def execute(self) -> None:
        """Do the order; invoke itself would give an interrupt another exit code."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise Exit(code=run_for_exit_code(self._do))

    def order(self) -> tuple[list[Call], dict[str, Any]]:
        """The commands of the line with the flags that hold for each, and those of the line."""
        calls = [(str(one.name), one.as_kwargs) for one in self.tasks]
        typed = {flag: one.value for flag in LINE if (one := self.args[flag]).value}
        line = propagate_flags(calls, typed)
        reject_conflicting_calls(calls, alone={name for name, one in COMMANDS.items() if one.alone})
        if line.get("fleet"):
            refuse_with_fleet(calls)
        else:
            refuse_without_fleet(calls)
        return calls, line

    def _do(self) -> None:
        calls, line = self.order()
        try:
            if line.get("fleet"):
                open_fleet(line, [name for name, _ in calls])
            else:
                tasks = [
                    (name, _task_arguments(COMMANDS[name], flags, line)) for name, flags in calls
                ]
                Executor(self.collection, self.config).execute(*tasks)
        finally:
            tell_line()
        require_cells()
        if lost := output.stdout_error():
            _tell_lost(lost, fatal=any({"json", "format"} & flags.keys() for _, flags in calls))


def _task_arguments(
    command: Command, flags: Mapping[str, Any], line: Mapping[str, Any]
) -> dict[str, Any]:
    """What the task is called with: its own parameters, and the flags of the line."""
    shared = {flag: flags[flag] for flag in command.shared if flags[flag]}
    own = {flag: value for flag, value in flags.items() if flag not in command.shared}
    return {**own, "flags": {**line, **shared} if command.on_line else shared}


def run_command_line(words: Sequence[str]) -> int:
    """Do what a command line says; the exit code. What was opened for it is closed again."""
    register_cleanup()
    called.commands_are(COMMANDS)
    code = run_for_exit_code(lambda: Wcw().run([NAMES[0], *words]))
    closed = run_for_exit_code(close_line)
    return code or closed


def _tell_lost(lost: OSError, *, fatal: bool) -> None:
    """What was printed is not whole; that is an error where it is what was asked for."""
    from pipelines.core.console import print_error

    error = StorageError(
        f"standard output could not be written: {lost.strerror}",
        hint="The output is incomplete. Free some space, or print to somewhere else.",
    )
    if fatal:
        raise error
    print_error(error)
