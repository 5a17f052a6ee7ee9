"""Provisioning as a stage: what is applied, uploaded, restarted; what is no success."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from plans import Lab, line_for, plan_for, wanting
from sessions import Function, Here

from pipelines.core.errors import ProvisionError, RemoteError, StorageError, TransferError
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.record.results import ProvisionResult, ResourceResult
from pipelines.remote import files, reboot
from pipelines.remote import provision as remote
from pipelines.stages.line import PROVISION, Line, run_provision
from pipelines.toolchain.lock import Cache, load_lock

MARKER = r"C:\t\restart.json"


def wanted(name: str, *tools: str, kind: str = "directory") -> DesiredResource:
    spec = {"kind": kind, "name": name}
    return DesiredResource(
        name, "a test", spec, {tool: rf"C:\t\{tool}" for tool in tools}, f"{name} 1"
    )


class Machine(Here):
    """A host: which resources are as they are wanted, which will be once they are applied."""

    def __init__(self, *good: str, stubborn: Sequence[str] = ()) -> None:
        self.free = 1 << 50
        self.others: list[str] = []
        """What a restart would end."""
        self.files: dict[str, Any] = {}
        answers: dict[Function, Any] = {
            remote.check_all: self.check_all,
            remote.apply_one: self.apply_one,
            remote.free_space: lambda path: self.free,
            reboot.interrupts: lambda root: self.others,
            files.stat: self.stat,
            files.sha256: lambda path: self.files[path]["sha256"],
        }
        super().__init__(answers=answers)
        self.good, self.stubborn = set(good), stubborn
        self.applied: list[str] = []
        self.outcome: dict[str, Any] = {}
        """What is said of what was applied."""
        self.said: dict[str, Any] = {}
        """What checks say as well."""
        self.arrived = ""
        """The sha256 of what is sent; that of the lock without one."""
        self.specs: list[dict[str, Any]] = []

    def stat(self, path: str) -> Any:
        return self.files.get(path)

    def row(self, name: str) -> dict[str, Any]:
        ok = name in self.good
        found = f"{name} is {'there' if ok else 'not'}"
        return {"ok": ok, "found": found, "values": {"v": found}, "plan": f"make {name}"}

    def check_all(self, specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.specs += specs
        return [{**self.row(spec["name"]), "error": "", **self.said} for spec in specs]

    def apply_one(self, spec: dict[str, Any], marker: str) -> dict[str, Any]:
        assert marker == MARKER
        self.specs.append(spec)
        self.applied.append(spec["name"])
        if spec["name"] not in self.stubborn:
            self.good.add(spec["name"])
        said = {"reboot": "", "error": "", "hint": "", "logs": []} | self.outcome
        return self.row(spec["name"]) | said

    def put(self, source: Path, target: str, **_: Any) -> str:
        self.sent.append(target)
        return self.arrived or load_lock().tool(target.rpartition("\\")[2]).sha256

    def get(self, source: str, target: Path, **_: Any) -> str:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("its log")
        return ""


class Windows(Lab):
    """Once it is restarted, nothing waits for that any more."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.prepared: list[int] = []

    def prepare(self, *, repair: bool = False) -> None:
        self.prepared.append(self.connects)

    def restart(self, session: Any) -> Any:
        self.session.good.add("restart")
        return super().restart(session)


def on(tmp_path: Path, machine: Machine, *resources: DesiredResource) -> Line:
    line = line_for(plan_for(tmp_path, Windows(machine)))
    wanting(line, *resources, marker=MARKER)
    line.begin_run()
    return line


def done(line: Line) -> tuple[ResourceResult, ...]:
    result = line.do(PROVISION)
    assert isinstance(result, ProvisionResult)
    assert line.run.result(ProvisionResult) == result
    return result.resources


def failed(line: Line, said: str) -> ProvisionResult:
    """What is kept of a provisioning that does not succeed."""
    with pytest.raises(ProvisionError, match=said):
        line.do(PROVISION)
    kept = line.run.result(ProvisionResult)
    assert kept is not None
    return kept


def test_only_what_differs_is_applied(tmp_path: Path) -> None:
    machine = Machine("first", "third")
    line = on(tmp_path, machine, wanted("first"), wanted("second"), wanted("third"))
    machine.outcome = {"reboot": "a driver"}
    rows = done(line)
    assert machine.applied == ["second"]
    assert isinstance(line.plan.host, Windows)
    assert line.plan.host.prepared == [0], "before it is connected to"
    assert [(row.id, row.ok, row.changed) for row in rows] == [
        ("first", True, False),
        ("second", True, True),
        ("third", True, False),
    ]
    assert rows[1].found == "second is not", "what it was before"
    assert rows[1].values == {"v": "second is there"}, "what is there now"
    assert rows[1].reboot == "a driver"


def test_a_dry_run_makes_no_image_and_no_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = on(tmp_path, Machine(), wanted("first"))
    monkeypatch.setattr(
        type(line.plan.host), "missing_image", lambda _: "the image is not there yet"
    )
    run_provision(line, dry_run=True)
    assert "the image is not there yet; then 1 resource would be" in capsys.readouterr().out
    assert getattr(line.plan.host, "connects", None) == 0


def test_a_dry_run_applies_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine("first")
    line = on(tmp_path, machine, wanted("first"), wanted("second"), wanted("third"))
    run_provision(line, dry_run=True)
    said = capsys.readouterr().out
    assert "make second" in said
    assert "make first" not in said
    assert "3 resources, 2 would change" in said
    assert machine.applied == []
    assert isinstance(line.plan.host, Windows)
    assert line.plan.host.prepared == []
    assert line.provisioned is None


def test_what_is_still_wrong_after_it_was_applied_is_no_success(tmp_path: Path) -> None:
    machine = Machine(stubborn=["second"])
    line = on(tmp_path, machine, wanted("first"), wanted("second"), wanted("third"))
    kept = failed(line, "second: expected second 1; after applying it the host still has second is")
    assert [row.ok for row in kept.resources] == [True, False, False], "the first is kept"
    assert machine.applied == ["first", "second"]


def test_what_refuses_is_told_with_its_logs(tmp_path: Path) -> None:
    machine = Machine(stubborn=["tool"])
    small, large, lost = r"C:\t\a.log", r"C:\t\b.log", r"C:\t\lost.log"
    machine.files = {small: {"size": 7}, large: {"size": 1 << 30}}
    machine.outcome = {"error": "exit code 5", "hint": "Close it.", "logs": [small, large, lost]}
    line = on(tmp_path, machine, wanted("tool"))
    failed(line, r"tool: expected tool 1, found tool is not, and it could not be changed: exit")
    error = line.run.stages()["provision"].error
    assert error is not None
    assert error.hint == "Close it."
    folder = line.plan.out / "provision/lab/tool"
    assert f"Logs: {folder}" in error.message
    assert [path.name for path in folder.iterdir()] == ["a.log"]


def test_logs_that_cannot_be_had_do_not_hide_the_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(stubborn=["tool"])

    def stat(path: str) -> None:
        raise RemoteError("not allowed", kind="PermissionError")

    machine.answers[files.stat] = stat
    machine.outcome = {"error": "exit code 5", "logs": [r"C:\t\a.log"]}
    kept = failed(on(tmp_path, machine, wanted("tool")), "exit code 5")
    assert not kept.resources[0].ok
    assert "a.log could not be downloaded: not allowed" in capsys.readouterr().out


def test_a_function_that_breaks_is_a_resource_that_failed(tmp_path: Path) -> None:
    machine = Machine()

    def apply(**_: Any) -> None:
        raise RemoteError("OSError: odd", kind="OSError")

    machine.answers[remote.apply_one] = apply
    failed(on(tmp_path, machine, wanted("tool")), "could not be changed: OSError: odd")


# -- restarts --------------------------------------------------------------------------------------

RESTART = wanted("restart", kind="reboot")


def test_windows_is_restarted_if_something_waits_for_that(tmp_path: Path) -> None:
    machine = Machine("first")
    line = on(tmp_path, machine, wanted("first"), RESTART)
    asked = line.session.facts["python"]
    rows = done(line)
    host = line.plan.host
    assert isinstance(host, Windows)
    assert host.restarts == 1
    assert (rows[1].ok, rows[1].changed, rows[1].found) == (True, True, "restart is not")
    assert machine.applied == [], "a restart is nothing that the host does by itself"
    assert line.session.facts["python"] == asked


def test_windows_is_not_restarted_for_nothing(tmp_path: Path) -> None:
    """It is asked once more: what went before may have asked for one, or made it needless."""
    machine = Machine(stubborn=[])
    line = on(tmp_path, machine, wanted("restart"), RESTART)
    rows = done(line)
    host = line.plan.host
    assert isinstance(host, Windows)
    assert host.restarts == 0
    assert (rows[1].ok, rows[1].changed) == (True, False)


def test_a_restart_waits_for_what_others_do_there(tmp_path: Path) -> None:
    machine = Machine("first")
    machine.others = ["job 0a1b runs (flash-attn)", "user anna\x1b is signed in"]
    line = on(tmp_path, machine, wanted("first"), RESTART)
    failed(line, r"needs a restart .*job 0a1b runs .*; user anna[^\x1b]* is signed in")
    host = line.plan.host
    assert isinstance(host, Windows)
    assert host.restarts == 0
    machine.others = []
    assert done(line)[1].changed
    assert host.restarts == 1


def test_a_restart_that_does_not_help(tmp_path: Path) -> None:
    line = wanting(line_for(plan_for(tmp_path, Lab(Machine()))), RESTART, marker=MARKER)
    line.begin_run()
    failed(line, "lab was restarted, but still waits for: restart is not")


# -- uploads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "sent"),
    [
        ({}, True),
        ({"size": 1}, True),
        ({"sha256": "0" * 64}, True),
        (None, False),
    ],
    ids=["nothing there", "another size", "other bytes", "the very same"],
)
def test_a_tool_is_uploaded_unless_the_very_same_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: dict[str, Any] | None, sent: bool
) -> None:
    machine = Machine()
    line = on(tmp_path, machine, wanted("tool", "uv"))
    monkeypatch.setattr(Cache, "fetch", lambda *_: tmp_path / "uv.zip")
    pin = line.plan.cache.lock.tool("uv")
    if there != {}:
        machine.files[r"C:\t\uv"] = {"size": pin.size, "sha256": pin.sha256, **(there or {})}
    rows = done(line)
    assert machine.sent == ([r"C:\t\uv"] if sent else [])
    assert machine.applied == ["tool"]
    assert rows[0].sha256 == {"uv": pin.sha256}


@pytest.mark.parametrize("good", [True, False])
def test_what_was_never_compared_has_no_computed_sha256(tmp_path: Path, good: bool) -> None:
    machine = Machine(*(["tool"] if good else []))
    line = on(tmp_path, machine, wanted("tool", "uv"))
    sha256 = line.plan.cache.lock.tool("uv").sha256
    machine.said = machine.outcome = {"values": {"uv": sha256}, "uploads": []}
    assert done(line)[0].sha256 == {"uv": sha256}
    machine.good = {"tool"} if good else set()
    machine.outcome = {**machine.outcome, "doubt": "never compared"}
    machine.said = machine.outcome
    assert done(line)[0].sha256 == {}


def test_what_was_changed_while_it_was_sent_is_not_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    machine.arrived = "0" * 64
    line = on(tmp_path, machine, wanted("tool", "uv"))
    monkeypatch.setattr(Cache, "fetch", lambda *_: tmp_path / "uv.zip")
    with pytest.raises(TransferError, match=r"uv\.zip reached .* with sha256 0{64}"):
        line.do(PROVISION)
    assert machine.applied == []


@pytest.mark.parametrize("uploads", [[], ["ninja"], ["ninja", "../odd"]])
def test_only_what_is_needed_for_a_repair_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uploads: list[str]
) -> None:
    machine = Machine()
    machine.said = {"uploads": uploads}
    line = on(tmp_path, machine, wanted("tool", "uv", "ninja"))
    monkeypatch.setattr(Cache, "fetch", lambda *_: tmp_path / "a.zip")
    done(line)
    assert machine.sent == ([r"C:\t\ninja"] if uploads else [])
    assert machine.applied == ["tool"]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("repair", [False, True])
def test_a_repair_looks_at_every_byte(tmp_path: Path, repair: bool, dry_run: bool) -> None:
    machine = Machine()
    line = on(tmp_path, machine, wanted("tool"))
    run_provision(line, repair=repair, dry_run=dry_run)
    asked = [spec.get("thorough", False) for spec in machine.specs]
    assert asked == [repair] * (1 if dry_run else 2)


@pytest.mark.parametrize("enough", [True, False])
def test_a_disk_without_room_is_told_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enough: bool
) -> None:
    machine = Machine()
    line = on(tmp_path, machine, wanted("tool", "uv"))
    monkeypatch.setattr(Cache, "fetch", lambda *_: tmp_path / "uv.zip")
    machine.free = 4 * line.plan.cache.lock.tool("uv").size - (not enough)
    if enough:
        done(line)
        return
    with pytest.raises(StorageError, match=r"tool: lab has \d+ MiB free, but needs about \d+ MiB"):
        line.do(PROVISION)
    assert (machine.sent, machine.applied) == ([], [])
