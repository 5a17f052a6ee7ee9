"""What there is, as tables: modules, exit codes, failures, rules, GPUs, torch, recipes, keys."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from pipelines.core import errors
from pipelines.core.architectures.archs import KNOWN
from pipelines.core.architectures.gpus import load_gpu_table
from pipelines.core.errors import PipelineError
from pipelines.core.paths import PACKAGE
from pipelines.diagnosis.model import Heal, Signature, load_catalogue, load_codes
from pipelines.plan.config.schema import docstring_to_markdown, key_table_rows, recipe_schema
from pipelines.plan.matrix.compat import Rule, load_compat
from pipelines.plan.matrix.torches import load_torches
from pipelines.recipe.load import RECIPES, load_versions, recipe_names
from pipelines.recipe.model import Recipe
from scripts.reference.markdown import block, cell, code, linked, page, table, text

_KINDS = {
    "cause": ("Causes", "A known cause: the first one of a log is the diagnosis."),
    "reader": ("General readers", "Repeat what a tool says, with the meaning of its code."),
    "wrapper": ("What follows a cause", "Says only that something above it failed."),
    "warning": ("Warnings", "Worth a line, and fails nothing."),
}


#: Packages of data, not of modules.
_DATA = {"recipes", "smoke", "examples"}
_BASIS = {"seen": "reports", "code": "code that was read", "inferred": "documentation"}


@cache
def modules() -> str:
    """Every module of the packages with the first line of its docstring."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        package, *below = path.relative_to(PACKAGE).parts
        said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        if below and package not in _DATA and said:
            row = (code("/".join(below)), cell(" ".join(said.split("\n\n")[0].split())))
            found.setdefault(package, []).append(row)
    parts = [f"## {name}\n\n{table(['module', ''], rows_)}" for name, rows_ in found.items()]
    intro = (
        "What each module is for, as it says itself. How they go together: docs/architecture.md."
    )
    return page("Modules", text(intro), *parts)


def exit_codes() -> str:
    """Every exit code of a command line."""
    said = {code: ("", words) for code, words in errors.ANSWERS.items()}
    for kind in _kinds(PipelineError):
        said[kind.exit_code] = (kind.title, docstring_to_markdown(kind.__doc__ or ""))
    rows_ = ((str(code), title, cell(words)) for code, (title, words) in sorted(said.items()))
    return page(
        "Exit codes",
        "An error is printed with what was found, what was expected and what to do next. Its class "
        "decides the exit code of the command line:",
        table(["code", "error", "what it means"], rows_),
        "Of several cells, on one host or on many, the worst error counts.",
    )


def _kinds(kind: type[PipelineError]) -> Iterator[type[PipelineError]]:
    """The classes of errors below it, as they stand in the module."""
    for one in kind.__subclasses__():
        if one.__module__ == errors.__name__:
            yield one
            yield from _kinds(one)


def failures() -> str:
    """The catalogue of failures."""
    signatures = [one for one in load_catalogue().signatures if one.kind in _KINDS]
    parts = [
        f"{len(signatures)} ways in which builds and their wheels fail, as `invoke diagnose LOG` "
        "and every failed build look for them. Logs are hostile input: the patterns are bounded. "
        "What heals by itself never makes another wheel than was asked for."
    ]
    for kind, (title, says) in _KINDS.items():
        parts += [f"## {title}", says]
        parts += [_failure(one) for one in signatures if one.kind == kind]
    for name, codes in load_codes().items():
        rows_ = ((code(key), cell(one.means), cell(one.hint)) for key, one in codes.items())
        parts += [f"## Codes of {name}", table(["code", "meaning", "hint"], rows_)]
    return page("Failures", *parts)


def _failure(one: Signature) -> str:
    sources = ", ".join(f"[{_short(link)}]({link})" for link in one.evidence)
    known = ", ".join(filter(None, (sources, text(one.evidence_note or ""))))
    lines = [
        f"**Cause:** {text(one.cause)}",
        f"**Hint:** {text(one.hint)}",
        f"**Confidence:** {one.claims}{_scope(one)}.",
        f"**Heals by itself:** {', then '.join(map(_healed, one.heals))}." if one.heals else "",
        f"**Known from:** {_BASIS[one.basis]}: {known}",
    ]
    return "\n\n".join([f"### {one.id}", block([one.sample, *one.also]), *filter(None, lines)])


def _scope(one: Signature) -> str:
    ranges = ((name, r if isinstance(r, str) else ", ".join(r)) for name, r in one.scope.items())
    return "".join(f", for {name} {code(range_)}" for name, range_ in ranges)


def _healed(heal: Heal) -> str:
    match heal.kind:
        case "fewer-jobs":
            return "half the compile units at a time"
        case "set":
            return f"{code(f'{heal.variable}={heal.value}')} in the build's environment"
        case "append-flag":
            return f"{code(heal.flag)} more in {code(heal.variable)}"
        case "drop-flag":
            dropped, places = map(code, heal.flags), map(code, heal.variables)
            return f"without {', '.join(dropped)} in {', '.join(places)}"
        case "other-toolset":
            return f"with the toolset {' or '.join(heal.versions)}"
        case "shorter-root":
            return f"below {code(heal.root)}, with {code(heal.temp)} for temporary files"


def _short(link: str) -> str:
    """``https://github.com/a/b/issues/1`` is ``a/b#1``; of another place its host."""
    found = re.match(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)", link)
    return f"{found[1]}#{found[2]}" if found else link.split("/")[2]


def matrix() -> str:
    """What goes with what."""
    compat = load_compat()
    torches = (
        (release, ", ".join(build.cuda), ", ".join(build.python), str(build.date))
        for release, build in reversed(load_torches().items())
    )
    drivers = ([release, driver] for release, driver in compat.toolkit_drivers.items())
    return page(
        "What goes with what",
        "`invoke plan`, `doctor` and `build` judge by these rules. A rule holds when every fact "
        "that it names is known and within its range; an error refuses, a warning is shown. A "
        "release that is not here is not refused, only not checked.",
        "## Rules",
        table(["rule", "what happens", "hint", "confirmed"], map(_rule, compat.rules)),
        "## CUDA builds of torch for Windows",
        table(["torch", "CUDA", "Python", "confirmed"], torches),
        "## Drivers",
        "The driver of Windows that came with each release of CUDA. An older one of the same "
        "family runs machine code, and does not compile PTX of that release.",
        table(["CUDA", "driver"], drivers),
        "## Releases of Windows",
        table(["release", "build"], ((one.name, code(str(one.builds))) for one in compat.windows)),
    )


def _rule(rule: Rule) -> tuple[str, ...]:
    when = ", ".join(f"{fact} {code(str(range_))}" for fact, range_ in rule.when.items())
    named = f"[{rule.id}]({rule.source}): {when}"
    return named, f"{rule.level}: {cell(rule.says)}", cell(rule.hint), str(rule.date)


def gpus() -> str:
    """Names of GPUs and their architectures."""
    known = ((code(gpu.show), gpu.capability, code(gpu.arch)) for gpu in load_gpu_table().gpus)
    spans = ((code(arch), cell(str(span))) for arch, span in KNOWN.items())
    return page(
        "GPUs and architectures",
        "`--archs` and `archs` of a recipe take numbers (`89`, `8.9`, `sm_120`, `90a`), names of "
        "GPUs as people and nvidia-smi write them, and `native`. `+PTX` behind one asks for PTX "
        "too, which the driver compiles on newer GPUs; `compute_120` is PTX alone.",
        "## GPUs",
        table(["GPU", "compute capability", "architecture"], known),
        "## Architectures",
        "By which releases of CUDA they are compiled:",
        table(["architecture", "CUDA"], spans),
    )


def packages() -> str:
    """The recipes that come with this."""
    parts = []
    for name in recipe_names(RECIPES):
        versions = load_versions(name, RECIPES)
        first = next(iter(versions.values()))
        parts += [
            f"## {name}",
            text(first.summary),
            table(["key", "value"], _facts(first, versions)),
        ]
    return page(
        "Recipes that are here",
        "Each is a file of `pipelines/recipes`. `invoke plan --recipe NAME` says which cells of it "
        "can be built on a host, how long that takes and what it needs. How a recipe is written: "
        "[recipes.md](../recipes.md).",
        *parts,
    )


def _facts(one: Recipe, versions: Iterable[str]) -> Iterator[tuple[str, str]]:
    releases = [version for version in versions if version]
    yield "releases", ", ".join(map(code, releases)) or "as it is"
    yield "license", cell(one.license)
    if one.pythons:
        yield "Python", ", ".join(one.pythons)
    if one.wheel_tag:
        yield "one wheel for them", code(one.wheel_tag)
    for name, release, range_ in (
        ("torch", one.torch, one.supports.torch),
        ("CUDA", one.cuda, one.supports.cuda),
    ):
        if release:
            yield (
                name,
                f"{release} by default" + (f", works with {code(str(range_))}" if range_ else ""),
            )
    yield "architectures", code(str(one.archs))
    yield "needs of C++", code(one.api)
    yield "tested by", code(f"pipelines/smoke/{one.smoke}") if one.smoke else code(one.verify)


def recipe_keys() -> str:
    """Every key of a recipe."""
    schema = recipe_schema()
    parts = [_keys(schema)]
    for name, part in schema["$defs"].items():
        if part.get("properties"):
            parts += [f"## {name}", text(part.get("description", "")), _keys(part)]
    return page(
        "Keys of a recipe",
        "How a recipe is written, [recipes.md](../recipes.md) says; here is every key. `versions` "
        "takes those that may differ from release to release. The schema for editors, "
        "`pipelines/recipes/schema.json`, says the same.",
        *parts,
    )


def _keys(part: dict[str, Any]) -> str:
    return linked("\n".join(key_table_rows(part)), up="../")
