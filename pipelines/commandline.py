"""What the tasks of ``tasks.py`` share: their flags, one order for the whole line, how they end."""

from __future__ import annotations

import atexit
import functools
import inspect
import re
import signal
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from invoke.context import Context
from invoke.executor import Executor
from invoke.tasks import Task, task

from pipelines.errors import INTERRUPTED, ConfigError, PipelineError

#: The flags of an order: what they mean.
FLAGS = {
    "host": "where to build: a name from pipeline.yaml (default: sandbox)",
    "recipe": "what to build: a name from pipelines/recipes (default: smoke-attention)",
    "recipe_version": "release of the package, as the recipe lists them (default: its first)",
    "python": "Python to build for, such as 3.11",
    "torch": "release of torch to build against, such as 2.8 (default: the recipe's)",
    "cuda": "release of CUDA, such as 12.8 (default: the recipe's)",
    "archs": "GPU architectures, such as '75;86;90+PTX'",
    "jobs": "compile units at a time (default: the host's cores)",
    "minutes": "end the build after so long, with exit code 75; the next one goes on",
    "offline": "fetch nothing: take what the cache and the wheelhouse have",
    "wheelhouse": "directory of pinned files, as invoke wheelhouse fills it",
}
#: What names one cell on one host.
CELL = ("host", "recipe", "recipe_version", "python", "torch", "cuda")
#: Where pinned files come from.
FETCH = ("offline", "wheelhouse")

_work: Any = None


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
                for flag in FLAGS.keys() & call.kwargs.keys():
                    if not call.kwargs[flag]:
                        call.kwargs[flag] = self.line.get(flag)
                    if call.kwargs[flag]:
                        self.line[flag] = call.kwargs[flag]
        return calls


def order_task(*flags: str, **own: str) -> Callable[[Callable[..., Any]], Task[Any]]:
    """A task that is given the work of the command line, and its own flags by name.

    ``flags`` are of :data:`FLAGS`; ``own`` gives the help of those that the function names. What
    it returns, if it is no 0, is the exit code.
    """

    def make(function: Callable[..., Any]) -> Task[Any]:
        @guarded
        def run(_: Context, **given: Any) -> int | None:
            asked = {name: given.pop(name) for name in flags}
            code: int | None = function(open_work(**asked), **given)
            return code

        keyword, default = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter
        mine = list(inspect.signature(function).parameters.values())[1:]
        ours = [
            default(name, keyword, default=False if name == "offline" else None) for name in flags
        ]
        context = inspect.Parameter("_", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = [p for p in mine if p.default is p.empty]
        rest = [p for p in mine if p.default is not p.empty]
        named = [p.replace(kind=keyword) for p in (*needed, *ours, *rest)]
        run.__signature__ = inspect.Signature([context, *named])  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        help_ = {name: FLAGS[name] for name in flags} | own
        made: Task[Any] = task(help=help_)(run)
        return made

    return make


def guarded(function: Callable[..., int | None]) -> Callable[..., None]:
    """Turn expected errors into a message and an exit code, and leave nothing running."""

    @functools.wraps(function)
    def run(*arguments: Any, **flags: Any) -> None:
        from pipelines.console import errors, print_error

        try:
            code = function(*arguments, **flags)
        except PipelineError as error:
            print_error(error)
            close_work()
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            close_work()
            errors.print(
                "[yellow]Interrupted.[/yellow] What was finished is kept; the same command goes on."
            )
            sys.exit(INTERRUPTED)
        if code:
            close_work()
            sys.exit(code)

    return run


def number(flag: str, text: str | None) -> int | None:
    """Invoke hands over text when a flag has no default, whatever its annotation."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"--{flag} {text}: expected a whole number", advice=f"Such as --{flag} 4."
        ) from None


def amount(flag: str, text: str | None) -> float | None:
    """A number above 0, of whatever is counted."""
    if text is None:
        return None
    if not text.replace(".", "", 1).isdecimal() or not float(text):
        raise ConfigError(
            f"--{flag} {text}: expected a number above 0", advice=f"Such as --{flag} 14."
        )
    return float(text)


def open_work(**flags: Any) -> Any:
    """The work of this command line: one, unless a flag takes a task to another host or cell."""
    from pipelines import pipeline
    from pipelines.config import load_config

    given = {key: value for key, value in (OneOrder.line | flags).items() if value}
    fetch = {name: given.pop(name) for name in FETCH if name in given}
    settings = load_config().model_copy(update=fetch)
    given["jobs"] = number("jobs", given.get("jobs"))
    given["minutes"] = amount("minutes", given.get("minutes"))
    archs = str(given.get("archs") or settings.default.archs or "")
    if re.search(r"\bnative\b", archs, re.IGNORECASE):  # the host's own, so it must be asked first
        first = pipeline.take_order(_without_archs(settings), **given | {"archs": None})
        given["native"] = pipeline.ask_gpus(_at(first, settings))
    return _at(pipeline.take_order(settings, **given), settings)


def _without_archs(settings: Any) -> Any:
    return settings.model_copy(
        update={"default": settings.default.model_copy(update={"archs": None})}
    )


def _at(order: Any, settings: Any) -> Any:
    """The work that is open, with this order; another one if it is for another host or cell."""
    global _work  # noqa: PLW0603
    from pipelines import pipeline

    if _work is not None and _work.order.place != order.place:
        close_work()
    if _work is None:
        _work = pipeline.open_work(order, settings)
    _work.order = order
    return _work


def close_work() -> None:
    """Leave the host as it was found."""
    global _work
    work, _work = _work, None
    if work is not None:
        work.close()


def _terminate(*_: object) -> None:
    raise KeyboardInterrupt


def settle() -> None:
    """Close what is open however this process ends."""
    atexit.register(close_work)
    signal.signal(signal.SIGTERM, _terminate)
