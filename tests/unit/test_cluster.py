"""Works at the hosts of others: what comes home, what is refused, what dies meanwhile."""

from __future__ import annotations

import functools
import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import CELL, Cluster, Lab, until
from test_between_stages import good
from test_shards import UNITS, Compiler, desk
from wheels import packed_here

from pipelines.errors import BuildError, HostError, PipelineError, TransferError
from pipelines.files import sha256_of
from pipelines.fleet.cluster import commission, parcels
from pipelines.fleet.cluster.joined import JoinedErrand, look
from pipelines.fleet.cluster.wire import Wire
from pipelines.fleet.drivers import Done, Driver, log_of
from pipelines.fleet.kept import differs
from pipelines.fleet.model import Ended, Work
from pipelines.record import BuildResult, SmokeResult, StageRecord, State
from pipelines.remote.jobs import follow as remote_follow
from pipelines.run import Run
from pipelines.session.base import UnfitHostError
from pipelines.stages.objects import list_of

TEST = CELL.model_copy(update={"key": "pkg-cp/test", "kind": "test", "after": ("pkg-cp",)})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.fixture
def lab(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(cluster, tmp_path, monkeypatch)


def do(errand: JoinedErrand, folder: Path, work: Work = CELL) -> Ended:
    return Driver(errand.name, errand, folder).do(work, 1)


def done(errand: JoinedErrand, work: Work = CELL) -> Run:
    told = Done()
    errand.do(work, told)
    return Run(Path(told.run))


def home(lab: Lab) -> list[str]:
    return sorted(path.parent.name for path in lab.folder.parent.glob("*/record.sqlite"))


def test_a_work_is_done_at_a_member_and_its_run_comes_home(lab: Lab) -> None:
    errand = lab.errand()
    facts, gpus = errand.survey()
    assert (facts["cpus"] > 0, gpus) == (True, ())
    errand.reach()
    ended = do(errand, lab.folder)
    assert ended.outcome == "done", ended.error
    run = Run(Path(ended.run))
    assert run.path.parent == lab.folder.parent
    (wheel,) = (run.path / "wheels").iterdir()
    assert ended.told["sha256"] == sha256_of(wheel)
    (there,) = lab.line.plan.out.glob("2*/wheels/*.whl")
    assert sha256_of(there) == sha256_of(wheel)
    assert run.facts().target.host == "lab/desk", "this machine may have a desk, too"
    job = run.job("build")
    assert job is not None
    assert job.host == "lab/desk"
    assert differs(run, share=False) == ""
    assert (run.path / "report.html").is_file()
    assert "compile units at a time" in log_of(lab.folder, "pkg-cp").read_text()
    assert not [*lab.place.rglob("*.tar")], "what was packed is gone"
    assert not [*lab.place.rglob("*.part")]
    assert not [*lab.folder.parent.glob(".arriving*")]
    assert [one.jobs for one in lab.asked] == [3] * len(lab.asked)


def test_no_secret_and_no_address_of_a_host_travels(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    ask = Wire.ask

    def heard(self: Wire, name: str, verb: str, text: str, data: bytes = b"") -> Any:
        said.append(text)
        told = ask(self, name, verb, text, data)
        said.append(told[0])
        return told

    monkeypatch.setattr(Wire, "ask", heard)
    done(lab.errand())
    assert len(said) > 6
    for word in ("password", "username", "endpoint", "lab.invalid", "PRIVATE"):
        assert not [text for text in said if word in text]


def wait(going: threading.Event, over: threading.Event, place: Path) -> Callable[..., Any]:
    """A build that goes on until it is told so."""
    whole = good(place)

    def job(spec: dict[str, Any]) -> Any:
        yield b"[1/2] a.cu\n"
        going.set()
        while not over.wait(0.02):
            yield b""
        yield from whole(spec)

    return job


class Slow:
    """A lab with a build that goes on for as long as a test wants."""

    def __init__(self, cluster: Cluster, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.going, self.over = threading.Event(), threading.Event()
        (place / "wheel").mkdir()
        self.begun: list[int] = []
        inner = wait(self.going, self.over, place / "wheel")

        def job(spec: dict[str, Any]) -> Any:
            self.begun.append(1)
            return inner(spec)

        self.lab = Lab(cluster, place, monkeypatch, job)

    def start(self, errand: JoinedErrand, work: Work = CELL) -> tuple[Driver, list[Ended]]:
        driver = Driver(errand.name, errand, self.lab.folder)
        found: list[Ended] = []
        threading.Thread(target=lambda: found.append(driver.do(work, 1)), daemon=True).start()
        return driver, found


@pytest.fixture
def slow(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(cluster, tmp_path, monkeypatch)
    yield made
    made.over.set()


def test_a_scheduler_that_dies_loses_nothing(slow: Slow, cluster: Cluster) -> None:
    driver, found = slow.start(slow.lab.errand())
    assert slow.going.wait(30)
    until(lambda: driver.doing()[0].stage == "build")
    cluster.scheduler.end()
    cluster.serve()  # at the same port
    slow.over.set()
    until(lambda: found)
    assert found[0].outcome == "done", found[0].error
    assert len(slow.begun) == 1


def test_an_asker_that_is_gone_takes_up_what_goes_on(slow: Slow) -> None:
    driver, found = slow.start(slow.lab.errand())
    assert slow.going.wait(30)
    driver.leave()
    until(lambda: found)
    assert found[0].outcome == "left"
    _, again = slow.start(slow.lab.errand())
    slow.over.set()
    until(lambda: again)
    assert again[0].outcome == "done", again[0].error
    assert len(slow.begun) == 1
    assert len(home(slow.lab)) == 1


def test_a_member_that_is_begun_anew_takes_up_its_own_run(slow: Slow) -> None:
    lab = slow.lab
    _, found = slow.start(lab.errand())
    assert slow.going.wait(30)
    slow.going.clear()
    lab.again()
    slow.over.set()
    until(lambda: found)
    assert found[0].outcome in ("done", "lost"), found
    ended = do(lab.errand(), lab.folder)
    assert ended.outcome == "done", ended.error
    assert len([*lab.line.plan.out.glob("2*/record.sqlite")]) == 1


def test_what_a_member_left_by_itself_is_lost_and_waits_for_nobody(slow: Slow) -> None:
    _, found = slow.start(slow.lab.errand())
    assert slow.going.wait(30)
    slow.lab.member.close()
    until(lambda: found)
    assert found[0].outcome == "lost"
    assert found[0].error is not None
    assert "its member has left it" in found[0].error.message


def test_a_member_that_is_away_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.fleet.cluster.joined._PATIENCE", 0.1)
    errand = lab.errand()
    lab.staying.end()
    until(lambda: any("has left" in one for one in lab.cluster.said))
    assert not errand.reachable()
    ended = do(errand, lab.folder)
    assert (ended.outcome, ended.gone) == ("lost", True)
    assert ended.error is not None
    assert "lab" in ended.error.message


def test_a_work_is_cancelled_where_it_runs(slow: Slow) -> None:
    ended: list[str] = []
    slow.lab.session.answers[remote_follow.cancel] = lambda directory: ended.append(directory)  # noqa: PLW0108 - by keyword
    driver, found = slow.start(slow.lab.errand())
    assert slow.going.wait(30)
    driver.cancel("pkg-cp")
    until(lambda: found)
    assert found[0].outcome == "left", found[0].error
    assert len(ended) >= 1
    assert home(slow.lab) == []


def test_limits_hold_for_all_fleets_together(slow: Slow) -> None:
    """One slot, two askers: one after the other."""
    lab = slow.lab
    first, found = slow.start(lab.errand())
    assert slow.going.wait(30)
    other = CELL.model_copy(update={"key": "pkg-cp"})
    second = lab.errand("fleet-2-b")
    _, also = slow.start(second, other)
    until(lambda: len(lab.member._jobs) == 2)
    assert [len(room.held) for room in lab.member._rooms.values()] == [1]
    assert len(slow.begun) == 1
    assert first.doing()
    slow.over.set()
    until(lambda: found and also)
    assert (found[0].outcome, also[0].outcome) == ("done", "done"), (found, also)


def test_a_failure_there_is_one_here(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def job(spec: dict[str, Any]) -> Any:
        yield b"nvcc: \x1b[31mno such file\n"
        yield {"exit": 1, "wheels": []}

    lab = Lab(cluster, tmp_path, monkeypatch, job)
    ended = do(lab.errand(), lab.folder)
    assert ended.outcome == "failed"
    assert ended.error is not None
    assert ended.error.kind == BuildError.__name__
    assert "no such file" in log_of(lab.folder, "pkg-cp").read_text()
    assert Path(ended.run).parent == lab.folder.parent, "its run is here to be looked at"
    assert (Path(ended.run) / "build.log").is_file()


def test_another_recipe_or_source_is_refused_in_words(lab: Lab) -> None:
    errand = lab.errand()
    tree = Path(lab.recipe.source.path)
    errand._decides(CELL)
    (tree / "more.py").write_text("x = 1\n")
    ended = do(errand, lab.folder)
    assert (ended.outcome, ended.gone) == ("lost", False), "another host may well do it"
    assert ended.error is not None
    assert "the source of smoke-attention is another one here" in ended.error.message
    lab.recipe = lab.recipe.model_copy(update={"summary": "another"})
    ended = do(lab.errand(), lab.folder)
    assert ended.error is not None
    assert "the recipe of smoke-attention is another one here" in ended.error.message
    assert not [*lab.line.plan.out.glob("*/record.sqlite")]


def test_another_program_is_set_aside_and_others_go_on(lab: Lab) -> None:
    older = commission.Program(version="0.0.1", files="0" * 64)
    mine = lab.member._program
    lab.member._program = older
    there = look(lab.cluster.wire())
    assert not there.hosts
    assert "lab runs windows-cuda-wheels 0.0.1, here is" in there.aside["lab"]
    same = commission.program().model_copy(update={"files": "0" * 64})
    lab.member._program = same
    assert "its files differ" in look(lab.cluster.wire()).aside["lab"]
    lab.cluster.join("odd", lambda *_: ('{"told": "gibberish"}', b""))
    lab.cluster.join("rude", lambda *_: (_ for _ in ()).throw(ZeroDivisionError))
    lab.member._program = mine
    there = look(lab.cluster.wire())
    assert [*there.hosts] == ["lab/desk"]
    assert "odd says what makes no sense here" in there.aside["odd"]


def test_another_tool_chain_is_not_taken_home(lab: Lab) -> None:
    errand = lab.errand()
    plan = lab.line.plan
    group = "/".join((plan.target.python, plan.recipe.api, plan.recipe.cuda))
    lab.hosts.agree("own", group, {"tool set": "MSVC 14.44"})
    ended = do(errand, lab.folder)
    assert (ended.outcome, ended.gone) == ("lost", True)
    assert ended.error is not None
    assert "desk has another tool chain than own" in ended.error.message
    assert home(lab) == []
    with pytest.raises(HostError, match="another tool chain"):
        errand.reach()


def test_a_tool_chain_that_only_its_run_tells_of_is_not_taken_either(lab: Lab) -> None:
    errand = lab.errand()
    plan = lab.line.plan
    group = "/".join((plan.target.python, plan.recipe.api, plan.recipe.cuda))
    asked = errand._commission("do", CELL, whole=True)
    told = errand._carried(asked)  # as nothing was agreed on
    lab.hosts.agree("own", group, {"tool set": "MSVC 14.44"})
    with pytest.raises(UnfitHostError, match=r"lab/desk has another tool chain than own"):
        errand._arrived(CELL, told, Done())
    assert home(lab) == []


def test_what_is_damaged_on_its_way_is_not_taken(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, lies = Wire.ask, [1]

    def damage(self: Wire, name: str, verb: str, text: str, data: bytes = b"") -> Any:
        told, sent = ask(self, name, verb, text, data)
        if verb == "piece" and lies:
            lies.pop()
            sent = sent[:2000] + bytes([sent[2000] ^ 1]) + sent[2001:]
        return told, sent

    monkeypatch.setattr(Wire, "ask", damage)
    errand = lab.errand()
    ended = do(errand, lab.folder)
    assert (ended.outcome, ended.gone) == ("lost", False)
    assert ended.error is not None
    assert "were sent" in ended.error.message
    assert home(lab) == []
    assert not [*lab.folder.parent.glob(".arriving*")]
    assert do(errand, lab.folder).outcome == "done"


@pytest.mark.parametrize("lie", ["wheel", "cell", "share", "audit", "more", "given", "nothing"])
def test_a_run_that_is_not_what_was_asked_for_is_not_taken(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """Packed well, with its own sha256, by a member that is wrong or lies."""
    pack = parcels.pack

    def lying(run: Run, folder: Path) -> Any:
        facts = run.facts()
        if lie == "wheel":
            (wheel,) = (run.path / "wheels").iterdir()
            wheel.write_bytes(wheel.read_bytes() + b"more")
        elif lie == "cell":
            run.note(target=facts.target.model_copy(update={"python": "3.99"}).model_dump())
        elif lie == "share":
            run.note(share="1/2")
        elif lie == "more":
            (run.path / "wheels/pkg-9-py3-none-any.whl").write_bytes(b"of nobody")
        elif lie == "given":
            run.note(given=True)
        elif lie == "audit":
            audit = run.stages()["audit"]
            run.put_stage(audit.model_copy(update={"state": "failed"}))
        else:
            (run.path / "wheels").rename(run.path / "elsewhere")
        return pack(run, folder)

    monkeypatch.setattr(parcels, "pack", lying)
    monkeypatch.setattr(parcels, "seal_of", lambda _: "0" * 64)
    ended = do(lab.errand(), lab.folder)
    assert ended.outcome == "lost", ended.error
    assert home(lab) == []
    assert not (lab.folder / "pkg-cp@lab-desk.run").exists()


def test_what_came_home_before_we_were_killed_is_not_asked_for_again(lab: Lab) -> None:
    first = done(lab.errand())
    again = done(lab.errand())
    assert again.path == first.path
    (wheel,) = (first.path / "wheels").iterdir()
    wheel.write_bytes(b"changed")
    third = done(lab.errand())
    assert third.path != first.path, "it is not what was made: it is fetched again"


def test_a_run_of_here_is_sent_for_its_test_and_what_is_found_comes_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[Run] = []

    def run_test(line: Any, run: str) -> None:
        line.open_run(run)
        tested.append(line.run)
        assert differs(line.run, share=False) == ""
        (wheel,) = (line.run.path / "wheels").iterdir()
        line.run.put_stage(
            StageRecord(
                name="test",
                state="passed",
                started=2e9,
                seconds=1.0,
                result=SmokeResult(
                    wheel=wheel.name, sha256=sha256_of(wheel), outcomes={"passed": 3}
                ),
            )
        )
        (line.run.path / "smoke.log").write_text("three passed\n")

    monkeypatch.setattr("pipelines.fleet.lines.run_test", run_test)
    own = done(lab.errand())
    lab.again()  # which knows nothing of what it has built
    ended = do(lab.errand(runs={"pkg-cp": str(own.path)}), lab.folder, TEST)
    assert ended.outcome == "done", ended.error
    assert ended.run == str(own.path)
    assert ended.told == {"passed": 3}
    (there,) = tested
    assert lab.place / "member/out/asked" in there.path.parents
    assert there.facts().target.host == "lab/desk"
    found = own.result(SmokeResult)
    assert found is not None
    assert found.outcomes == {"passed": 3}
    assert (own.path / "smoke.log").read_text() == "three passed\n"
    assert differs(own, share=False) == ""

    # Its own run it need not be sent.
    again = lab.errand(runs={"pkg-cp": str(own.path)})
    asked = again._commission("do", TEST, whole=True)
    assert again._ask("lacks", asked)[0] == ""
    # What was damaged there is sent anew.
    (wheel,) = (there.path / "wheels").iterdir()
    (there.path / "record.sqlite").unlink()
    assert again._ask("lacks", asked)[0] == "pkg-cp"
    # And what is damaged here is not sent at all.
    (wheel,) = (own.path / "wheels").iterdir()
    wheel.write_bytes(b"not what was audited")
    ended = do(again, lab.folder, TEST)
    assert ended.outcome == "lost"
    assert ended.error is not None
    assert "is not the file that was made" in ended.error.message
    assert len(tested) == 1


class Packing(Compiler):
    """Its wheels pass an audit."""

    def _wheel(self) -> Path:
        return packed_here(self.room, self.specs[-1])


def test_shares_come_home_and_are_sent_for_their_link(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "room").mkdir()
    # What is divided is reproducible, whatever the recipe says; that is the same at both ends.
    undecided = functools.partial(desk, reproducible=False)
    lab = Lab(cluster, tmp_path, monkeypatch, Packing(tmp_path / "room"), undecided)
    shares = [
        CELL.model_copy(update={"key": f"pkg-cp/{number}of2", "kind": "shard"}) for number in (1, 2)
    ]
    link = CELL.model_copy(update={"kind": "link", "after": tuple(one.key for one in shares)})
    runs = {one.key: done(lab.errand(), one) for one in shares}
    assert [run.facts().share for run in runs.values()] == ["1/2", "2/2"]
    for run in runs.values():
        told, _ = list_of(run)
        assert told.host == "lab/desk"
        assert json.loads((run.path / "objects.json").read_text())["host"] == "lab/desk"
    lab.again()  # which knows nothing of what it has compiled
    named = {key: str(run.path) for key, run in runs.items()}

    (first, *_) = (runs["pkg-cp/1of2"].path / "objects").iterdir()
    whole = first.read_bytes()
    first.write_bytes(b"another object")
    ended = do(lab.errand(runs=named), lab.folder, link)
    assert ended.outcome == "lost"
    assert ended.error is not None
    assert "is not the file that was made" in ended.error.message
    first.write_bytes(whole)

    ended = do(lab.errand(runs=named), lab.folder, link)
    assert ended.outcome == "done", ended.error
    built = Run(Path(ended.run)).result(BuildResult)
    assert built is not None
    assert built.divided is not None
    assert len(built.divided.placed) == UNITS
    assert [one.share for one in built.divided.lent] == ["1/2", "2/2"]


def test_a_commission_for_what_is_not_offered_is_refused(lab: Lab) -> None:
    errand = lab.errand()
    asked = errand._commission("reach", CELL)
    for lie, said in (
        ({"host": "secret"}, "is not offered here"),
        ({"key": "other"}, "is not offered here"),
    ):
        with pytest.raises(HostError, match=said):
            errand._ask("carry", asked.model_copy(update=lie))
    for told in ({"fleet": "../out"}, {"host": "../x"}, {"key": "../../x"}, {"more": 1}):
        text = (asked.model_dump() | told,)
        with pytest.raises(PipelineError, match="makes no sense here"):
            errand._ask("carry", _Raw(*text))  # type: ignore[arg-type]
    with pytest.raises(HostError, match="which is not known"):
        errand._ask("run", asked)
    parcel = commission.Parcel(sha256="0" * 64, size=3, run="2026-x")
    with pytest.raises(TransferError, match="cannot be read"):
        errand._ask("piece", commission.Piece(fleet="fleet-1-a", parcel=parcel))


class _Raw:
    """Whatever a peer may send."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told

    def model_dump_json(self) -> str:
        return json.dumps(self.told, default=str)


def test_one_machine_under_two_names_is_used_once(lab: Lab) -> None:
    errand = lab.errand()
    errand.reach()
    place = lab.hosts.place_of("lab/desk")
    assert place
    other = lab.errand()
    lab.hosts.claim("lab/desk", place)
    with pytest.raises(UnfitHostError, match=r"own is the same machine and place as lab/desk"):
        lab.hosts.claim("own", place)
    other.reach()


def test_who_waits_for_a_member_leaves_at_once(lab: Lab) -> None:
    errand = lab.errand()
    lab.staying.end()
    driver = Driver(errand.name, errand, lab.folder)
    found: list[Ended] = []
    threading.Thread(target=lambda: found.append(driver.do(CELL, 1)), daemon=True).start()
    until(driver.doing)
    driver.leave()
    until(lambda: found)
    assert found[0].outcome == "left"


def test_what_is_asked_for_otherwise_is_not_told_as_it_was(lab: Lab) -> None:
    """Who asked was killed before it was told; then its recipe was changed."""
    errand = lab.errand()
    asked = errand._commission("do", CELL, whole=True)
    first = errand._carried(asked)
    assert errand._carried(asked).parcel == first.parcel, "the same is told as often as it is asked"
    other = asked.model_copy(update={"decided": {**asked.decided, "recipe": "0" * 64}})
    told = errand._carried(other)
    assert told.ended is not None
    assert told.ended.error is not None
    assert "is another one here than where it is asked for" in told.ended.error.message
    assert told.parcel is None


def test_a_look_is_not_told_long_afterwards(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.fleet.cluster.member._FRESH", 0.0)
    errand = lab.errand()
    asked = errand._commission("reach", CELL)
    errand._ask("carry", asked)
    (job,) = lab.member._jobs.values()
    until(lambda: job.over < math.inf)
    errand._ask("carry", asked)
    assert job not in lab.member._jobs.values()


def test_a_test_that_did_not_pass_there_has_not_passed_here(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.fleet.lines.run_test", lambda line, run: line.open_run(run))
    own = done(lab.errand())
    (wheel,) = (own.path / "wheels").iterdir()
    lies: list[tuple[State, str]] = [("failed", sha256_of(wheel)), ("passed", "0" * 64)]
    for state, sha256 in lies:
        smoke = SmokeResult(wheel=wheel.name, sha256=sha256, outcomes={"passed": 3})
        own.put_stage(StageRecord(name="test", state=state, started=2e9, seconds=1.0, result=smoke))
        lab.again()  # it is sent
        ended = do(lab.errand(runs={"pkg-cp": str(own.path)}), lab.folder, TEST)
        assert ended.outcome == "lost"
        assert ended.error is not None
        assert "and its record does not" in ended.error.message


def test_what_nobody_came_for_does_not_stay_at_a_member_for_ever(lab: Lab) -> None:
    errand = lab.errand()
    told = errand._carried(errand._commission("do", CELL, whole=True))
    assert told.parcel is not None
    root = lab.line.plan.out / "asked/fleet-1-a"
    (packed,) = root.glob("parcels/*.tar")
    (root / "sent").mkdir()
    lab.again()
    assert packed.is_file(), "who asked may be fetching it"
    for name in ("parcels", "sent"):
        os.utime(root / name, (1e9, 1e9))
    lab.again()
    assert not packed.exists()
    assert not (root / "sent").exists()
    assert [*lab.line.plan.out.glob("2*/record.sqlite")], "the run itself is the member's"
