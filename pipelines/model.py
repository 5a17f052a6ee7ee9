"""What every data file of the pipeline is read into: frozen models that refuse unknown keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from pipelines.errors import ConfigError

Data = TypeVar("Data", bound=BaseModel)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$")]


PythonVersion = Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}$")]


class Model(BaseModel):
    """Frozen; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


#: Kinds of problems -> what is said of them instead of pydantic's words.
_PLAIN = {
    "extra_forbidden": "unknown key",
    "missing": "is missing",
    "union_tag_not_found": "'kind' is missing",
    "union_tag_invalid": "unknown kind '{tag}'; there are {expected_tags}",
    "model_type": "expected keys and values, found something else, or nothing",
}


def explain(path: Path, error: ValidationError) -> str:
    """One line a problem: file, key, what was expected, what was found."""
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"]) or "(top level)"
        found = problem.get("input")
        text = problem["msg"].removeprefix("Value error, ")
        if plain := _PLAIN.get(problem["type"]):
            text, found = plain.format(**problem.get("ctx", {})), None
        elif problem["type"] == "string_type" and isinstance(found, int | float):
            text += ": put it in quotes, or YAML reads a number"
        # What stands where a password's source belongs may be the password itself.
        if "password" in key or re.search(r"@|\?.*=", str(found)):
            found = None
        shown = "" if found is None or isinstance(found, dict) else f" (found {str(found)[:80]!r})"
        lines.append(f"{path}: {key}: {text}{shown}")
    return "\n".join(lines)


def first_problem(error: ValidationError) -> str:
    """What is wrong with data that is not a user's file, in a line: the first of its problems."""
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def unknown(what: str, name: str, known: Iterable[str], where: str) -> ConfigError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return ConfigError(
        f"unknown {what} '{name}' ({where})",
        advice=f"{hint}There are: {', '.join(names) or 'none'}.",
    )


def read_yaml(path: Path) -> Any:
    """What the file holds; :class:`ConfigError` names file and line when it is no YAML."""
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


def read_data(path: Path, model: type[Data], advice: str = "Restore it from git.") -> Data:
    """A data file of the pipeline's own; :class:`ConfigError` names the file and the wrong key."""
    try:
        return model.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(explain(path, error), advice=advice) from None
