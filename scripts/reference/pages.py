"""Every page that is made, and where it lies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pipelines.core.paths import CHECKOUT, PACKAGE
from scripts.reference import commands, tables
from scripts.reference.levels import levels_page, load
from scripts.reference.markdown import MADE

DOCS = (CHECKOUT or PACKAGE) / "docs"
FOLDER = DOCS / "reference"
LEVELS = DOCS / "evidence/levels.md"
#: Where a page prints the repository's address.
_ADDRESS = re.compile(r"(?<=git clone )\S+(?= windows-cuda-wheels\b)")


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
    written = {FOLDER / name: text for name, text in made.items()} | {LEVELS: shown}
    return written | with_address(DOCS.parent)


def with_address(root: Path) -> dict[Path, str]:
    """The pages that print the repository's address, with the one of pyproject.toml."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    address = settings["tool"]["wcw"]["repository"]
    texts = {
        path: path.read_text("utf-8") for path in (root / "README.md", *root.rglob("docs/**/*.md"))
    }
    return {
        path: _ADDRESS.sub(lambda _: address, text)
        for path, text in texts.items()
        if _ADDRESS.search(text)
    }


def stale() -> list[Path]:
    """Pages that were made once, of what is there no more."""
    made = files()
    there = sorted(FOLDER.rglob("*.md"))
    return [path for path in there if path not in made and MADE in path.read_text("utf-8")]
