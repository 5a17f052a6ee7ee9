"""Containers of ours on a real engine: made, entered, kept, lost, found, refused, removed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from project import ROOT, Project

from pipelines.core.errors import ConfigError, HostError, PipelineError, SetupError, StorageError
from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.container.host import Container
from pipelines.hosts.engine.container import ContainerSpec
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.images import Image
from pipelines.plan.config.model import load_config
from pipelines.remote import facts, files
from pipelines.session.base import GoneHostError
from pipelines.toolchain.lock import Cache

#: Seconds that a thing of a moment may take on a busy machine.
SOON = 20.0


@pytest.fixture
def project(
    tmp_path: Path, engine: Engine, sandbox_image: Image, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    made = Project(tmp_path, engine)
    monkeypatch.chdir(tmp_path)
    yield made
    made.clear()


@pytest.fixture
def opened(project: Project, cache: Cache) -> Iterator[Callable[..., Container]]:
    """Hosts of the project; what they have is closed afterwards."""
    hosts: list[Container] = []

    def open_one(name: str = "box", remember: Callable[[str], str] = str) -> Container:
        config = load_config().host(name)
        assert isinstance(config, ContainerHost)
        host = config.open(name, OpenOptions("3.11", cache, Silent(), remember))
        assert isinstance(host, Container)
        hosts.append(host)
        return host

    yield open_one
    for host in hosts:
        host.close()


def until(what: Callable[[], object], seconds: float = SOON) -> float:
    """How long it took."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)
    return time.monotonic() - began


#: What a shell starts in the background ignores Ctrl-C, and so does what that starts in turn.
HELD = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from pipelines.plan.config.model import load_config
from pipelines.hosts.base import OpenOptions
from pipelines.toolchain.lock import Cache, load_lock
host = load_config().host(sys.argv[1]).open(sys.argv[1], OpenOptions("3.11", Cache(load_lock())))
session = host.connect()
print("held", flush=True)
time.sleep(600)
"""


def controller(project: Project, host: str = "box") -> subprocess.Popen[str]:
    """Another process that has connected to a host."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, host],
        cwd=project.home,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("name", ["box", "by-exec"])
def test_one_comes_and_goes(
    name: str, project: Project, opened: Callable[..., Container], tmp_path: Path
) -> None:
    secrets: list[str] = []

    def remember(text: str) -> str:
        secrets.append(text)
        return text

    host = opened(name, remember)
    sent, back = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(os.urandom(3 << 20))
    with host.connect() as session:
        assert session.call(facts.facts)["platform"] == "win32"
        assert session.put(sent, r"C:\t\sent") == session.get(r"C:\t\sent", back)
        (one,) = project.containers()
        about = one.attrs
        bound = [port for ports in one.ports.values() for port in ports or ()]
        assert {port["HostIp"] for port in bound} == ({"127.0.0.1"} if name == "box" else set())
        assert about["HostConfig"]["Memory"] == 4 << 30
        assert about["HostConfig"]["CapDrop"] == ["ALL"]
        assert bool(secrets) == (name == "box")
        assert not [text for text in secrets if text in json.dumps(about)]
        assert not host.ended()
    host.close()
    assert back.read_bytes() == sent.read_bytes()
    assert project.containers() == []


def test_a_host_knows_its_bounds(opened: Callable[..., Container]) -> None:
    """Wine sees the whole machine's memory; a build that goes by it would be killed."""
    host = opened()
    with host.connect() as session:
        told = session.call(facts.facts)
    bounded = host.bounds.apply(told)
    assert bounded["memory"] is not None
    assert bounded["memory"]["total"] == min(4 << 30, (told["memory"] or {})["total"])


def test_several_at_a_time_from_one_definition(
    project: Project, opened: Callable[..., Container]
) -> None:
    first, second = opened(), opened()
    with first.connect() as one, second.connect() as other:
        one.call(files.make_dirs, path=r"C:\t\first")
        assert not other.call(files.stat, path=r"C:\t\first")
        names = sorted(str(container.name) for container in project.containers())
        assert [name[-6:] for name in names] == ["-box.1", "-box.2"]
        volumes = {m["Name"] for c in project.containers() for m in c.attrs["Mounts"]}
        assert len(volumes) == 4, "no two builds share a directory"


def test_what_is_kept_between_two(project: Project, opened: Callable[..., Container]) -> None:
    for there in (False, True):
        host = opened()
        with host.connect() as session:
            assert bool(session.call(files.stat, path=r"C:\b\unit")) is there
            assert not session.call(files.stat, path=r"C:\t\waste")
            session.call(files.make_dirs, path=r"C:\b\unit")
            session.call(files.make_dirs, path=r"C:\t\waste")
        host.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_controller(how: signal.Signals, project: Project) -> None:
    process = controller(project)
    assert len(project.containers()) == 1
    process.send_signal(how)
    process.wait(SOON)
    took = until(lambda: not project.containers())
    print(f"{how.name}: the container was gone {took:.2f} s after its controller")


def test_an_orphan_is_found_and_removed(project: Project, engine: Engine) -> None:
    """Of an engine that does not close the leash: the next one of the host sweeps first."""
    process = controller(project)
    (one,) = project.containers()
    # Its twin has no leash, and the labels of a process that is about to end.
    left = engine.client.containers.create(
        str(one.attrs["Image"]),
        ["sleep", "600"],
        name=f"{one.name}9",
        labels=one.labels,
        entrypoint=[],
    )
    left.start()
    process.kill()
    process.wait()
    until(lambda: len(project.containers()) == 1)
    code, said = project.wcw("hosts")
    assert code == 0
    assert "unused: its controller is gone" in said
    code, said = project.wcw("hosts", "--clean")
    assert code == 0, said
    assert "removed container" in said
    assert project.containers() == []


def test_a_lasting_one_is_found_again(project: Project, opened: Callable[..., Container]) -> None:
    first = opened("lasting")
    with first.connect() as session:
        session.call(files.make_dirs, path=r"C:\t\mine")
    first.close()
    (one,) = project.containers()
    again = opened("lasting")
    began = time.monotonic()
    with again.connect() as session:
        took = time.monotonic() - began
        assert session.call(files.stat, path=r"C:\t\mine")
    print(f"adopted and signed in after {took:.2f} s")
    assert [found.id for found in project.containers()] == [one.id]
    one.stop(timeout=5)
    third = opened("lasting")
    with third.connect() as session:  # started again, on the same files
        assert session.call(files.stat, path=r"C:\t\mine")
    project.give("hosts: {lasting: {kind: container, memory: 3g, keep: true}}\n")
    with pytest.raises(ConfigError, match="does not match host") as caught:
        opened("lasting").connect()
    assert "invoke host remove --host lasting" in caught.value.hint
    code, said = project.wcw("host", "remove", "--host", "lasting")
    assert code == HostError.exit_code
    assert "what runs there is unknown" in said
    code, said = project.wcw("host", "remove", "--host", "lasting", "--force")
    assert code == 0, said
    assert project.containers() == []


def test_a_lasting_one_that_dies_is_started_again(
    project: Project, opened: Callable[..., Container]
) -> None:
    host = opened("lasting")
    with host.connect() as session:
        session.call(files.make_dirs, path=r"C:\t\mine")
        (one,) = project.containers()
        one.kill()
        assert session.call(files.stat, path=r"C:\t\mine"), "the connection came back"


def test_one_that_is_gone_is_known_at_once(
    project: Project, opened: Callable[..., Container]
) -> None:
    host = opened()
    with host.connect() as session:
        assert session.call(facts.facts)
        (one,) = project.containers()
        one.remove(force=True)
        began = time.monotonic()
        with pytest.raises(GoneHostError, match=r"killed|removed"):
            session.call(facts.facts)
        assert time.monotonic() - began < SOON
        assert host.is_gone()
    host.close()
    with host.connect() as session:  # a new one
        assert session.call(facts.facts)


def test_a_wrong_pin_is_refused(opened: Callable[..., Container]) -> None:
    host = opened()
    host.connect().close()
    box = host._held()
    entrance = host.backend.connection_info(box, host.engine)
    assert entrance is not None
    wrong = type(entrance)(entrance.url, "0" * 64, entrance.user, entrance.password)
    from pipelines.session.channel import over_winrs

    with pytest.raises(HostError, match="certificate"):
        over_winrs(wrong.endpoint(str), host.executable, host.name)


def test_a_port_that_is_taken(project: Project, opened: Callable[..., Container]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        project.give(f"hosts: {{box: {{kind: container, port: {port}}}}}\n")
        with pytest.raises(HostError, match="the port is taken") as caught:
            opened().connect()
    assert "Remove 'port' of the host" in caught.value.hint
    assert project.containers() == []


def test_a_name_that_somebody_else_has(
    project: Project, engine: Engine, opened: Callable[..., Container], sandbox_image: Image
) -> None:
    name = f"wcw-{project.name[:6]}-lasting"
    other = engine.client.containers.create(sandbox_image.id, name=name)
    try:
        with pytest.raises(HostError, match="not created by this pipeline"):
            opened("lasting").connect()
    finally:
        other.remove()
    free = engine.client.containers.create(sandbox_image.id, name=f"wcw-{project.name[:6]}-box.1")
    try:
        with opened().connect() as session:  # another name is free for one that comes and goes
            assert session.call(facts.facts)
    finally:
        free.remove()


@pytest.mark.parametrize(
    ("hosts", "error", "says"),
    [
        (
            "hosts: {box: {kind: container, image: windows}}",
            ConfigError,
            "needs an engine for Windows containers",
        ),
        (
            "hosts: {box: {kind: container, system: linux, "
            f"image: 'nobody.invalid/x@sha256:{'0' * 64}'}}}}",
            HostError,
            "cannot reach the registry",
        ),
        ("hosts: {box: {kind: container, cpus: 999}}", ConfigError, "fewer processors"),
        ("hosts: {box: {kind: container, memory: 1m}}", ConfigError, "'memory' of the host"),
        ("hosts: {box: {kind: container, engine: 'unix:///nowhere'}}", SetupError, "no Docker"),
    ],
)
def test_what_cannot_be(
    hosts: str,
    error: type[PipelineError],
    says: str,
    project: Project,
    opened: Callable[..., Container],
) -> None:
    project.give(hosts + "\n")
    with pytest.raises(error, match=says) as caught:
        opened().connect()
    assert caught.value.hint
    assert project.containers() == []


def test_one_that_ends_at_once_says_why(
    project: Project, opened: Callable[..., Container], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = opened()
    order = host.container_spec

    def damaged() -> ContainerSpec:
        made = order()
        keys = {**made.keys, "entrypoint": ["/bin/sh", "-c", "echo it is not whole >&2; exit 3"]}
        return ContainerSpec(**{**vars(made), "keys": keys})

    monkeypatch.setattr(host, "container_spec", damaged)
    with pytest.raises(HostError, match=r"ended with exit code 3: it is not whole"):
        host.connect()
    assert project.containers() == []


def test_a_limit_that_the_engine_discarded(
    opened: Callable[..., Container], monkeypatch: pytest.MonkeyPatch, project: Project
) -> None:
    host = opened()
    api = host.engine.client.api
    create: Callable[..., object] = api.create_container_from_config

    def discarding(config: dict[str, dict[str, object]], *rest: object) -> object:
        config["HostConfig"] |= {"Memory": 0, "MemorySwap": 0}
        return create(config, *rest)

    monkeypatch.setattr(api, "create_container_from_config", discarding)
    with pytest.raises(HostError, match=f"Memory is 0, requested was {4 << 30}"):
        host.connect()
    assert project.containers() == []


def test_one_that_is_never_ready(
    project: Project, opened: Callable[..., Container], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = opened()
    order = host.container_spec

    def mute() -> ContainerSpec:
        made = order()
        keys = {**made.keys, "entrypoint": ["/bin/sh", "-c", "echo waiting; cat"]}
        return ContainerSpec(**{**vars(made), "keys": keys, "start_seconds": 2.0})

    monkeypatch.setattr(host, "container_spec", mute)
    with pytest.raises(HostError, match="was not ready after 2 s: waiting") as caught:
        host.connect()
    assert "start_minutes" in caught.value.hint
    assert project.containers() == []


def test_a_full_disk_says_so(
    opened: Callable[..., Container], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = opened()
    order = host.container_spec

    def small() -> ContainerSpec:
        made = order()
        keys = {**made.keys, "tmpfs": {"/sandbox/prefix/drive_c/t": "size=1m,mode=0700"}}
        return ContainerSpec(**{**vars(made), "keys": keys})

    monkeypatch.setattr(host, "container_spec", small)
    (tmp_path / "large").write_bytes(os.urandom(3 << 20))
    with host.connect() as session, pytest.raises(StorageError):
        session.put(tmp_path / "large", r"C:\t\large")
