"""``invoke init``: a repository's own files, made of what it shows and what its author answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Options
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.scaffold.choices import Choices, Question
    from pipelines.scaffold.found import Project
    from pipelines.scaffold.writing import Comparison


class InitOptions(Options):
    """Flags of ``init``; each answers one question."""

    directory: Annotated[str, Flag("the repository (default: this directory)")] = "."
    yes: Annotated[bool, Flag("ask nothing: take the defaults, and say which")] = False
    force: Annotated[bool, Flag("replace files that are there and differ")] = False
    name: Annotated[str | None, Flag("name of the recipe")] = None
    python: Annotated[str | None, Flag("Python to build for when none is named")] = None
    cuda: Annotated[str | None, Flag("release of CUDA, such as 13.0")] = None
    torch: Annotated[str | None, Flag("release of torch, for a package that is built with it")] = (
        None
    )
    archs: Annotated[str | None, Flag("GPUs, such as '75;86;120+PTX' or 'RTX 40xx'")] = None
    no_workflow: Annotated[bool, Flag("no workflow for GitHub")] = False
    tasks: Annotated[bool, Flag("a tasks.py too, so that `invoke build` works here")] = False
    exclude: Annotated[
        tuple[str, ...], Flag("leave out what is called so, such as docs/*; may be repeated")
    ] = ()
    without_submodules: Annotated[
        bool, Flag("submodules that are not checked out are not needed: leave them out")
    ] = False


def init(options: InitOptions) -> int:
    """Make a repository buildable: find out how, ask little, write recipe, tests and workflow.

    Nothing of the repository is run. Leaves with 2 when files that are there would be replaced.
    """
    from pipelines.console import say
    from pipelines.hosttext import line
    from pipelines.scaffold.choices import decide, questions
    from pipelines.scaffold.detect import detect
    from pipelines.scaffold.files import made
    from pipelines.scaffold.writing import compare, refuse_leftovers, write
    from pipelines.toolchain.lock import load_lock

    root = Path(options.directory).expanduser().absolute()
    refuse_leftovers(root)
    project = detect(root, options.exclude)
    _show(project)
    _refuse(project, options)
    lock = load_lock()
    answers, taken = _answered(questions(project, lock), options)
    choices = decide(
        project,
        lock,
        answers,
        workflow=not options.no_workflow,
        tasks=options.tasks,
        exclude=options.exclude,
        taken=taken,
    )
    for doubt in choices.doubts:
        say(f"mind: {line(doubt, 600)}", style="yellow")
    files = made(project, choices)
    found = compare(root, files)
    if found.other and not options.force:
        _tell_others(found)
        raise ConfigError(
            f"{len(found.other)} of {len(files)} files are there and say something else; nothing "
            "was written",
            advice="Keep them, or type it with --force to replace them.",
        )
    write(root, {name: files[name] for name in (*found.new, *found.other)})
    _tell(found, choices)
    return 0


def _refuse(project: Project, options: InitOptions) -> None:
    """What cannot become a CUDA wheel, or not yet."""
    if not project.units and not project.told.cuda:
        raise ConfigError(
            f"{project.root} has no CUDA: no .cu file, no CUDAExtension, and no CUDA in CMake",
            advice="A package without CUDA needs none of this: build it with cibuildwheel. "
            "Nothing was written.",
        )
    if project.submodules and not options.without_submodules:
        raise ConfigError(
            f"submodules are not checked out: {', '.join(project.submodules[:10])}",
            advice="Type: git submodule update --init --recursive. If the build does not need "
            "them: --without-submodules. Nothing was written.",
        )


def _show(project: Project) -> None:
    """What was found, a line a thing."""
    from pipelines import units
    from pipelines.console import console, say
    from pipelines.hosttext import line
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
    questions: list[Question], options: InitOptions
) -> tuple[dict[str, str], dict[str, str]]:
    """Key -> value of each question; and of those that nobody answered."""
    from pipelines.console import console, say

    asks = not options.yes and sys.stdin.isatty() and console.is_terminal
    keys = {question.key for question in questions}
    if options.torch is not None and "torch" not in keys:
        raise ConfigError(
            f"--torch {options.torch}: this package is built without torch", advice="Leave it out."
        )
    answers: dict[str, str] = {}
    taken: dict[str, str] = {}
    for one in questions:
        given = getattr(options, one.key)
        if given is None and asks:
            given = _asked(one)
        elif given is None:
            given = taken[one.key] = one.default
            if not given:
                raise ConfigError(f"--{one.key}: {one.asks} is not known", advice="Give the flag.")
        answers[one.key] = one.check(given.strip())
    if taken:
        said = ", ".join(f"--{key} '{value}'" for key, value in taken.items())
        why = "--yes" if options.yes else "no terminal to ask at"
        say(f"taken without asking ({why}): {said}")
    return answers, taken


def _asked(question: Question) -> str:
    """What somebody types; asked again while it cannot be."""
    from pipelines.console import print_error

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
    from pipelines.console import say
    from pipelines.hosttext import line

    for name in found.same:
        say(f"  as it is    {name}")
    for name in found.new:
        say(f"  not there   {name}")
    for name, how in found.other.items():
        say(f"  differs     {name}: {line(how, 250)}", style="yellow")


def _tell(found: Comparison, choices: Choices) -> None:
    from pipelines.console import say

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


COMMAND = Command(init, InitOptions, alone=True)
