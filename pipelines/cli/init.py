"""``invoke init``: generates a repository's files from its contents and the author's answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.core.finding import Finding
    from pipelines.scaffold.choices import Choices, Question
    from pipelines.scaffold.project import Project
    from pipelines.scaffold.writer import Comparison
    from pipelines.toolchain.lock import ToolchainLock


@command(
    help={
        "directory": "the repository (default: this directory)",
        "yes": "do not ask: use the defaults, and print them",
        "force": "overwrite existing files that differ",
        "name": "name of the recipe",
        "python": "default Python to build for",
        "cuda": "CUDA version, such as 13.0",
        "torch": "torch version, for a package that is built with it",
        "archs": "GPUs, such as '75;86;120+PTX' or 'RTX 40xx'",
        "no_workflow": "do not write a GitHub workflow",
        "exclude": "skip matching files, such as docs/*; may be repeated",
        "without_submodules": "skip submodules that are not checked out",
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
    exclude: list[str] | None = None,
    without_submodules: bool = False,
) -> int:
    """Make a repository buildable: detect how, ask little, write recipe, tests and workflow.

    No code of the repository is run. Exits with status 2 if existing files would be replaced.
    """
    from pipelines.core import units
    from pipelines.core.console import say
    from pipelines.core.hosttext import safe_line
    from pipelines.scaffold.choices import make_choices, relevant_questions
    from pipelines.scaffold.detect import detect_project
    from pipelines.scaffold.files import generate_scaffold_files
    from pipelines.scaffold.writer import compare_with_existing, write_scaffold_files
    from pipelines.toolchain.lock import load_lock

    root = Path(directory).expanduser().absolute()
    left_out = tuple(exclude or ())
    project = detect_project(root, left_out)
    _show_detected_project(project)
    _require_buildable_project(project, without_submodules=without_submodules)
    lock = load_lock()
    values = {"name": name, "python": python, "cuda": cuda, "torch": torch, "archs": archs}
    answers, defaults = _answers(relevant_questions(project, lock), values, yes=yes)
    choices = make_choices(
        project,
        lock,
        answers,
        workflow=not no_workflow,
        exclude=left_out,
        defaults=defaults,
    )
    for doubt in choices.doubts:
        say(f"note: {safe_line(doubt, 600)}", style="yellow")
    files = generate_scaffold_files(project, choices)
    comparison = compare_with_existing(root, files)
    if comparison.other and not force:
        raise ConfigError(
            f"{units.join_first(comparison.other)}: existing content differs; nothing was written",
            hint="Use --force to overwrite them.",
        )
    write_scaffold_files(root, {name: files[name] for name in (*comparison.new, *comparison.other)})
    _show_result(comparison, choices, _host_problems_by_place(files, choices, lock))
    return 0


def _host_problems_by_place(
    files: Mapping[str, str], choices: Choices, lock: ToolchainLock
) -> Mapping[str, Sequence[Finding]]:
    """Where the default target could be built -> why it cannot be."""
    from pipelines.core.paths import CONFIG_NAME
    from pipelines.core.target import Target
    from pipelines.core.yamlfile import parse_yaml
    from pipelines.hosts.base import supply_of
    from pipelines.plan.config.model import Config
    from pipelines.plan.matrix.judge import host_rules
    from pipelines.recipe.model import Recipe
    from pipelines.scaffold.files import WORKFLOW

    recipe = Recipe.model_validate(parse_yaml(files[f".wcw/recipes/{choices.name}.yaml"]))
    config = Config.model_validate(parse_yaml(files[CONFIG_NAME]))
    own = config.default.host
    supplies = {f"this machine, host '{own}'": config.host(own).supply(lock)}
    supplies["another Windows machine, such as host 'lab1' in pipeline.yaml"] = supply_of(lock)
    if WORKFLOW in files:
        supplies[f"GitHub's windows-2022, with {WORKFLOW}"] = supply_of(lock)
    target = Target(
        host=own,
        recipe=recipe.name,
        python=choices.python,
        torch=choices.torch,
        cuda=choices.cuda,
    )
    return {
        place: [finding for finding in host_rules(recipe, target, supply) if finding.failed]
        for place, supply in supplies.items()
    }


def _require_buildable_project(project: Project, *, without_submodules: bool) -> None:
    """Refuse a repository with missing submodules, which may have its CUDA, or without CUDA."""
    if project.submodules and not without_submodules:
        raise ConfigError(
            f"submodules are not checked out: {', '.join(project.submodules[:10])}",
            hint="Run: git submodule update --init --recursive. If the build does not need "
            "them: --without-submodules. Nothing was written.",
        )
    if not project.units and not project.facts.cuda:
        raise ConfigError(
            f"{project.root} has no CUDA: no .cu file, no CUDAExtension, no CUDA in CMake",
            hint="Build a package without CUDA with cibuildwheel. Nothing was written.",
        )


def _show_detected_project(project: Project) -> None:
    """Show what was detected."""
    from pipelines.core import units
    from pipelines.core.console import console, say
    from pipelines.core.hosttext import safe_line
    from pipelines.scaffold.pyproject import parse_build_backend

    facts = project.facts
    console.print("[bold]Found[/bold]")
    with_torch = "with torch" if facts.torch else "without torch"
    bindings = ", ".join(sorted(facts.bindings)) or "none detected"
    rows = {
        "package": f"{facts.name or '(no name)'} {facts.version or '(computed version)'}",
        "license": facts.license or "not detected",
        "Python": facts.requires_python or "any",
        "built by": f"{parse_build_backend(facts.backend)}, {project.build}, {with_torch}",
        "bindings": bindings,
        "modules": ", ".join(facts.extensions) or "not detected",
        "CUDA": f"{units.pluralize(len(project.units), 'unit')}: {', '.join(project.units[:4])}"
        + (" ..." if len(project.units) > 4 else ""),  # noqa: PLR2004 - a line
        "files": f"{len(project.files)} ({project.by})",
    }
    for name, text in rows.items():
        say(f"  {name:<9} {safe_line(text, 300)}")
    for fetched in facts.fetches:
        say(
            f"note: {safe_line(fetched, 200)}: builds have no network, so add what it fetches "
            "to the "
            "source",
            style="yellow",
        )


def _answers(
    questions: list[Question], flags: Mapping[str, str | None], *, yes: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Key -> answer to each question, and those that are defaults."""
    from pipelines.core.console import console, say

    interactive = not yes and sys.stdin.isatty() and console.is_terminal
    keys = {question.key for question in questions}
    if flags["torch"] is not None and "torch" not in keys:
        raise ConfigError(
            f"--torch {flags['torch']}: this package is built without torch", hint="Omit it."
        )
    answers: dict[str, str] = {}
    defaults: dict[str, str] = {}
    for question in questions:
        answer = flags[question.key]
        if answer is None and interactive:
            answer = _prompt_until_valid(question)
        elif answer is None:
            answer = defaults[question.key] = question.default
            if not answer:
                raise ConfigError(
                    f"--{question.key}: {question.prompt} is not known", hint="Set it."
                )
        answers[question.key] = question.check(answer.strip())
    if defaults:
        values = ", ".join(f"--{key} '{value}'" for key, value in defaults.items())
        why = "--yes" if yes else "no terminal"
        say(f"defaults used ({why}): {values}")
    return answers, defaults


def _prompt_until_valid(question: Question) -> str:
    """The user's answer; asks again until it is valid."""
    from pipelines.core.console import print_error

    while True:
        try:
            typed = input(f"{question.prompt} [{question.default}]: ").strip() or question.default
        except EOFError:
            return question.default
        try:
            return question.check(typed)
        except ConfigError as error:
            print_error(error)


def _show_result(
    comparison: Comparison, choices: Choices, places: Mapping[str, Sequence[Finding]]
) -> None:
    from pipelines.core.console import say

    rows: Mapping[str, tuple[str, ...]] = {
        "wrote": comparison.new,
        "replaced": comparison.other,
        "unchanged": comparison.same,
    }
    for word, names in rows.items():
        for name in names:
            say(f"  {word:<10} {name}")
    if not comparison.new and not comparison.other:
        say("nothing to do: all files are up to date", style="green")
        return
    say("Where it can be built:", style="bold")
    for place, refused in places.items():
        say(f"  {'no ' if refused else 'yes'}  {place}", style="yellow" if refused else "green")
        for finding in refused:
            say(f"       {finding.actual}")
    where = " --host NAME" if next(iter(places.values())) else ""
    say(f"Next: read .wcw/recipes/{choices.name}.yaml, and add a numerical test to .wcw/smoke.")
    say(f"Then: invoke provision build test{where}", style="green")
