"""Hosts as users have them: with the shipped lock nothing is refused for a missing pin."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from plans import Lab, plan_for
from recipefiles import SHIPPED

from pipelines.core.errors import LockError
from pipelines.doctor.inspect import inspect_controller
from pipelines.hosts.base import Existing
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.plan import plan_matrix
from pipelines.plan.provisioning.resources import known_missing
from pipelines.recipe.load import load_recipe
from pipelines.remote import provision as remote
from pipelines.stages.preflight import refuse_unbuildable
from pipelines.stages.provision import show_changes
from pipelines.toolchain.lock import Cache, load_lock

HOSTS: dict[str, dict[str, Any]] = {
    "winrm": {"kind": "winrm", "endpoint": "https://h:5986/wsman", "username": "u",
              "password_env": "P"},
    "vm": {"kind": "vm", "windows": "2022"},
    "container": {"kind": "container", "image": "windows"},
}  # fmt: skip
RECIPES = [*SHIPPED, "smoke-attention-torch"]


def settings(kind: str) -> Config:
    return Config.model_validate({"hosts": {"h": HOSTS[kind]}, "default": {"host": "h"}})


class Desk(Lab):
    """This machine, if it is a Windows: its environment is used as it is."""

    capabilities = dataclasses.replace(Lab.capabilities, windows=True, toolkit=True)
    existing = Existing(root=r"C:\wcw", toolkit=r"C:\cuda")


def python_of(recipe: str) -> str | None:
    """One of those that it is for; a crate is for none."""
    pythons = load_recipe(recipe).pythons
    return "3.12" if "3.12" in pythons else next(iter(pythons), None)


def plan_of(kind: str, recipe: str, tmp_path: Path) -> BuildPlan:
    axes = {"host": "h", "recipe": recipe, "python": python_of(recipe) or "3.12"}
    if kind == "local":
        axes.pop("host")
        made = plan_for(tmp_path, Desk(None), **axes)
    else:
        made = resolve_build_plan(settings(kind), Request(axes=axes))
    return dataclasses.replace(made, cache=Cache(load_lock(), tmp_path / "cache"))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", [*HOSTS, "local"])
def test_no_default_is_refused(kind: str, recipe: str, tmp_path: Path) -> None:
    plan = plan_of(kind, recipe, tmp_path)
    assert known_missing(plan.wanted, plan.cache.lock) == []
    lock: Any = inspect_controller(plan)["lock"]
    assert (lock["unpinned"], lock["error"]) == ([], None)
    try:
        refuse_unbuildable(plan, fetch=False)
    except LockError as error:
        pytest.fail(str(error))
    except Exception as error:  # a host that is short of something else says so
        assert "pin" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", [*HOSTS])
def test_every_default_is_planned_with_yes(
    kind: str, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")  # that of another machine
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = load_recipe(recipe)
    axes = {"recipe": recipe, "cuda": found.cuda, "torch": found.torch, "python": python_of(recipe)}
    made = plan_matrix(
        settings(kind),
        Request(axes={axis: text for axis, text in axes.items() if text}),
        facts=HostFacts(cores=16, memory=1 << 37),
    )
    rules = {one.id for row in made.rows for one in row.judged.findings if one.failed}
    assert "tool-not-pinned" not in rules
    assert any(row.judged.buildable for row in made.rows), rules


class Bare:
    """A Windows that has nothing of what is wanted, but for what is named."""

    def __init__(self, *there: str) -> None:
        self.there = there

    def check_all(self, specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows = ("installed" if spec.get("name") in self.there else "missing" for spec in specs)
        return [
            {"ok": row == "installed", "found": row, "values": {}, "plan": "x", "error": ""}
            for row in rows
        ]


def without_pin(plan: BuildPlan, *names: str) -> BuildPlan:
    lock = plan.cache.lock
    tools = dict(lock.tools)
    for name in names:
        sources = [one.model_copy(update={"sha256": None}) for one in tools[name].sources]
        tools[name] = tools[name].model_copy(update={"sources": tuple(sources)})
    bare = lock.model_copy(update={"tools": tools, "unpinned": names})
    return dataclasses.replace(plan, cache=Cache(bare, plan.cache.root))


def dry_run(plan: BuildPlan, bare: Bare) -> None:
    class Session:
        host = Lab(None)

        def call(self, function: Any, **arguments: Any) -> Any:
            assert function is remote.check_all
            return bare.check_all(**arguments)

    show_changes(Session(), plan)  # type: ignore[arg-type]


def test_a_bare_windows_is_shown_what_it_gets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dry_run(plan_of("winrm", "flash-attn", tmp_path), Bare())
    assert "would change" in capsys.readouterr().out


def test_what_a_host_has_already_needs_no_pin(tmp_path: Path) -> None:
    plan = without_pin(plan_of("winrm", "flash-attn", tmp_path), "vs-buildtools-2022")
    assert known_missing(plan.wanted, plan.cache.lock) == []
    dry_run(plan, Bare("vs-buildtools-2022"))


def test_all_that_is_lacking_is_one_message(tmp_path: Path) -> None:
    names = ("vs-buildtools-2022", "python-3.12", "torch-2.8-cu128-cp312", "uv")
    plan = without_pin(plan_of("winrm", "flash-attn", tmp_path), *names)
    with pytest.raises(LockError) as caught:
        dry_run(plan, Bare())
    assert not [name for name in names if name not in caught.value.message]
    (words,) = [word for word in caught.value.hint.split("`") if word.startswith("invoke lock")]
    assert {*words.split()[-1].split(",")} == {*names}
    with pytest.raises(LockError) as early:
        refuse_unbuildable(plan, fetch=False)
    assert {*names} - {*early.value.hint.split("`")[1].split()[-1].split(",")} == {names[0]}


def test_sizes_that_nobody_knows_are_said(tmp_path: Path) -> None:
    cache = plan_of("winrm", "flash-attn", tmp_path).cache
    assert "of unknown size" in cache.sizes(["torch-2.12-cu130-cp311"])


@pytest.mark.parametrize(("says", "ok"), [("12.8", True), ("12.4", False), ("12.80", False)])
def test_a_host_that_claims_a_cuda_is_asked_for_it(tmp_path: Path, says: str, ok: bool) -> None:
    """What nvcc prints decides, and nothing is installed over it."""
    plan = plan_of("local", "flash-attn", tmp_path)
    (spec,) = (one.spec for one in plan.wanted if one.id == "CUDA compiler")
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {says}, V{says}.131'\n")
    nvcc.chmod(0o755)
    there = {**spec, "path": str(nvcc)}
    there["check"] = {**spec["check"], "command": [str(nvcc), "--version"]}
    (row,) = remote.check_all([there])
    assert row["ok"] is ok
    told = remote.apply_one(there, str(tmp_path / "restart.json"))
    assert (told["ok"], bool(told["error"]), bool(told["hint"])) == (ok, not ok, not ok)
