"""``invoke init``: a repository's own files, made of what it shows and what its author answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.scaffold.choices import Choices, Question
    from pipelines.scaffold.found import Project
    from pipelines.scaffold.writing import Comparison


@command(
    help={
        "directory": "the repository (default: this directory)",
        "yes": "ask nothing: take the defaults, and say which",
        "force": "replace files that are there and differ",
        "name": "name of the recipe",
        "python": "Python to build for when none is named",
        "cuda": "release of CUDA, such as 13.0",
        "torch": "release of torch, for a package that is built with it",
        "archs": "GPUs, such as '75;86;120+PTX' or 'RTX 40xx'",
        "no_workflow": "no workflow for GitHub",
        "tasks": "a tasks.py too, so that `invoke build` works here",
        "exclude": "leave out what is called so, such as docs/*; may be repeated",
        "without_submodules": "submodules that are not checked out are not needed: leave them out",
    },
    many=("exclude",),
    alone=True,
)
def init(
    _: Flags,
    *,
    directory: str = ".",
    yes: bool = False,
    force: bool = False,
    name: str | None = None,
    python: str | None = None,
    cuda: str | None = None,
    torch: str | None = None,
    archs: str | None = None,
    no_workflow: bool = False,
    tasks: bool = False,
    exclude: list[str] | None = None,
    without_submodules: bool = False,
) -> int:
    """Make a repository buildable: find out how, ask little, write recipe, tests and workflow.

    Nothing of the repository is run. Leaves with 2 when files that are there would be replaced.
    """
    from pipelines.core.console import say
    from pipelines.core.hosttext import line
    from pipelines.scaffold.choices import decide, questions
    from pipelines.scaffold.detect import detect
    from pipelines.scaffold.files import made
    from pipelines.scaffold.writing import compare, refuse_leftovers, write
    from pipelines.toolchain.lock import load_lock

    root = Path(directory).expanduser().absolute()
    refuse_leftovers(root)
    left_out = tuple(exclude or ())
    project = detect(root, left_out)
    _show(project)
    _refuse(project, without_submodules=without_submodules)
    lock = load_lock()
    given = {"name": name, "python": python, "cuda": cuda, "torch": torch, "archs": archs}
    answers, taken = _answered(questions(project, lock), given, yes=yes)
    choices = decide(
        project,
        lock,
        answers,
        workflow=not no_workflow,
        tasks=tasks,
        exclude=left_out,
        taken=taken,
    )
    for doubt in choices.doubts:
        say(f"mind: {line(doubt, 600)}", style="yellow")
    files = made(project, choices)
    found = compare(root, files)
    if found.other and not force:
        _tell_others(found)
        raise ConfigError(
            f"{len(found.other)} of {len(files)} files are there and say something else; nothing "
            "was written",
            hint="Keep them, or type it with --force to replace them.",
        )
    write(root, {name: files[name] for name in (*found.new, *found.other)})
    _tell(found, choices)
    return 0


def _refuse(project: Project, *, without_submodules: bool) -> None:
    """What cannot become a CUDA wheel, or not yet."""
    if not project.units and not project.told.cuda:
        raise ConfigError(
            f"{project.root} has no CUDA: no .cu file, no CUDAExtension, and no CUDA in CMake",
            hint="A package without CUDA needs none of this: build it with cibuildwheel. "
            "Nothing was written.",
        )
    if project.submodules and not without_submodules:
        raise ConfigError(
            f"submodules are not checked out: {', '.join(project.submodules[:10])}",
            hint="Type: git submodule update --init --recursive. If the build does not need "
            "them: --without-submodules. Nothing was written.",
        )


def _show(project: Project) -> None:
    """What was found, a line a thing."""
    from pipelines.core import units
    from pipelines.core.console import console, say
    from pipelines.core.hosttext import line
    from pipelines.scaffold.pyproject import backend_of

    told = project.told
    console.print("[bold]Found[/bold]")
    with_torch = "with torch" if told.torch else "without torch"
    bindings = ", ".join(sorted(told.bindings)) or "none that is known"
    rows = {
        "package": f"{told.name or '(no name)'} {told.version or '(version made by the build)'}",
        "licence": told.licence or "not said in a way that is read",
        "Python": told.requires_python or "any",
        "built by": f"{backend_of(told.backend)}, {project.build}, {with_torch}",
        "bindings": bindings,
        "modules": ", ".join(told.extensions) or "not written out",
        "CUDA": f"{units.counted(len(project.units), 'unit')}: {', '.join(project.units[:4])}"
        + (" ..." if len(project.units) > 4 else ""),  # noqa: PLR2004 - a line
        "files": f"{len(project.files)} ({project.by})",
    }
    for name, text in rows.items():
        say(f"  {name:<9} {line(text, 300)}")
    for fetched in told.fetches:
        say(
            f"mind: {line(fetched, 200)}: there is no network while it is built, so put what it "
            "fetches into the source",
            style="yellow",
        )


def _answered(
    questions: list[Question], given: Mapping[str, str | None], *, yes: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Key -> value of each question; and of those that nobody answered."""
    from pipelines.core.console import console, say

    asks = not yes and sys.stdin.isatty() and console.is_terminal
    keys = {question.key for question in questions}
    if given["torch"] is not None and "torch" not in keys:
        raise ConfigError(
            f"--torch {given['torch']}: this package is built without torch", hint="Leave it out."
        )
    answers: dict[str, str] = {}
    taken: dict[str, str] = {}
    for one in questions:
        answer = given[one.key]
        if answer is None and asks:
            answer = _asked(one)
        elif answer is None:
            answer = taken[one.key] = one.default
            if not answer:
                raise ConfigError(f"--{one.key}: {one.asks} is not known", hint="Give the flag.")
        answers[one.key] = one.check(answer.strip())
    if taken:
        said = ", ".join(f"--{key} '{value}'" for key, value in taken.items())
        why = "--yes" if yes else "no terminal to ask at"
        say(f"taken without asking ({why}): {said}")
    return answers, taken


def _asked(question: Question) -> str:
    """What somebody types; asked again while it cannot be."""
    from pipelines.core.console import print_error

    while True:
        try:
            typed = input(f"{question.asks} [{question.default}]: ").strip() or question.default
        except EOFError:
            return question.default
        try:
            return question.check(typed)
        except ConfigError as error:
            print_error(error)


def _tell_others(found: Comparison) -> None:
    from pipelines.core.console import say
    from pipelines.core.hosttext import line

    for name in found.same:
        say(f"  as it is    {name}")
    for name in found.new:
        say(f"  not there   {name}")
    for name, how in found.other.items():
        say(f"  differs     {name}: {line(how, 250)}", style="yellow")


def _tell(found: Comparison, choices: Choices) -> None:
    from pipelines.core.console import say

    rows: Mapping[str, tuple[str, ...]] = {
        "wrote": found.new,
        "replaced": tuple(found.other),
        "as it was": found.same,
    }
    for word, names in rows.items():
        for name in names:
            say(f"  {word:<10} {name}")
    if not found.new and not found.other:
        say("nothing to do: every file is there as init would write it", style="green")
        return
    say(
        f"Next: read .wcw/recipes/{choices.name}.yaml, and write a test of your numbers into "
        ".wcw/smoke. Then type\n"
        "invoke plan\ninvoke provision build test",
        style="green",
    )
