"""Shares of a wheel's compile units, and the link of their objects: what is kept, what refused."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import at_desk, wanting
from sessions import Here
from wheels import wheel_here

from pipelines.core.errors import (
    AuditError,
    BuildError,
    ConfigError,
    HostError,
    LockError,
    PipelineError,
    StorageError,
)
from pipelines.record.results import BuildResult
from pipelines.record.run import Run
from pipelines.record.shards import ShardsResult, Share, shards_of, share_of
from pipelines.remote import builder, objects
from pipelines.stages.line import BUILD, COLLECT, Line, run_build, run_test
from pipelines.stages.objects import FOLDER, find_lenders
from pipelines.stages.shards import run_shards

UNITS = 5


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def unit(number: int, flags: str = "") -> dict[str, Any]:
    told = f"csrc/{number}.cu{flags}"
    return {
        "id": sha(told.encode())[:32],
        "source": f"csrc/{number}.cu",
        "output": f"build/{number}.o",
        "command": sha(f"nvcc {told}".encode()),
        "seconds": 10.0,
    }


class Compiler:
    """A host that compiles units by their numbers: every Kth of N is a share's."""

    def __init__(self, room: Path, *, bytes_of: Callable[[int], bytes] | None = None) -> None:
        self.room, self.specs, self.units = room, list[dict[str, Any]](), UNITS
        self.bytes_of = bytes_of or (lambda number: f"object {number}".encode())
        self.flags = ""
        self.read: dict[str, str] = {}
        self.ended: dict[str, Any] = {}

    def __call__(self, spec: dict[str, Any]) -> Iterator[Any]:
        self.specs.append(spec)
        every = [unit(number, self.flags) for number in range(self.units)]
        asked = spec.get("units")
        if asked is None:
            yield {"exit": 0, "wheels": [builder.left(self._wheel())]} | self.ended
        elif asked["mode"] == "compile":
            number, count = asked["share"]
            mine = [n for n in range(self.units) if n % count == number - 1]
            rows = [self._object(Path(spec["directory"]), n) for n in mine]
            told = {"units": every, "objects": rows, "read": self.read}
            yield {"exit": 0, "wheels": []} | told | self.ended
        else:
            placed = {row["unit"]: row for row in asked["objects"]}
            for row in placed.values():
                assert sha(Path(row["path"]).read_bytes()) == row["sha256"]
            compiled = [one["id"] for one in every if one["id"] not in placed]
            told = {"units": every, "placed": [*placed], "compiled": compiled}
            yield {"exit": 0, "wheels": [builder.left(self._wheel())]} | told | self.ended

    def _wheel(self) -> Path:
        return wheel_here(self.room)

    def _object(self, folder: Path, number: int) -> dict[str, Any]:
        path = folder / f"{number}.o"
        path.write_bytes(self.bytes_of(number))
        left = {k: v for k, v in builder.left(path).items() if k != "path"}
        return {"unit": unit(number, self.flags)["id"], "path": str(path), "seconds": 7.5} | left


PROGRAMS = {"cl.exe": "c" * 64}


def desk(tmp_path: Path, host: Compiler, **recipe: Any) -> tuple[Line, Here]:
    answers = {objects.compilers: lambda **_: dict(PROGRAMS)}
    line, session = at_desk(tmp_path, host, answers, **{"reproducible": True} | recipe)
    wanting(line, build_root=str(tmp_path / "root"), fixed=str(tmp_path / "fixed"))
    return line, session


def compiled(line: Line, text: str) -> Run:
    """The run of a share."""
    line.plan = replace(line.plan, share=share_of(text), objects=())
    run = line.begin_run()
    line.do(BUILD)
    line.do(COLLECT)
    line.run.close()
    return run


def linked(line: Line, *runs: Run) -> BuildResult:
    line.plan = replace(line.plan, share=None, objects=tuple(str(run.path) for run in runs))
    line.begin_run()
    try:
        done = line.do(BUILD)
        line.do(COLLECT)
    finally:
        line.run.close()
    assert isinstance(done, BuildResult)
    return done


def divided(run: Run) -> ShardsResult:
    """What its record says of its share."""
    built = run.result(BuildResult)
    assert built is not None
    assert built.divided is not None
    return built.divided


@pytest.fixture
def host(tmp_path: Path) -> Compiler:
    (tmp_path / "room").mkdir()
    return Compiler(tmp_path / "room")


# -- the way through -------------------------------------------------------------------------------


def test_shares_and_their_link(tmp_path: Path, host: Compiler) -> None:
    line, session = desk(tmp_path, host, unit_costs={"*_slow.cu": 99.0})
    runs = [compiled(line, f"{number}/2") for number in (1, 2)]
    assert [run.facts().share for run in runs] == ["1/2", "2/2"]
    told = divided(runs[0]).objects
    assert [row.sha256 for row in told] == [
        sha(b"object 0"),
        sha(b"object 2"),
        sha(b"object 4"),
    ]
    assert {path.name for path in (runs[0].path / FOLDER).iterdir()} == {row.sha256 for row in told}
    assert host.specs[0]["units"] == {
        "mode": "compile",
        "share": [1, 2],
        "costs": [["*_slow.cu", 99.0]],
        "cost": 1.0,
    }
    done = linked(line, *runs)
    assert done.divided is not None
    assert len(done.divided.placed) == UNITS
    assert [(one.share, one.units) for one in done.divided.lent] == [("1/2", 3), ("2/2", 2)]
    directories = [spec["directory"] for spec in host.specs]
    assert len({*directories}) == 3, "each has a directory of its own"
    assert not any(FOLDER in path for path in session.sent), "they were compiled at that very host"


def test_what_the_host_lacks_is_sent_once(tmp_path: Path, host: Compiler) -> None:
    """Two units may become the same bytes; a share's directory may be gone from its host."""
    host.bytes_of = lambda number: b"object" if number < 2 else b"other %d" % number
    line, session = desk(tmp_path, host)
    runs = [compiled(line, f"{number}/2") for number in (1, 2)]
    for path in (tmp_path / "root").rglob("*.o"):
        path.unlink()
    done = linked(line, *runs)
    assert done.divided is not None
    assert len(done.divided.placed) == UNITS
    assert sum(FOLDER in path for path in session.sent) == UNITS - 1


def test_units_without_an_object_are_compiled_by_the_link(
    tmp_path: Path, host: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    line, _ = desk(tmp_path, host)
    done = linked(line, compiled(line, "2/4"))
    assert done.divided is not None
    assert (len(done.divided.placed), len(done.divided.compiled)) == (1, 4)
    said = " ".join(capsys.readouterr().out.split())
    assert "4 of 5 compile units have no object; the link compiles them: csrc/0.cu" in said
    assert "4 compiled by the link" in said


def test_shares_of_another_number_fit(tmp_path: Path, host: Compiler) -> None:
    """Units decide, not N: 1/3 and 2/2 have one in common, and it is the same bytes."""
    line, _ = desk(tmp_path, host)
    done = linked(line, compiled(line, "1/3"), compiled(line, "2/2"))
    assert done.divided is not None
    assert [one.units for one in done.divided.lent] == [2, 1]
    assert len(done.divided.compiled) == 2


def test_a_share_given_twice_counts_once(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    run = compiled(line, "2/3")
    done = linked(line, run, run, compiled(line, "2/3"))
    assert done.divided is not None
    assert [one.units for one in done.divided.lent] == [2, 0]


def test_an_empty_share_is_one(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    run = compiled(line, "7/7")
    assert divided(run).objects == ()
    done = linked(line, run)
    assert done.divided is not None
    assert len(done.divided.compiled) == UNITS


def test_what_an_earlier_run_has_is_not_fetched_again(tmp_path: Path, host: Compiler) -> None:
    line, session = desk(tmp_path, host)
    first = compiled(line, "1/2")
    objects_there = sorted((first.path / FOLDER).iterdir())
    objects_there[0].write_bytes(b"damaged!")  # of the same size
    fetched: list[str] = []
    real = session.get

    def get(source: str, target: Path, **more: Any) -> str:
        fetched.append(target.name)
        return real(source, target, **more)

    session.get = get  # type: ignore[method-assign]
    again = compiled(line, "1/2")
    assert again.id != first.id
    assert fetched == [objects_there[0].name]
    built = again.result(BuildResult)
    assert built is not None
    assert built.kept, "the share was not compiled a second time"
    assert len(host.specs) == 1
    done = linked(line, again, compiled(line, "2/2"))
    assert done.divided is not None
    assert len(done.divided.placed) == UNITS


def test_objects_that_have_come_home_are_not_fetched_twice(tmp_path: Path, host: Compiler) -> None:
    """A collect that was cut off is done again in the same run; ``latest`` leads there as well."""
    line, session = desk(tmp_path, host)
    run = compiled(line, "1/2")
    session.get = None  # type: ignore[assignment,method-assign]
    (line.plan.out / "elsewhere").symlink_to(run.path)
    line.do(COLLECT)
    assert len([*(run.path / FOLDER).iterdir()]) == 3


def test_a_share_that_was_cut_off_is_gone_on_with(tmp_path: Path, host: Compiler) -> None:
    line, session = desk(tmp_path, host)

    def killed(spec: dict[str, Any]) -> Iterator[Any]:
        yield b"[1/3] 0.o\n"
        raise KeyboardInterrupt

    session.job = killed
    with pytest.raises(KeyboardInterrupt):
        compiled(line, "1/2")
    line.run.close()
    first = line.run.id
    session.job = host
    session.jobs.clear()
    assert compiled(line, "2/2").id != first, "another share is another run"
    assert compiled(line, "1/2").id == first


def test_of_a_share_there_is_nothing_to_test(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    run = compiled(line, "1/2")
    with pytest.raises(BuildError, match=f"run {run.id} is shard 1/2 and has no wheel"):
        run_test(line)
    assert "audit" not in run.stages()


def test_a_share_is_compiled_anew_where_a_header_of_its_host_has_changed(
    tmp_path: Path, host: Compiler
) -> None:
    line, _ = desk(tmp_path, host)
    header = tmp_path / "outer.h"
    header.write_text("1")
    gone = str(tmp_path / "fixed/src/generated.h")  # there while it is built
    host.read = {str(header): sha(b"1"), gone: sha(b"made")}
    compiled(line, "1/2")
    compiled(line, "1/2")
    assert len(host.specs) == 1, "what is there is taken"
    header.write_text("2")
    host.read = host.read | {str(header): sha(b"2")}
    compiled(line, "1/2")
    assert len(host.specs) == 2


@pytest.mark.slow
def test_every_share_and_the_link_on_one_host(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    line.plan = replace(line.plan, shards=3, minutes=60.0)
    before = line.plan
    with pytest.raises(AuditError, match="SBOM"):  # this wheel has none
        run_shards(line)
    line.close()
    assert [spec["units"]["mode"] for spec in host.specs] == ["compile"] * 3 + ["link"]
    assert line.plan is before
    left = [spec["timeout"] for spec in host.specs]
    assert 3600 >= left[0] > left[1] > left[2] > left[3] > 3000, "the minutes are for all of it"
    states = {name: one.state for name, one in line.run.stages().items()}
    assert states == {"build": "passed", "collect": "passed", "audit": "failed"} | {
        "provision": "passed"
    }


def test_threads_of_nvcc_are_the_same_everywhere(tmp_path: Path) -> None:
    """They stand in the units' commands, and a large host would choose more than a small one."""
    from plans import plan_for

    from pipelines.recipe.load import load_recipe
    from pipelines.stages.pace import cost_of

    plan = plan_for(tmp_path, None, load_recipe("flash-attn"), python="3.12", archs="80;90;120")
    whole = cost_of(plan)
    share = cost_of(replace(plan, share=Share(3, 20)))
    link = cost_of(replace(plan, objects=("run",)))
    assert whole is not None and share is not None and link is not None  # noqa: PT018
    assert (whole.units, whole.nvcc_threads) == (73, None)
    assert (share.units, share.nvcc_threads) == (4, 1)
    assert link.nvcc_threads == 1


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["4/3", "0/3", "3", "1/0", "-1/3", "1/1001", "1 /3", "\uff11/3"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ConfigError, match="expected K/N"):
        share_of(text)


@pytest.mark.parametrize("text", ["0", "-2", "1001", "many", "²"])
def test_what_is_no_number_of_shares(text: str) -> None:
    with pytest.raises(ConfigError, match="or auto"):
        shards_of(text)


def test_a_number_of_shares() -> None:
    assert (share_of("3/20"), shards_of("4"), shards_of("auto")) == (Share(3, 20), 4, 0)


Lie = Callable[[Run], None]


def _object(run: Run) -> Path:
    return sorted((run.path / FOLDER).iterdir())[0]


def _other_bytes(run: Run) -> None:
    path = _object(run)
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def _shorter(run: Run) -> None:
    _object(run).write_bytes(b"")


def _gone(run: Run) -> None:
    _object(run).unlink()


def _swapped(run: Run) -> None:
    one, other = sorted((run.path / FOLDER).iterdir())[:2]
    one.rename(run.path / "x")
    other.rename(one)
    (run.path / "x").rename(other)


LIES: dict[str, tuple[Lie, str]] = {
    "other bytes": (_other_bytes, r"object of csrc/\d.cu has 8 bytes with sha256 \w+, .* 8 with"),
    "shorter": (_shorter, "has 0 bytes with sha256 e3b0c442.* 8 with"),
    "gone": (_gone, "objects/.* does not exist"),
    "swapped": (_swapped, "has 8 bytes with sha256"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_run_that_was_changed(tmp_path: Path, host: Compiler, lie: str) -> None:
    change, said = LIES[lie]
    line, session = desk(tmp_path, host)
    run = compiled(line, "1/2")
    change(run)
    before = len(session.sent)
    with pytest.raises(AuditError, match=said):
        linked(line, run)
    assert len(host.specs) == 1, "nothing was begun"
    assert len(session.sent) == before, "nothing was sent"


@pytest.mark.slow
def test_whatever_byte_is_changed(tmp_path: Path, host: Compiler) -> None:
    """Of an object: it is refused. Of a record: test_run.py."""
    line, _ = desk(tmp_path, host)
    run = compiled(line, "1/2")
    line.plan = replace(line.plan, share=None, objects=(run.id,))
    (good,) = find_lenders(line.plan)
    chance = random.Random(19)
    paths = sorted((run.path / FOLDER).iterdir())
    for number in range(200):
        path = paths[number % len(paths)]
        data = path.read_bytes()
        other = bytearray(data)
        place = chance.randrange(len(data))
        other[place] = chance.choice([byte for byte in range(256) if byte != data[place]])
        path.write_bytes(other)
        with pytest.raises(AuditError):
            find_lenders(line.plan)
        path.write_bytes(data)
    assert find_lenders(line.plan)[0].made == good.made


def test_what_cannot_be_linked_is_refused_before_a_run_begins(
    tmp_path: Path, host: Compiler
) -> None:
    line, session = desk(tmp_path, host)
    run = compiled(line, "1/2")
    asked = len(session.asked)
    line.plan = replace(line.plan, share=None, objects=(str(run.path), "nosuch"))
    with pytest.raises(ConfigError, match="no run 'nosuch'"):
        run_build(line)
    _gone(run)
    line.plan = replace(line.plan, objects=(run.id,))
    with pytest.raises(AuditError, match=r"objects/.* does not exist"):
        run_build(line)
    assert [one.id for one in Run.past(line.plan.out)] == [run.id]
    assert len(session.asked) == asked


def test_one_unit_with_two_objects(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    good = compiled(line, "1/2")
    host.bytes_of = lambda number: b"another %d" % number
    bad = compiled(line, "1/3")
    with pytest.raises(
        AuditError, match=r"csrc/0.cu was compiled twice, with different results"
    ) as one:
        linked(line, good, bad)
    for run in (good, bad):
        assert run.id in one.value.message
    assert sha(b"object 0") in one.value.message
    assert sha(b"another 0") in one.value.message


def test_a_header_that_was_another_one_elsewhere(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    host.read = {"/usr/include/half.h": sha(b"one"), "/usr/include/whole.h": sha(b"same")}
    one = compiled(line, "1/2")
    done = linked(line, one)
    assert done.divided is not None
    assert host.specs[-1]["units"]["read"] == host.read
    host.read = {"/usr/include/half.h": sha(b"two")}
    two = compiled(line, "2/2")
    with pytest.raises(AuditError, match=r"half.h was different on the hosts") as caught:
        linked(line, one, two)
    for said in (one.id, two.id, sha(b"one"), sha(b"two")):
        assert said in caught.value.message


def test_another_tool_chain(
    tmp_path: Path, host: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, _ = desk(tmp_path, host)
    run = compiled(line, "1/2")
    monkeypatch.setitem(PROGRAMS, "cl.exe", "e" * 64)
    with pytest.raises(LockError, match=r"compiler cl.exe: there cccc\w+, here eeee"):
        linked(line, run)
    monkeypatch.undo()
    monkeypatch.setitem(PROGRAMS, "CL", "/O1")
    with pytest.raises(LockError, match=r"compiler CL: there nothing, here /O1"):
        linked(line, run)
    monkeypatch.undo()
    for name in ("CFLAGS", "CPATH"):
        monkeypatch.setenv(name, "-O1")
        with pytest.raises(LockError, match=rf"user variable {name}: there nothing, here -O1"):
            linked(line, run)
        monkeypatch.undo()
    monkeypatch.setenv("CFLAGS", "-O1")
    with pytest.raises(LockError, match=r"user variable CFLAGS: there nothing, here -O1"):
        linked(line, run)
    monkeypatch.undo()
    monkeypatch.setattr(type(line.plan.host), "inputs", "image sha256:2")
    with pytest.raises(LockError, match=r"host image: there empty, here image sha256:2"):
        linked(line, run)
    monkeypatch.undo()
    (tmp_path / "tree/more.cu").write_text("int x;")
    with pytest.raises(LockError, match=r"\(source archive\).*\n.*: there \w{64}, here \w{64}"):
        linked(line, run)


@pytest.mark.parametrize(
    ("axis", "value"), [("cuda", "12.8"), ("python", "3.9"), ("version", "0.2")]
)
def test_a_run_of_another_cell(tmp_path: Path, host: Compiler, axis: str, value: str) -> None:
    line, _ = desk(tmp_path, host)
    run = compiled(line, "1/2")
    there = run.facts().target
    run.note(target=there.model_copy(update={axis: value}))
    with pytest.raises(ConfigError, match=f"is for {axis} {value}, not"):
        linked(line, run)


def test_a_run_without_objects(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    line.begin_run()
    line.do(BUILD)
    line.run.close()
    with pytest.raises(ConfigError, match="has no objects: it is not a shard"):
        linked(line, line.run)
    run = compiled(line, "1/2")
    state = run.stages()["collect"]
    run.put_stage(state.model_copy(update={"state": "failed"}))
    with pytest.raises(ConfigError, match="were not downloaded"):
        linked(line, run)


def test_hosts_that_see_other_units(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    one = compiled(line, "1/2")
    host.flags = " -O1"
    other = compiled(line, "2/2")
    with pytest.raises(AuditError, match="has different compile units from"):
        linked(line, one, other)


@pytest.mark.parametrize(
    ("ended", "kind", "said"),
    [
        ({"placed": []}, HostError, "0 units were placed and"),
        ({"units": None}, HostError, "an invalid result of a divided build"),
        ({"placed": ["f" * 32]}, HostError, "f{32} is not one of its units"),
        ({"compiled": [unit(0)["id"]]}, HostError, "duplicate"),
    ],
)
def test_a_link_that_took_something_else(
    tmp_path: Path, host: Compiler, ended: dict[str, Any], kind: type[PipelineError], said: str
) -> None:
    line, _ = desk(tmp_path, host)
    run = compiled(line, "1/1")
    host.ended = ended
    with pytest.raises(kind, match=said):
        linked(line, run)


def test_a_link_that_compiled_what_it_was_given(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    run = compiled(line, "1/1")
    ids = [unit(number)["id"] for number in range(UNITS)]
    host.ended = {"placed": ids[1:], "compiled": ids[:1]}
    with pytest.raises(AuditError, match=f"given 5 objects, but reports 4; .* {ids[0]}"):
        linked(line, run)


def test_a_share_that_leaves_a_wheel(tmp_path: Path, host: Compiler) -> None:
    line, _ = desk(tmp_path, host)
    host.ended = {"wheels": [builder.left(wheel_here(tmp_path / "room"))]}
    with pytest.raises(BuildError, match="shard 1/2 produced a wheel"):
        compiled(line, "1/2")


def test_an_object_that_changed_on_its_way(tmp_path: Path, host: Compiler) -> None:
    line, session = desk(tmp_path, host)
    real = session.get

    def get(source: str, target: Path, **more: Any) -> str:
        Path(source).write_bytes(b"changed")
        return real(source, target, **more)

    session.get = get  # type: ignore[method-assign]
    with pytest.raises(PipelineError, match="but 7 bytes"):
        compiled(line, "1/2")
    assert line.run.stages()["collect"].state == "failed"


def test_a_full_disk_while_objects_come_home(tmp_path: Path, host: Compiler) -> None:
    line, session = desk(tmp_path, host)

    def get(*_: object, **__: object) -> str:
        raise StorageError("cannot write to out: no space", hint="Free some space.")

    session.get = get  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        compiled(line, "1/2")
    line.run.close()
    run = line.run
    with pytest.raises(ConfigError, match="were not downloaded"):
        linked(line, run)


def test_what_is_healed_leaves_the_units_alike(tmp_path: Path, host: Compiler) -> None:
    """Another tool set would make objects that fit no other share's."""
    line, _ = desk(tmp_path, host)
    toolset = (
        b"#error: -- unsupported Microsoft Visual Studio version! "
        b"Only the versions between 2017 and 2022 (inclusive) are supported!\n"
    )

    def fails(spec: dict[str, Any]) -> Iterator[Any]:
        host.specs.append(spec)
        yield toolset
        yield {"exit": 1}

    session = line.session.connect()
    session.job = fails  # type: ignore[attr-defined]
    with pytest.raises(BuildError, match="status 1"):
        compiled(line, "1/2")
    assert len(host.specs) == 1
