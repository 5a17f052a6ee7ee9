"""Recipes as files: those that come with the package, and some that somebody adds.

Tests of what only the shipped ones say name them, so a recipe that is added breaks none. What holds
for every recipe is in ``test_any_recipe.py``; what is wrong with one the loader says.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pipelines.recipe.load import RECIPES, load_versions

ROOT = Path(__file__).parents[2]
SHIPPED = (
    *("candle-flash-attn", "causal-conv1d", "flash-attn", "flash-attn-4", "gsplat"),
    *("llama-cpp-python", "sageattention", "smoke-attention", "xformers"),
)
VERSIONS = [(name, version) for name in SHIPPED for version in load_versions(name)]
#: The example of docs/recipes.md.
DOCUMENTED = "my-conv1d"
#: As little as a package of one's own needs.
OWN = """\
name: mine
summary: A package of my own.
kind: wheel
license: MIT
source: {path: mine}
pythons: ["3.11"]
cuda: "13.0"
archs: "90"
build_requires: [setuptools]
verify: import mine
"""


def examples(document: str = "docs/recipes.md") -> list[str]:
    """The blocks of YAML in a document."""
    parts = (ROOT / document).read_text("utf-8").split("```yaml\n")[1:]
    return [part.split("```")[0] for part in parts]


def written(folder: Path) -> Path:
    """All of them in ``folder``; what ``mine`` is made of is expected in the project."""
    folder.mkdir()
    for name in SHIPPED:
        shutil.copy(RECIPES / f"{name}.yaml", folder)
    (folder / "mine.yaml").write_text(OWN)
    (folder / f"{DOCUMENTED}.yaml").write_text(examples()[0])
    (folder / "costly.yaml").write_text(
        f"{examples()[0].replace(f'name: {DOCUMENTED}', 'name: costly')}{examples()[1]}"
    )
    return folder
