"""A line of commands as one order: the flags that hold for each, and what does not go together."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from pipelines.cli.options import SHARED
from pipelines.core.errors import ConfigError

#: Where a recipe says what is done; other commands take any for their line with a host.
_BUILDING = ("provision", "build", "test", "plan", "doctor")

#: A command, and its flags as they were typed; a flag that was not is as good as false.
Call = tuple[str, dict[str, Any]]


def propagate_flags(calls: Sequence[Call], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Give every command the flags that hold for it; the flags of the whole line.

    A command without a flag takes it from the nearest command before it that has it, then after it,
    then from ``typed``: flags before the first command, or at commands that do not take them.
    """
    line: dict[str, Any] = {}
    for ordered in (calls, calls[::-1]):
        line.clear()
        for _, flags in ordered:
            for flag in SHARED & flags.keys():
                if not flags[flag] and flag in line:
                    flags[flag] = line[flag]
                if flags[flag]:
                    line[flag] = flags[flag]
    for flag, value in typed.items():
        taking = [flags for _, flags in calls if flag in flags]
        unset = [flags for flags in taking if flags[flag] in (None, value, False, "")]
        if not unset:
            name = f"--{flag.strip('_').replace('_', '-')}"
            raise ConfigError(
                f"{name} {value}: the command that it belongs to has another value"
                if taking
                else f"{name}: {_join_call_names(calls)} takes no such flag",
                hint="Leave it out, or type: wcw --help",
            )
        for flags in unset:
            flags[flag] = value
        line.setdefault(flag, value)
    return line


def _refuse_no_recipe(calls: Sequence[Call]) -> None:
    """Where nothing says what to build, the example is not built in place of a project."""
    from pipelines.core.paths import config_file

    for name, flags in calls:
        asked = any(flags.get(flag) for flag in ("recipe", "wheel", "run"))
        if name in _BUILDING and not asked and not config_file().exists():
            raise ConfigError(
                f"{name}: there is no {config_file().name} here, and --recipe is missing",
                hint="In a repository with CUDA code type: wcw init. The example is "
                "--recipe smoke-attention.",
            )


def _join_call_names(calls: Sequence[Call]) -> str:
    return ", ".join(dict.fromkeys(name for name, _ in calls))


def reject_conflicting_calls(calls: Sequence[Call], *, alone: Container[str]) -> None:
    """Raise :class:`ConfigError` for what does not go together; ``alone`` are commands."""
    _refuse_company(calls, alone)
    _refuse_half_dry(calls)
    _refuse_one_of_many(calls)
    _refuse_no_recipe(calls)


def _refuse_company(calls: Sequence[Call], alone: Container[str]) -> None:
    """The flags of some commands would be taken for others' of the same name."""
    for name, _ in calls:
        if name in alone and len(calls) > 1:
            raise ConfigError(
                f"{name} must be the only command on its line; found {_join_call_names(calls)}",
                hint="Type them as two lines. Write ./NAME for a file with the name of a command.",
            )


def _refuse_half_dry(calls: Sequence[Call]) -> None:
    """A line that only shows what one command would do must not do the rest for real."""
    dry = [call for call in calls if call[1].get("dry_run")]
    real = [call for call in calls if not call[1].get("dry_run")]
    if dry and real:
        raise ConfigError(
            f"--dry-run is given for {_join_call_names(dry)}, but "
            f"{_join_call_names(real)} would really run",
            hint="Type them as two lines.",
        )


def _refuse_one_of_many(calls: Sequence[Call]) -> None:
    """One run is not that of several cells: said before the first of them is built."""
    for _, flags in calls:
        if flags.get("run") and flags.get("select"):
            raise ConfigError(
                "--run names one run, --select chooses several cells",
                hint="Leave one of them out: --select takes the latest run of each cell.",
            )
        if flags.get("wheel") and (flags.get("select") or flags.get("run")):
            raise ConfigError(
                "--wheel names another wheel, --run and --select those that were built here",
                hint="Leave one of them out.",
            )
