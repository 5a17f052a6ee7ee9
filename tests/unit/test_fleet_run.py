"""A fleet from its request to its end; and what a ledger calls done though it is not there."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleets import cell, end, machine
from plans import LAB

from pipelines.core.console import say
from pipelines.core.errors import BuildError, ConfigError, HostError
from pipelines.core.observer import check_stop
from pipelines.core.paths import PACKAGE
from pipelines.core.target import Target
from pipelines.core.units import GIB
from pipelines.fleet import run as fleet_run
from pipelines.fleet.executor import FleetPlan
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Task
from pipelines.fleet.run import FleetError, FleetRequest, open_ledger, redo_lost, run_fleet
from pipelines.fleet.terminal import LiveView
from pipelines.fleet.workers import Result
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.plan import Plan, plan_matrix
from pipelines.recipe.load import load_recipe
from pipelines.recipe.origin import PathSource
from pipelines.record.results import (
    AuditedFile,
    AuditResult,
    CollectResult,
    FileResult,
    RunFacts,
    StageResult,
)
from pipelines.record.run import Run
from pipelines.toolchain.lock import load_lock


def ran(out: Path, key: str, *, share: bool = False, audit: bool = True) -> Path:
    """A run that has come to its end: its file is home, and was looked into."""
    run = Run.create(out, RunFacts(target=Target(host="a", recipe="r", version=key)))
    name = f"objects/{key}" if share else f"wheels/{key}.whl"
    file = run.path / name
    file.parent.mkdir()
    file.write_bytes(key.encode())
    sha256 = hashlib.sha256(key.encode()).hexdigest()
    results: list[StageResult] = [
        CollectResult(files=(FileResult(path=name, size=file.stat().st_size, sha256=sha256),))
    ]
    if audit and not share:
        results.append(AuditResult(files=(AuditedFile(file=file.name, sha256=sha256),)))
    for result in results:
        with run.stage(result.stage) as log:
            log.keep(result)
    run.close()
    return run.path


@pytest.fixture
def fleet(tmp_path: Path) -> Any:
    """A ledger with a done cell ``c``, and a divided one whose link is done."""
    ledger = Ledger.create(tmp_path, "order")
    shares = [cell(f"d/{n}of2", kind="shard", hosts=("a",)) for n in (1, 2)]
    link = cell("d", kind="link", after=tuple(one.key for one in shares), hosts=("a",))
    tasks = [cell("c", hosts=("a",)), *shares, link]
    ledger.put(tasks, [machine("a")], 1.0)
    with ledger.change(2.0) as change:
        for entry in ledger.tasks():
            task = entry.task
            run = ran(tmp_path, task.key.replace("/", "-"), share=task.kind == "shard")
            change.begin(task.key, 1, "a")
            change.end(end(task.key, "a", run=str(run)))
            change.task(entry, state="done", host="a", attempt=1)
    yield ledger
    ledger.close()


def run_of(ledger: Ledger, key: str) -> Path:
    return Path(next(one.run for one in ledger.attempts() if one.key == key))


def states(ledger: Ledger) -> dict[str, str]:
    return {one.task.key: one.state for one in ledger.tasks()}


def test_what_is_as_it_was_made_stays_done(fleet: Ledger) -> None:
    assert redo_lost(fleet, 3.0) == {}
    assert set(states(fleet).values()) == {"done"}


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (shutil.rmtree, "is gone"),
        (lambda run: (run / "wheels/c.whl").unlink(), r"c\.whl is not in its run"),
        (
            lambda run: (run / "wheels/c.whl").write_bytes(b"other"),
            "is not the file that was built",
        ),
    ],
)
def test_a_wheel_that_is_not_there_is_built_again(
    fleet: Ledger, harm: Callable[[Path], object], said: str
) -> None:
    harm(run_of(fleet, "c"))
    lost = redo_lost(fleet, 3.0)
    assert [*lost] == ["c"]
    assert re.search(said, lost["c"])
    assert states(fleet) == {"c": "waiting", "d/1of2": "done", "d/2of2": "done", "d": "done"}
    assert fleet.events()[-1].what == "not there"


def test_a_wheel_that_is_built_again_is_tested_again(fleet: Ledger, tmp_path: Path) -> None:
    task = cell("c/test", kind="test", after=("c",), hosts=("a",)).model_copy(update={"cell": "c"})
    fleet.put([task], [machine("a")], 3.0)
    with fleet.change(3.0) as change:
        (entry,) = (one for one in fleet.tasks() if one.task.key == task.key)
        change.begin(task.key, 1, "a")
        change.end(end(task.key, "a", run=str(run_of(fleet, "c"))))
        change.task(entry, state="done", host="a", attempt=1)
    assert redo_lost(fleet, 4.0) == {}
    (run_of(fleet, "c") / "wheels/c.whl").unlink()
    assert [*redo_lost(fleet, 5.0)] == ["c", "c/test"]
    assert states(fleet)["c/test"] == "waiting"


def test_a_wheel_that_no_audit_let_pass_is_built_again(fleet: Ledger, tmp_path: Path) -> None:
    run = ran(tmp_path, "unaudited", audit=False)
    with fleet.change(3.0) as change:
        change.end(end("c", "a", run=str(run)))
    assert "no wheel that passed" in redo_lost(fleet, 4.0)["c"]


def test_shares_are_wanted_only_for_a_link_that_is_to_be_done(fleet: Ledger) -> None:
    shutil.rmtree(run_of(fleet, "d/1of2"))
    assert redo_lost(fleet, 3.0) == {}
    shutil.rmtree(run_of(fleet, "d"))
    assert [*redo_lost(fleet, 3.0)] == ["d", "d/1of2"]


def test_of_two_that_begin_at_once_one_is_refused(tmp_path: Path) -> None:
    """The same command in two terminals is one fleet, not two."""
    ready, held, refused = threading.Barrier(8), [], []

    def begin() -> None:
        ready.wait()
        try:
            held.append(open_ledger(tmp_path / "out", "order"))
        except ConfigError as error:
            refused.append(error.message)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for ledger in held:
        with contextlib.suppress(Exception):
            ledger.close()
    assert (len(held), len(refused)) == (1, 7)
    assert len([*(tmp_path / "out").glob("fleet-*")]) == 1


class Executor:
    """A host at which everything is done at once, but for what is to fail."""

    failing = ""
    unset: tuple[str, ...] = ()
    blocked = False

    def __init__(self, name: str, plan: FleetPlan, *_: object) -> None:
        self.name, self.plan = name, plan

    def survey(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        if self.name in self.unset:
            raise ConfigError(f"{self.name} has no password", hint="Set it.")
        if self.name == "lab2":
            raise HostError("no route")
        return {"cpus": 8, "memory": {"total": 64 * GIB, "available": 60 * GIB}}, ()

    def reach(self) -> None:
        if self.name == "lab2":
            raise HostError("no route")

    def do(self, task: Task, result: Result) -> None:
        say(f"building {task.key}")
        while self.blocked:
            check_stop()
        if self.failing and self.failing in task.key:
            raise BuildError("error C2065")
        self.plan.runs[task.key] = result.run = str(ran(self.plan.folder.parent, task.key[-4:]))

    def unblock(self) -> None:
        """Nothing waits for it."""

    def close(self, *, stop: bool) -> None:
        """Nothing was started."""


def request(out: Path, **axes: str) -> FleetRequest:
    hosts = {"lab1": LAB, "lab2": LAB}
    settings = Config.model_validate({"hosts": hosts, "out": str(out), "offline": True})

    def plan(name: str, facts: HostFacts | None) -> Plan:
        return plan_matrix(settings, Request(axes={**axes, "host": name}), facts=facts)

    return FleetRequest(settings, Request(axes=axes), plan)


def test_a_host_without_its_password_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet_run, "HostExecutor", Executor)
    monkeypatch.setattr(Executor, "unset", ("lab2",))
    run_fleet(request(tmp_path, python="3.11", archs="80"))
    assert "lab2 is left out: lab2 has no password. Set it." in capsys.readouterr().out
    monkeypatch.setattr(Executor, "unset", ("lab1", "lab2"))
    with pytest.raises(ConfigError, match="has no password"):
        run_fleet(request(tmp_path, python="3.12", archs="80"))


def test_a_fleet_from_its_request_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet_run, "HostExecutor", Executor)
    asked = request(tmp_path, python="3.11,3.12", archs="80")
    monkeypatch.setattr(Executor, "failing", "cp312")
    with pytest.raises(
        FleetError, match=r"1 of 2 tasks are not done: .*cp312.* \(failed\)"
    ) as caught:
        run_fleet(asked)
    assert caught.value.exit_code == BuildError.exit_code
    said = capsys.readouterr().out
    assert "lab2 is set aside: no route" in said
    assert "cp311-cu130 done on lab1" in said
    assert "building" not in said, "that is in the task's own log"
    (folder,) = tmp_path.glob("fleet-*")
    assert "0 of 2 runs passed" in (folder / "report.html").read_text("utf-8")
    with contextlib.closing(Ledger(folder)) as ledger:
        ledger.order("retry", next(k for k in states(ledger) if "cp312" in k), at=5.0)
        with ledger.change(5.0) as change:
            change.fact("ended", "")
    monkeypatch.setattr(Executor, "failing", "")
    assert run_fleet(asked) == folder
    said = capsys.readouterr().out
    assert f"resuming {folder.name}" in said
    assert f"{folder.name}: 2 done" in said


def test_what_was_built_of_other_inputs_is_of_another_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(PACKAGE / "examples/smoke_attention", tree)
    shipped = load_recipe("smoke-attention")
    recipe = shipped.model_copy(update={"source": PathSource(path=str(tree))})
    asked = request(tmp_path, python="3.11", archs="80")
    first = asked.hash_of(recipe)
    assert asked.hash_of(recipe) == first
    assert asked.hash_of(recipe.model_copy(update={"environment": {"A": "1"}})) != first
    lock = load_lock()
    with monkeypatch.context() as patch:
        patch.setattr(fleet_run, "load_lock", lambda: lock.model_copy(update={"images": {}}))
        assert asked.hash_of(recipe) != first
    (tree / "setup.py").write_text(f"{(tree / 'setup.py').read_text('utf-8')}# edited\n")
    assert asked.hash_of(recipe) != first


def test_an_interrupted_fleet_is_resumed_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet_run, "HostExecutor", Executor)
    asked = request(tmp_path, python="3.11", archs="80")

    def interrupt(ledger: Ledger, *_: object, **__: object) -> None:
        if "running" in states(ledger).values():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "blocked", True)
        patch.setattr(fleet_run, "fleet_state", interrupt)
        patch.setattr(LiveView, "update", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            run_fleet(asked)
    assert "the same command resumes fleet-" in capsys.readouterr().out
    with contextlib.closing(Ledger(run_fleet(asked))) as ledger:
        assert [one.outcome for one in ledger.attempts()] == ["left", "done"]
