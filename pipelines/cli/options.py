"""The flags that hold for a whole line of commands, and how the values of flags are read.

The axes of :class:`pipelines.core.target.Target` are such flags as well. A flag of one command
alone is a parameter of its task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from invoke.parser.argument import Argument
from pydantic import BeforeValidator

from pipelines.core.errors import ConfigError
from pipelines.core.model import Model
from pipelines.core.target import AXES

#: Shared flags that hold for a command, by name; those that were not given may be missing.
Flags = Mapping[str, Any]
#: The letters of flags: one means the same with every command, and help is always ``-h``.
LETTERS = {
    "recipe": "r",
    "python": "p",
    "torch": "t",
    "cuda": "c",
    "archs": "a",
    "jobs": "j",
    "minutes": "m",
    "offline": "o",
    "wheelhouse": "w",
}


def parse_whole_number(flag: str, text: str | None) -> int | None:
    """The value of a flag that is a whole number."""
    try:
        return None if text is None else int(text)
    except ValueError:
        raise ConfigError(
            f"--{flag} {text}: expected a whole number", hint=f"Such as --{flag} 4."
        ) from None


def parse_positive_number(flag: str, such: str, text: str | None) -> float | None:
    """The value of a flag that is a number above 0."""
    if text is None:
        return None
    if not text.replace(".", "", 1).isdecimal() or not float(text):
        raise ConfigError(
            f"--{flag} {text}: expected a number above 0", hint=f"Such as --{flag} {such}."
        )
    return float(text)


def parse_output_path(flag: str, text: str | None) -> Path | None:
    """Where something is to be written: refused before the work, not after it."""
    if text is None:
        return None
    path = Path(text).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--{flag} {text}: {error.strerror}", hint="Name a file that can be written."
        ) from None
    if path.is_dir():
        raise ConfigError(f"--{flag} {text}: that is a directory", hint="Name a file in it.")
    return path


class Shared(Model):
    """The flags of a line of commands but for the axes, each with its help."""

    for_: Annotated[
        str | None,
        "the Python and CUDA of a program, such as comfyui: pipelines/plan/config/presets.yaml",
    ] = None
    jobs: Annotated[
        int | None,
        "compile units at a time (default: the host's cores)",
        BeforeValidator(partial(parse_whole_number, "jobs")),
    ] = None
    minutes: Annotated[
        float | None,
        "end the build after so many minutes, with exit code 75; the next one continues",
        BeforeValidator(partial(parse_positive_number, "minutes", "330, five and a half hours")),
    ] = None
    reproducible: Annotated[bool, "build the same bytes on any host, whatever the recipe says"] = (
        False
    )
    shard: Annotated[str | None, "compile only shard K of N, such as 3/20: docs/shards.md"] = None
    objects: Annotated[
        str | None, "link the objects of these runs, RUN[,RUN...]; missing ones are compiled"
    ] = None
    shards: Annotated[
        str | None, "split the compile units into this many shards, or auto; then link them"
    ] = None
    gpu: Annotated[
        bool, "with a GPU; the sandbox uses this machine's, through a bridge: docs/gpu-bridge.md"
    ] = False
    offline: Annotated[bool, "download nothing: use the cache and the wheelhouse"] = False
    wheelhouse: Annotated[
        str | None, "directory of pinned files, as invoke wheelhouse fills it"
    ] = None
    wheel: Annotated[
        str | None, "test this wheel instead of a recipe's: FILE, NAME==VERSION of an index, or URL"
    ] = None
    select: Annotated[
        str | None,
        "every cell of invoke plan whose name matches, such as 'cp312-*', one after another",
    ] = None
    fleet: Annotated[
        bool, "all cells of invoke plan, in parallel on all suitable hosts: docs/fleet.md"
    ] = False
    hosts: Annotated[str | None, "with --fleet: these hosts, NAME[,NAME...] (default: all)"] = None


#: The flag of each axis.
AXIS_FLAGS = {axis: about.flag or axis for axis, about in AXES.items()}
_AXES = {flag: AXES[axis] for axis, flag in AXIS_FLAGS.items()}
ALL = tuple(_AXES)
#: Those that name one cell on one host; the architectures are asked for by what depends on them.
CELL = tuple(flag for flag in ALL if flag != "archs")
LINE = (*ALL, *Shared.model_fields)
#: Those that hold for a whole line, also where a command has one of that name with its own help.
SHARED = frozenset((*LINE, "dry_run"))
#: The program's own that a command takes as well.
EVERYWHERE = ("help", "quiet", "verbose")
#: Many hosts.
FLEET = ("fleet", "hosts")
#: Where pinned files come from.
FETCH = ("offline", "wheelhouse")
#: How the compile units of a wheel are divided among builds.
DIVIDED = ("reproducible", "shard", "objects", "shards")


def shared_flag_arguments(flags: Iterable[str], *, several: bool = False) -> list[Argument]:
    """Shared flags as invoke's arguments; ``several``: axes may have several values."""
    return [_argument(flag, several=several) for flag in flags]


def _argument(flag: str, *, several: bool) -> Argument:
    kind: type = str
    if (axis := _AXES.get(flag)) is not None:
        about = (several and axis.several) or axis.help
    else:
        field = Shared.model_fields[flag]
        kind = bool if field.annotation is bool else str
        about = next(one for one in field.metadata if isinstance(one, str))
    typed = flag.rstrip("_").replace("_", "-")
    return Argument(
        names=(typed, *LETTERS.get(flag, "")),
        attr_name=None if flag == typed else flag,
        kind=kind,
        default=False if kind is bool else None,
        help=about,
    )


def program_arguments() -> list[Argument]:
    """What may stand anywhere: the flags of the program, and those of a whole line."""
    about = {
        ("version", "V"): "print the version",
        ("list", "l"): "list the commands",
        ("quiet", "q"): "print only errors",
    }
    return [
        Argument(names=("help", "h"), optional=True, help="print this help, or a command's flags"),
        *(
            Argument(names=names, kind=bool, default=False, help=say)
            for names, say in about.items()
        ),
        Argument(
            names=("verbose", "v"),
            kind=int,
            default=0,
            incrementable=True,
            help="print what is going on; twice: in detail",
        ),
        Argument("print-completion-script", help="print a completion script for bash, zsh or fish"),
        *shared_flag_arguments(LINE),
    ]
