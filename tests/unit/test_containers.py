"""Hosts in containers, as far as no engine is needed: keys, orders, owners, what has no owner."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.hosts.base import OwnedItem
from pipelines.hosts.bounds import Bounds, in_bytes
from pipelines.hosts.container.backends import SandboxBackend, WindowsBackend
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.engine import manager, owners
from pipelines.hosts.engine.container import ContainerSpec
from pipelines.hosts.engine.manager import ContainerManager
from pipelines.hosts.images import inventory
from pipelines.hosts.images.build import _SCRATCH
from pipelines.hosts.images.lookup import OLD
from pipelines.hosts.images.record import MADE_BY
from pipelines.hosts.sandbox.inventory import list_sandboxes, note_user
from pipelines.plan.config.model import Config, load_config
from pipelines.session.base import GoneHostError
from pipelines.stages import hosts as stage

GONE = f"{owners.machine_id()}/1/x"


def refused(tmp_path: Path, keys: str) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"hosts: {{box: {{kind: container, {keys}}}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return caught.value.message


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("image: 'debian:12'", "found 'debian:12'"),
        ("image: 'x@sha256:12'", "NAME@sha256:"),
        ("image: sandbox, disk: 100g", "disk is not valid"),
        ("image: sandbox, isolation: process", "isolation is not valid"),
        ("image: sandbox, gpu: true", "gpu: bridge"),
        ("image: sandbox, system: linux", "system requires"),
        ("image: windows, isolation: hyperv, gpu: true", "isolation: hyperv and gpu"),
        ("image: windows, gpu: '0000:01:00.0'", "PCI addresses are for kind vm"),
        ("image: windows, python: python", r"such as C:\Python311\python.exe"),
        ("via: exec, port: 5986", "port requires via: winrm"),
        ("memory: 8", "memory"),
        ("memory: 8gb", "memory"),
        ("cpus: 0", "cpus"),
        ("engine: 'ftp://x'", "engine"),
        ("password: x", "password: unknown key"),
    ],
)
def test_keys_that_do_not_go_together(tmp_path: Path, keys: str, said: str) -> None:
    assert said in refused(tmp_path, keys)


def keys_of(**keys: Any) -> ContainerHost:
    return ContainerHost.model_validate({"kind": "container", **keys})


class Elsewhere:
    """An engine, as faces see it."""

    remote = "server"


class Here(Elsewhere):
    remote = ""


def test_the_sandbox_gets_no_right_and_no_open_port() -> None:
    face = SandboxBackend(keys_of(memory="4g", cpus=1.5), "3.11")
    made = face.keys(Here())  # type: ignore[arg-type]
    assert made["ports"] == {"5986/tcp": ("127.0.0.1", None)}
    assert made["cap_drop"] == ["ALL"]
    assert made["security_opt"] == ["no-new-privileges"]
    assert made["mem_limit"] == made["memswap_limit"] == "4g"
    assert made["nano_cpus"] == 1_500_000_000
    assert "ports" not in face.keys(Elsewhere())  # type: ignore[arg-type]
    by_exec = SandboxBackend(keys_of(via="exec"), "3.11")
    assert "ports" not in by_exec.keys(Here())  # type: ignore[arg-type]


def test_a_windows_container_is_asked_for_what_engines_know() -> None:
    keys = keys_of(image="windows", memory="16g", cpus=8, disk="200g", gpu=True)
    made = WindowsBackend(keys, "3.11").keys(Here())  # type: ignore[arg-type]
    assert made["isolation"] == "process"
    assert made["storage_opt"] == {"size": "200g"}
    assert made["devices"] == ["class/5B45201D-F2F2-4F3B-85BB-30FF1F953599"]
    for name in ("memswap_limit", "pids_limit", "cap_drop", "security_opt"):
        assert name not in made, "moby refuses it on Windows"


def test_an_order_is_known_by_all_that_was_asked() -> None:
    order = ContainerSpec(host="box", kind="container", image="sha256:1", keys={"mem_limit": "4g"})
    other = [
        replace(order, image="sha256:2"),
        replace(order, keys={"mem_limit": "8g"}),
        replace(order, caches={"builds": "/b"}),
        replace(order, kind="vm"),
    ]
    assert len({one.digest for one in [order, *other]}) == 5
    assert replace(order, start_seconds=5.0, host="x").digest == order.digest


def test_amounts() -> None:
    assert [in_bytes(text) for text in ("512m", "8g", "1T")] == [512 << 20, 8 << 30, 1 << 40]


def test_bounds_hold_whatever_a_host_tells() -> None:
    facts: Any = {"cpus": 64, "memory": {"total": 1 << 40, "available": 1 << 20}}
    bounded = Bounds(cores=4, memory=8 << 30).apply(facts)
    assert bounded["cpus"] == 4
    memory: Any = bounded["memory"]
    assert memory["total"] == 8 << 30
    assert memory["available"] == 1 << 20
    silent: Any = {"cpus": "many", "memory": None}
    assert Bounds(cores=4, memory=8 << 30).apply(silent)["memory"] == {
        "total": 8 << 30,
        "available": 8 << 30,
        "commit_limit": 8 << 30,
        "commit_available": 8 << 30,
    }
    assert Bounds().apply(facts) == facts


# -- owners -------------------------------------------------------------------------------------


def test_a_process_is_alive_until_it_ends() -> None:
    assert owners.is_owner_alive(owners.process_identity()) is True
    code = "from pipelines.hosts.engine import owners; print(owners.process_identity())"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert owners.is_owner_alive(ended) is False
    machine, _, began = owners.process_identity().split("/")
    assert owners.is_owner_alive(f"{machine}/{os.getpid()}/another-time") is False, (
        "its number, not it"
    )
    assert owners.is_owner_alive(f"elsewhere/{os.getpid()}/{began}") is None
    for nonsense in ("", "x", f"{machine}/", f"{machine}/x/y", f"{machine}/{os.getpid()}/"):
        assert not owners.is_owner_alive(nonsense)


@pytest.mark.skipif(sys.platform == "win32", reason="asks ps")
def test_an_owner_fits_into_a_tag_wherever_he_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scratch name of an image ends with him; elsewhere ps tells the time with colons."""
    said = subprocess.CompletedProcess([], 0, stdout="Sun Nov 22 16:08:01 2026    \n")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    me = owners.process_identity()
    assert owners.is_owner_alive(me) is True
    tag = f"py311-{'0' * 12}-{me.replace('/', '_')}.part"
    assert re.fullmatch(r"[\w][\w.-]{0,127}", tag)
    assert (found := _SCRATCH.search(tag)) is not None
    assert found[1].replace("_", "/", 2) == me


def test_a_checkout_is_one_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for name in ("a", "b"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "pipeline.yaml").write_text("")
        for place in (tmp_path / name, tmp_path / name / "below"):
            monkeypatch.chdir(place)
            found.add(owners.project_id())
    assert len(found) == 2


@pytest.mark.parametrize(
    ("labels", "keeps", "unowned"),
    [
        ({"keep": "1", "host": "box"}, {"box": True}, ""),
        ({"keep": "1", "host": "box"}, {"box": False}, "no such host with keep"),
        ({"keep": "1", "host": "box"}, {}, "no such host with keep"),
        ({"keep": "0", "host": "box", "owner": owners.process_identity()}, {}, ""),
        (
            {"keep": "0", "host": "box", "owner": f"{owners.machine_id()}/1/x"},
            {},
            "controller is gone",
        ),
        ({"keep": "0", "host": "box", "owner": "elsewhere/1/x"}, {}, ""),
    ],
)
def test_whose_a_container_is(labels: dict[str, str], keeps: dict[str, bool], unowned: str) -> None:
    found = inventory._unowned_container(labels, keeps)
    assert (unowned in found) if unowned else not found


def test_one_engine_by_two_names_has_the_hosts_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the volumes of one have no owner when the other is checked."""
    seen: list[Any] = []

    def items(_: object, *known: object) -> tuple[OwnedItem, ...]:
        seen.append(known)
        return ()

    monkeypatch.setattr(inventory, "list_owned_items", items)
    monkeypatch.setattr("pipelines.hosts.images.inventory.list_image_items", lambda _: ())
    monkeypatch.setattr(ContainerHost, "reach", lambda _: None)
    hosts = {
        "box": keys_of(),
        "lasting": keys_of(engine="unix:///var/run/docker.sock", keep=True),
    }
    for host in hosts.values():
        assert list(host.owned_items(hosts)) == []
    assert seen == [({"box": False, "lasting": True}, {"container"})] * 2


def test_whose_a_volume_is() -> None:
    gone = {"host": "gone"}
    assert "no such host" in inventory._unowned_volume(gone, {"box": True}, {"container"})
    assert not inventory._unowned_volume({"host": "box"}, {"box": True}, {"container"})
    golden = gone | {"kind": "golden"}
    assert not inventory._unowned_volume(golden, {"m": True}, {"vm"}), "hosts share it"
    assert inventory._unowned_volume(golden, {"box": True}, {"container"})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_number_of_another_room_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controllers in containers of one image share a machine id and count their own processes."""
    me = owners.process_identity()
    monkeypatch.setattr(owners, "_process_namespace", lambda: "another0")
    assert owners.is_owner_alive(me) is None


def test_two_files_of_hosts_are_two_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the hosts of one have no owner for the other."""
    (tmp_path / "pipeline.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WCW_CONFIG", raising=False)
    plain = owners.project_id()
    monkeypatch.setenv("WCW_CONFIG", "pipeline.yaml")
    assert owners.project_id() == plain
    monkeypatch.setenv("WCW_CONFIG", "ci.yaml")
    assert owners.project_id() != plain


# -- invoke hosts -------------------------------------------------------------------------------


class Shelf:
    """Things that remember their removal."""

    def __init__(self, fails: str = "") -> None:
        self.removed: list[str] = []
        self.fails = fails

    def thing(self, name: str, what: str = "container", unowned: str = "") -> OwnedItem:
        def remove() -> None:
            if name == self.fails:
                raise HostError(f"{name} does not go")
            self.removed.append(name)

        return OwnedItem(
            what=what,
            name=name,
            host="box",
            state="running",
            size=1 << 20,
            who="me@here",
            unowned=unowned,
            remove=remove,
        )


@pytest.fixture
def settings() -> Config:
    return Config.model_validate(
        {
            "hosts": {
                "box": {"kind": "container"},
                "far": {"kind": "container", "engine": "ssh://ci@far"},
            }
        }
    )


def shelve(monkeypatch: pytest.MonkeyPatch, shelf: Shelf, far: PipelineError | None) -> None:
    def things(self: ContainerHost, _: object) -> list[OwnedItem]:
        if self.engine:
            if far is not None:
                raise far
            return []
        return [
            shelf.thing("wcw-x-disk", "volume", "pipeline.yaml has no such host"),
            shelf.thing("wcw-x-box-1"),
            shelf.thing("wcw-x-old-1", unowned="its controller is gone"),
        ]

    monkeypatch.setattr(ContainerHost, "owned_items", things)


def test_what_is_nobodys_is_removed_and_nothing_else(
    settings: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf = Shelf()
    shelve(monkeypatch, shelf, None)
    stage.remove_unowned(settings)
    assert shelf.removed == ["wcw-x-old-1", "wcw-x-disk"], "volumes after containers"
    assert "2 removed, 2.0 MiB freed" in capsys.readouterr().out


def test_what_labels_say_is_no_markup(
    settings: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = replace(Shelf().thing("x", "[/what]"), who="[/me]", host="[/host]", state="[red]")
    monkeypatch.setattr(ContainerHost, "owned_items", lambda *_: [made])
    stage.show(settings)
    shown = capsys.readouterr().out
    for said in ("[/what]", "[/me]", "[/host]", "[red]"):
        assert said in shown


def test_an_image_that_somebody_has_given_a_name_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {MADE_BY: owners.project_id()}
    ours, theirs = "windows-cuda-wheels/sandbox:py311-0", "registry.example/mine:1"
    listed = [
        {"Id": f"sha256:{number}", "Labels": labels, "RepoTags": tags}
        for number, tags in enumerate(([ours], [ours, theirs], None))
    ]
    removed: list[str] = []
    api = SimpleNamespace(containers=lambda **_: [], remove_image=removed.append)
    engine: Any = SimpleNamespace(client=SimpleNamespace(api=api))
    monkeypatch.setattr(inventory, "list_own_images", lambda _: listed)
    monkeypatch.setattr(inventory, "state_of", lambda *_: OLD)
    for thing in inventory.list_image_items(engine):
        if thing.unowned:
            thing.remove()
    assert removed == [ours, "sha256:2"]


def test_a_sandbox_beside_ours_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two checkouts may have theirs in one directory; that of a checkout is its own."""
    monkeypatch.chdir(tmp_path)
    shared = tmp_path / "shared"
    for path in (shared / "mine", shared / "theirs", tmp_path / ".sandbox/left"):
        (path.with_name(f"{path.name}-py3.11") / "prefix").mkdir(parents=True)
    found = {thing.host: thing.unowned for thing in list_sandboxes({"mine": shared / "mine"})}
    assert found == {"mine": "", "left": "pipeline.yaml has no such host"}


def test_a_sandbox_of_another_file_of_hosts_is_somebodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As fleet.yaml next to pipeline.yaml has some, until that file is gone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text("hosts: {one: {kind: sandbox}}\n")
    one = tmp_path / ".sandbox/one-py3.11"
    (one / "prefix").mkdir(parents=True)
    monkeypatch.setenv("WCW_CONFIG", "fleet.yaml")
    note_user(one)
    monkeypatch.delenv("WCW_CONFIG")
    for _ in range(2):
        assert [thing.unowned for thing in list_sandboxes({})] == [""]
        note_user(one)  # this configuration had such a host as well
    (tmp_path / "fleet.yaml").unlink()
    assert [bool(thing.unowned) for thing in list_sandboxes({})] == [True]


def test_an_engine_that_does_not_answer_hides_nothing_of_the_others(
    settings: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf = Shelf(fails="wcw-x-disk")
    shelve(monkeypatch, shelf, HostError("no answer", hint="Look there."))
    stage.show(settings)
    shown = capsys.readouterr().out
    assert "wcw-x-old-1" in shown
    assert "no answer. Look there." in shown
    assert "2 of them are unused" in shown
    places = {place["place"]: place for place in stage.as_json(settings)["places"]}
    assert places["engine ssh://ci@far"]["error"] == "no answer"
    assert [t["unowned"] for t in places["the default Docker engine"]["things"]].count("") == 1
    with pytest.raises(HostError):
        stage.remove_unowned(settings)
    assert shelf.removed == ["wcw-x-old-1"], "the rest is done all the same"


def test_one_that_is_just_ending_is_asked_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is taking a container down answers questions about it with odd errors."""
    order = ContainerSpec(host="box", kind="container", image="sha256:1", keys={})
    ends: list[HostError | None] = [None, None, GoneHostError("it was not whole")]
    dying: Any = SimpleNamespace(spec=order, ended=lambda: ends.pop(0), name="x")
    alive: Any = SimpleNamespace(spec=order, ended=lambda: None, name="x")
    dying.require_limits = alive.require_limits = bool

    def odd(_: object) -> None:
        raise HostError("mount /var/lib: no such file or directory")

    made = object.__new__(ContainerManager)
    with pytest.raises(GoneHostError, match="it was not whole"):
        made.await_ready(dying, odd)
    monkeypatch.setattr(manager, "_LAST_WORDS", 0.1)
    with pytest.raises(HostError, match="mount /var/lib"):
        made.await_ready(alive, odd)
