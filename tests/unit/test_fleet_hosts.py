"""HostChecks of a fleet that are not as they must be, and which tasks fit which host."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plans import LAB
from sessions import Here

from pipelines.cli.fleets import refuse_with_fleet
from pipelines.core.errors import ConfigError, HostError, StorageError
from pipelines.core.units import GIB
from pipelines.fleet import checks
from pipelines.fleet.checks import HostChecks, survey_hosts
from pipelines.fleet.model import Machine
from pipelines.fleet.tasks import Cells, plan_hosts, tasks_of
from pipelines.plan.config.fleet import FleetSettings
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.plan import Plan, plan_matrix
from pipelines.record.materials import Material, Materials
from pipelines.remote import identity
from pipelines.session.base import UnfitHostError

ROOMY = FleetSettings(free_gib=0)
NAMES = "abcd"


def looked(hosts: HostChecks, name: str, **values: Any) -> None:
    """Have a host looked at that tells this of itself."""
    answer = {"place": "p", "boot": "b", "time": time.time(), "free": 100 * GIB, **values}
    session: Any = Here(answers={identity.identity: answer})
    hosts.look(name, session, r"C:\b")


def test_one_machine_under_two_names_is_one(tmp_path: Path) -> None:
    """By what it says of itself, also for who goes on with the fleet and asks the other first."""
    hosts = HostChecks(ROOMY, tmp_path, NAMES)
    looked(hosts, "a")
    looked(hosts, "a")
    looked(hosts, "c", place="another")
    looked(hosts, "d", boot="a copy of that machine, started by itself")
    with pytest.raises(UnfitHostError, match="b is the same machine and place as a"):
        looked(hosts, "b")
    again = HostChecks(ROOMY, tmp_path, NAMES)
    with pytest.raises(UnfitHostError, match="the same machine"):
        looked(again, "b")
    looked(again, "a")


def test_the_other_name_of_a_machine_may_be_removed(tmp_path: Path) -> None:
    """As the hint says, whichever of the two was looked at first."""
    looked(HostChecks(ROOMY, tmp_path, ["a", "b"]), "a")
    with pytest.raises(UnfitHostError, match="the same machine"):
        looked(HostChecks(ROOMY, tmp_path, ["a", "b"]), "b")
    looked(HostChecks(ROOMY, tmp_path, ["b"]), "b")
    with pytest.raises(UnfitHostError, match="a is the same machine and place as b"):
        looked(HostChecks(ROOMY, tmp_path, ["a", "b"]), "a")


@pytest.mark.parametrize(
    ("off", "said"), [(3630, "1 h 00 min ahead"), (-3630, "1 h 00 min behind")]
)
def test_a_clock_an_hour_off_is_refused(tmp_path: Path, off: float, said: str) -> None:
    with pytest.raises(UnfitHostError, match=said):
        looked(HostChecks(ROOMY, tmp_path, NAMES), "a", time=time.time() + off)
    looked(HostChecks(ROOMY, tmp_path, NAMES), "a", time=time.time() + off / 60)


def test_a_slow_answer_is_no_wrong_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host said was right at some moment between the question and the answer."""
    moments = iter([1000.0, 5000.0])
    monkeypatch.setattr(checks, "time", SimpleNamespace(time=lambda: next(moments)))
    looked(HostChecks(ROOMY, tmp_path, NAMES), "a", time=3000.0)


def test_a_full_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnfitHostError, match=r"3\.0 GiB free .* needs 10\.0 GiB") as caught:
        looked(HostChecks(FleetSettings(), tmp_path, NAMES), "a", free=3 * GIB)
    assert "free_gib" in caught.value.hint


@pytest.mark.parametrize(
    "values",
    [{"place": ""}, {"place": "x" * 65}, {"time": "now"}, {"time": float("nan")}, {"free": -1}],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(UnfitHostError, match="invalid facts"):
        looked(HostChecks(ROOMY, tmp_path, NAMES), "a", **values)


def chain(*, without: str = "", **changes: str) -> Materials:
    """What a build is made of, with some values changed."""
    rows: list[Material] = [
        Material("source", "archive", changes.get("source", "s")),
        Material("toolset", "label", changes.get("toolset", "MSVC 14.44")),
        Material("found", "visual-studio", '{"version": "17.14"}'),
        Material("variable", "TEMP", changes.get("temp", "{temp}")),
    ]
    return Materials.of(row for row in rows if row.kind != without)


def test_another_tool_chain_is_refused_with_both_values(tmp_path: Path) -> None:
    hosts = HostChecks(ROOMY, tmp_path, NAMES)
    hosts.agree("a", "3.11", chain())
    hosts.agree("b", "3.11", chain(source="of another cell", temp="D:/t"))
    hosts.agree("c", "3.12", chain(toolset="MSVC 14.51"))  # of another Python
    with pytest.raises(UnfitHostError, match=r"toolset label is MSVC 14\.51, there MSVC 14\.44"):
        hosts.agree("c", "3.11", chain(toolset="MSVC 14.51"))
    with pytest.raises(UnfitHostError, match="than when this fleet began") as caught:
        HostChecks(ROOMY, tmp_path, NAMES).agree("a", "3.11", chain(toolset="MSVC 14.51"))
    assert "hosts.json" in caught.value.hint
    with pytest.raises(UnfitHostError, match="is absent, there"):
        HostChecks(ROOMY, tmp_path, NAMES).agree("d", "3.11", chain(without="found"))


def test_a_tool_chain_is_compared_by_whole_names(tmp_path: Path) -> None:
    """What a host calls its own may be long, or be called as what is not compared."""
    long = "n" * 120
    for number, name in enumerate([f"{long} 1", "requested toolset"]):
        rows = [Material("found", f"{long} 2", "same"), Material("found", name, "one")]
        checks = HostChecks(ROOMY, tmp_path / str(number), NAMES)
        (tmp_path / str(number)).mkdir()
        checks.agree("a", "3.11", Materials.of(rows))
        with pytest.raises(UnfitHostError, match="is another, there one"):
            checks.agree("b", "3.11", Materials.of([*rows, Material("found", name, "another")]))


def test_what_was_known_of_hosts_and_is_damaged_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text('{"chains": {"3.11": {"host": 7}}}')
    with pytest.raises(StorageError, match=r"hosts\.json cannot be read"):
        HostChecks(ROOMY, tmp_path, NAMES).agree("a", "3.11", chain())


def test_threads_that_agree_at_once_lose_nothing(tmp_path: Path) -> None:
    hosts = HostChecks(ROOMY, tmp_path, NAMES)
    threads = [
        threading.Thread(target=hosts.agree, args=("a", f"group {n}", chain())) for n in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(json.loads((tmp_path / "hosts.json").read_text())["chains"]) == 8


def test_a_place_has_one_name_for_all_who_look(tmp_path: Path) -> None:
    root = str(tmp_path / "made" / "b")
    first, second = identity.identity(root), identity.identity(root)
    assert first["place"] == second["place"] != ""
    assert first["boot"] == second["boot"]
    assert first["free"] > 0
    assert identity.identity(str(tmp_path / "other"))["place"] != first["place"]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (HostError("no answer\nfrom 127.0.0.1"), "no answer from 127.0.0.1"),
        (RuntimeError("\x1b[31mwhat"), "this should not happen: RuntimeError: what"),
    ],
)
def test_a_host_that_cannot_be_looked_at_is_aside(
    settings: Config, error: Exception, why: str
) -> None:
    """And the others go on."""

    def away() -> Any:
        raise error

    found = survey_hosts(settings, {"lab1": away})
    assert found.aside == {"lab1": why}
    assert [*found.machines] == ["lab1"]


def test_what_is_wrong_here_leaves_a_host_out(settings: Config) -> None:
    """A password that is not set does not come by waiting."""
    error = ConfigError("LAB1_PW is not set", hint="export LAB1_PW")

    def unset() -> Any:
        raise error

    found = survey_hosts(settings, {"lab1": unset})
    assert found.left_out == {"lab1": error}
    assert not found.aside
    assert not found.machines


# -- tasks ----------------------------------------------------------------------------------------

HOSTS: dict[str, Any] = {
    "sand": {"kind": "sandbox"},
    "lab1": LAB,
    "lab2": LAB,
}


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    return Config.model_validate({"hosts": HOSTS, "out": str(tmp_path)})


def machine(name: str, *gpus: str) -> Machine:
    return Machine(name=name, cores=8, memory=64 * GIB, gpus=gpus)


def cells(
    settings: Config, *machines: Machine, test: bool = True, shards: int | None = None, **axes: str
) -> Cells:
    asked = []

    def plan(name: str, _: HostFacts | None) -> Plan:
        asked.append(name)
        facts = HostFacts(cores=8, memory=64 * GIB, origin="a host")
        return plan_matrix(settings, Request(axes={**axes, "host": name}), facts=facts)

    plans = plan_hosts(settings.hosts, {}, plan)
    assert asked == ["sand", "lab1"], "hosts that are alike are asked once"
    return tasks_of(plans, {one.name: one for one in machines}, test=test, shards=shards)


def test_cells_go_to_the_hosts_that_fit_and_say_why_not_to_others(settings: Config) -> None:
    made = cells(settings, python="3.11,3.12", archs="80")
    by_key = {one.key: one for one in made.tasks}
    both = by_key["smoke-attention-cp311-cu130"]
    assert both.hosts == ("sand", "lab1", "lab2")
    labs = by_key["smoke-attention-cp312-cu130"]
    assert labs.hosts == ("lab1", "lab2")
    assert "not 3.12" in labs.refused["sand"]
    assert made.axes[labs.key]["python"] == "3.12"
    assert "host" not in made.axes[labs.key]
    assert both.warm != labs.warm
    assert not made.left_out


def test_tests_go_where_the_right_gpu_is(settings: Config) -> None:
    known = machine("sand"), machine("lab1", "8.9"), machine("lab2", "9.0", "12.0")
    made = cells(settings, *known, python="3.11", archs="90|80")
    by_key = {one.key: one for one in made.tasks}
    right = by_key["smoke-attention-cp311-cu130-sm90/test"]
    assert (right.hosts, right.needs.gpu, right.needs.slots) == (("lab2",), ("9.0",), 0)
    assert right.after == ("smoke-attention-cp311-cu130-sm90",)
    assert "8.9" in right.refused["lab1"]
    nowhere = by_key["smoke-attention-cp311-cu130-sm80/test"]
    assert (nowhere.hosts, nowhere.needs.gpu) == (("sand", "lab1", "lab2"), ())


def test_a_divided_cell_is_its_shares_and_their_link(settings: Config) -> None:
    made = cells(settings, python="3.11", archs="80", shards=3)
    kinds = [(one.key.partition("cu130")[2], one.kind) for one in made.tasks]
    assert kinds == [
        ("/1of3", "shard"),
        ("/2of3", "shard"),
        ("/3of3", "shard"),
        ("", "link"),
        ("/test", "test"),
    ]
    link = made.tasks[3]
    assert link.after == tuple(one.key for one in made.tasks[:3])
    assert {one.cell for one in made.tasks} == {link.key}


def test_hosts_that_were_not_asked_yet_are_of_any_size(settings: Config) -> None:
    """``--shards auto`` begins with these."""
    plans = plan_hosts(
        {name: settings.hosts[name] for name in ("lab1", "lab2")},
        {},
        lambda name, _: plan_matrix(
            settings, Request(axes={"recipe": "smoke-attention-torch", "host": name})
        ),
    )
    assert [one.kind for one in tasks_of(plans, {}, test=False, shards=0).tasks] == ["cell"]


def test_what_no_host_can_build_is_left_out_with_the_reason(settings: Config) -> None:
    alone = settings.model_copy(update={"hosts": {"sand": settings.hosts["sand"]}})

    def of(**axes: str) -> Cells:
        plans = plan_hosts(
            alone.hosts,
            {},
            lambda name, _: plan_matrix(alone, Request(axes={**axes, "host": name})),
        )
        return tasks_of(plans, {}, test=False)

    made = of(python="3.11,3.12", archs="80")
    assert [one.key for one in made.tasks] == ["smoke-attention-cp311-cu130"]
    assert "not 3.12" in made.left_out["smoke-attention-cp312-cu130"]
    with pytest.raises(ConfigError, match=r"no host .* not 3\.12"):
        of(python="3.12", archs="80")


# -- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([("build", {}), ("jobs", {})], "here is jobs"),
        ([("provision", {})], "here is only provision"),
        ([("test", {})], "here is only test"),
        ([("build", {"host": "a"})], "--host does not go"),
        ([("build", {"minutes": 3.0})], "--minutes does not go"),
        ([("build", {"shard": "1/2"})], "--shard does not go"),
        ([("build", {}), ("test", {"run": "r"})], "--run does not go"),
    ],
)
def test_what_means_one_host_or_one_run_does_not_go_with_a_fleet(
    calls: list[tuple[str, dict[str, Any]]], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        refuse_with_fleet(calls)
