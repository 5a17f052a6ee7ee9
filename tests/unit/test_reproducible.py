"""``reproducible: true``: the compilers' options, and where the source is meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from plans import at_desk, changed, job_of, plan_for, wanting

from pipelines.core import toolsets
from pipelines.core.errors import ConfigError
from pipelines.recipe.load import RECIPES, load_recipe
from pipelines.recipe.reproducible import load_profile, reproducible_environment
from pipelines.record.results import ProvisionResult, ResourceResult
from pipelines.remote import compilecache, fixed_paths
from pipelines.remote.resources import compilers
from pipelines.stages.buildspec import build_spec, collect_materials, environment_of

PLACES = {"environment": "/env", "toolkit": "/env/cuda", "temp": "/t"}
TOOL_SETS = (toolsets.STUB, toolsets.MSVC, toolsets.NATIVE)


def test_every_tool_set_has_a_profile() -> None:
    assert {*load_profile().tool_sets} == {one.name for one in TOOL_SETS}


@pytest.mark.parametrize("tools", TOOL_SETS, ids=lambda tools: tools.name)
def test_every_build_is_told_the_same(tools: toolsets.Toolset) -> None:
    variables = reproducible_environment({"PYTHONHASHSEED": "7"}, tools.name, "13.0", PLACES)
    assert variables["PYTHONHASHSEED"] == "0"
    assert variables["TZ"] == "UTC"
    assert "--objdir-as-tempdir" in variables["NVCC_APPEND_FLAGS"].split()
    assert "{" not in "".join(variables.values())


@pytest.mark.parametrize(("cuda", "known"), [("12.8", False), ("12.9", True), ("13.0", True)])
def test_nvcc_is_told_a_seed_where_it_knows_one(cuda: str, known: bool) -> None:
    variables = reproducible_environment({}, "stand-in", cuda, PLACES)
    assert ("--frandom-seed=reproducible" in variables["NVCC_APPEND_FLAGS"].split()) is known


@pytest.mark.parametrize("tools", TOOL_SETS, ids=lambda tools: tools.name)
@pytest.mark.parametrize("cuda", ["12.9", "13.0", "13.1"])
def test_cicc_for_windows_is_told_to_fill_no_gaps(tools: toolsets.Toolset, cuda: str) -> None:
    """Where it was tried, and no other: one that does not know the option ends with an error."""
    flags = reproducible_environment({}, tools.name, cuda, PLACES)["NVCC_APPEND_FLAGS"]
    asked = "-Xcicc --Xopt -Xcicc -vect-fill-gaps=0" in flags
    assert asked is (tools is not toolsets.NATIVE and cuda == "13.0")


def test_what_a_recipe_says_comes_after() -> None:
    variables = reproducible_environment(
        {"CL": "/DX", "NVCC_APPEND_FLAGS": "-lineinfo"}, "MSVC", "12.8", PLACES
    )
    assert variables["CL"] == "/Brepro /experimental:deterministic /DX"
    assert variables["NVCC_APPEND_FLAGS"] == "--objdir-as-tempdir -lineinfo"
    assert "/Brepro" in variables["LINK"].split()


def test_places_are_mapped_and_none_may_have_a_space() -> None:
    variables = reproducible_environment({}, toolsets.NATIVE.name, "13.0", PLACES)
    assert "-ffile-prefix-map=/env/cuda=/cuda" in variables["CFLAGS"].split()
    with pytest.raises(ConfigError, match="/my env has a space"):
        reproducible_environment(
            {}, toolsets.NATIVE.name, "13.0", PLACES | {"environment": "/my env"}
        )
    reproducible_environment(
        {}, toolsets.MSVC.name, "13.0", PLACES | {"environment": "/my env"}
    )  # it names none


def test_a_plan_tells_it_only_where_the_recipe_asks(tmp_path: Path) -> None:
    plan = changed(plan_for(tmp_path))
    assert plan.recipe.reproducible
    other = changed(plan, recipe=plan.recipe.model_copy(update={"reproducible": False}))
    more = environment_of(plan, 2).keys() - environment_of(other, 2).keys()
    assert more == {"CL", "LINK", "LC_ALL", "NVCC_APPEND_FLAGS", "PYTHONHASHSEED", "TZ"}
    mine, theirs = (collect_materials(one, "source", None) for one in (plan, other))
    assert mine.root["fixed place"] == {"source": r"C:\b\f"}
    assert "fixed place" not in theirs.root


def test_materials_name_places_apart(tmp_path: Path) -> None:
    """The same recipe in another environment has the same variables."""
    seen = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        line, _ = at_desk(tmp_path / name, reproducible=True)
        seen.append(collect_materials(line.plan, "source", None))
    places = {one.label for one in seen[0].differences(seen[1])}
    assert places == {"place temp", "place toolkit", "fixed place source"}
    assert str(tmp_path) not in str(seen[0].root["variable"])


def test_the_compile_cache_is_used_where_it_gives_the_same_bytes(tmp_path: Path) -> None:
    """And never where something is built once more to show what the first build was."""
    plan = wanting(at_desk(tmp_path, reproducible=True)[0], sccache="/s").plan
    supply = replace(plan.supply(), toolset=toolsets.NATIVE)
    desk = changed(plan, supply=lambda: supply)
    cache = build_spec(desk, "/b/j", "a", "", 4)["cache"]
    assert cache["without"] == {"NVCC_APPEND_FLAGS": ["--objdir-as-tempdir"]}
    assert (cache["place"], cache["packages"]) == ("", ""), "it stands at the fixed place"
    again = replace(desk, fresh="1")
    assert build_spec(again, "/b/j", "a", "", 4)["cache"] is None
    windows = changed(plan_for(tmp_path))
    assert windows.recipe.reproducible
    assert build_spec(windows, "/b/j", "a", "", 4)["cache"] is None
    other = changed(windows, recipe=windows.recipe.model_copy(update={"reproducible": False}))
    assert build_spec(other, "/b/j", "a", "", 4)["cache"]["without"] == {}


def test_words_are_left_out_of_what_the_build_has() -> None:
    """Also of what a retry has added to it meanwhile."""
    cache = compilecache.Running(Path(), {"A": "1"}, without={"F": ["--x"], "G": ["--x"]})
    variables = {"F": "--x -lineinfo --xy --x"}
    cache.join(variables)
    assert variables == {"A": "1", "F": "-lineinfo --xy"}
    quoted = {"F": """--x -Xcompiler="-DP='a  b'" --x-y"""}
    cache.join(quoted)
    assert quoted["F"] == """-Xcompiler="-DP='a  b'" --x-y"""


def test_homes_stand_as_a_tilde_in_materials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    monkeypatch.setenv("CFLAGS", "-I/home/me/x -DP='/home/me' -I/mnt/home/me -L/home/menu /home/me")
    line, _ = at_desk(tmp_path, reproducible=True)
    seen = collect_materials(line.plan, "source", None)
    assert seen.root["user variable"]["CFLAGS"] == "-I~/x -DP='~' -I/mnt/home/me -L/home/menu ~"
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    seen = collect_materials(line.plan, "source", None)
    assert seen.root["user variable"]["CFLAGS"].startswith("-I/home/me/x")


@pytest.mark.parametrize("name", ["CFLAGS", "CMAKE_ARGS", "CUDAFLAGS"])
def test_what_a_user_tells_a_build_makes_another_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """On a host that is used as it is, where builds have the user's variables."""
    line, _ = at_desk(tmp_path, reproducible=True)
    monkeypatch.delenv(name, raising=False)
    before = job_of(line.plan, "source", None)
    monkeypatch.setenv(name, "-DX=1")
    assert job_of(line.plan, "source", None) != before


def test_what_compiles_is_a_material_each(tmp_path: Path) -> None:
    row = ResourceResult(
        id="host's compilers",
        kind="compilers",
        wanted="w",
        found="f",
        ok=True,
        values={"g++": "g++ 12.2.0", "ld": "GNU ld 2.40"},
    )
    line, _ = at_desk(tmp_path, reproducible=True)
    seen = collect_materials(line.plan, "source", ProvisionResult(resources=(row,)))
    assert seen.root["found"] == {"g++": "g++ 12.2.0", "ld": "GNU ld 2.40"}


def test_compilers_are_asked_by_the_names_that_builds_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, says in (("g++", "g++ 99"), ("my-cc", "\nmine 1\nmore"), ("mute", "")):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\nprintf '{says}'\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CC", f"{tmp_path}/my-cc -pthread")
    monkeypatch.setenv("CXX", "'")
    found = compilers.check({"names": ["g++", "mute", "no-such-thing"]})
    assert found["ok"]
    assert found["found"] == "g++ 99"
    assert found["values"].items() >= {"g++": "g++ 99", "my-cc": "mine 1", "mute": ""}.items()
    assert "no-such-thing" not in found["values"]


def test_a_crate_cannot_promise_it(tmp_path: Path) -> None:
    text = (RECIPES / "candle-flash-attn.yaml").read_text("utf-8")
    (tmp_path / "candle-flash-attn.yaml").write_text(f"{text}\nreproducible: true\n", "utf-8")
    with pytest.raises(ConfigError, match="reproducible and restamp: only for wheels"):
        load_recipe("candle-flash-attn", tmp_path)


# -- the place -------------------------------------------------------------------------------------


def source(room: Path, name: str) -> Path:
    tree = room / name / "src"
    tree.mkdir(parents=True)
    (tree / "name").write_text(name)
    return tree


def test_a_tree_stands_there_and_comes_home(tmp_path: Path) -> None:
    tree, folder = source(tmp_path, "one"), tmp_path / "fixed"
    with fixed_paths.built_at(tree, folder) as there:
        assert there == folder / "src"
        assert not tree.exists()
        (there / "made.o").write_text("x")
    assert (tree / "made.o").read_text() == "x"
    assert not (folder / "src").exists()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_a_killed_build_left_goes_home(tmp_path: Path) -> None:
    one, two, folder = source(tmp_path, "one"), source(tmp_path, "two"), tmp_path / "fixed"
    folder.mkdir(mode=0o700)
    (folder / "src.home").write_text(json.dumps(str(one)))
    one.rename(folder / "src")
    with fixed_paths.built_at(two, folder) as there:
        assert (there / "name").read_text() == "two"
        assert (one / "name").read_text() == "one"


def test_another_disk_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("pipelines.remote.fixed_paths._rename", refused)
    monkeypatch.setattr("os.rename", refused)  # what shutil.move tries first
    tree = source(tmp_path, "one")
    os.utime(tree / "name", (1, 1))
    with fixed_paths.built_at(tree, tmp_path / "fixed") as there:
        assert (there / "name").stat().st_mtime == 1, "what was built from it stays newer"
    assert (tree / "name").read_text() == "one"


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    tree = source(tmp_path, "one")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "one")
    for folder in (open_to_all, link, tree / "name"):
        with (
            pytest.raises(OSError, match="this user alone"),
            fixed_paths.built_at(tree, folder),
        ):
            pytest.fail("it was used")
    assert tree.exists()


def test_one_build_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, folder = source(tmp_path, "one"), source(tmp_path, "two"), tmp_path / "fixed"
    seen = []

    def second() -> None:
        with fixed_paths.built_at(two, folder) as there:
            seen.append((there / "name").read_text())

    with fixed_paths.built_at(one, folder):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        assert seen == [], "it waits"
    thread.join(20)
    assert seen == ["two"]
    monkeypatch.setattr("pipelines.remote.fixed_paths._PATIENCE", 0.0)
    with (
        fixed_paths.built_at(one, folder),
        pytest.raises(OSError, match="another reproducible build"),
        fixed_paths.built_at(two, folder),
    ):
        pytest.fail("two at once")
    shutil.rmtree(folder)
