"""What a host cannot give is refused before a run begins, by one rule and in the same words."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from plans import LAB

from pipelines.cli import plan as plan_command
from pipelines.core.console import console
from pipelines.core.errors import ConfigError
from pipelines.core.target import Target
from pipelines.core.toolsets import MSVC, STUB, Api
from pipelines.doctor import diagnose_facts, report
from pipelines.doctor.run import purpose_of
from pipelines.hosts.base import Supply, supply_of
from pipelines.hosts.kinds import KINDS
from pipelines.hosts.live import LiveSession
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.judge import host_rules
from pipelines.plan.matrix.plan import lay_ground
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.stages.line import Line, run_build, run_provision
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock

LOCK = load_lock()
SANDBOX = {"kind": "sandbox"}
#: Axes -> what is said of the sandbox, and what would do.
REFUSED: list[tuple[dict[str, str], str, str]] = [
    ({"cuda": "99.9"}, "sandbox has CUDA 13.0, 13.2 and 13.4, not 99.9", "--cuda 13.4"),
    ({"cuda": "12.8"}, "sandbox has CUDA 13.0, 13.2 and 13.4, not 12.8", "--cuda 13.0"),
    ({"python": "3.12"}, "sandbox has Python 3.11 and 3.13, not 3.12", "--python 3.1"),
    (
        {"recipe": "flash-attn"},
        "flash-attn needs torch's C++ API or MSVC's STL, which requires MSVC; "
        "the toolset of sandbox is 'stand-in': ",
        "'msvc' of this host in pipeline.yaml, or",
    ),
    (
        {"recipe": "candle-flash-attn"},
        "which requires MSVC; the toolset of sandbox is 'stand-in'",
        "",
    ),
]


def settings(out: Path, **default: Any) -> Config:
    hosts = {"sandbox": SANDBOX | {"home": str(out / "sandbox")}, "lab": LAB}
    return Config.model_validate({"hosts": hosts, "out": str(out / "out"), "default": default})


def asked(out: Path, **axes: str) -> BuildPlan:
    return resolve_build_plan(settings(out), Request(axes=axes))


def line_of(plan: BuildPlan) -> Line:
    return Line(plan, LiveSession(plan.host))


def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched or started")

    monkeypatch.setattr("pipelines.recipe.sourcetree.SourceTree.fetch", touched)
    monkeypatch.setattr("pipelines.hosts.sandbox.host.Sandbox.connect", touched)
    monkeypatch.setattr("pipelines.toolchain.lock.Cache.fetch", touched)


def planned(out: Path, **axes: str) -> tuple[int, str]:
    with console.capture() as captured:
        code = plan_command.run_plan(settings(out), Request(axes=axes))
    return code, " ".join(captured.get().split())


def test_what_each_kind_gives() -> None:
    """No kind gives whatever is asked for, by having forgotten to say what."""
    for kind in KINDS.values():
        given = kind.model_construct(None).supply(LOCK)
        assert given.cuda
        assert given.python
    assert supply_of(LOCK).cuda == ("12.4", "12.6", "12.8", "12.9", "13.0", "13.2", "13.4")
    assert supply_of(LOCK).python == ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")


@pytest.mark.parametrize(("axes", "said", "hint"), REFUSED)
def test_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, axes: dict[str, str], said: str, hint: str
) -> None:
    forbidden(monkeypatch)
    for how in (run_build, run_provision, partial(run_provision, dry_run=True)):
        with pytest.raises(ConfigError) as caught:
            how(line_of(asked(tmp_path, **axes)))
        assert said in caught.value.message
        assert hint in caught.value.hint
        elsewhere = "kind: winrm" if axes.get("cuda") == "99.9" else "--host lab"
        assert elsewhere in caught.value.hint
        assert not [*tmp_path.iterdir()], "nothing is left"


@pytest.mark.parametrize(("axes", "said", "hint"), REFUSED)
def test_plan_and_doctor_say_the_same(
    tmp_path: Path, axes: dict[str, str], said: str, hint: str
) -> None:
    code, text = planned(tmp_path, **axes)
    assert code == plan_command.NOTHING
    assert said in text
    assert "0 of " in text
    purpose = purpose_of(asked(tmp_path, **axes))
    verdict = next(v for v in diagnose_facts({}, purpose) if v.id.startswith("host-"))
    assert verdict.level == "error"
    assert said in verdict.actual
    assert hint in verdict.hint
    told = json.loads(json.dumps(report.as_json([verdict], purpose)))
    assert told["findings"][0]["actual"] == verdict.actual


def test_no_sandbox_is_made_for_a_python_that_there_is_not(tmp_path: Path) -> None:
    """Its own commands ask for one as well; to look at it or to remove it is no such thing."""
    lifecycle = asked(tmp_path, python="3.12").host.lifecycle
    assert lifecycle is not None
    with pytest.raises(ConfigError, match=r"sandbox has Python 3\.11 and 3\.13, not 3\.12"):
        lifecycle.start(ephemeral=True)
    assert not [*tmp_path.iterdir()]
    assert lifecycle.describe().startswith("absent")


def test_plan_says_yes_to_what_the_sandbox_gives_alone(tmp_path: Path) -> None:
    code, text = planned(tmp_path, recipe="smoke-attention", cuda="13.0")
    assert code == 0
    assert "cp311-cu130 yes" in text
    assert "cp313-cu130 yes" in text
    assert text.count("no: host-python") == text.count("cp31") - 2


def test_doctor_does_not_advise_what_is_refused(tmp_path: Path) -> None:
    """It said: invoke provision, which changed nothing."""
    told = {"host": {"tools": {"nvcc": {"version": "13.0.88"}}}}
    for host, hint in (("sandbox", ""), ("lab", "invoke provision")):
        verdicts = diagnose_facts(told, purpose_of(asked(tmp_path, host=host, cuda="12.8")))
        (compiler,) = [v for v in verdicts if v.id == "cuda-compiler"]
        assert (compiler.level, compiler.hint) == ("warning", hint)


def test_a_host_that_would_do_is_named_if_there_is_one() -> None:
    recipe = load_recipe("flash-attn")
    cell = Target(host="box", python="3.12", torch="2.8", cuda="12.8")
    clang = Supply(cuda=("13.0",), python=("3.12",), toolset=STUB, origin="x")
    whole, older = supply_of(LOCK), Supply(cuda=("12.4",), python=("3.12",), origin="y")
    found = host_rules(recipe, cell, clang, lambda: {"a": older, "b": whole, "c": clang})
    assert [(one.id, one.hint) for one in found] == [("host-toolset", "--host b")]
    alone = host_rules(recipe, cell, clang, lambda: {"a": older})
    assert "kind: winrm" in alone[0].hint
    assert host_rules(recipe, cell, whole, lambda: pytest.fail("nobody asks the others")) == []


@pytest.mark.parametrize("api", get_args(Api))
def test_a_tool_set_builds_what_it_can(api: Api) -> None:
    """By what a recipe needs of C++, not by whether it has torch."""
    own = {"torch": "2.10", "cuda": "13.0", "supports": {"torch": ">=2.10"}, "api": api}
    recipe = Recipe.model_validate(load_recipe("xformers").model_dump() | own)
    cell = Target(host="box", python="3.11", torch="2.10", cuda="13.0")
    clang = Supply(cuda=("13.0",), python=("3.11",), toolset=STUB, origin="x")
    found = [one.id for one in host_rules(recipe, cell, clang)]
    assert found == (["host-toolset"] if api == "torch" else [])
    with_slot = host_rules(recipe, cell, replace(clang, slot="give it MSVC"))
    assert all(one.hint.startswith("give it MSVC, or ") for one in with_slot)
    assert host_rules(recipe, cell, replace(clang, toolset=MSVC)) == []


def test_what_the_host_cannot_have_is_said_with_the_tool_set() -> None:
    recipe, cell = load_recipe("candle-flash-attn"), Target(host="box", cuda="12.8")
    bare = Supply(toolset=STUB, programs=False, slot="give it MSVC", origin="x")
    found = host_rules(recipe, cell, bare)
    assert not [one for one in found if "give it MSVC" in one.hint], "that would not do"
    assert [one.id for one in found] == ["host-toolset", "host-programs"]
    (lasting,) = host_rules(recipe, cell, replace(bare, toolset=MSVC))
    assert lasting.actual == "box has no cargo, which builds candle-flash-attn"


def test_the_torch_of_a_sandbox_is_one_that_the_lock_has() -> None:
    has = settings(Path()).host("sandbox").supply(LOCK)
    assert has.torch
    recipe, cell = load_recipe("xformers"), Target(host="box", python="3.11", cuda="13.0")
    msvc = replace(has, toolset=MSVC)
    for torch, rules in (("2.11", ["host-torch"]), (has.torch[0], [])):
        found = host_rules(recipe, cell.model_copy(update={"torch": torch}), msvc)
        assert [one.id for one in found] == rules
    assert supply_of(LOCK).torch is None


def test_numbers_are_compared_whole() -> None:
    """12.1 is not in 12.10, nor 3.1 in 3.11."""
    has = Supply(cuda=("12.10",), python=("3.11",), origin="x")
    cell = Target(host="box", python="3.1", cuda="12.1")
    found = host_rules(load_recipe("smoke-attention"), cell, has)
    assert [one.id for one in found] == ["host-cuda", "host-python"]
    nothing = Supply(cuda=(), python=None, origin="x")
    (none,) = host_rules(load_recipe("smoke-attention"), cell, nothing)
    assert none.actual == "box has no CUDA"
    assert "'cuda' of this host in pipeline.yaml" in none.hint


def unavailable(recipe: Recipe, lock: ToolchainLock, supply: Supply, root: Path) -> list[str]:
    cache = Cache(lock, root)
    ground = lay_ground(recipe, cache, HostFacts(4, 64 << 30), supply, dict)
    cell = Target(host="box", python="3.11", cuda="13.0", torch=recipe.torch or "")
    return list(ground.unavailable(cell))


def test_what_every_test_installs_is_wanted_of_the_lock(tmp_path: Path) -> None:
    """pytest comes by itself, whatever the recipe names: the plan looks for it as well."""
    recipe = load_recipe("smoke-attention")
    assert "pytest" not in recipe.test_requires
    without = {name: tool for name, tool in LOCK.tools.items() if tool.name != "pytest"}
    lock = LOCK.model_copy(update={"tools": without})
    sandbox = settings(tmp_path).host("sandbox").supply(lock)
    assert unavailable(recipe, LOCK, sandbox, tmp_path) == []
    assert unavailable(recipe, lock, sandbox, tmp_path) == ["pytest", "pytest-xdist"]


def test_an_environment_that_is_used_as_it_is_wants_nothing_of_the_lock(tmp_path: Path) -> None:
    """No build is refused there for want of a pin, and the plan warned of it."""
    own = {"hosts": {"here": {"kind": "local", "python": sys.executable, "cuda": str(tmp_path)}}}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").touch(0o755)
    supply = Config.model_validate(own).host("here").supply(LOCK)
    assert supply.existing
    lock = LOCK.model_copy(update={"tools": {}})
    assert unavailable(load_recipe("smoke-attention"), lock, supply, tmp_path) == []


@pytest.mark.parametrize("archs", ["999", "RTX 9999"])
def test_plan_takes_architectures_and_jobs_from_where_a_build_does(
    tmp_path: Path, archs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="99"):
        plan_command.run_plan(settings(tmp_path, archs=archs), Request())
    plan_command.run_plan(settings(tmp_path, archs="86", jobs=1), Request(), format="json")
    assert '"archs": "86"' in capsys.readouterr().out
    plan = resolve_build_plan(settings(tmp_path, archs="86", jobs=1), Request())
    assert (str(plan.target.archs), plan.jobs) == ("86", 1)
