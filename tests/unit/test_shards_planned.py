"""What dividing a wheel takes, by the units that were measured; and what is asked of a host."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from plans import plan_for

from pipelines.cli.lines import request_of
from pipelines.cli.plan import run_plan
from pipelines.cli.rebuild import rebuild
from pipelines.core.architectures import gpus
from pipelines.core.errors import ConfigError
from pipelines.core.files import sha256_of
from pipelines.core.paths import PACKAGE
from pipelines.core.units import GIB
from pipelines.plan.config.model import load_config
from pipelines.plan.matrix.buildplan import Request, finalize_recipe
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.shares import RUNNERS, estimate_shares, shares_for
from pipelines.recipe.load import load_recipe
from pipelines.remote import objects
from pipelines.remote.shards import balance

FILE = Path(__file__).parents[1] / "bench/data/flash_attn_units.json"
MEASURED = {row["source"]: row["seconds"] for row in json.loads(FILE.read_text("utf-8"))["units"]}
FLASH = load_recipe("flash-attn")
ARCHS = gpus.parse_gpu_archs("90")
LARGE = HostFacts(cores=16, memory=128 * GIB)
RUNNER = HostFacts(cores=4, memory=16 * GIB)


def longest(count: int) -> tuple[float, float]:
    """Seconds of the longest share and of all, as measured; divided by the recipe's costs."""
    costs = list(FLASH.unit_costs.items())
    weights = {name: balance.weight(name, costs, 130.0) for name in MEASURED}
    divided = balance.divided(weights, count)
    assert sorted(unit for share in divided for unit in share) == sorted(MEASURED)
    return max(sum(MEASURED[unit] for unit in share) for share in divided), sum(MEASURED.values())


def test_the_costs_of_the_recipe_are_the_measured_ones() -> None:
    costs = list(FLASH.unit_costs.items())
    assert len(MEASURED) == 73
    for name, seconds in MEASURED.items():
        said = balance.weight(name, costs, 0.0)
        assert said == pytest.approx(seconds, rel=0.04), name
    cost = FLASH.cost("13.0")
    assert cost is not None
    assert statistics.mean(MEASURED.values()) == pytest.approx(cost.unit_seconds, rel=0.01)


@pytest.mark.parametrize(("count", "ratio"), [(2, 1.01), (4, 1.02), (8, 1.04), (20, 1.15)])
def test_shares_are_even(count: int, ratio: float) -> None:
    """The longest compared with the mean; of 20 shares each has three or four units."""
    most, total = longest(count)
    assert most <= ratio * total / count


def test_what_shares_take() -> None:
    made = [
        estimate_shares(FLASH, RUNNER, ARCHS, count, names=[*MEASURED]) for count in (1, 4, 73, 100)
    ]
    one, four, every, more = made
    assert one is not None and four is not None and every is not None and more  # noqa: PT018
    assert one.units == 73
    assert one.longest_seconds == one.alone_seconds
    assert four.longest_seconds < 1.1 * one.alone_seconds / 4
    assert every.longest_seconds == more.longest_seconds == 228, "the slowest unit"
    unknown = estimate_shares(FLASH, RUNNER, ARCHS, 4)
    assert unknown is not None
    assert unknown.units == 73
    assert estimate_shares(FLASH.model_copy(update={"costs": ()}), RUNNER, ARCHS, 4) is None


def test_as_many_as_do_some_good() -> None:
    cost = FLASH.cost("13.0")
    assert shares_for(cost, [LARGE], ARCHS)[0] == 1
    assert shares_for(None, [LARGE, LARGE], ARCHS)[0] == 1
    assert shares_for(cost, [LARGE] * 8, ARCHS)[0] == 2, "of five minutes each"
    assert shares_for(cost, [RUNNER] * 8, ARCHS)[0] == 8
    assert shares_for(cost, [RUNNER] * 200, ARCHS, least=1.0)[0] == 73, "no more than units"
    auto = estimate_shares(FLASH, RUNNER, ARCHS, 0, names=[*MEASURED])
    assert auto is not None
    assert 8 < auto.count <= RUNNERS
    with pytest.raises(ConfigError, match="too small"):
        shares_for(cost, [HostFacts(cores=1, memory=GIB)] * 2, ARCHS)


def test_what_is_divided_is_built_reproducibly(tmp_path: Path) -> None:
    assert not FLASH.reproducible
    for asked in ({"share": "1/2"}, {"objects": ("run",)}, {"shards": "2"}, {"reproducible": True}):
        assert finalize_recipe(FLASH, Request(**asked)).reproducible
    assert finalize_recipe(FLASH, Request()) is FLASH
    assert plan_for(tmp_path, python="3.11").share is None


@pytest.mark.parametrize(
    ("recipe", "asked", "said"),
    [
        (FLASH, {"share": "1/2", "shards": "2"}, "--shard and --shards exclude each other"),
        (FLASH, {"share": "1/2", "objects": ("run",)}, "--shard and --objects"),
        (load_recipe("candle-flash-attn"), {"shards": "2"}, "of kind cargo"),
        (load_recipe("candle-flash-attn"), {"reproducible": True}, "of kind cargo"),
        (
            FLASH.model_copy(update={"strategy": "prebuilt", "prebuilt": ("x",)}),
            {"shards": "2"},
            "strategy prebuilt",
        ),
    ],
)
def test_what_cannot_be_divided(recipe: Any, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        finalize_recipe(recipe, Request(**asked))


def test_what_was_typed() -> None:
    request, _ = request_of({"objects": "a,b/c,", "reproducible": True})
    assert (request.objects, request.share, request.reproducible) == (("a", "b/c"), None, True)


def test_runs_whose_names_came_out_empty_build_no_whole_wheel() -> None:
    with pytest.raises(ConfigError, match="--objects ', ,' names no run"):
        request_of({"objects": ", ,"})


def test_a_rebuild_is_reproducible_whatever_the_recipe_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the build was, which was divided, of a recipe that does not say so."""
    manifest = {
        "schema": 2,
        "made_by": "m",
        "run": "r",
        **dict.fromkeys(("started", "finished", "publishable", "evidence")),
        **{key: {} for key in ("stages", "toolset", "host", "tools")},
        "inputs": {
            "recipe": "flash-attn",
            "reproducible": True,
            "materials": {"source": {"archive": "0"}},
        },
        "files": [{"path": "wheels/a-1-cp311-cp311-win_amd64.whl", "size": 1, "sha256": "0" * 64}],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    opened: list[dict[str, Any]] = []

    def note(given: dict[str, Any]) -> None:
        opened.append(given)
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.cli.lines.open_line", note)
    with pytest.raises(KeyboardInterrupt):
        rebuild.run({"reproducible": False}, str(tmp_path / "manifest.json"))
    assert request_of(opened[0])[0].reproducible


# -- on the host -----------------------------------------------------------------------------------


def test_which_objects_are_whole(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    sha = sha256_of(tmp_path / "a")
    asked = [objects.Expected(path=str(tmp_path / name), sha256=sha) for name in ("a", "b", "c")]
    assert objects.intact(expected=asked) == [str(tmp_path / "a")]


@pytest.mark.skipif(sys.platform == "win32" or not shutil.which("g++"), reason="of a Linux host")
def test_programs_that_no_pin_covers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = objects.compilers(python="")
    assert {"g++", "as", "ld", "cc1plus"} <= found.keys()
    assert found["g++"] == sha256_of(Path(shutil.which("g++") or ""))
    other = tmp_path / "g++"
    mine = tmp_path / "mine++"
    mine.write_text("#!/bin/sh\n# mine")
    mine.chmod(0o755)
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    (tmp_path / "toolkit/bin").mkdir(parents=True)
    shutil.copy(other, tmp_path / "toolkit/bin/ptxas")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    changed = objects.compilers(python="", toolkit=str(tmp_path / "toolkit"))
    assert {n for n in {**found, **changed} if found.get(n) != changed.get(n)} == {"g++", "ptxas"}
    monkeypatch.undo()
    beside = objects.compilers(python=str(tmp_path / "python"))
    assert beside["g++"] == sha256_of(other), "an environment's own compiler comes before PATH"
    monkeypatch.setenv("CXX", f"{mine} -O1")
    monkeypatch.setenv("CPATH", "/elsewhere")
    named = objects.compilers(python="")
    assert named["mine++"] == sha256_of(mine)
    assert (named["g++"], named["CPATH"]) == (found["g++"], "/elsewhere")


# -- invoke plan -----------------------------------------------------------------------------------


def divided(shards: str, capsys: pytest.CaptureFixture[str], **more: str) -> str:
    """What ``invoke plan`` says of flash-attn on a GitHub runner."""
    settings = load_config(PACKAGE.parent / ".github/runner.yaml")
    axes = {"recipe": "flash-attn", "host": "runner", "cuda": "12.8", **more}
    format = axes.pop("format", "table")
    run_plan(settings, Request(axes=axes, shards=shards), format=format, facts=RUNNER)
    return capsys.readouterr().out


def test_a_plan_says_what_shares_take(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"python": "3.12", "torch": "2.8"}
    told = json.loads(divided("4", capsys, format="json", **one))
    (cell,) = told["cells"]
    assert cell["shares"]["count"] == 4
    assert cell["shares"]["longest_seconds"] < cell["shares"]["alone_seconds"] / 3
    said = " ".join(divided("4", capsys, **one).split())
    assert "each cell: 4 shards of 73 units: the longest takes about 1 h" in said
    rows = json.loads(divided("2", capsys, format="gha", **one))["include"]
    assert [row["share"] for row in rows] == ["1/2", "2/2"]
    assert len({row["part"] for row in rows}) == 2
    assert json.loads(divided("1", capsys, format="gha", **one)) == {"include": []}


def test_more_shares_than_a_matrix_may_have(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"\d{3} shards of \d+ cells; a matrix has at most 256"):
        divided("100", capsys, format="gha")


def test_what_was_not_looked_at_is_not_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pipelines.remote.builder.compiler_environment", lambda: {"PATH": str(tmp_path)}
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no compiler"):
        objects.compilers(python="")
