"""What a newcomer types in his second hour, wrong input first: ``commands.yaml``, run as it is.

Each command is a process of its own, in a project of its own, on a copy of the package that may be
given recipes. Whatever it is, no command ends with a traceback, hangs, or leaves a run behind
unless it says so.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from pipelines.core.paths import PACKAGE

pytestmark = pytest.mark.slow

_SECONDS = 60  # for a machine that is busy; what hangs takes for ever


class Case(BaseModel):
    """A command line, and what becomes of it."""

    model_config = ConfigDict(extra="forbid")

    finding: int
    """Its number in the review that found it."""
    name: str
    type: str
    """After the program's name; run by a shell when it holds ``|`` or ``>``."""
    exit: int
    says: Annotated[tuple[str, ...], Field(min_length=1)]
    """Texts that all stand in what it prints, blanks made one."""
    never: tuple[str, ...] = ()
    """Texts that do not."""
    files: dict[str, str] = {}
    """In the project before it runs; ``{deep}`` is a list in a list, three thousand deep."""
    recipes: dict[str, str] = {}
    """In the package before it runs."""
    environment: dict[str, str] = {}
    leaves: tuple[str, ...] = ()
    """Directories of the project that may be there afterwards."""


def cases() -> list[Case]:
    told = yaml.safe_load(Path(__file__).with_name("commands.yaml").read_text("utf-8"))
    return [Case.model_validate(case) for case in told]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, as an installation has it."""
    place = tmp_path_factory.mktemp("installed")
    shutil.copytree(PACKAGE, place / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    return place


def typed(case: Case, project: Path, package: Path) -> subprocess.CompletedProcess[bytes]:
    """The command, run in the project."""
    program = [sys.executable, "-m", "pipelines"]
    line = case.type.replace("{python}", "{}.{}".format(*sys.version_info))
    words: list[str] = [*program, *shlex.split(line)]
    if set("|>") & set(line):
        words = ["bash", "-c", f"set -o pipefail; {shlex.join(program)} {line}"]
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "WCW", "GITHUB"))},
        "PYTHONPATH": str(package),
        "XDG_CACHE_HOME": str(project / "cache"),
        "COLUMNS": "200",
        "NEWCOMERS_PYTHON": sys.executable,
        **case.environment,
    }
    return subprocess.run(
        words,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.finding}-{case.name}")
def test_what_is_typed(case: Case, tmp_path: Path, package: Path) -> None:
    project = tmp_path / "project"
    for name, text in case.files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{deep}", "[" * 3000 + "]" * 3000), "utf-8")
    project.mkdir(exist_ok=True)
    if case.recipes:
        own = tmp_path / "installed"
        shutil.copytree(package, own)
        package = own
        for name, text in case.recipes.items():
            (package / "pipelines/recipes" / name).write_text(text, "utf-8")
    done = typed(case, project, package)
    said = " ".join(done.stdout.decode("utf-8", "replace").split())
    assert "Traceback" not in said, said
    assert done.returncode == case.exit, said
    assert not [text for text in case.says if text not in said], said
    assert not [text for text in case.never if text in said], said
    left = {path.name for path in project.iterdir() if path.is_dir()}
    given = {Path(name).parts[0] for name in case.files}
    assert left <= {"cache", *given, *case.leaves}, "something was left behind"


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
