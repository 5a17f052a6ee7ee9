"""What a wheel is tested with: a suite of the package, a folder of your own tests, or its import.

Whatever it is, the shared part of ``pipelines/smoke/common`` goes along: it runs the cases in a
process of their own, imports the package in a fresh interpreter, and compares the installed wheel
with what was asked for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal

from pipelines.core import plugins, units
from pipelines.core.errors import ConfigError
from pipelines.core.model import suggest_nearest
from pipelines.core.paths import PACKAGE, project_dir
from pipelines.recipe.model import Recipe
from pipelines.recipe.worktree import PROJECT, list_project_files

SUITES = PACKAGE / "smoke"
#: The directory of suites within an origin, see :mod:`pipelines.core.plugins`.
KIND = "smoke"
#: The folder, next to the shared files, in which tests of your own lie on the host.
OWN = "own"
_KNOB = "smoke_suite.py"
#: What it must define.
_CONTRACT = ("TORCH", "MODULES", "facts", "lost")
_TEST = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py")
_MOST = 4 << 20  # bytes; it is sent with the order to run it
_PAGE = "docs/own-tests.md has an example."

#: The folder in which a script of your own lies on the host.
SCRIPT = "script"
#: What stands in for a suite where there is none.
Instead = Literal["", "verify", "import", "given"]


@dataclass(frozen=True)
class Suite:
    """A suite as it is sent."""

    files: dict[str, str]
    """Name with ``/`` -> text."""
    own: bool = False
    """Whether it has tests of your own, in the folder :data:`OWN`."""
    origin: str = ""
    """Where a suite with a name is from; empty: nothing was looked up."""
    instead: Instead = ""

    def shadows(self, modules: Iterable[str]) -> list[str]:
        """Its files that Python would import instead of these modules of the wheel."""
        known, found = {*modules}, []
        for name in self.files:
            path = PurePosixPath(name)
            module = path.parent.name if path.name == "__init__.py" else path.stem
            if path.suffix == ".py" and module in known:
                found.append(name)
        return found


def suite_of(recipe: Recipe) -> Suite:
    """What the recipe's wheel is tested with.

    Raises :class:`ConfigError` for a folder that is not there, has no tests, or cannot be sent.
    """
    if not recipe.smoke:
        return _fallback_suite(recipe)
    if {"/", "\\"} & {*recipe.smoke} or recipe.smoke.startswith("."):
        return _suite_from_folder(project_dir() / recipe.smoke)
    if found := plugins.find_plugin_file(KIND, recipe.smoke, f"smoke suite {recipe.smoke}"):
        return replace(_suite_from_folder(found.path), origin=found.says)
    there = _built_in()
    if recipe.smoke not in there:
        known = sorted({*there, *_plugin_suite_names()})
        raise ConfigError(
            f"recipe {recipe.name}: smoke: there is no suite '{recipe.smoke}'"
            f"{suggest_nearest(recipe.smoke, known)}",
            hint=f"There are: {', '.join(known)}. A folder elsewhere has a slash in its "
            f"name: ./{recipe.smoke}",
        )
    return Suite(_shared() | _shipped(SUITES / recipe.smoke), origin=plugins.BUILT_IN)


@cache
def _built_in() -> list[str]:
    tested = {path.parent.name for path in SUITES.glob("*/test_*.py")}
    return sorted(tested & {path.parent.name for path in SUITES.glob(f"*/{_KNOB}")})


def _plugin_suite_names() -> Iterator[str]:
    for origin in plugins.plugin_origins():
        yield from (path.name for path in (origin.path / KIND).glob("*") if path.is_dir())


def _suite_from_folder(folder: Path) -> Suite:
    """A folder of tests that is not built in."""
    files = _own(folder)
    knob = files.pop(f"{OWN}/{_KNOB}", "")
    if knob:
        _check_contract(folder / _KNOB, knob)
        return Suite(_shared() | {_KNOB: knob} | files, own=True)
    return Suite(_shared() | _shipped(SUITES / "default") | files, own=True)


def suite_of_given(script: Path | None) -> Suite:
    """What a wheel that others have built is tested with: its import, and a script of the user's.

    That is a directory of tests, a file of pytest's, or any other program. Raises
    :class:`ConfigError` for one that cannot be sent.
    """
    files = _shared() | _shipped(SUITES / "default")
    if script is None:
        return Suite(files, instead="given")
    if script.is_dir():
        return Suite(files | _own(script), own=True)
    if (size := script.stat().st_size) > _MOST:
        raise ConfigError(
            f"{script} has {units.format_size(size)}, {units.format_size(_MOST)} are possible"
        )
    if _TEST.fullmatch(script.name):
        return Suite(files | {f"{OWN}/{script.name}": _read_test_file(script)}, own=True)
    return Suite(
        files | _shipped(SUITES / "script") | {f"{SCRIPT}/{script.name}": _read_test_file(script)}
    )


def _fallback_suite(recipe: Recipe) -> Suite:
    """No suite: what ``verify`` says, else the import of what is in the wheel."""
    files = _shared() | _shipped(SUITES / "default")
    if not recipe.verify:
        return Suite(files, instead="import")
    return Suite(files | _shipped(SUITES / "verify"), instead="verify")


@cache
def _shared() -> dict[str, str]:
    helpers = (PACKAGE / "wheels" / "fatbin.py", PACKAGE / "remote" / "awake.py")
    return _shipped(SUITES / "common") | {path.name: path.read_text("utf-8") for path in helpers}


@cache
def _shipped(folder: Path) -> dict[str, str]:
    kept = [path for path in sorted(folder.glob("*")) if path.suffix in (".py", ".ini")]
    return {path.name: path.read_text("utf-8") for path in kept}


def _own(folder: Path) -> dict[str, str]:
    """The files of a folder of your own, with the names that they have on the host."""
    if not folder.is_dir():
        raise ConfigError(
            f"smoke: there is no directory {folder}",
            hint="Write it in the recipe as seen from pipeline.yaml, or leave smoke out.",
        )
    found = list_project_files(folder).files
    if project := sorted({*PROJECT} & found.keys()):
        raise ConfigError(
            f"smoke: {folder} has a {project[0]}: the sources in it would be tested, not the wheel",
            hint="Name a folder that has only tests.",
        )
    if not any(_TEST.fullmatch(name) for name in found):
        raise ConfigError(
            f"smoke: {folder} has no tests: no file is called test_*.py or *_test.py",
            hint=_PAGE,
        )
    shared = {name for name in _shared() if name != "conftest.py"}
    for path in found.values():
        if path.suffix == ".py" and path.name in shared:
            raise ConfigError(
                f"smoke: {path} has the name of a shared file",
                hint="Give it another name: Python would import one of the two for both.",
            )
    if (size := sum(path.stat().st_size for path in found.values())) > _MOST:
        raise ConfigError(
            f"smoke: {folder} has {units.format_size(size)}, {units.format_size(_MOST)} are "
            "possible",
            hint="Let the tests generate large data themselves.",
        )
    return {f"{OWN}/{name}": _read_test_file(path) for name, path in found.items()}


def _read_test_file(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(
            f"smoke: {path} is not UTF-8 text, and only text is sent",
            hint="Let the tests generate such data themselves, or have git ignore the file.",
        ) from None


def _check_contract(path: Path, text: str) -> None:
    """Refuse a ``smoke_suite.py`` that does not define what is asked of it."""
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise ConfigError(f"smoke: {path}, line {error.lineno}: {error.msg}") from None
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        defined |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ImportFrom):
            defined |= {alias.asname or alias.name for alias in node.names}
    if missing := [name for name in _CONTRACT if name not in defined]:
        raise ConfigError(
            f"smoke: {path} does not define {', '.join(missing)}",
            hint="docs/own-tests.md says what they are; without the file there are defaults.",
        )
