"""JSON schemas of recipes and ``pipeline.yaml``, and the tables of ``docs/configuration.md``.

All three are made from the models, whose docstrings say what a key means. They are written with

    python -m pipelines.plan.config.schema
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipelines.core.paths import CHECKOUT, PACKAGE
from pipelines.plan.config.model import Config, host_models
from pipelines.recipe.load import RECIPES, VARIES
from pipelines.recipe.model import Recipe

RECIPE_SCHEMA = RECIPES / "schema.json"
CONFIG_SCHEMA = PACKAGE / "pipeline.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@cache
def recipe_schema() -> dict[str, Any]:
    """What a recipe file may hold: the model's keys, and ``versions`` with those that vary.

    A key that is required may stand in every version instead of at the top, so editors know
    of types and unknown keys; that nothing is missing is only known when the file is loaded.
    """
    made = _schema_with_docstrings(Recipe)
    keys = made["properties"]
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
    made["not"] = {"required": ["version", "versions"]}
    return {**made, "$schema": _DIALECT, "title": "A recipe of windows-cuda-wheels"}


@cache
def config_schema() -> dict[str, Any]:
    """What ``pipeline.yaml`` may hold; a host has the keys of its kind."""
    made = _schema_with_docstrings(Config)
    hosts = made["properties"]["hosts"]
    kinds = {"oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in host_models()]}
    # Under the pattern of their names: an empty schema there would take any host.
    hosts["patternProperties"] = dict.fromkeys(hosts["patternProperties"], kinds)
    hosts["additionalProperties"] = False
    for model in host_models():
        host = _schema_with_docstrings(model)
        made["$defs"] |= {**host.pop("$defs", {}), model.__name__: host}
    return {**made, "$schema": _DIALECT, "title": "pipeline.yaml of windows-cuda-wheels"}


def _schema_with_docstrings(model: type[BaseModel]) -> dict[str, Any]:
    """Pydantic's schema of it, in which every key has the words of its docstring."""
    made = model.model_json_schema()
    for each in _iter_nested_models(model):
        part = made if each is model else made["$defs"].get(each.__name__, {})
        if "description" in part:
            part["description"] = docstring_to_markdown(part["description"])
        for key, says in attribute_docstrings(each).items():
            if key in part.get("properties", {}):
                part["properties"][key]["description"] = says
    return made


def _iter_nested_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """It, and all that may stand in it."""
    yield model
    for field in model.model_fields.values():
        for inner in _classes(field.annotation):
            yield from _iter_nested_models(inner)


def _classes(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for inner in getattr(hint, "__args__", ()):
        yield from _classes(inner)


@cache
def attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Key -> what the text below it in the source says of it, on one line."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (issubclass(base, BaseModel) and base.__module__.startswith("pipelines.")):
            continue
        (tree,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(tree, ast.ClassDef)  # noqa: S101 - it is one
        for one, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        found[one.target.id] = docstring_to_markdown(text)
    return found


def docstring_to_markdown(text: str) -> str:
    """A docstring on one line, as editors and Markdown take it."""
    return re.sub(r":\w+:`~?([^`]*)`|``([^`]*)``", r"`\1\2`", " ".join(text.split()))


# -- docs/configuration.md ------------------------------------------------------------------------

DOCUMENT = (CHECKOUT or PACKAGE) / "docs/configuration.md"
#: What stands between the lines ``<!-- keys of NAME -->`` and ``<!-- -->`` is written here.
_TABLE = re.compile(r"(<!-- keys of (\w+) -->\n)(?:.*?\n)??(<!-- -->)", re.DOTALL)


def regenerate_tables(text: str) -> str:
    """``docs/configuration.md`` with its tables regenerated."""
    schema = config_schema()
    known = {**schema["$defs"], "Config": schema}

    def table(found: re.Match[str]) -> str:
        return found[1] + "\n".join(key_table_rows(known[found[2]])) + "\n" + found[3]

    return _TABLE.sub(table, text)


def key_table_rows(part: dict[str, Any]) -> Iterator[str]:
    """The lines of a table of an object's keys: each with its default and what it says."""
    yield "| key | default | what it says |"
    yield "|-|-|-|"
    for key, value in part["properties"].items():
        default = "needed" if key in part.get("required", ()) else _default(value.get("default"))
        says = value["description"].replace("|", "\\|")
        yield f"| `{key}` | {default} | {says} |"


def _default(value: Any) -> str:
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, dict):
        return "see below"
    return f"`{json.dumps(value) if isinstance(value, bool | int) else value}`"


def generated_schema_files() -> dict[Path, str]:
    """Every file that is made here -> its text."""
    made = {
        path: json.dumps(schema, indent=2, sort_keys=True) + "\n"
        for path, schema in ((RECIPE_SCHEMA, recipe_schema()), (CONFIG_SCHEMA, config_schema()))
    }
    if DOCUMENT.is_file():
        made[DOCUMENT] = regenerate_tables(DOCUMENT.read_text("utf-8"))
    return made


if __name__ == "__main__":
    for path, text in generated_schema_files().items():
        path.write_text(text, "utf-8")
        print(path)
