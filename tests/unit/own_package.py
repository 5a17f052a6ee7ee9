"""The package of docs/own-tests.md, as a reader would make it."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe

PAGE = (Path(__file__).parents[2] / "docs/own-tests.md").read_text("utf-8")
_FILE = re.compile(r"^\*\*(vecadd/[^*]+)\*\*\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)


def block(kind: str, nth: int = 0) -> str:
    """The page's code blocks of a kind, in order."""
    found: list[str] = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return found[nth]


def make(folder: Path) -> Recipe:
    """Write the page's files below ``folder``; its recipe, which names them there."""
    found = {name.replace("\\", ""): text for name, text in _FILE.findall(PAGE)}
    assert len(found) == 6, [*found]
    for name, text in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    told = block("yaml").replace("../vecadd", str(folder / "vecadd"))
    (folder / "vecadd.yaml").write_text(told, "utf-8")
    return load_recipe("vecadd", folder)
