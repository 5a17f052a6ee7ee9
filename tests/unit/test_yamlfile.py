"""YAML files: nothing in them is taken in silence, and none of them costs more than it is long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BeforeValidator, ValidationError

from pipelines.core.errors import ConfigError, LockError, PipelineError
from pipelines.core.model import Model
from pipelines.core.yamlfile import DEPTH, LIMIT, read_yaml, yaml_value
from pipelines.diagnosis.model import read_signature_catalogue
from pipelines.plan.config.model import load_config
from pipelines.plan.provisioning.resources import load_resources
from pipelines.recipe.load import load_recipe
from pipelines.toolchain.intent import load_intent
from pipelines.toolchain.lock import LOCK_FILE, load_lock

#: Each stands for four of the one before it: 4 ** 30 words.
BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000))
LONG = f"word: &word {'x' * 100_000}\nmany: [{', '.join(['*word'] * 5000)}]\n"


def read(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "file.yaml"
    path.write_text(text, "utf-8")
    return read_yaml(path)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "a: appears twice, in line 1 as well"),
        ("hosts:\n  lab: {kind: x}\n  lab: {}\n", 3, "lab: appears twice, in line 2"),
        ("a:\n- x: 1\n  y: 2\n  x: 3\n", 4, ": x: appears twice, in line 2"),
        ('a: 1\n"a": 2\n', 2, "a: appears twice"),
        ('"": 1\n"": 2\n', 2, "appears twice"),
        ("{a: {b: 1}, a: {b: 1}}", 1, "a: appears twice"),
        ("x: &x {a: 1}\ny: {<<: *x, <<: *x}\n", 2, "<<: appears twice"),
        ("[" * 100_000, 1, f"nested more than {DEPTH} deep"),
        ("- " * 100_000 + "x", 1, f"nested more than {DEPTH} deep"),
        ("? " * 100_000 + "x", 1, f"nested more than {DEPTH} deep"),
        (CHAIN, DEPTH, f"nested more than {DEPTH} deep"),
        (BOMB, 11, "aliases stand for more than 2 MiB"),
        (LONG, 2, "aliases stand for more than 2 MiB"),
        ("a: &a [*a]\n", 1, "*a refers to no anchor above it, or to itself"),
        ("a: !!python/name:os.system x\n", 1, "the tag tag:yaml.org,2002:python/name"),
        ("a: [\n", 2, "not YAML"),
        ("a: 1\n---\nb: 1\n", 2, "not YAML: but found another document"),
        ("a: \x01\n", None, "not YAML: unacceptable character"),
        ("#" * (LIMIT + 1), None, "more than 2 MiB"),
    ],
)
def test_refused_at_once(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert time.monotonic() - began < 10  # milliseconds, on an idle machine
    where = f"{tmp_path / 'file.yaml'}{f':{line}' if line else ''}: "
    assert caught.value.message.startswith(where)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('a: "C:\\python"\n', "single quotes"),
        ('a: "C:\\envs\\t"\n', "single quotes"),
        ('a: {b: "D:\\x y\\new"}\n', "single quotes"),
        ('a: {b: "D:\\y z\\new"}\n', "single quotes"),
        ("a:\n\tb: 1\n", "not tabs"),
        ("a: b: c\n", "Quote text"),
    ],
)
def test_usual_mistakes_have_hints_of_their_own(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1}\nc: {<<: *x, b: 2}\nd: *x\n",
        "a: {x: 1}\nb: {x: 1}\n",
        "- {a: 1}\n- {a: 2}\n",
        "&k a: *k\n",
        "[" * DEPTH + "]" * DEPTH,
        "",
    ],
)
def test_read_as_it_stands(tmp_path: Path, text: str) -> None:
    assert meant(read(tmp_path, text)) == yaml.safe_load(text)


def meant(found: Any) -> Any:
    """With what YAML makes of every scalar without quotes."""
    if isinstance(found, dict):
        return {meant(key): meant(value) for key, value in found.items()}
    return [*map(meant, found)] if isinstance(found, list) else yaml_value(found)


def test_every_file_of_ours_is_what_yaml_says() -> None:
    for path in sorted(LOCK_FILE.parents[1].rglob("*.yaml")):
        if path != LOCK_FILE:  # which is long, and as PyYAML writes it
            assert meant(read_yaml(path)) == yaml.load(path.read_bytes(), yaml.CSafeLoader), path


@pytest.mark.parametrize("text", ["3.10", "2022", "0.50", "on", "no", "2026-02-40", "0b_", "0x1F"])
def test_a_scalar_without_quotes_is_what_was_typed(tmp_path: Path, text: str) -> None:
    """As a key, as a value, in a list, behind an alias; nothing but a null is no text."""
    found = read(tmp_path, f"{text}: &x {text}\nmany: [{text}, *x]\nnone: [~, null, '']\n")
    assert found == {text: text, "many": [text, text], "none": [None, None, ""]}


class Typed(Model):
    """What may stand in a file of ours."""

    word: str
    one_of: Literal["2022", "2025"]
    several: tuple[str, ...]
    table: dict[str, str]
    number: int
    part: float
    yes: bool
    either: Annotated[int | str, BeforeValidator(yaml_value)]


def test_a_field_says_what_a_scalar_is(tmp_path: Path) -> None:
    text = (
        "{word: 3.10, one_of: 2022, several: [12.8, 13.0, on], table: {3.10: 3.10}, number: 8, "
        "part: 0.5, yes: on, either: %s}"
    )
    made = Typed.model_validate(read(tmp_path, text % "1"))
    assert (made.word, made.one_of, made.several) == ("3.10", "2022", ("12.8", "13.0", "on"))
    assert made.table == {"3.10": "3.10"}
    assert (made.number, made.part, made.yes, made.either) == (8, 0.5, True, 1)
    assert type(made.word) is str
    assert Typed.model_validate(read(tmp_path, text % "'1'")).either == "1"
    for wrong in ({"number": "8x"}, {"yes": "perhaps"}, {"one_of": "2019"}, {"word": None}):
        with pytest.raises(ValidationError):
            Typed.model_validate(read(tmp_path, text % "1") | wrong)


def test_what_a_config_and_a_recipe_say_without_quotes(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "default: {host: on, python: 3.10}\n"
        "hosts:\n  on: {kind: vm, windows: 2022}\n  2: {kind: vm, windows: 2022, gpu: 0}\n"
    )
    made: Any = load_config(path)
    assert made.default.python == "3.10"
    assert made.default.host == "on"
    assert (made.hosts["on"].windows, made.hosts["2"].windows) == ("2022", "2022")
    assert made.hosts["2"].gpu == 0
    assert type(made.hosts["2"].gpu) is int
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\nsummary: x\nkind: wheel\nversion: 0.50\ncuda: 12.8\ntorch: 2.10\n"
        "pythons: [3.10, 3.12]\nlicense: MIT\narchs: 80\nenvironment: {MAX: 010}\n"
        f"source: {{url: 'https://a.invalid/mine-0.50.tar.gz', sha256: {'1' * 64}, size: 5,\n"
        " file: mine-0.50.tar.gz}\nbuild_requires: []\n"
    )
    recipe = load_recipe("mine", tmp_path)
    assert (recipe.version, recipe.cuda, recipe.torch) == ("0.50", "12.8", "2.10")
    assert (recipe.pythons, recipe.archs) == (("3.10", "3.12"), "80")
    assert recipe.environment["MAX"] == "010"


_WORDS = "aé1 :-#'\"\n"
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(_WORDS, max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(_WORDS, max_size=4), inner),
    max_leaves=20,
)


@given(value=_VALUES)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("yaml") / "file.yaml"
    path.write_text(yaml.safe_dump(value, allow_unicode=False), "utf-8")
    assert meant(read_yaml(path)) == value


@given(text=st.text("ab:*&-?[]{}<, \n'\"!|0123456789.#", max_size=60))
def test_whatever_is_written_ends_in_a_value_or_in_words(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("yaml") / "file.yaml"
    path.write_text(text, "utf-8")
    try:
        read_yaml(path)
    except ConfigError as error:
        assert str(path) in error.message  # noqa: PT017 - it need not be refused


@pytest.mark.parametrize(
    ("load", "text", "kind"),
    [
        (load_config, "hosts: {a: {kind: sandbox}}\nhosts: {}\n", ConfigError),
        (load_resources, "resources: []\nresources: []\n", ConfigError),
        (read_signature_catalogue, "signatures: []\nsignatures: []\n", ConfigError),
        (load_lock, "version: 1\ntools: {}\ntools: {}\n", LockError),
        (load_intent, "version: 1\ngroups: []\ngroups: []\n", LockError),
        (lambda path: load_recipe("file", path.parent), "name: a\nname: file\n", ConfigError),
    ],
)
def test_no_file_of_ours_takes_the_last_of_two(
    tmp_path: Path, load: Any, text: str, kind: type[PipelineError]
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(kind, match=r"file\.yaml:\d: \w+: appears twice"):
        load(path)
    path.write_text(BOMB)
    with pytest.raises(kind, match="aliases stand for more than"):
        load(path)


def test_a_lock_is_read_anew_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "lock.yaml"
    path.write_text("version: 1\ntools: {}\n")
    assert load_lock(path) is load_lock(path)
    path.write_text("version: 1\ntools: {}\nunpinned: [x]\n")
    with pytest.raises(LockError, match="unpinned"):
        load_lock(path)
    path.unlink()
    with pytest.raises(LockError, match="No such file"):
        load_lock(path)
