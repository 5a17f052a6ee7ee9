"""``pipeline.yaml`` and the recipes, as frozen models that refuse unknown keys."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from pipelines.errors import ConfigError
from pipelines.hostconfig import FIRST_PYTHON, HostConfig, SandboxHost, WinRMHost

__all__ = [
    "CONFIG_FILE",
    "FIRST_PYTHON",
    "RECIPES",
    "ROOT",
    "Config",
    "Defaults",
    "HostConfig",
    "Name",
    "Recipe",
    "SandboxHost",
    "Source",
    "WinRMHost",
    "check_python",
    "explain",
    "load_config",
    "load_recipe",
    "unknown",
]

ROOT = Path(__file__).resolve().parent.parent
CONFIG_FILE = ROOT / "pipeline.yaml"
RECIPES = Path(__file__).resolve().parent / "recipes"

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$")]
PythonVersion = Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}$")]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Defaults(_Model):
    """What a command uses when no flag says otherwise."""

    host: Name = "sandbox"
    recipe: Name = "smoke-attention"
    python: PythonVersion = "3.11"
    archs: str | None = None
    jobs: Annotated[int, Field(ge=1, le=512)] | None = None


class Config(_Model):
    """``pipeline.yaml``."""

    default: Defaults = Defaults()
    hosts: dict[Name, HostConfig]
    out: str = "out"

    def host(self, name: str) -> SandboxHost | WinRMHost:
        """The host called ``name``, or :class:`ConfigError` with the nearest name."""
        try:
            return self.hosts[name]
        except KeyError:
            raise unknown("host", name, self.hosts, "pipeline.yaml: hosts") from None


class Source(_Model):
    """Where a recipe's source tree is, relative to the repository."""

    path: str


class Recipe(_Model):
    """What to build and how; ``pipelines/recipes/<name>.yaml``."""

    name: Name
    summary: str
    kind: Literal["wheel"]
    source: Source
    pythons: Annotated[tuple[PythonVersion, ...], Field(min_length=1)]
    cuda: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]
    archs: str
    """Default list, for example ``75;80;90+PTX``."""
    environment: dict[str, str] = {}
    """Values may use {archs}, {jobs} and {local_version}."""
    progress: str
    """Regular expression on a log line with the groups done, total and unit."""
    local_version: str
    """The wheel's local version; {cuda} is ``130``, {stamp} is ``.sandbox`` there, else empty."""
    build_requires: tuple[str, ...]
    test_requires: tuple[str, ...]
    """Tools of toolchain.lock.yaml that the build and the smoke test install."""
    smoke: str
    """Folder of pipelines/smoke that is shipped to test the wheel."""
    licence: str


def explain(path: Path, error: ValidationError) -> str:
    """One line a problem: file, key, what was expected, what was found."""
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"]) or "(top level)"
        found = problem.get("input")
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            text, found = "unknown key", None
        # What stands where a password's source belongs may be the password itself.
        if "password" in key or "@" in str(found):
            found = None
        shown = "" if found is None or isinstance(found, dict) else f" (found {str(found)[:80]!r})"
        lines.append(f"{path}: {key}: {text}{shown}")
    return "\n".join(lines)


def unknown(what: str, name: str, known: Iterable[str], where: str) -> ConfigError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return ConfigError(
        f"unknown {what} '{name}' ({where})",
        advice=f"{hint}There are: {', '.join(names) or 'none'}.",
    )


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", advice="Is it the right path?") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 ({error.reason})", advice="Save it as UTF-8."
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{path}{line}: not YAML: {problem}", advice="Mend that line.") from None


def load_config(path: Path | None = None) -> Config:
    """Read ``pipeline.yaml`` or ``$WCW_CONFIG``; :class:`ConfigError` names file and key."""
    path = path or Path(os.environ.get("WCW_CONFIG") or CONFIG_FILE)
    try:
        return Config.model_validate(_read(path))
    except ValidationError as error:
        raise ConfigError(
            explain(path, error), advice="pipeline.yaml in the repository shows every key."
        ) from None


def load_recipe(name: str, folder: Path = RECIPES) -> Recipe:
    """Read the recipe ``name``; :class:`ConfigError` when there is none or it is wrong."""
    path = folder / f"{name}.yaml"
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) or not path.is_file():
        raise unknown("recipe", name, (p.stem for p in folder.glob("*.yaml")), "pipelines/recipes")
    try:
        recipe = Recipe.model_validate(_read(path))
        re.compile(recipe.progress)
    except ValidationError as error:
        raise ConfigError(explain(path, error), advice="See pipelines/config.py: Recipe.") from None
    except re.error as error:
        raise ConfigError(
            f"{path}: progress: not a regular expression: {error}",
            advice="It needs the groups done, total and unit.",
        ) from None
    if recipe.name != name:
        raise ConfigError(
            f"{path}: name: is '{recipe.name}', expected '{name}'", advice="Rename one of them."
        )
    return recipe


_python = TypeAdapter(PythonVersion)


def check_python(version: str, recipe: Recipe) -> str:
    """``version`` if the recipe supports it, else :class:`ConfigError`."""
    try:
        _python.validate_python(version)
    except ValidationError:
        raise ConfigError(f"--python {version}: expected MAJOR.MINOR", advice="Say 3.11.") from None
    if version not in recipe.pythons:
        raise unknown("Python", version, recipe.pythons, f"recipe {recipe.name}")
    return version
