"""Tasks as lines: sessions that tasks share, runs that are taken up, what a task is asked as."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import at_desk
from test_between_stages import good

from pipelines.core.errors import BuildError, HostError
from pipelines.core.files import sha256_of
from pipelines.core.observer import StopTaskError
from pipelines.fleet import executor
from pipelines.fleet.checks import HostChecks
from pipelines.fleet.executor import FleetPlan, HostExecutor
from pipelines.fleet.model import Task
from pipelines.fleet.workers import HostWorker, Result
from pipelines.plan.config.fleet import FleetSettings
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request
from pipelines.record.materials import Materials
from pipelines.record.run import Run
from pipelines.remote import identity
from pipelines.remote import provision as remote_provision
from pipelines.remote.jobs import follow as remote_follow
from pipelines.session.base import UnfitHostError
from pipelines.stages import build as build_stage

CELL = Task(key="pkg-cp", kind="cell", cell="pkg-cp", core_seconds=1)


class Fleet:
    """One host of a fleet, which is this process; and what its plans were asked for."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Any = None) -> None:
        self.line, self.session = at_desk(tmp_path, job or good(tmp_path))
        self.asked: list[Request] = []
        self.place = tmp_path
        self.folder = tmp_path / "fleet"
        self.folder.mkdir(exist_ok=True)
        settings = Config.model_validate(
            {"hosts": {"desk": {"kind": "local"}}, "out": str(tmp_path / "out")}
        )
        self.order = FleetPlan(settings, self.folder, {"pkg-cp": {"recipe": "pkg"}}, jobs=3)
        self.executor = self.again()

        def resolve(_: Config, request: Request, **__: Any) -> Any:
            self.asked.append(request)
            return self.line.plan

        monkeypatch.setattr(executor, "resolve_build_plan", resolve)

    def again(self) -> HostExecutor:
        """As another process would have it."""
        hosts = HostChecks(FleetSettings(free_gib=0), self.folder, ["desk"])
        return HostExecutor("desk", self.order, hosts, CELL)

    def do(self, task: Task = CELL) -> Result:
        done = Result()
        self.executor.do(task, done)
        return done


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(tmp_path, monkeypatch)


def test_works_share_a_session_and_what_is_ready(fleet: Fleet) -> None:
    fleet.executor.reach()
    first = fleet.do()
    second = fleet.do(CELL.model_copy(update={"key": "other"}))
    assert fleet.line.plan.host.connects == 1  # type: ignore[attr-defined]
    assert fleet.session.times(identity.identity) == 1
    assert fleet.session.times(remote_provision.check_all) == 1
    assert first.run != second.run
    (wheel,) = Path(first.run, "wheels").iterdir()
    assert first.details["sha256"] == sha256_of(wheel)
    assert fleet.order.runs == {"pkg-cp": first.run, "other": second.run}
    fleet.executor.close(stop=True)
    assert fleet.session.closed == 1


def test_a_host_that_is_unfit_is_looked_at_again_before_it_is_used(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = [UnfitHostError("its clock"), UnfitHostError("its clock")]

    def look(*_: Any) -> None:
        if reasons:
            raise reasons.pop()

    monkeypatch.setattr(HostChecks, "look", look)
    worker = HostWorker("desk", fleet.executor, fleet.folder)
    assert worker.reach().why == "its clock"
    ended = worker.begin(CELL, 1)()
    assert (ended.outcome, ended.gone, ended.run) == ("lost", True, "")
    assert worker.reach().why == ""
    assert worker.begin(CELL, 2)().outcome == "done"


@pytest.mark.slow
def test_who_goes_on_takes_up_the_run_that_was_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = good(tmp_path)
    left = [StopTaskError()]

    def job(spec: dict[str, Any]) -> Any:
        yield b"[1/2] a.cu\n"
        if left:
            raise left.pop()
        yield from whole(spec)

    made = Fleet(tmp_path, monkeypatch, job)
    first = HostWorker("desk", made.executor, made.folder).begin(CELL, 1)()
    assert (first.outcome, first.error) == ("left", None)
    for _ in range(60):  # many others began in the meantime
        Run.create(tmp_path / "out", made.line.plan.facts.model_copy(update={"jobs": 7})).close()
    made.executor = made.again()
    second = HostWorker("desk", made.executor, made.folder).begin(CELL, 1)()
    assert (second.outcome, second.run) == ("done", first.run)


def test_a_pointer_to_somewhere_else_is_not_followed(fleet: Fleet, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "record.sqlite").touch()
    (fleet.folder / "pkg-cp@desk.run").write_text("../stranger")
    assert Path(fleet.do().run).parent == tmp_path / "out"


def test_another_tool_chain_is_refused_before_anything_is_sent(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        build_stage, "collect_materials", lambda *_: Materials({"toolset": {"label": "MSVC 14.51"}})
    )
    plan = fleet.line.plan
    group = "/".join((plan.target.python, plan.recipe.api, plan.recipe.cuda))
    HostChecks(FleetSettings(), fleet.folder, ["desk", "lab"]).agree(
        "lab", group, Materials({"toolset": {"label": "MSVC 14.44"}})
    )
    worker = HostWorker("desk", fleet.executor, fleet.folder)
    assert worker.reach().why == ""
    ended = worker.begin(CELL, 1)()
    assert (ended.outcome, ended.gone) == ("lost", True)
    assert ended.error is not None
    assert "MSVC 14.51, there MSVC 14.44" in ended.error.message
    assert fleet.session.sent == []
    assert "MSVC 14.51" in worker.reach().why, (
        "or it would come back, and lose the next task as well"
    )


def test_what_a_task_is_asked_as(fleet: Fleet) -> None:
    fleet.executor.plan(CELL)
    share = CELL.model_copy(update={"key": "pkg-cp/2of3", "kind": "shard"})
    fleet.executor.plan(share)
    link = CELL.model_copy(update={"kind": "link", "after": ("pkg-cp/1of3", "pkg-cp/2of3")})
    with pytest.raises(BuildError, match=r"after pkg-cp/1of3, pkg-cp/2of3, which has no run"):
        fleet.executor.plan(link)
    fleet.order.runs.update({"pkg-cp/2of3": "/out/two", "pkg-cp/1of3": "/out/one"})
    fleet.executor.plan(link)
    axes = {"recipe": "pkg", "host": "desk"}
    assert fleet.asked == [
        Request(axes=axes, jobs=3),
        Request(axes=axes, jobs=3, share="2/3"),
        Request(axes=axes, jobs=3, objects=("/out/one", "/out/two")),
    ]


def test_a_test_is_of_the_wheel_that_the_fleet_built(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[str] = []
    monkeypatch.setattr(executor, "run_test", lambda line, run: tested.append(run))
    test = CELL.model_copy(update={"key": "pkg-cp/test", "kind": "test", "after": ("pkg-cp",)})
    with pytest.raises(BuildError, match="after pkg-cp, which has no run"):
        fleet.do(test)
    built = fleet.do()
    fleet.do(test)
    assert tested == [built.run]


def test_what_was_left_on_a_host_is_ended_there(fleet: Fleet) -> None:
    """By the run that a pointer names, also of a process that is no more."""
    ended: list[str] = []

    def cancel(directory: str) -> None:
        ended.append(directory)

    fleet.session.answers[remote_follow.cancel] = cancel
    fleet.executor.withdraw(CELL)
    assert ended == [], "nothing was begun here"
    run = Run(Path(fleet.do().run))
    fleet.again().withdraw(CELL)
    job = run.job("build")
    assert job is not None
    assert ended == [job.directory]
    run.put_job("build", job.model_copy(update={"host": "lab"}))
    fleet.again().withdraw(CELL)
    assert ended == [job.directory], "that job is another host's"


def test_a_connection_that_was_lost_is_not_taken_for_one(fleet: Fleet) -> None:
    fleet.executor.reach()
    fleet.executor.unblock()
    assert fleet.session.closed == 1
    fleet.do()
    assert fleet.line.plan.host.connects == 2  # type: ignore[attr-defined]
    assert fleet.session.times(identity.identity) == 2, "it is looked at again"


def test_a_host_that_cannot_be_reached_says_so(fleet: Fleet) -> None:
    fleet.do()
    assert fleet.executor.reachable()

    def connect() -> Any:
        raise HostError("no route")

    fleet.line.plan.host.connect = connect  # type: ignore[method-assign]
    assert not fleet.executor.reachable()


def test_a_look_does_not_break_the_connection_of_another_task(fleet: Fleet) -> None:
    plan = fleet.executor.plan(CELL)
    with fleet.executor.sessions.shared(plan):
        assert fleet.executor.reachable()
        assert fleet.session.closed == 0
    assert fleet.executor.reachable()
    assert fleet.session.closed == 1


def test_each_slot_plans_with_its_part(fleet: Fleet) -> None:
    host = fleet.order.settings.hosts["desk"].model_copy(update={"slots": 4})
    settings = fleet.order.settings.model_copy(update={"hosts": {"desk": host}})
    fleet.order = replace(fleet.order, settings=settings)
    executor = fleet.again()
    facts, _ = executor.survey()
    with executor.sessions.shared(executor.plan(CELL)) as shared:
        part = shared.session.facts
    assert part["cpus"] == max(1, facts["cpus"] // 4)
    whole, mine = facts["memory"], part["memory"]
    assert whole is not None
    assert mine is not None
    assert mine["total"] == whole["total"] // 4
