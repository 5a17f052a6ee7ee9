"""The JSON schema of recipes, made from the model: ``pipelines/recipes/schema.json``.

python -m pipelines.recipe.schema > pipelines/recipes/schema.json
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from pipelines.recipe.load import RECIPES, VARIES
from pipelines.recipe.model import Recipe

SCHEMA_FILE = RECIPES / "schema.json"


def schema() -> dict[str, Any]:
    """What a recipe file may hold: the model's keys, and ``versions`` with those that vary.

    A key that is required may stand in every version instead of at the top, so editors are told
    of types and unknown keys; that nothing is missing is only known when the file is loaded.
    """
    made = Recipe.model_json_schema()
    keys = made["properties"]
    keys.pop("version")
    varying = {key: deepcopy(value) for key, value in keys.items() if key in VARIES}
    for value in varying.values():
        value.pop("default", None)
    keys["versions"] = {
        "description": "What differs from release to release, by the release's name.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "object",
            "properties": varying,
            "additionalProperties": False,
        },
    }
    keys["default"] = {
        "description": "The version that is built when none is named; the first without this.",
        "type": "string",
    }
    made["required"] = [key for key in made["required"] if key not in VARIES]
    made["dependentRequired"] = {"default": ["versions"]}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recipe of windows-cuda-wheels",
    }
    return {**made, **head}


def text() -> str:
    """The file as it is kept."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(text(), end="")
