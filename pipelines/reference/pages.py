"""Every page that is made, and where it lies."""

from __future__ import annotations

from pathlib import Path

from pipelines.core.paths import CHECKOUT, PACKAGE
from pipelines.reference import commands, tables
from pipelines.reference.levels import levels_page, load
from pipelines.reference.markdown import MADE

DOCS = (CHECKOUT or PACKAGE) / "docs"
FOLDER = DOCS / "reference"
LEVELS = DOCS / "evidence/levels.md"


def files() -> dict[Path, str]:
    """Every page -> its text."""
    made = {
        "exit-codes.md": tables.exit_codes(),
        "failures.md": tables.failures(),
        "gpus.md": tables.gpus(),
        "matrix.md": tables.matrix(),
        "modules.md": tables.modules(),
        "packages.md": tables.packages(),
        "recipe-keys.md": tables.recipe_keys(),
    }
    made |= {f"commands/{name}": text for name, text in commands.pages(DOCS).items()}
    shown = levels_page(*load(DOCS / "evidence"))
    return {FOLDER / name: text for name, text in made.items()} | {LEVELS: shown}


def stale() -> list[Path]:
    """Pages that were made once, of what is there no more."""
    made = files()
    there = sorted(FOLDER.rglob("*.md"))
    return [path for path in there if path not in made and MADE in path.read_text("utf-8")]
