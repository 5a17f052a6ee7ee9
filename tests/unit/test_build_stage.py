"""The build as a stage: what the host is asked for, what is kept of it, how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from plans import Lab, at_desk, changed, having, job_of, plan_for, wanting
from sessions import Here
from wheels import wheel_here

from pipelines.core.errors import AuthError, BuildError, HostError, RemoteError, TimeUpError
from pipelines.core.evidence import Origin
from pipelines.core.toolsets import MSVC, STUB
from pipelines.diagnosis import load_catalogue
from pipelines.hosts.base import Supply
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.plan.provisioning.thresholds import load_thresholds
from pipelines.recipe.load import load_recipe
from pipelines.record.results import BuildResult, ProvisionResult, ResourceResult, Units
from pipelines.remote import builder
from pipelines.remote import facts as remote_facts
from pipelines.remote.jobs import launch, prune
from pipelines.stages import build as stage
from pipelines.stages.buildspec import build_environment, build_spec
from pipelines.stages.hooks import FEATURES, BuildHooks
from pipelines.stages.line import BUILD, Line
from pipelines.stages.pace import job_budget
from pipelines.toolchain.compilecache import RedisCache

MEMORY = b"layout_composed.hpp(478): catastrophic error : out of memory\n"
TOOLSET = (
    b"#error: -- unsupported Microsoft Visual Studio version! "
    b"Only the versions between 2017 and 2022 (inclusive) are supported!\n"
)
LONG = b"ninja: error: Stat(C:/Users/x/flash_api.obj): Filename longer than 260 characters\n"


class Rounds:
    """A build on the host: what it does each time that it is run, and what it was given."""

    def __init__(self, *rounds: tuple[Any, ...]) -> None:
        self.rounds = list(rounds)
        self.specs: list[dict[str, Any]] = []

    def __call__(self, spec: dict[str, Any]) -> Iterator[Any]:
        self.specs.append(spec)
        for item in self.rounds.pop(0):
            if isinstance(item, BaseException):
                raise item
            yield item


def left(path: Path) -> dict[str, Any]:
    """A good end: this wheel."""
    return {"exit": 0, "wheels": [builder.left(wheel_here(path))]}


def built(line: Line) -> BuildResult:
    """The build in a run of its own."""
    line.begin_run()
    done = line.do(BUILD)
    assert isinstance(done, BuildResult)
    line.run.close()
    return done


def kept(line: Line) -> BuildResult:
    found = line.run.result(BuildResult)
    assert found is not None
    return found


def failed(line: Line, kind: type[BaseException], said: str = "^") -> BuildResult:
    """What is kept of a build that does not succeed."""
    with pytest.raises(kind, match=said):
        built(line)
    line.run.close()
    return kept(line)


def test_room_is_made_before_anything_is_sent(tmp_path: Path) -> None:
    """Down to where the doctor stops to warn, and not of what this very build would go on with."""
    sent: list[str] = []

    def make_room(**order: Any) -> list[str]:
        asked.update(order)
        sent.extend(session.sent)
        return ["C:/b/old"]

    asked: dict[str, Any] = {}
    line, session = at_desk(
        tmp_path, Rounds((left(tmp_path),)), answers={prune.make_room: make_room}
    )
    done = built(line)
    assert asked["root"] == line.plan.layout.build_root
    environment = Path(sys.executable).parent.parent.name
    assert asked["keep"] == [done.job, environment, "restart.json"]
    assert asked["least"] == load_thresholds().host_disk.warn * (1 << 30)
    assert sent == []
    assert session.sent


# -- what is healed --------------------------------------------------------------------------------


def test_a_healed_toolset_reaches_the_host(tmp_path: Path) -> None:
    host = Rounds((TOOLSET, {"exit": 1}), (left(tmp_path),))
    line, session = at_desk(tmp_path, host)
    done = built(line)
    assert [spec["toolset"] for spec in host.specs] == ["", "14.44"]
    assert (done.attempt, done.exit) == (2, 0), "another attempt, not the result of the first"
    assert "toolset 14.44" in done.story[0]
    bills = [json.loads(spec["bill"])["components"] for spec in host.specs]
    told = [[row.get("version") for row in bill if row["bom-ref"] == "tool set"] for bill in bills]
    assert told == [[None], ["14.44"]]
    assert done.bill == host.specs[1]["bill"]
    assert kept(line) == done
    assert session.times(launch.start) == 2


def test_healed_settings_reach_the_host(tmp_path: Path) -> None:
    host = Rounds((MEMORY, {"exit": 1}), (LONG, {"exit": 1}), (left(tmp_path),))
    line, _ = at_desk(tmp_path, host)
    line.plan = changed(line.plan, jobs=8)
    done = built(line)
    first, fewer, shorter = host.specs
    assert [spec["environment"]["MAX_JOBS"] for spec in host.specs] == ["8", "4", "4"]
    assert first["directory"] == fewer["directory"] == done.directory
    assert shorter["directory"] == rf"C:\b/{done.job}"
    assert shorter["environment"]["TEMP"] == r"C:\t"
    assert {spec["archive"] for spec in host.specs} == {first["archive"]}


def test_a_build_fails_also_where_nothing_heals_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FEATURES, BuildHooks, ())
    host = Rounds((MEMORY, {**left(tmp_path), "exit": 1}))
    failed(at_desk(tmp_path, host)[0], BuildError)
    assert len(host.specs) == 1


def test_what_is_lost_while_it_is_healed_keeps_what_is_known(tmp_path: Path) -> None:
    refused = AuthError("refused")
    line, _ = at_desk(tmp_path, Rounds((MEMORY, {"exit": 1}), (refused,)))
    line.plan = changed(line.plan, jobs=8)
    known = failed(line, AuthError)
    assert known.tail[0].startswith("layout_composed.hpp(478)")
    assert len(known.healed) == 1


# -- how it ends -----------------------------------------------------------------------------------


def test_a_build_whose_time_is_up(tmp_path: Path) -> None:
    """It has no outcome: nothing is healed, the next command goes on from it."""
    up = {"exit": 1, "timed_out": True}
    host = Rounds((MEMORY + b"[3/9] a.cu\n", up), (b"[9/9] z.cu\n", left(tmp_path)))
    line, _ = at_desk(tmp_path, host)
    line.plan = changed(line.plan, minutes=14.0)
    known = failed(line, TimeUpError, r"after 14 minutes \(--minutes\) with 3 of 9 units")
    assert (known.timed_out, known.healed) == (True, ())
    assert host.specs[0]["timeout"] == 14 * 60
    first = line.run.id
    done = built(line)
    assert line.run.id == first, "the run is gone on with"
    assert (done.attempt, done.units) == (2, Units(done=9, total=9))
    log = (line.run.path / stage.LOG).read_bytes()
    assert log == MEMORY + b"[3/9] a.cu\n[9/9] z.cu\n"


def test_what_is_known_is_kept_when_it_is_left(tmp_path: Path) -> None:
    host = Rounds((b"one\n", b"[3/9] a.cu\n", KeyboardInterrupt()))
    line, _ = at_desk(tmp_path, host)
    known = failed(line, KeyboardInterrupt)
    assert known.tail == ("one", "[3/9] a.cu")
    assert (known.units, known.attempt, known.exit) == (Units(done=3, total=9), 1, None)
    facts = line.run.facts()
    assert (facts.job, facts.source_sha256) == (known.job, known.source_sha256)
    assert known.source_sha256


def test_a_host_that_is_lost_before_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(*_: object, **__: object) -> str:
        raise HostError("gone")

    monkeypatch.setattr(Here, "put", put)
    line, _ = at_desk(tmp_path)
    known = failed(line, HostError, "gone")
    assert known.directory == f"{line.plan.layout.build_root}/{known.job}"
    assert line.run.facts().job == known.job


def test_a_host_that_cannot_start_it(tmp_path: Path) -> None:
    def start(**_: object) -> None:
        raise RemoteError("no such thing", kind="OSError")

    line, _ = at_desk(tmp_path, answers={launch.start: start})
    failed(line, BuildError, "could not be run: no such thing")


def test_a_host_without_the_toolset(tmp_path: Path) -> None:
    sample = load_catalogue().by_id["toolset-absent"].sample

    def start(**_: object) -> None:
        raise RemoteError(f"vcvarsall.bat exited with 1: {sample}", kind="RuntimeError")

    line, _ = at_desk(tmp_path, answers={launch.start: start})
    with pytest.raises(BuildError) as caught:
        built(line)
    assert caught.value.hint == load_catalogue().by_id["toolset-absent"].hint


@pytest.mark.parametrize("lie", [{}, {"exit": "no"}, {"exit": 0, "wheels": [{"path": "w"}]}])
def test_a_host_that_tells_nonsense(tmp_path: Path, lie: dict[str, Any]) -> None:
    line, _ = at_desk(tmp_path, Rounds((lie,)))
    failed(line, HostError, "an invalid build result")


def test_what_is_not_relied_on_may_be_nonsense(tmp_path: Path) -> None:
    said = {"timeline": {"units": "x"}, "cache": {"hits": 1, "none": None, "odd": [1]}}
    host = Rounds((b"[" + b"9" * 5000 + b"/9] a.cu\n", left(tmp_path) | said))
    line, _ = at_desk(tmp_path, host)
    done = built(line)
    assert done.timeline is None
    assert done.cache == {"hits": 1, "odd": "[1]"}
    assert done.units == Units()


def test_a_crate_leaves_no_wheel(tmp_path: Path) -> None:
    library = load_recipe("candle-flash-attn").library
    host = Rounds(({"exit": 0, "library": {"path": "l", "size": 1, "sha256": "0" * 64}},))
    line, session = at_desk(tmp_path, host, kind="cargo", library=library)
    folder = tmp_path / "tree" / "candle-flash-attn" / "kernels"
    folder.mkdir(parents=True)
    (folder / "a.cu").touch()
    done = built(line)
    assert done.library is not None
    assert done.library.path == "l"
    (job,) = session.jobs.values()
    assert job["spec"]["function"] == "cargo.build"


# -- what is done once -----------------------------------------------------------------------------


def test_a_build_that_is_there_is_taken_while_it_is_whole(tmp_path: Path) -> None:
    wheel, library = left(tmp_path), tmp_path / "a.lib"
    library.write_bytes(b"1")
    end = wheel | {"library": builder.left(library)}
    host = Rounds(*[(b"x\n", end)] * 3)
    line, session = at_desk(tmp_path, host)
    first, again = built(line), built(line)
    assert (first.kept, again.kept) == (False, True)
    assert again.wheels == first.wheels
    assert len(host.specs) == 1
    library.write_bytes(b"2")
    assert not built(line).kept
    Path(first.wheels[0].path).unlink()
    assert not built(line).kept
    assert len(host.specs) == 3
    assert len(session.sent) == 1, "the source is there already"
    Path(session.sent[0]).write_bytes(b"something else")
    library.write_bytes(b"3")
    host.rounds.append((b"x\n", end))
    built(line)
    assert len(session.sent) == 2, "what was changed there is not built"


def test_a_build_that_failed_is_no_result(tmp_path: Path) -> None:
    end = left(tmp_path)
    host = Rounds((b"odd\n", end | {"exit": 3}), (b"well\n", end))
    line, _ = at_desk(tmp_path, host)
    failed(line, BuildError, "status 3")
    assert not built(line).kept
    assert (line.run.path / stage.LOG).read_bytes() == b"well\n"


# -- secrets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sccache", ["", "/opt/sccache"])
def test_secrets_go_to_the_process_that_builds_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sccache: str
) -> None:
    """And not even there when it has no compile cache."""
    monkeypatch.setattr("pipelines.core.hosttext._secrets", set())
    monkeypatch.setenv("SCCACHE_REDIS_PASSWORD", "correct-horse")
    line, session = at_desk(tmp_path, Rounds((left(tmp_path),)))
    redis = RedisCache(kind="redis", endpoint="redis://r:1")
    line.plan = changed(line.plan, compile_cache=redis)
    wanting(line, sccache=sccache)
    built(line)
    (job,) = session.jobs.values()
    sent = {"SCCACHE_REDIS_PASSWORD": "correct-horse"} if sccache else {}
    assert job["secrets"] == sent
    assert "correct-horse" not in json.dumps(job["spec"])
    record = line.run.job("build")
    assert record is not None
    assert (record.failed, record.way) == ({}, "here")
    assert b"correct-horse" not in (line.run.path / "record.sqlite").read_bytes()


# -- what the host is asked for --------------------------------------------------------------------


def environment_found(**values: str) -> ProvisionResult:
    row = ResourceResult(
        id="environment", kind="distributions", wanted="w", found="f", ok=True, values=values
    )
    return ProvisionResult(resources=(row,))


def test_what_was_found_on_the_host_names_the_job(tmp_path: Path) -> None:
    """Another torch there makes another wheel, so it is another build."""
    jobs = set()
    for torch in ("2.8", "2.9"):
        line, _ = at_desk(tmp_path, Rounds((left(tmp_path),)))
        having(line, environment_found(torch=torch))
        done = line.do(BUILD)
        assert isinstance(done, BuildResult)
        jobs.add(done.job)
    assert len(jobs) == 2


def test_what_was_never_compared_names_another_job(tmp_path: Path) -> None:
    """A repair may put back what was wrong: a wheel from before it is not taken."""
    plan = lab_plan(tmp_path)
    row = ResourceResult(id="CUDA", kind="archive", wanted="w", found="f", ok=True)
    compared = row.model_copy(update={"sha256": {"nvcc": "0" * 64}})
    names = [
        job_of(plan, "source", ProvisionResult(resources=rows))
        for rows in ((row,), (compared,), ())
    ]
    assert names[0] != names[1] == names[2]


def lab_plan(tmp_path: Path, **axes: str) -> BuildPlan:
    return changed(plan_for(tmp_path, Lab(Here()), **axes))


def test_a_tool_of_another_sha256_names_another_job(tmp_path: Path) -> None:
    plan = lab_plan(tmp_path)
    names = []
    for tool in ("uv", "ninja"):
        wanted = DesiredResource("x", "w", {"kind": "archive"}, {tool: "C:\\x"}, "s")
        names.append(job_of(changed(plan, wanted), "source", None))
    assert len(set(names)) == 2
    assert job_of(plan, "source", None) not in names
    assert job_of(plan, "another", None) != job_of(plan, "source", None)


def test_another_tool_set_names_another_job(tmp_path: Path) -> None:
    """Also where the package's own build takes no local version."""
    plan = lab_plan(tmp_path)
    names = set()
    others = (replace(MSVC, version="14.38"), replace(MSVC, version="14.38", files="another SDK"))
    for tools in (MSVC, STUB, *others):
        supply = Supply(toolset=tools, origin="x")
        names.add(job_of(changed(plan, supply=partial(replace, supply)), "source", None))
    assert len(names) == 4


def test_what_a_host_is_made_of_names_another_job(tmp_path: Path) -> None:
    """A container's builds lie in a volume, which its next image finds; libc++ is put to them."""
    names = set()
    for origin in (Origin(), Origin(image="sha256:1"), Origin(image="sha256:1", image_key="k")):
        made = type("Made", (Lab,), {"origin": origin})
        names.add(job_of(changed(plan_for(tmp_path, made(Here()))), "source", None))
    assert len(names) == 3


def test_what_a_windows_host_is_asked_for(tmp_path: Path) -> None:
    plan = changed(without_promise(lab_plan(tmp_path)), minutes=2.5)
    spec = build_spec(plan, r"C:\b\j", "a", "", 4)
    assert spec["timeout"] == 150
    assert spec["python"] == plan.layout.python
    assert "steps" not in spec
    assert spec["cache"]["nvcc"] == rf"{plan.layout.cuda}\bin\nvcc.exe"
    assert spec["cache"]["pinned"]
    assert spec["cache"]["place"].startswith(plan.layout.build_root)
    assert "fixed" not in spec
    forever = changed(plan, minutes=None)
    assert build_spec(forever, r"C:\b\j", "a", "", 4)["timeout"] is None
    desk = without_promise(wanting(at_desk(tmp_path)[0], sccache="/s").plan)
    cache = build_spec(desk, "/b/j", "a", "", 4)["cache"]
    assert (cache["pinned"], cache["nvcc"].endswith("/bin/nvcc")) == (False, True)


def without_promise(plan: BuildPlan) -> BuildPlan:
    """The plan without ``reproducible: true``."""
    return changed(plan, recipe=plan.recipe.model_copy(update={"reproducible": False}))


def test_a_reproducible_build_has_a_place_and_no_cache(tmp_path: Path) -> None:
    plan = changed(lab_plan(tmp_path))
    spec = build_spec(plan, r"C:\b\j", "a", "", 4)
    assert (spec["fixed"], spec["cache"]) == (plan.layout.fixed, None)


@pytest.mark.parametrize(
    ("keys", "cached"),
    [
        ({"cuda": "13.2"}, True),
        ({"cuda": "13.3"}, False),
        ({"cuda": "13.4"}, False),
        ({"compile_cache": False}, False),
    ],
)
def test_no_cache_where_sccache_would_fail(
    tmp_path: Path, keys: dict[str, Any], cached: bool
) -> None:
    plan = without_promise(lab_plan(tmp_path))
    plan = changed(plan, recipe=plan.recipe.model_copy(update=keys))
    assert (build_spec(plan, r"C:\b\j", "a", "", 4)["cache"] is not None) is cached
    assert not load_recipe("sageattention").compile_cache


def test_a_crate_is_asked_for_with_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = ["candle-flash-attn/kernels/a.cu"]
    monkeypatch.setattr("pipelines.recipe.sourcetree.SourceTree.names", lambda *_: kernels)
    plan = lab_plan(tmp_path, recipe="candle-flash-attn", archs="90")
    spec = build_spec(plan, r"C:\b\j", "a", "0" * 64, 4)
    assert (spec["jobs"], spec["toolkit"]) == (4, plan.layout.cuda)
    assert "python" not in spec
    assert "sm_90" in json.dumps(spec["steps"])


def test_slow_units_are_built_first(tmp_path: Path) -> None:
    plan = lab_plan(tmp_path, recipe="flash-attn", archs="80")
    told = build_environment(plan, 4, 2)
    assert json.loads(told["WCW_SLOW_FIRST"]) == list(plan.recipe.slow_first)
    assert told["MAX_JOBS"] == "4"
    assert "WCW_SLOW_FIRST" not in build_environment(lab_plan(tmp_path), 4, 1)


HUGE = {"cpus": 6, "memory": {"total": 1 << 40}}


@pytest.mark.parametrize("costs", [True, False])
def test_jobs_that_are_asked_for_are_taken(tmp_path: Path, costs: bool) -> None:
    plan = lab_plan(tmp_path, recipe="flash-attn", archs="80")
    if not costs:
        plan = replace(plan, recipe=plan.recipe.model_copy(update={"costs": ()}))

    def jobs(asked: int | None) -> int:
        session = Here(answers={remote_facts.facts: HUGE})
        return job_budget(replace(plan, jobs=asked), LiveSession(Lab(session)))[0]

    assert (jobs(3), jobs(None)) == (3, 6)
