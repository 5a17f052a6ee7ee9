"""The matrix: its cells, the rules that reject them, and what is printed."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import os
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from plans import LAB
from rich.console import Console

from pipelines.cli import plan as command
from pipelines.core import model
from pipelines.core import target as targets
from pipelines.core.architectures.archs import parse_arch_list
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding
from pipelines.core.target import AXES, Axis, Target
from pipelines.core.units import GIB, format_estimate
from pipelines.hosts.base import supply_of
from pipelines.plan.config.model import Config
from pipelines.plan.matrix import export, show
from pipelines.plan.matrix import plan as plans
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.plan.matrix.cells import Named, expand_cells, select_cells
from pipelines.plan.matrix.compat import load_compat
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.judge import Ground, Judged, judge_targets
from pipelines.plan.matrix.torches import load_torches
from pipelines.plan.prebuilt.candidates import Offer, list_wheel_offers
from pipelines.recipe.load import load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import PathSource
from pipelines.toolchain.lock import Cache, load_lock
from pipelines.wheels.tags import WINDOWS

HOST = HostFacts(16, 64 * GIB, 80 * GIB, native=("8.9",), msvc="14.44.35207", origin="lab1")
LAB_SUPPLY = supply_of(load_lock())
GROUND = Ground(HOST, "C:\\b", LAB_SUPPLY, names=["setup.py"])
FLASH = load_recipe("flash-attn")


def cells(recipe: Recipe = FLASH, archs: str = "80;90", **axes: list[str]) -> list[Named]:
    return expand_cells(recipe, axes, [parse_arch_list(text) for text in archs.split("|")])


def judged(
    recipe: Recipe = FLASH, archs: str = "80;90", ground: Ground = GROUND, **axes: list[str]
) -> list[Judged]:
    return judge_targets(recipe, [cell.target for cell in cells(recipe, archs, **axes)], ground)


def rejected(row: Judged) -> list[str]:
    return [finding.id for finding in row.findings if finding.failed]


def one(**axes: str) -> Judged:
    archs = axes.pop("archs", "80;90")
    recipe = load_recipe("flash-attn", version=axes.pop("version", None))
    (row,) = judged(recipe, archs, GROUND, **{key: [value] for key, value in axes.items()})
    return row


def test_an_axis_left_out_takes_what_there_is() -> None:
    found = cells(torch=["2.8"])
    assert [cell.name for cell in found][:2] == ["cp310-torch2.8-cu126", "cp311-torch2.8-cu126"]
    assert {cell.target.cuda for cell in found} == {"12.6", "12.8", "12.9"}
    assert all(row.buildable for row in judged(torch=["2.8"]))
    everything = judged()
    assert {row.target.torch for row in everything} == {t for t in load_torches() if t != "2.1"}
    assert not [row for row in everything if {"torch-cuda", "torch-python"} & {*rejected(row)}]


def test_several_lists_of_architectures_are_an_axis() -> None:
    found = cells(archs="80;90|89+PTX", torch=["2.8"], cuda=["12.8"], python=["3.12"])
    assert [(name, str(target.archs)) for name, target in found] == [
        ("cp312-torch2.8-cu128-sm80.90", "80;90"),
        ("cp312-torch2.8-cu128-sm89+PTX", "89+PTX"),
    ]
    assert select_cells(found, ["*-sm80.90"]) == found[:1]


def test_a_cell_is_a_whole_target() -> None:
    asked = {"python": ["3.12"], "torch": ["2.8"], "cuda": ["12.8"]}
    (cell,) = expand_cells(FLASH, asked, [parse_arch_list("80")], host="lab1")
    assert cell.name == "cp312-torch2.8-cu128"
    assert cell.target.values() == {
        "host": "lab1",
        "recipe": "flash-attn",
        "version": "2.8.3.post2",
        "python": "3.12",
        "torch": "2.8",
        "cuda": "12.8",
        "archs": "80",
    }


def test_packages_without_torch_or_python() -> None:
    smoke = load_recipe("smoke-attention")
    ids = [f"cp{python.replace('.', '')}-cu130" for python in smoke.pythons]
    assert "cp311-cu130" in ids
    assert [cell.name for cell in cells(smoke, "90")] == ids
    crate = load_recipe("candle-flash-attn")
    assert [cell.name for cell in cells(crate, "89", python=["3.12"])] == ["cu128"]
    (row,) = judged(crate, "89")
    assert (row.wheel, row.buildable) == ("", True)


@pytest.mark.parametrize(
    ("axes", "rule", "hint"),
    [
        # The guide's own table names this build, and there never was one.
        ({"torch": "2.6", "cuda": "12.1", "python": "3.12"}, "torch-cuda", "12.4"),
        ({"torch": "2.5", "cuda": "12.4", "python": "3.13"}, "torch-python", "3.12"),
        ({"torch": "2.8", "cuda": "12.8", "python": "3.9"}, "recipe-python", "3.10"),
        ({"torch": "2.1", "cuda": "12.1", "python": "3.11"}, "recipe-torch", ""),
        ({"torch": "2.5", "cuda": "11.8", "python": "3.11"}, "recipe-cuda", ""),
        ({"torch": "2.5", "cuda": "12.1", "python": "3.11"}, "host-cuda", "12.4"),
        (
            {"torch": "2.6", "cuda": "12.6", "python": "3.12", "archs": "120"},
            "blackwell-cuda",
            "12.8",
        ),
        ({"torch": "2.8", "cuda": "12.8", "python": "3.12", "archs": "75"}, "archs", "80"),
        ({"torch": "2.4", "cuda": "12.4", "python": "3.12", "archs": "88"}, "archs", "87"),
    ],
)
def test_rules_reject_with_their_source(axes: dict[str, str], rule: str, hint: str) -> None:
    row = one(**axes)
    assert not row.buildable
    found = next(finding for finding in row.findings if finding.id == rule)
    assert found.failed
    assert found.source
    assert hint in found.hint


def test_the_toolset_of_the_host_counts() -> None:
    newer = Ground(HostFacts(16, 64 * GIB, msvc="14.50.1"), "C:\\b", LAB_SUPPLY, names=["setup.py"])
    rows = judged(FLASH, "80", newer, torch=["2.8"])
    assert {rule for row in rows for rule in rejected(row)} == {"host-config-1950"}


def test_a_python_without_the_lock_has_another_library_to_link_with() -> None:
    """3.14 has the lock; with torch 2.11 no such report is known."""
    rules = [
        {found.id for found in one(torch="2.12", cuda="13.0", python=python).findings}
        for python in ("3.14t", "3.14")
    ]
    assert [("freethreaded-lib" in found) for found in rules] == [True, False]
    older = one(torch="2.11", cuda="13.0", python="3.14t")
    assert "freethreaded-lib" not in {found.id for found in older.findings}


@pytest.mark.parametrize("days", [90, 91])
def test_rows_that_are_old_are_marked(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Those that the cell rests on: its torch, and a rule that it breaks. It is built still."""
    (rule,) = (rule for rule in load_compat().rules if rule.id == "torch-cxx20")
    for resting in (rule, load_torches()["2.13"]):
        today = resting.date + datetime.timedelta(days=days)
        monkeypatch.setattr(model, "current_date", lambda today=today: today)
        row = one(torch="2.13", cuda="13.0", python="3.12")
        old = [found.source for found in row.findings if found.id == "row-old"]
        assert old.count(resting.source) == (days > model.FRESH)
        assert row.buildable


def test_the_host_and_the_tree_must_fit() -> None:
    small = Ground(HostFacts(4, 4 * GIB), "C:\\b", LAB_SUPPLY, names=["a/" * 120 + "setup.py"])
    (row, *_) = judged(FLASH, "80", small, torch=["2.8"])
    assert rejected(row) == ["host-too-small", "path-too-long"]
    path = next(finding for finding in row.findings if finding.id == "path-too-long")
    assert "a build root of at most" in path.hint


def test_what_the_lock_lacks_is_said() -> None:
    """A build refuses to start without it, so it cannot be built."""
    ground = Ground(HOST, "C:\\b", LAB_SUPPLY, unavailable=lambda _: ["torch", "uv", "ninja"])
    (row, *_) = judged(FLASH, "80", ground, torch=["2.8"])
    assert not row.buildable
    assert [finding.id for finding in row.findings] == ["tool-not-pinned"] * 2
    assert row.findings[0].hint == "invoke lock --only uv,ninja"
    assert row.longest is None  # the source is not here: nothing is claimed


def test_globs() -> None:
    rows = cells()
    ids = [cell.name for cell in select_cells(rows, ["cp312-torch2.8-*, cp313-torch2.9-cu130"])]
    assert ids == [
        "cp312-torch2.8-cu126",
        "cp312-torch2.8-cu128",
        "cp312-torch2.8-cu129",
        "cp313-torch2.9-cu130",
    ]
    assert select_cells(rows, []) == rows
    with pytest.raises(ConfigError, match=r"'cp312-torch2\.8-cu127'") as caught:
        select_cells(rows, ["cp312-torch2.8-cu127"])
    assert caught.value.hint.startswith("The nearest is cp312-torch2.8-cu12")


@pytest.mark.parametrize(
    ("axes", "such"),
    [
        ({"python": ["three"]}, "3.12"),
        ({"torch": ["2.8.0+cu128"]}, "2.8"),  # as build says
        ({"torch": ["new"]}, "2.8"),
        ({"cuda": ["13"]}, "13.0"),
        ({"torch": ["1!2.8"]}, "2.8"),
    ],
)
def test_odd_versions(axes: dict[str, Any], such: str) -> None:
    with pytest.raises(ConfigError, match="expected MAJOR") as caught:
        cells(**axes)
    assert caught.value.hint.startswith(f"Such as {such};")


def test_an_empty_matrix() -> None:
    recipe = FLASH.model_copy(update={"pythons": ("3.6",)})
    with pytest.raises(ConfigError, match="is empty") as caught:
        cells(recipe)
    assert "3.6" in caught.value.hint


# -- invoke plan ----------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Cache(load_lock())


def run(cache: Cache, **flags: Any) -> tuple[int, str]:
    with redirect_stdout(io.StringIO()) as captured:
        axes = {name: flags.pop(name) for name in AXES if name in flags}
        settings = Config.model_validate(
            {
                "hosts": {"lab": LAB, "sandbox": {"kind": "sandbox"}},
                "default": {"host": "lab", **flags.pop("default", {})},
            }
        )
        request = Request(axes=axes, jobs=flags.pop("jobs", None))
        code = command.run_plan(settings, request, facts=HOST, **flags)
    return code, captured.getvalue()


def test_json(cache: Cache) -> None:
    code, said = run(cache, recipe="flash-attn", select="cp312-torch2.8-cu128", format="json")
    document = json.loads(said)
    assert code == 0
    assert document["host"]["cores"] == 16
    assert document["source_in_cache"] is False
    (cell,) = document["cells"]
    assert cell["wheel"] == "flash_attn-2.8.3.post2+cu128torch2.8-cp312-cp312-win_amd64.whl"
    assert cell["arch_variables"] == {"FLASH_ATTN_CUDA_ARCHS": "80;90;120"}
    # 73 units in 19 rounds of 4 jobs leave less idle than in 7 rounds of 12.
    assert (cell["budget"]["jobs"], cell["budget"]["threads"]) == (4, 3)
    assert cell["here"] == {"toolkit_files": "0/12", "wheel": None}


@pytest.mark.parametrize(("cuda", "count"), [("13.0", "0/5"), ("12.8", "")])
def test_what_the_sandbox_would_fetch_is_counted(cache: Cache, cuda: str, count: str) -> None:
    flags = {"host": "sandbox", "recipe": "flash-attn-stable", "cuda": cuda, "format": "json"}
    assert {
        one["here"]["toolkit_files"] for one in json.loads(run(cache, **flags)[1])["cells"]
    } == {count}


def test_a_recipe_without_costs_says_why_there_is_no_time(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FLASH.model_copy(update={"costs": ()})
    monkeypatch.setattr("pipelines.plan.matrix.plan.load_recipe", lambda *_, **__: made)
    _, said = run(cache, recipe="flash-attn", torch="2.8", cuda="12.8", python="3.12")
    assert "pipelines/recipes/flash-attn.yaml has no costs" in " ".join(said.split())
    assert not re.search(r"\?|\btime\b", said.splitlines()[2] + said.splitlines()[3])


@pytest.mark.usefixtures("cache")
def test_what_a_build_would_refuse_at_once_is_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is not on this machine; a file that Windows cannot have."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.yaml").write_text("{}")
    (tmp_path / "setup.py").touch()
    hosts: Any = {"box": {"kind": "container", "engine": f"unix://{tmp_path}/docker.sock"}}
    settings = Config.model_validate({"hosts": {**hosts, "sandbox": {"kind": "sandbox"}}})
    made = load_recipe("smoke-attention").model_copy(update={"source": PathSource(path=".")})
    monkeypatch.setattr(plans, "load_recipe", lambda *_, **__: made)

    def reasons(host: str) -> set[str]:
        asked = Request(axes={"host": host, "python": "3.11"})
        rows = plans.plan_matrix(settings, asked, select="cp311-cu130").rows
        return {why for row in rows for why in rejected(row.judged)}

    assert reasons("box") == {"host-engine"}
    (tmp_path / "docker.sock").touch()
    assert reasons("box") == reasons("sandbox") == set()
    if os.name == "posix":  # Windows has no such file either
        (tmp_path / "aux.c").touch()
        assert reasons("sandbox") == {"file-names"}


def test_native_is_the_hosts_own_gpu(cache: Cache) -> None:
    flags = {"recipe": "flash-attn", "torch": "2.8", "archs": "native", "format": "json"}
    assert {cell["archs"] for cell in json.loads(run(cache, **flags)[1])["cells"]} == {"89"}


def test_a_matrix_for_github(cache: Cache) -> None:
    code, said = run(cache, recipe="flash-attn", select="cp31?-torch2.8-cu128", format="gha")
    assert code == 0
    matrix = json.loads(said)
    assert said.count("\n") == 1  # a line, as $GITHUB_OUTPUT wants it
    assert matrix["include"][2] == {
        "cell": "cp312-torch2.8-cu128",
        "host": "lab",
        "recipe": "flash-attn",
        "version": "2.8.3.post2",
        "python": "3.12",
        "torch": "2.8",
        "cuda": "12.8",
        "archs": "80;90;120",
        "way": "build",
    }


def test_the_target_of_a_build_comes_first(cache: Cache) -> None:
    """Of it alone the table tells where no axis was chosen; programs get all."""
    default = {"python": "3.12"}
    code, said = run(cache, recipe="flash-attn", default=default)
    assert code == 0
    assert re.findall(r"^cp\S+", said, re.M) == ["cp312-torch2.8-cu128"]
    _, said = run(cache, recipe="flash-attn", default=default, python="3.13,3.12")
    rows = re.findall(r"^cp\S+", said, re.M)
    assert rows[0] == "cp313-torch2.8-cu128"
    assert len(rows) > 10
    _, said = run(cache, recipe="flash-attn", default=default, select="*")
    assert len(re.findall(r"^cp\S+", said, re.M)) > len(rows)
    _, said = run(cache, recipe="flash-attn", default=default, format="json")
    assert len(json.loads(said)["cells"]) > len(rows)


@pytest.mark.usefixtures("cache")
def test_nothing_is_divided_that_ninja_does_not_compile() -> None:
    settings = Config.model_validate({"hosts": {"sandbox": {"kind": "sandbox"}}})
    for make in (plans.plan_matrix, resolve_build_plan):
        request = Request(axes={"recipe": "smoke-attention"}, shards="2")
        with pytest.raises(ConfigError, match="not built with ninja"):
            make(settings, request)
    plans.plan_matrix(settings, Request(axes={"recipe": "smoke-attention-torch"}, shards="2"))


@pytest.mark.parametrize(
    "flags",
    [
        {"torch": "2.6", "cuda": "12.1"},  # nothing can be built
        {"archs": "|".join(["80", "90", "80;90", "89", "86", "86;89"])},  # too many
    ],
)
def test_matrices_that_github_does_not_take(cache: Cache, flags: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="a matrix has 1 to 256"):
        run(cache, recipe="flash-attn", format="gha", **flags)


def test_the_table_says_why_not(cache: Cache) -> None:
    code, said = run(cache, recipe="flash-attn", torch="2.6", cuda="12.1", python="3.12")
    assert code == command.NOTHING
    assert "there is no torch 2.6 for CUDA 12.1 on Windows" in said
    assert "https://github.com/pytorch/pytorch" in said
    assert "0 of 1 cells can be built" in said


def wide(cache: Cache, monkeypatch: pytest.MonkeyPatch, width: int, *, terminal: bool) -> str:
    out = io.StringIO()
    made = Console(
        file=out, width=width, force_terminal=terminal, soft_wrap=True, color_system=None
    )
    monkeypatch.setattr(show, "console", made)
    run(cache, recipe="flash-attn", torch="2.8", python="3.12")
    return out.getvalue()


def test_no_width_cuts_a_name_or_a_verdict(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    said = wide(cache, monkeypatch, 80, terminal=False)
    assert re.search(r"^cp312-torch2\.8-cu126 +no: blackwell-cuda .*CUDA 0/12", said, re.MULTILINE)
    for width in (110, 80, 60):
        said = wide(cache, monkeypatch, width, terminal=True)
        assert re.search(r"^cp312-torch2\.8-cu128 +yes ", said, re.MULTILINE)
        assert "blackwell-cuda" in said
        assert "\u2026" not in said
        assert max(len(line) for line in said.splitlines() if line.startswith("cp31")) <= width


def test_what_the_lock_lacks_is_no_cell_that_can_be_built(cache: Cache) -> None:
    _, said = run(cache, recipe="flash-attn", torch="2.5", python="3.12")
    assert "tool-not-pinned" in said
    assert "0 of 2 cells can be built" in said


def test_a_wheel_that_is_there_is_found(cache: Cache, tmp_path: Path) -> None:
    wheels = tmp_path / "out/run/wheels"
    wheels.mkdir(parents=True)
    name = "flash_attn-2.8.3.post2+cu128torch2.8-cp312-cp312-win_amd64.whl"
    (wheels / name).touch()
    rows = judged(torch=["2.8"], cuda=["12.8"])
    have = plans.what_is_here(cache, rows, tmp_path / "out", LAB_SUPPLY)
    found = [(one.target.cell, here.wheel) for one, here in zip(rows, have, strict=True)]
    assert [(cell, wheel) for cell, wheel in found if wheel] == [
        ("cp312-torch2.8-cu128", str(wheels / name))
    ]


@pytest.mark.parametrize("strategy", ["prebuilt", "prebuilt-then-build"])
def test_what_a_strategy_makes_of_each_cell(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    name = "flash_attn-2.8.3.post2+cu128torch2.8-cp312-cp312-win_amd64.whl"
    (tmp_path / name).touch()
    asked: list[str] = []

    def look(place: str, project: str, *, offline: bool) -> list[Offer]:
        assert not offline
        asked.append(place)
        return list_wheel_offers(place, project)

    made = FLASH.model_copy(update={"strategy": strategy, "prebuilt": (str(tmp_path),)})
    monkeypatch.setattr("pipelines.plan.matrix.plan.load_recipe", lambda *_, **__: made)
    monkeypatch.setattr(plans, "list_wheel_offers", look)
    flags = {"recipe": "flash-attn", "select": "cp31[23]-torch2.8-cu128"}
    cells_ = json.loads(run(cache, **flags, format="json")[1])["cells"]
    assert asked == [str(tmp_path)]
    assert cells_[0]["way"] == "prebuilt"
    assert cells_[0]["prebuilt"]["file"] == name
    either = strategy == "prebuilt-then-build"
    assert cells_[1]["way"] == ("build" if either else "none")
    assert "no prebuilt wheel fits cp313-torch2.8-cu128" in cells_[1]["why"]
    ways = [row["way"] for row in json.loads(run(cache, **flags, format="gha")[1])["include"]]
    assert ways == (["prebuilt", "build"] if either else ["prebuilt"])
    code, said = run(cache, **flags)
    assert code == 0
    assert f"{name} from {tmp_path}, once it is verified" in said.replace("\n", "")
    assert f"{int(either)} of 2 cells can be built, 1 are available prebuilt" in said
    # Without a compiler for its CUDA in the lock a wheel can be had all the same.
    found = cells(made, cuda=["12.8"], torch=["2.8"], python=["3.12"])
    (row,) = judged(made, cuda=["12.8"], torch=["2.8"], python=["3.12"])
    unbuildable = dataclasses.replace(row, findings=(Finding(id="x", level="error", actual="x"),))
    (way,) = plans.cell_decisions(made, found, WINDOWS)
    assert plans.Row(found[0].name, unbuildable, way, plans.Here("0/0", None)).possible
    code, _ = run(cache, recipe="flash-attn", select="cp313-torch2.8-cu128")
    assert code == (0 if either else command.NOTHING)


def test_a_place_that_cannot_be_listed_is_told_before_anything(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FLASH.model_copy(update={"strategy": "prebuilt", "prebuilt": ("/nowhere",)})
    monkeypatch.setattr("pipelines.plan.matrix.plan.load_recipe", lambda *_, **__: made)
    with pytest.raises(ConfigError, match="cannot list wheels in /nowhere"):
        run(cache, recipe="flash-attn")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"format": "xml"}, "--format xml"),
        ({"host": "nowhere"}, "unknown host"),
        ({"recipe": "flash-atn"}, "unknown recipe"),
        ({"recipe": "flash-attn", "version": "2.8.4"}, "unknown version"),
        ({"recipe": "flash-attn", "select": "cp39-*"}, "no cell is called"),
        ({"recipe": "flash-attn", "archs": "RTX 9999"}, "is not known"),
        ({"torch": "2.8"}, "built without torch"),
        ({"jobs": 0}, "--jobs 0: expected 1 to 512"),
        ({"jobs": -3}, "--jobs -3: expected 1 to 512"),
        ({"jobs": 513}, "--jobs 513: expected 1 to 512"),
    ],
)
def test_what_is_not_understood(cache: Cache, flags: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        run(cache, **flags)
    assert caught.value.hint


def test_durations() -> None:
    assert [format_estimate(s) for s in (40, 840, 7500)] == ["40 s", "14 min", "2 h 05 min"]


# -- a new axis ------------------------------------------------------------------------------------


def test_a_new_axis_is_written_in_one_place(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, globs, JSON, GitHub's matrix and messages follow from the fields of a Target."""
    axis = Axis("C++ ABI, such as new", tag="abi{}", words="{} ABI")
    monkeypatch.setattr(targets, "AXES", {**targets.AXES, "abi": axis})
    monkeypatch.setattr(export, "AXES", targets.AXES)
    monkeypatch.setattr(Target, "abi", "new", raising=False)
    recipe = FLASH.model_copy(update={"strategy": "prebuilt", "prebuilt": (str(tmp_path),)})
    monkeypatch.setattr(plans, "load_recipe", lambda *_, **__: recipe)
    settings = Config.model_validate({"hosts": {"lab": LAB}, "out": str(tmp_path)})
    asked = Request(axes={"host": "lab", "torch": "2.8", "archs": "80|90"})
    select = "cp312-torch2.8-cu128-abinew-sm80"
    made = plans.plan_matrix(settings, asked, select=select, facts=HOST)
    (row,) = made.rows
    assert row.target.label.endswith("CUDA 12.8, 80, new ABI")
    assert row.way.why.startswith("no prebuilt wheel fits cp312-torch2.8-cu128-abinew-sm80")
    (cell,) = export.plan_as_json(made)["cells"]
    assert [*cell][:6] == ["id", "python", "torch", "cuda", "archs", "abi"]
    there = dataclasses.replace(row, way=dataclasses.replace(row.way, action="prebuilt"))
    (job,) = export.plan_as_gha_matrix(dataclasses.replace(made, rows=(there,)))["include"]
    assert [*job] == ["cell", *targets.AXES, "way"]
    assert job["abi"] == "new"


def test_cuda_12_9_of_torch_2_13_is_for_linux_alone() -> None:
    """https://github.com/pytorch/pytorch/pull/186015"""
    assert "12.9" not in load_torches()["2.13"].cudas
