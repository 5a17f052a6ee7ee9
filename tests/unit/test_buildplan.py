"""From what was asked for to a plan: flags, the file, the recipe, in this order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import LAB, Desk, Lab, plan_for
from sessions import Here

from pipelines.core.errors import ConfigError
from pipelines.core.evidence import Evidence
from pipelines.core.hosttext import remember_secret
from pipelines.core.paths import CONFIG_NAME
from pipelines.core.toolsets import MSVC, NATIVE, STUB, Api, Toolset
from pipelines.hosts.base import Capabilities, Host
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, open_host, resolve_build_plan
from pipelines.plan.provisioning.resources import EXISTING_FILE, RESOURCES_FILE, load_resources
from pipelines.recipe.model import Fix
from pipelines.recipe.sourcetree import EPOCH
from pipelines.record.results import RunFacts
from pipelines.stages.buildspec import environment_of
from pipelines.toolchain.compilecache import DiskCache


def settings(**keys: Any) -> Config:
    return Config.model_validate({"hosts": {"lab": LAB}, "default": {"host": "lab"}} | keys)


def made(given: Config | None = None, there: Host | None = None, /, **asked: Any) -> BuildPlan:
    request = {name: asked.pop(name) for name in ("jobs", "minutes") if name in asked}
    return resolve_build_plan(
        given or settings(), Request(axes=asked, **request), host=there or Lab()
    )


def test_what_is_not_asked_for_comes_from_the_file_and_the_recipe() -> None:
    default = {"host": "lab", "recipe": "flash-attn", "python": "3.12", "archs": "90", "jobs": 7}
    given = settings(default=default)
    plan = made(given)
    assert (plan.target.host, plan.target.recipe, plan.target.python) == (
        "lab",
        "flash-attn",
        "3.12",
    )
    assert (str(plan.target.archs), plan.jobs, plan.minutes) == ("90", 7, None)
    assert (plan.target.version, plan.target.cuda) == (plan.recipe.version, plan.recipe.cuda)
    asked = made(
        given,
        recipe="smoke-attention",
        python="3.13",
        archs="80;89",
        cuda="12.8",
        jobs=3,
        minutes=1.5,
    )
    assert (asked.target.recipe, asked.target.python) == ("smoke-attention", "3.13")
    assert (str(asked.target.archs), asked.target.cuda) == ("80;89", "12.8")
    assert (asked.jobs, asked.minutes) == (3, 1.5)
    assert str(made().target.archs) == str(made().recipe.archs), "the recipe's own"


def test_a_release_of_the_package_and_of_torch_may_be_asked_for() -> None:
    plan = made(recipe="flash-attn", version="2.7.4.post1", torch="2.6", archs="80")
    assert (plan.recipe.version, plan.target.version) == ("2.7.4.post1", "2.7.4.post1")
    assert (plan.recipe.torch, plan.target.torch) == ("2.6", "2.6")


@pytest.mark.parametrize("jobs", [0, -1, 513])
def test_jobs_that_nobody_can_run(jobs: int) -> None:
    with pytest.raises(ConfigError, match=rf"--jobs {jobs}: expected 1 to 512"):
        made(jobs=jobs)


@pytest.mark.parametrize("jobs", [1, 512])
def test_jobs_at_their_bounds(jobs: int) -> None:
    assert made(jobs=jobs).jobs == jobs


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"archs": "120", "cuda": "12.4"}, "'120' is not known to CUDA 12.4"),
        ({"host": "lba"}, "unknown host 'lba'"),
        ({"archs": "native"}, "native"),
        ({"python": "3.9"}, "3.9"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made(**asked)


def test_native_is_what_the_host_was_told_to_have() -> None:
    request = Request(axes={"archs": "native;75"})
    plan = resolve_build_plan(settings(), request, native=("9.0",), host=Lab())
    assert str(plan.target.archs) == "75;90"


def test_where_downloads_come_from(tmp_path: Path) -> None:
    cache = made(settings(offline=True, wheelhouse=str(tmp_path))).cache
    assert (cache.offline, cache.wheelhouse) == (True, tmp_path)
    cache = made().cache
    assert (cache.offline, cache.wheelhouse) == (False, None)
    with pytest.raises(ConfigError, match="wheelhouse: there is no directory"):
        made(settings(wheelhouse=str(tmp_path / "none")))


def test_a_compile_cache_is_the_files() -> None:
    plan = made(settings(compile_cache={"kind": "disk", "size_gib": 3}))
    assert plan.compile_cache == DiskCache(kind="disk", size_gib=3)


def test_an_environment_that_is_used_as_it_is_has_resources_of_its_own(tmp_path: Path) -> None:
    assert made().resources == load_resources(RESOURCES_FILE)
    plan = plan_for(tmp_path, Desk(tmp_path, Here()))
    assert plan.resources == load_resources(EXISTING_FILE)
    assert plan.layout.build_root == f"{tmp_path}/b"


def test_runs_are_kept_in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / CONFIG_NAME).touch()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert made(settings(out="runs")).out == tmp_path / "runs"


def test_an_open_host_is_kept_and_another_is_opened() -> None:
    host = Lab()
    assert made(None, host).host is host
    opened = resolve_build_plan(settings(), Request())
    assert opened.host.name == "lab"
    assert opened.host is not host


def test_a_host_is_told_where_secrets_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings()
    seen: list[Any] = []
    monkeypatch.setattr(type(given.hosts["lab"]), "open", lambda *given: seen.append(given))
    plan = made()
    open_host(given, plan.target, plan.cache)
    ((_, name, opening),) = seen
    assert name == "lab"
    assert opening.register_secret is remember_secret
    assert (opening.python, opening.cache) == (plan.target.python, plan.cache)


def test_a_run_begins_with_what_decides_it() -> None:
    plan = made(jobs=4)
    assert plan.facts == RunFacts(
        target=plan.target,
        jobs=4,
        evidence=Evidence.WRITTEN,
        publishable=True,
        taken_from=plan.facts.taken_from,
    )
    assert {*plan.facts.taken_from.values()} <= {"built in", plan.recipe.smoke}


@pytest.mark.parametrize(
    ("tools", "api", "library", "flags"),
    [
        (STUB, "cxx", "1", None),
        (STUB, "plain", None, None),
        (MSVC, "cxx", None, "-fixed"),
        (NATIVE, "cxx", None, None),
    ],
)
def test_what_a_tool_set_needs_and_takes(
    tools: Toolset, api: Api, library: str | None, flags: str | None
) -> None:
    """libc++ for the stand-in, a recipe's fixes for MSVC; to other compilers nothing is said."""
    plan = made(None, Lab())
    fix = Fix(flags={"NVCC_APPEND_FLAGS": "-fixed"}, why="x", source="https://x.org/")
    recipe = plan.recipe.model_copy(update={"api": api, "fixes": (fix,), "reproducible": False})
    supply = replace(plan.supply(), toolset=tools)
    told = environment_of(replace(plan, recipe=recipe, supply=lambda: supply), 1)
    assert told.get("WCW_LIBCXX") == library
    assert told.get("NVCC_APPEND_FLAGS") == flags


@pytest.mark.parametrize(
    ("publishable", "version"), [(True, "cu130"), (False, "cu130.sandbox.msvc")]
)
def test_what_a_build_is_told_by_variables(publishable: bool, version: str) -> None:
    """A wheel that must not be published says in its version where it is from."""
    host = Lab()
    host.capabilities = Capabilities(windows=True, msvc=True, gpu=False, publishable=publishable)
    plan = made(None, host, archs="80;90+PTX")
    told = environment_of(plan, 4)
    assert (
        told
        | {
            "TEMP": plan.layout.temp,
            "TMP": plan.layout.temp,
            "CUDA_PATH": plan.layout.cuda,
            "CUDA_HOME": plan.layout.cuda,
            "SOURCE_DATE_EPOCH": str(EPOCH),
            "PYTHONUNBUFFERED": "1",
            "MAX_JOBS": "4",
            "SMOKE_ATTENTION_ARCHS": "80;90+PTX",
            "SMOKE_ATTENTION_LOCAL_VERSION": version,
        }
        == told
    )
    assert plan.facts.publishable is publishable
