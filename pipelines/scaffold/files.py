"""Generates the files that ``init`` writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import yaml
from packaging.utils import canonicalize_name
from pydantic import ValidationError

from pipelines import __version__
from pipelines.core import plugins
from pipelines.core.errors import ConfigError
from pipelines.core.model import format_validation_error
from pipelines.core.paths import CONFIG_NAME
from pipelines.core.yamlfile import parse_yaml
from pipelines.plan.config.model import Config
from pipelines.plan.config.schema import config_schema, recipe_schema
from pipelines.recipe.model import Recipe
from pipelines.scaffold.choices import Choices, arch_variable
from pipelines.scaffold.project import Project
from pipelines.scaffold.pyproject import parse_build_backend

_TEMPLATES = Path(__file__).resolve().with_name("templates")
#: Not needed by a build, so that changes do not trigger another one.
_ASIDE = (plugins.FOLDER, CONFIG_NAME, ".github")
WORKFLOW = ".github/workflows/windows-wheels.yml"


def generate_scaffold_files(project: Project, choices: Choices) -> dict[str, str]:
    """Path below the repository, with ``/`` -> text.

    The result is validated by the models that will read it; :class:`ConfigError` if it is invalid,
    because of a bug here or a name in the repository.
    """
    folder, name = plugins.FOLDER, choices.name
    suite = suite_name(project, choices)
    recipe = _recipe_keys(project, choices, suite)
    context = {"project": project, "choices": choices, "version": __version__, "suite": suite}
    context["windows"] = sys.platform == "win32"
    files = {
        CONFIG_NAME: _render_scaffold_template("pipeline.yaml.j2", context),
        f"{folder}/.gitignore": "# Made by builds here.\n/out/\n/sandbox*/\n",
        f"{folder}/recipes/{name}.yaml": _render_scaffold_template(
            "recipe.yaml.j2", context | {"recipe": recipe}
        ),
        f"{folder}/smoke/{suite}/test_{suite}.py": _render_scaffold_template(
            "smoke.py.j2", context
        ),
        f"{folder}/schemas/recipe.json": _format_schema_json(recipe_schema()),
        f"{folder}/schemas/{Path(CONFIG_NAME).stem}.json": _format_schema_json(config_schema()),
    }
    if choices.workflow:
        files[WORKFLOW] = _render_scaffold_template("workflow.yml.j2", context)
    _read_back(files, f"{folder}/recipes/{name}.yaml")
    return files


def suite_name(project: Project, choices: Choices) -> str:
    """The name of the test directory and of the file in it."""
    named = project.package or choices.name
    return re.sub(r"[^a-z0-9]+", "_", named.lower()).strip("_") or "package"


def _recipe_keys(project: Project, choices: Choices, suite: str) -> dict[str, Any]:
    """The recipe's keys, in order."""
    facts = project.facts
    environment, arch_map = _derive_build_settings(project)
    keys: dict[str, Any] = {
        "name": choices.name,
        "summary": _collapse_to_line(facts.summary)[:200]
        or f"{facts.name or choices.name}, built for Windows.",
        "kind": "wheel",
        "license": _collapse_to_line(facts.license)[:100] or "LicenseRef-unknown",
    }
    if facts.name and choices.name != (project_name := canonicalize_name(facts.name)):
        keys["project"] = project_name
    keys |= {
        "source": {"path": "."},
        "exclude": [*_ASIDE, *choices.exclude],
        "pythons": list(choices.pythons),
        "cuda": choices.cuda,
    }
    if choices.torch:
        keys["torch"] = choices.torch
    if choices.api == "stable":
        keys["supports"] = {"torch": ">=2.10"}
    keys |= {"api": choices.api, "archs": choices.archs}
    if arch_map:
        keys["arch_map"] = arch_map
    if choices.wheel_tag:
        keys["wheel_tag"] = choices.wheel_tag
    keys |= {
        "environment": environment,
        "fixes": ["torch-small-macro"] if choices.torch else [],
        "restamp": True,
        "build_requires": list(choices.build_requires),
        "test_requires": list(choices.test_requires),
        "smoke": suite,
    }
    return {key: value for key, value in keys.items() if value not in ({}, [])}


def _derive_build_settings(project: Project) -> tuple[dict[str, str], dict[str, Any]]:
    """Environment of the build, and how GPU architectures are passed to it."""
    facts = project.facts
    environment: dict[str, str] = {}
    if facts.torch or "TORCH_CUDA_ARCH_LIST" in facts.variables:
        environment |= {"MAX_JOBS": "{jobs}"} if facts.torch else {}
        environment |= {"DISTUTILS_USE_SDK": "1"} if facts.torch else {}
        arch_map: dict[str, Any] = {"kind": "torch"}
    elif parse_build_backend(facts.backend) == "scikit-build-core":
        define = facts.arch_define or "CMAKE_CUDA_ARCHITECTURES"
        environment |= {
            "CMAKE_GENERATOR": "Ninja",
            "CMAKE_BUILD_PARALLEL_LEVEL": "{jobs}",
            "CMAKE_ARGS": " ".join(
                [*(f"-D{option}=ON" for option in facts.cuda_options), f"-D{define}={{archs}}"]
            ),
        }
        arch_map = {"kind": "cmake"}
    else:
        environment |= {} if arch_variable(facts) else {"NVCC_APPEND_FLAGS": "{gencode}"}
        arch_map = {}
    environment |= {arch_variable(facts): "{archs}"} if arch_variable(facts) else {}
    return environment | dict(facts.switches), arch_map


def _render_scaffold_template(name: str, context: Mapping[str, Any]) -> str:
    loader = jinja2.FileSystemLoader(_TEMPLATES)
    templates = jinja2.Environment(  # noqa: S701 - no HTML
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"flow": _flow, "python": ascii, "comment": _comment}
    return templates.get_template(name).render(context)


def _flow(value: object) -> str:
    """A value as YAML on one line."""
    dump = partial(
        yaml.safe_dump,
        value,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=1 << 30,
    )
    text = str(dump()).removesuffix("...\n").rstrip("\n")
    return text if text.isprintable() else str(dump(default_style='"')).rstrip("\n")


def _collapse_to_line(text: str) -> str:
    """Text of the repository on one line, without invalid Unicode."""
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _comment(text: str) -> str:
    """Text of the repository for a comment: one line, printable."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]


def _format_schema_json(data: object) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _read_back(files: Mapping[str, str], recipe: str) -> None:
    """Validate the generated files; nothing is on disk yet."""
    for name, model in ((CONFIG_NAME, Config), (recipe, Recipe)):
        try:
            model.model_validate(parse_yaml(files[name]))
        except (ValidationError, yaml.YAMLError) as error:
            problem = (
                format_validation_error(Path(name), error, model)
                if isinstance(error, ValidationError)
                else error
            )
            raise ConfigError(
                f"the generated file is invalid: {problem}",
                hint="Choose other values with flags: wcw init --help. Nothing was written.",
            ) from None
