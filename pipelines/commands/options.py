"""The options of commands: declared once, as fields; flags, help and parsing follow from them.

The axes of :class:`pipelines.target.Target` are flags as well, of every command that names them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from pipelines.errors import ConfigError
from pipelines.model import Model
from pipelines.target import AXES

#: Axes that name one cell on one host; the architectures are asked for by what depends on them.
CELL = tuple(name for name in AXES if name != "archs")
ALL = tuple(AXES)


@dataclass(frozen=True)
class Flag:
    """What a flag means; a field without one is no flag."""

    help: str
    counted: bool = False
    """Whether it may stand several times, and is counted."""
    name: str = ""
    """What is typed, where it is not the field's name."""
    words: bool = False
    """Whether every further word of the command is one of its values."""


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
    "verbose": "v",
    "quiet": "q",
}


def whole(flag: str) -> Callable[[Any], Any]:
    """Reads the value of a flag that is a whole number above 0."""

    def read(text: Any) -> Any:
        try:
            return None if text is None else int(text)
        except ValueError:
            raise ConfigError(
                f"--{flag} {text}: expected a whole number", advice=f"Such as --{flag} 4."
            ) from None

    return read


def amount(flag: str, such: str) -> Callable[[Any], Any]:
    """Reads the value of a flag that is a number above 0."""

    def read(text: Any) -> Any:
        if text is None:
            return None
        if not str(text).replace(".", "", 1).isdecimal() or not float(text):
            raise ConfigError(
                f"--{flag} {text}: expected a number above 0", advice=f"Such as --{flag} {such}."
            )
        return float(text)

    return read


def target(flag: str, text: str | None) -> Path | None:
    """Where something is to be written: refused before the work, not after it."""
    if text is None:
        return None
    path = Path(text).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--{flag} {text}: {error.strerror}", advice="Name a file that can be written."
        ) from None
    if path.is_dir():
        raise ConfigError(f"--{flag} {text}: that is a directory", advice="Name a file in it.")
    return path


class Options(Model):
    """The flags of a command of its own."""

    #: Those of the axes that it takes.
    axes: ClassVar[tuple[str, ...]] = ()
    #: Whether an axis may have several values.
    several: ClassVar[bool] = False
    #: Those of :class:`Shared` that it takes.
    shared: ClassVar[tuple[str, ...]] = ()

    @property
    def for_programs(self) -> bool:
        """Whether a program reads the answer: then nothing else is on standard output."""
        return bool(getattr(self, "as_json", False))


class Shared(Model):
    """Flags that hold for a whole line of commands, wherever on it they stand."""

    for_: Annotated[
        str | None,
        Flag("the Python and CUDA that a program brings, such as comfyui: pipelines/presets.yaml"),
    ] = None
    jobs: Annotated[
        int | None,
        Flag("compile units at a time (default: the host's cores)"),
        BeforeValidator(whole("jobs")),
    ] = None
    minutes: Annotated[
        float | None,
        Flag("end the build after so long, with exit code 75; the next one goes on"),
        BeforeValidator(amount("minutes", "330, five and a half hours")),
    ] = None
    reproducible: Annotated[
        bool, Flag("the same bytes wherever it is built, whatever the recipe says of that")
    ] = False
    shard: Annotated[
        str | None,
        Flag("compile only share K/N of the units, such as 3/20: docs/shards.md"),
    ] = None
    objects: Annotated[
        str | None, Flag("link the objects of these runs, RUN[,RUN...]; what lacks is compiled")
    ] = None
    shards: Annotated[
        str | None, Flag("divide the compile units into so many shares, or auto; then link them")
    ] = None
    gpu: Annotated[
        bool, Flag("with a GPU; of the sandbox this machine's, by a bridge: docs/gpu-bridge.md")
    ] = False
    offline: Annotated[bool, Flag("fetch nothing: take what the cache and the wheelhouse have")] = (
        False
    )
    wheelhouse: Annotated[
        str | None, Flag("directory of pinned files, as invoke wheelhouse fills it")
    ] = None
    wheel: Annotated[
        str | None,
        Flag("test this wheel instead of a recipe's: FILE, NAME==VERSION of an index, or URL"),
    ] = None
    select: Annotated[
        str | None,
        Flag("every cell of invoke plan whose name fits, such as 'cp312-*', one after another"),
    ] = None
    fleet: Annotated[
        bool, Flag("every cell of invoke plan, on all hosts that fit, at once: docs/fleet.md")
    ] = False
    hosts: Annotated[
        str | None, Flag("with --fleet: these hosts, NAME[,NAME...] (default: all)")
    ] = None
    verbose: Annotated[int, Flag("tell what is going on; twice: in detail", counted=True)] = 0
    quiet: Annotated[bool, Flag("say nothing but errors")] = False


#: Those that every command takes, whether or not it declares them.
EVERYWHERE = ("verbose", "quiet")
Json = Annotated[bool, Flag("print one JSON object, and nothing else", name="json")]


#: Many hosts.
FLEET = ("fleet", "hosts")
#: Where pinned files come from.
FETCH = ("offline", "wheelhouse")
#: How the compile units of a wheel are divided among builds.
DIVIDED = ("reproducible", "shard", "objects", "shards")
Count = Annotated[int, BeforeValidator(whole("keep"))]
Days = Annotated[float, BeforeValidator(amount("days", "14"))]


def flag_of(field: FieldInfo) -> Flag | None:
    """The flag that a field is, if it is one."""
    return next((one for one in field.metadata if isinstance(one, Flag)), None)


def axis_flag(axis: str) -> str:
    """What the flag of an axis is called."""
    return AXES[axis].flag or axis
