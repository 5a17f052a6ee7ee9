"""Wheels without compiled code, local versions put in afterwards, architectures in other words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plans import plan_for
from wheels import FILES, wheel

from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import ConfigError
from pipelines.recipe.archmap import ArchMap, translate_archs
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.naming import expected_wheel_name, local_version
from pipelines.stages.buildspec import build_spec, collect_materials
from pipelines.wheels.checking import Order
from pipelines.wheels.checks import check_wheel
from pipelines.wheels.metadata import inspect_wheel
from pipelines.wheels.tags import EVERY_PYTHON

PURE = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def mapped(
    kind: str, archs: str, cuda: str = "13.0", **keys: Any
) -> tuple[str, str, dict[str, str]]:
    from pydantic import TypeAdapter

    mapping: ArchMap = TypeAdapter(ArchMap).validate_python({"kind": kind, **keys})
    made = translate_archs(mapping, parse_arch_list(archs), cuda, "x")
    return made.text, str(made.effective), made.variables


WORDS: dict[str, Any] = {"variable": "LIST", "words": {"80": "8.0", "90a": "9.0", "120a": "12.0"}}


@pytest.mark.parametrize(
    ("asked", "text", "inside"),
    [("80", "8.0", "80"), ("80;90", "8.0;9.0", "80;90a"), ("90a;120a", "9.0;12.0", "90a;120a")],
)
def test_words_of_a_package(asked: str, text: str, inside: str) -> None:
    """What is inside is what its word gives, not what was asked for."""
    assert mapped("named", asked, **WORDS) == (text, inside, {"LIST": text})


@pytest.mark.parametrize(
    ("asked", "said", "hint"),
    [("86", "no code for 86", "is 80"), ("80;120+PTX", "no PTX", "without"), ("75", "75", "is 80")],
)
def test_what_it_would_ignore_in_silence(asked: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        mapped("named", asked, **WORDS)
    assert hint in caught.value.hint


def test_a_word_that_needs_a_newer_cuda() -> None:
    with pytest.raises(ConfigError, match=r"no code for 120a with CUDA 12\.4: it knows 80, 90a"):
        mapped("named", "120a", "12.4", **WORDS, needs={"120a": ">=12.8"})


def test_words_of_cmake() -> None:
    assert mapped("cmake", "80;90+PTX")[0] == "80-real;90-real;90-virtual"
    assert mapped("cmake", "compute_90")[0] == "90-virtual"
    becomes = {"120": "120a"}
    assert mapped("cmake", "80;120", becomes=becomes)[:2] == ("80-real;120-real", "80;120a")
    with pytest.raises(ConfigError, match="makes 120a of 120: its PTX is for that GPU alone"):
        mapped("cmake", "120+PTX", becomes=becomes)


def test_what_is_compiled_when_it_runs_has_nothing_inside() -> None:
    assert mapped("jit", "90;120+PTX") == ("", "", {})
    with pytest.raises(ConfigError, match="no code for 75"):
        mapped("jit", "75", least="80", why="older ones have none")


def keys(**more: Any) -> dict[str, Any]:
    source = {"url": "https://x.invalid/x-1.tar.gz", "file": "x-1.tar.gz"}
    made: dict[str, Any] = {
        "name": "x",
        "summary": "x",
        "kind": "pure",
        "license": "MIT",
        "version": "1",
    }
    made |= {"source": source | {"sha256": "0" * 64, "size": 1}, "pythons": ["3.11"]}
    made |= {"cuda": "13.0", "archs": "90", "build_requires": ["setuptools"]}
    return made | {"arch_map": {"kind": "jit"}} | more


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"arch_map": {"kind": "plain"}}, "kind: pure has arch_map"),
        ({"kind": "wheel"}, "no other kind has it"),
        ({"restamp": True}, "neither wheel_tag, restamp nor modules"),
        ({"wheel_tag": "py3-none"}, "neither wheel_tag"),
        ({"pythons": []}, "at least one"),
    ],
)
def test_a_wheel_that_is_compiled_cannot_pass_for_one_that_is_not(
    more: dict[str, Any], said: str
) -> None:
    """Else its device code would not be looked at."""
    with pytest.raises(ValueError, match=said):
        Recipe.model_validate(keys(**more))


def pure(tmp_path: Path, files: dict[str, bytes], tag: bytes = PURE, name: str = "any") -> Path:
    own = {n: d for n, d in FILES.items() if not n.endswith((".pyd", ".dll", ".so", "/WHEEL"))}
    (info,) = {n.partition("/")[0] for n in FILES if ".dist-info/" in n}
    stem = info.removesuffix(".dist-info")
    return wheel(tmp_path, own | {f"{info}/WHEEL": tag} | files, name=f"{stem}-py3-none-{name}.whl")


def judged(path: Path) -> dict[str, bool]:
    checks = check_wheel(inspect_wheel(path), order=Order("any", "3.11", EVERY_PYTHON))
    return {check.label: not check.failed for check in checks}


def test_the_audit_of_a_pure_wheel_wants_no_binary(tmp_path: Path) -> None:
    assert all(judged(pure(tmp_path, {})).values())
    (tmp_path / "b").mkdir()
    found = judged(pure(tmp_path / "b", {"pkg/kernels.dll": b"MZ"}))
    assert not found["no compiled code"]


def test_the_audit_of_a_pure_wheel_wants_it_for_every_platform(tmp_path: Path) -> None:
    tag = PURE.replace(b"none-any", b"none-win_amd64")
    found = judged(pure(tmp_path, {}, tag, "win_amd64"))
    assert not found["platform"]


def test_the_name_of_a_pure_wheel_says_nothing_of_cuda() -> None:
    recipe = load_recipe("flash-attn-4")
    local = local_version(recipe, "13.0", "2.11")
    assert (
        expected_wheel_name(recipe, local, "3.12")
        == "flash_attn_4-4.0.0b36+windows-py3-none-any.whl"
    )
    plain = Recipe.model_validate(keys())
    assert expected_wheel_name(plain, local, "3.11") == "x-1-py3-none-any.whl"


def test_a_local_version_that_is_put_in_is_a_material(tmp_path: Path) -> None:
    """Another one is another build; the host gets it."""
    plan = plan_for(tmp_path, recipe="gsplat", python="3.12")
    vars(plan)["wanted"] = ()  # of tools, some of which are not pinned
    made = collect_materials(plan, "0" * 64, None)
    assert made.root["wheel"] == {"local version": plan.local_version}
    assert plan.local_version.startswith("cu130torch2.11")
    assert build_spec(plan, "d", "a", "0" * 64, 2)["local"] == plan.local_version
    other = plan_for(tmp_path, recipe="causal-conv1d", python="3.12")
    vars(other)["wanted"] = ()
    assert "wheel" not in collect_materials(other, "0" * 64, None).root
    assert "local" not in build_spec(other, "d", "a", "0" * 64, 2)


def test_it_is_given_once() -> None:
    told = {
        "environment": {"X_VERSION": "{local_version}"},
        "kind": "wheel",
        "arch_map": {"kind": "plain"},
    }
    with pytest.raises(ValueError, match="gives it to the build as well"):
        Recipe.model_validate(keys(**told, restamp=True))
