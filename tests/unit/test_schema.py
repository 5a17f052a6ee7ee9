"""Editors and people get the models' own description of each key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from recipefiles import ROOT, SHIPPED, examples

from pipelines.core.errors import ConfigError
from pipelines.core.yamlfile import read_yaml
from pipelines.plan.config import schema
from pipelines.plan.config.model import Config, Defaults, host_models, load_config
from pipelines.toolchain.compilecache import CompileCache

SCHEMAS = {"recipe": schema.recipe_schema(), "config": schema.config_schema()}


def keys(part: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key that may stand anywhere in a schema."""
    if isinstance(part, dict):
        for name, value in part.get("properties", {}).items():
            yield f"{where}.{name}", value
        for name, value in part.items():
            yield from keys(value, f"{where}/{name}")
    elif isinstance(part, list):
        for value in part:
            yield from keys(value, where)


def test_what_is_kept_is_of_today() -> None:
    """After a change of a model: python -m pipelines.plan.config.schema."""
    made = schema.generated_schema_files()
    assert {path.name for path in made} == {
        *("schema.json", "pipeline.schema.json", "configuration.md"),
    }
    for path, text in made.items():
        assert path.read_text("utf-8") == text, path


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_has_a_description(name: str) -> None:
    found = dict(keys(SCHEMAS[name]))
    assert len(found) > 40
    lacking = [key for key, value in found.items() if len(value.get("description", "")) < 9]
    assert not lacking
    assert not [key for key, value in found.items() if re.search("``|:\\w+:`", str(value))]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_object_is_closed_and_every_reference_leads_somewhere(name: str) -> None:
    made = SCHEMAS[name]
    for part in (made, *made["$defs"].values()):
        assert part["additionalProperties"] is False
    named = re.findall(r'"#/\$defs/(\w+)"', json.dumps(made))
    assert {*named} == {*made["$defs"]}
    patterns = re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(made))
    assert patterns
    for pattern in map(json.loads, patterns):
        assert r"\"" not in pattern, "an editor's expressions know no such escape"
        assert "(?i" not in pattern, "nor such a flag: the whole schema would not be one"


def test_a_host_has_the_keys_of_its_kind() -> None:
    made = SCHEMAS["config"]
    for model in host_models():
        part = made["$defs"][model.__name__]
        assert part["properties"].keys() == model.model_fields.keys()
    hosts = made["properties"]["hosts"]
    (under,) = hosts["patternProperties"].values()
    assert [part["$ref"] for part in under["oneOf"]] == [
        f"#/$defs/{model.__name__}" for model in host_models()
    ]
    assert hosts["additionalProperties"] is False


def test_the_document_has_every_key_of_every_model() -> None:
    text = schema.DOCUMENT.read_text("utf-8")
    caches = get_args(get_args(CompileCache)[0])
    for model in (Config, Defaults, *host_models(), *caches):
        (table,) = re.findall(rf"<!-- keys of {model.__name__} -->\n(.*?)<!-- -->", text, re.DOTALL)
        rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| (.+) \|$", table, re.MULTILINE)
        assert [key for key, _, _ in rows] == [*model.model_fields]
        for key, default, says in rows:
            assert (default == "needed") == model.model_fields[key].is_required()
            assert len(says) > 8


def test_the_documents_example_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(examples("docs/configuration.md")[0])
    made = load_config(tmp_path / "p.yaml")
    assert [host.kind for host in made.hosts.values()] == ["sandbox", "winrm", "local"]


def test_errors_lead_to_the_document(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("hosts: {}\nofline: true\n")
    with pytest.raises(ConfigError, match="ofline: unknown key; did you mean 'offline'") as caught:
        load_config(tmp_path / "p.yaml")
    assert caught.value.hint == "docs/configuration.md has every key."


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("pipeline.yaml", schema.CONFIG_SCHEMA),
        (".github/runner.yaml", schema.CONFIG_SCHEMA),
        *((f"pipelines/recipes/{name}.yaml", schema.RECIPE_SCHEMA) for name in SHIPPED),
    ],
)
def test_editors_find_the_schema(path: str, made: Path) -> None:
    first = (ROOT / path).read_text("utf-8").splitlines()[0]
    found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert found
    assert ((ROOT / path).parent / found[1]).resolve() == made
    assert read_yaml(ROOT / path).keys() <= json.loads(made.read_text("utf-8"))["properties"].keys()


@pytest.mark.parametrize("document", ["docs/configuration.md", "docs/recipes.md"])
def test_so_do_the_examples(document: str) -> None:
    assert examples(document)[0].startswith("# yaml-language-server: $schema=")
