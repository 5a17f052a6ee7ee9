"""``--dry-run``: all that a build would do is said, and nothing of it done."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import Lab, at_desk, audited, changed, line_for, plan_for, recipe_of
from projects import project
from sessions import Here
from typed import flags
from wheels import packed_here, wheel_here

from pipelines.core.errors import BuildError, ConfigError
from pipelines.core.paths import PACKAGE
from pipelines.hosts.live import LiveSession
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.recipe.load import load_recipe
from pipelines.record.run import Run
from pipelines.remote import builder
from pipelines.remote.jobs import launch
from pipelines.remote.provision import check_all
from pipelines.stages.dryrun import show_build, show_test
from pipelines.stages.hooks import FEATURES
from pipelines.stages.line import Line, run_build
from pipelines.toolchain.lock import Cache, load_lock

ROW = {"ok": True, "found": "f", "values": {}, "plan": "", "error": ""}


def built(line: Line, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What a dry run says, by the names in front."""
    capsys.readouterr()
    show_build(line)
    rows = [row[2:] for row in capsys.readouterr().out.splitlines() if row.startswith("  ")]
    return {name: said.strip() for row in rows for name, _, said in [row.partition(" ")]}


def test_everything_is_said_and_nothing_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, session = at_desk(tmp_path)
    cost = load_recipe("smoke-attention").costs
    line.plan = replace(line.plan, recipe=line.plan.recipe.model_copy(update={"costs": cost}))
    line.plan.__dict__["wanted"] = ()
    before = sorted(tmp_path.rglob("*"))
    said = built(line, capsys)
    assert said["host"].startswith("desk")
    assert said["provision"] == "all 0 resources are up to date"
    assert said["fetch"].startswith("nothing")
    assert "sha256" in said["source"]
    assert said["job"].endswith("compiled from the beginning")
    assert said["cost"].startswith("about ")
    assert "5 units" in said["cost"]
    assert said["run"] == "a new one"
    assert sorted(tmp_path.rglob("*")) == before
    assert not session.times(launch.start)
    assert session.sent == []


@pytest.mark.slow
def test_what_the_plan_does_not_ask_for_is_not_imported(tmp_path: Path) -> None:
    """Of the example, whose host is down."""
    (tmp_path / "pipeline.yaml").write_text("hosts: {sandbox: {kind: sandbox}}\n")
    program = (
        "import json, sys\n"
        "from pipelines.cli.program import run_command_line\n"
        "code = run_command_line(['build', '--dry-run'])\n"
        "ours = {n: m.__file__ for n, m in sys.modules.items() if n.startswith('pipelines.')}\n"
        "print(json.dumps([code, ours]))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        check=True,
    )
    code, loaded = json.loads(said.stdout.splitlines()[-1])
    assert code == 0
    assert "pipelines.stages.dryrun" in loaded
    joined = [name.partition(":")[0] for rows in FEATURES.values() for name, _ in rows]
    apart = ["fleet", "plan.prebuilt", "audit", "publish", "recipe.reproducible", "scaffold"]
    apart = [f"pipelines.{name}" for name in (*apart, "hosts.sandbox.bridge")]
    features = [f"{name}." for name in (*joined, *apart)]
    assert not [name for name in loaded if f"{name}.".startswith(tuple(features))]
    assert sum(map(lines_of_code, loaded.values())) < 14_000


def lines_of_code(file: str) -> int:
    """Without blank lines, comments and docstrings."""
    text = Path(file).read_text("utf-8")
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    rows = ((number, row.strip()) for number, row in enumerate(text.splitlines(), 1))
    return sum(1 for number, row in rows if row and row[0] != "#" and number not in told)


def test_a_plan_lists_its_source_to_look_and_to_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once each: a file may have come between, and the commit is read when it is packed."""
    asked: list[str] = []
    run = subprocess.run

    def counted(command: list[str], **keys: Any) -> subprocess.CompletedProcess[bytes]:
        asked.append(command[5])
        return run(command, **keys)

    line, _ = at_desk(tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path / "tree", check=True)
    monkeypatch.setattr("pipelines.recipe.worktree.subprocess.run", counted)
    show_build(line)
    listing = ["ls-files", "ls-files"]
    assert asked == [*listing, *listing, "rev-parse", "status"]


@pytest.mark.parametrize("toolset", [None, "14.44"])
def test_what_is_there_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    toolset: str | None,
) -> None:
    monkeypatch.setattr("pipelines.stages.build.toolset_for", lambda *_: toolset)

    def job(spec: dict[str, Any]) -> Iterator[Any]:
        yield {"exit": 0, "wheels": [builder.left(packed_here(tmp_path, spec))]}

    line, _ = at_desk(tmp_path, job)
    before = built(line, capsys)["job"].partition(":")[0]
    run_build(line)
    after = built(line, capsys)["job"]
    assert after.startswith(f"{before}: built there before")


def test_a_damaged_download_would_be_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, _ = at_desk(tmp_path)
    cache = Cache(load_lock(), tmp_path / "cache", offline=True)
    line.plan = replace(line.plan, cache=cache)
    line.plan.__dict__["wanted"] = (
        DesiredResource("x", "w", {"kind": "directory"}, {"uv": "/x"}, "s"),
    )
    line.session = LiveSession(Lab(Here(answers={check_all: lambda specs: [ROW for _ in specs]})))
    place = cache.path("uv")
    place.parent.mkdir(parents=True)
    place.write_bytes(b"damaged")
    assert built(line, capsys)["fetch"].startswith("1 of 1 pinned files, ")


def test_a_build_that_failed_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, session = at_desk(tmp_path, lambda spec: iter([{"exit": 1}]))
    with pytest.raises(Exception, match="status 1"):
        run_build(line)
    assert "failed there before" in built(line, capsys)["job"]
    (job,) = session.jobs.values()
    job["state"], job["result"] = "running", None
    assert "running there now" in built(line, capsys)["job"]


def test_a_run_that_was_cut_off_is_named_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, _ = at_desk(tmp_path)
    cut = Run.create(line.plan.out, line.plan.facts)
    with pytest.raises(KeyboardInterrupt), cut.stage("build"):
        raise KeyboardInterrupt
    Run.create(line.plan.out, line.plan.facts.model_copy(update={"jobs": 7}))
    latest = Run.open(line.plan.out).id
    assert built(line, capsys)["run"] == f"continues {cut.id}, which was interrupted"
    assert Run.open(line.plan.out).id == latest != cut.id


def test_no_host_is_started_to_be_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path / "tree", "")
    host = Lab(Here())
    recipe = recipe_of(tmp_path / "tree", pythons=("3.11",))
    plan = changed(plan_for(tmp_path, host, recipe, python="3.11"))
    said = built(line_for(plan), capsys)
    assert host.connects == 0
    assert "unknown" in said["provision"]
    assert "not known" in said["job"]
    assert "not known: the recipe has no estimate" in said["cost"]


def test_a_source_that_is_not_here_is_not_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    axes = {"recipe": "flash-attn", "python": "3.12"}
    upload = DesiredResource("uv", "a test", {"kind": "archives"}, {"uv": r"C:\\t\\uv"}, "uv")
    plan = changed(plan_for(tmp_path, Lab(Here()), **axes), upload)
    plan.cache.offline = False
    said = built(line_for(plan), capsys)
    assert said["source"] == "not in the cache: it would be downloaded"
    assert said["fetch"].startswith("1 of 1 pinned files, ")
    assert not (tmp_path / "cache").exists()


def test_what_cannot_be_built_is_refused_as_ever(tmp_path: Path) -> None:
    axes = {"recipe": "flash-attn", "python": "3.12", "cuda": "12.3", "archs": "80"}
    with pytest.raises(ConfigError, match="cannot be built"):
        show_build(line_for(plan_for(tmp_path, Lab(Here()), **axes)))


def test_a_test_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, session = at_desk(tmp_path)
    show_test(line)
    assert "nothing was done" in capsys.readouterr().out
    assert session.asked == []


def test_whose_wheel_would_be_tested_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, _ = at_desk(tmp_path)
    show_test(line)
    assert "none for this cell yet: build it first" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no run 'nonsense'"):
        show_test(line, run="nonsense")
    run = line.begin_run()
    with pytest.raises(BuildError, match="has no wheel that passed"):
        show_test(line, run=run.id)
    show_test(line)
    assert f"none passed in the latest run, {run.id}" in capsys.readouterr().out
    run = audited(line, wheel_here(tmp_path))
    show_test(line)
    show_test(line, run=run.id)
    assert capsys.readouterr().out.count(f"from {run.id}") == 2


def test_it_holds_for_the_whole_order() -> None:
    assert flags("provision build --dry-run test") == [{"dry_run": True}] * 3
