"""What every data file of the pipeline is read into: frozen models that refuse unknown keys."""

from __future__ import annotations

import datetime
import difflib
import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from pipelines.core.errors import ConfigError
from pipelines.core.yamlfile import read_yaml
from pipelines.remote.safe_paths import name_fault

Data = TypeVar("Data", bound=BaseModel)


def _windows_has(name: str) -> str:
    if fault := name_fault(name):
        raise ValueError(f"Windows has no file of that name: {fault}")
    return name


#: A text that becomes the name of a file or directory, also on a host.
FileName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]*$"), AfterValidator(_windows_has)
]
#: A name that people give: recipes, hosts.
Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$"), AfterValidator(_windows_has)
]


def _validate_regex(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError) as error:
        raise ValueError(f"invalid regular expression: {error}") from None
    return text


Regex = Annotated[str, AfterValidator(_validate_regex)]
#: ``3.12``; with a ``t`` behind it the one without the global lock, ``3.14t``.
PythonVersion = Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}t?$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Link = Annotated[str, StringConstraints(pattern=r"^https://\S+$")]
FRESH = 90  # days for which a fact is taken as it stands


class Model(BaseModel):
    """Frozen; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def current_date() -> datetime.date:
    """By this machine's clock."""
    return datetime.datetime.now(datetime.UTC).date()


class Dated(Model):
    """A fact that others may change: who says so, and when."""

    source: Link
    date: datetime.date
    """When it was said, or last confirmed."""

    @property
    def old(self) -> bool:
        """Whether that was more than 90 days ago."""
        return (current_date() - self.date).days > FRESH


_KEYS = "expected keys and values, found something else, or nothing"
_LIST = "expected a list, such as [one, two]"
#: Kinds of problems -> what is said of them instead of pydantic's words; no value is shown.
_PLAIN = {
    "extra_forbidden": "unknown key{near}",
    "missing": "is missing",
    "too_short": "expected {min_length} or more",
    "union_tag_not_found": "'kind' is missing",
    "union_tag_invalid": "unknown kind '{tag}'; there are {expected_tags}",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), _KEYS),
}
#: The same for those where the value is shown.
_SENTENCES = {
    "string_type": "expected one text, such as '75;89'",
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    "literal_error": "expected {expected}",
    "string_pattern_mismatch": "expected {such}",
    "bool_parsing": "expected true or false",
    **dict.fromkeys(("int_parsing", "int_from_float"), "expected a whole number, such as 4"),
    "float_parsing": "expected a number, such as 1.5",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected {ge} or more",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected {le} or less",
}
#: Key of a recipe that is looked for elsewhere.
_ELSEWHERE = {axis: f" here; recipes have it, and the flag --{axis}" for axis in ("cuda", "torch")}


@functools.cache
def _pattern_descriptions() -> dict[str, str]:
    """Pattern of a text -> what is expected, with an example."""
    rows = read_yaml(Path(__file__).with_name("patterns.yaml"))
    return {row["pattern"]: row["expected"] for row in rows}


def format_validation_error(path: Path, error: ValidationError, model: type[BaseModel]) -> str:
    """One line a problem: file, key, what was expected, what was found.

    ``model`` is what the file was to be: of an unknown key the nearest one that it has is said.
    """
    lines = []
    for problem in error.errors(include_url=False):
        kind, found = problem["type"], problem.get("input")
        if kind == "default_factory_not_called":  # because of another problem
            continue
        names, known = _locate_problem_key(model, problem["loc"])
        text = problem["msg"].removeprefix("Value error, ")
        context = problem.get("ctx", {})
        if plain := _PLAIN.get(kind):
            name = names[-1] if names else ""
            near = _ELSEWHERE.get(name) or suggest_nearest(name, known)
            text, found = plain.format(**context, near=near), None
        elif sentence := _SENTENCES.get(kind):
            pattern = str(context.get("pattern"))
            such = _pattern_descriptions().get(pattern, f"text that matches {pattern}")
            text = sentence.format(**context, such=such)
        key = ".".join(names) + ": " if names else "" if kind == "value_error" else "(top level): "
        # What stands where a password's source belongs may be the password itself.
        if "password" in key or re.search(r"@|\?.*=", str(found)):
            found = None
        shown = "" if found is None or isinstance(found, dict) else f" (found {str(found)[:80]!r})"
        lines.append(f"{path}: {key}{text}{shown}")
    return "\n".join(lines)


def _locate_problem_key(
    model: type[BaseModel], loc: Iterable[int | str]
) -> tuple[list[str], list[str]]:
    """A key as the file has it, without the words that pydantic adds, and its siblings."""
    here, siblings = [model], [*model.model_fields]
    names: list[str] = []
    plain = 0  # parts to come that are names or numbers of a collection, whatever they look like
    for part in loc:
        if part == "[key]":  # what is said is of the name itself
            continue
        if not plain and (chosen := [one for one in here if _is_meant(one, part)]):
            here = chosen
            continue
        names.append(str(part))
        if plain:
            plain -= 1
            continue
        siblings = [key for one in here for key in one.model_fields]
        if fields := [one.model_fields[part] for one in here if part in one.model_fields]:
            here = [inner for each in fields for inner in _models_in_annotation(each.annotation)]
            plain = max(_levels(each.annotation) for each in fields)
    return names, siblings


def _is_meant(model: type[BaseModel], part: int | str) -> bool:
    """Whether it is the one of several that pydantic calls so."""
    kind = model.model_fields.get("kind")
    return part == model.__name__ or (kind is not None and part in get_args(kind.annotation))


def _models_in_annotation(hint: Any) -> list[type[BaseModel]]:
    """All that may stand there, be it in a list, under a name, or one of several kinds."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [
            hint,
            *(one for kind in hint.__subclasses__() for one in _models_in_annotation(kind)),
        ]
    return [one for inner in get_args(hint) for one in _models_in_annotation(inner)]


def _levels(hint: Any) -> int:
    """How many collections are within each other there."""
    own = get_origin(hint) in (dict, list, tuple)
    return own + max(map(_levels, get_args(hint)), default=0)


def first_problem(error: Exception) -> str:
    """What is wrong with data that is not a user's file, in a line: the first of its problems."""
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def suggest_nearest(name: str, known: Iterable[str], words: str = "; did you mean '{}'?") -> str:
    """Asks whether the nearest of the names that there are was meant; empty without one."""
    names = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return words.format(names[near[0]]) if near else ""


def unknown_name_error(what: str, name: str, known: Iterable[str], where: str) -> ConfigError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    hint = suggest_nearest(name, names, "Did you mean '{}'? ")
    return ConfigError(
        f"unknown {what} '{name}' ({where})",
        hint=f"{hint}There are: {', '.join(names) or 'none'}.",
    )


def read_model_file(path: Path, model: type[Data], hint: str = "Restore it from git.") -> Data:
    """A file as it is now; :class:`ConfigError` names the file and the wrong key."""
    try:
        return model.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(format_validation_error(path, error, model), hint=hint) from None


_read_once: Callable[..., Any] = functools.cache(read_model_file)


def read_data(path: Path, model: type[Data], hint: str = "Restore it from git.") -> Data:
    """A data file of the pipeline's own, read once; raises what :func:`read_model_file` raises."""
    found: Data = _read_once(path, model, hint)
    return found
