"""Kind ``container`` on a Windows engine that is none: see engine_simulator.py. Evidence level F.

The code of the host, the SDK, the protocol and the Python inside are the real ones.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from docker.models.containers import Container as Made
from engine_api import WindowsEngine, image, runs
from engine_simulator import Handler, Served
from sshd_server import DIAL_STDIO, needs_sshd, running
from test_cudafiles import store
from test_first_python_payload import cache_of, distribution
from tls_keys import Authority, serving

from pipelines.core.errors import ConfigError, HostError, PipelineError
from pipelines.core.yamlfile import read_yaml
from pipelines.doctor import passthrough
from pipelines.doctor.model import Facts
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.container.host import Container
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.manager import LABEL
from pipelines.hosts.passthrough import windows
from pipelines.plan.provisioning.resources import RESOURCES_FILE
from pipelines.remote import files

pytestmark = pytest.mark.slow


SERVERCORE = "mcr.microsoft.com/windows/servercore"
LTSC = {"20348": "10.0.20348.2700", "26100": "10.0.26100.1742", "17763": "10.0.17763.6293"}
GPU_CLASS = "class/5B45201D-F2F2-4F3B-85BB-30FF1F953599"


def reference(build: str) -> str:
    """servercore of that build, by its digest."""
    return f"{SERVERCORE}@{image(SERVERCORE, version=LTSC[build])['Id']}"


class Lab:
    """A Windows engine and hosts on it."""

    def __init__(
        self, place: Path, build: str = "20348", keys: ssl.SSLContext | None = None, **more: Any
    ) -> None:
        place.mkdir(exist_ok=True)
        self.place = place
        self.windows = WindowsEngine(place / "engine", build=build, **more)
        for version, text in LTSC.items():
            made = image(SERVERCORE, version=text)
            self.windows.registry[reference(version)] = made
        file = None if keys else place / "docker.sock"
        self.served = Served(self.windows, socket_file=file, keys=keys)
        self.cache = cache_of(place / "cache", distribution())
        self.hosts: list[Container] = []

    def host(self, name: str = "win", *, build: str = "", **keys: Any) -> Container:
        config = {
            "kind": "container",
            "image": reference(build or self.windows.build),
            "engine": self.served.url,
            **keys,
        }
        given = OpenOptions(python="3.11", cache=self.cache)
        host = Container(name, ContainerHost.model_validate(config), given)
        self.hosts.append(host)
        return host

    @property
    def names(self) -> list[str]:
        return [box.name for box in self.windows.boxes.values()]

    def only(self) -> dict[str, Any]:
        """The one container there is, as the engine shows it."""
        (box,) = self.windows.boxes.values()
        return box.inspect()

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        self.served.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def lab_of(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    made: list[Lab] = []

    def make(**keys: Any) -> Lab:
        made.append(Lab(tmp_path / f"lab{len(made)}", **keys))
        return made[-1]

    yield make
    for lab in made:
        lab.close()


def soon(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("build", "version"), [("20348", "20348"), ("26100", "26100"), ("26100", "20348")]
)
def test_the_whole_life(
    lab_of: Callable[..., Lab], tmp_path: Path, build: str, version: str
) -> None:
    """Fetched by digest, made, entered by exec, used, gone: with the Python that was put there."""
    lab = lab_of(build=build)
    lab.windows.driver = store
    host = lab.host(build=version, memory="16g", cpus=2.5, disk="200g", gpu=True)
    assert host.evidence.name == "WRITTEN"
    with host.connect() as session:
        (tmp_path / "sent").write_bytes(os.urandom(100_000))
        session.put(tmp_path / "sent", "there.bin")
        session.get("there.bin", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()
        shown = lab.only()
        (box,) = lab.windows.boxes.values()
        assert box.path(r"C:\wcw\python\python.exe").read_bytes() == b"MZ python"
        assert box.path(r"C:\wcw\python\Lib\os.pyc").read_bytes() == b"os"
        brought = box.root / r"C:\Windows\System32" / "nvcuda.dll"
        assert brought.read_text() == "nv_dispi.inf_amd64_1 nvcuda_loader64.dll"
    asked = shown["HostConfig"]
    assert asked["Isolation"] == "process"
    assert asked["Memory"] == 16 << 30
    assert asked["NanoCpus"] == 2_500_000_000
    assert asked["StorageOpt"] == {"size": "200g"}
    assert [device["PathOnHost"] for device in asked["Devices"]] == [GPU_CLASS]
    assert asked["AutoRemove"] is True
    assert not asked.get("PortBindings")
    assert shown["Config"]["Labels"][f"{LABEL}keep"] == "0"
    assert shown["Config"]["StdinOnce"] is True
    host.close()
    assert lab.names == []
    assert len(lab.windows.volumes) == 1, "compiled units stay"
    places = [mount["Target"] for mount in asked["Mounts"]]
    root = str(read_yaml(RESOURCES_FILE)["layout"]["build_root"]).casefold()
    assert places
    assert not any((root + "\\").startswith(place.casefold() + "\\") for place in places)


def works(host: Container) -> None:
    """Both ways, more than buffers hold, and an end that the engine notices."""
    with host.connect() as session:
        session.call(files.make_dirs, path="there")
        data = os.urandom(3_000_000)
        (host.options.cache.root / "sent").write_bytes(data)
        session.put(host.options.cache.root / "sent", "there/file")
        assert session.call(files.sha256, path="there/file") == hashlib.sha256(data).hexdigest()
        assert host._managed is not None
        host._managed.close()


def test_over_tls(lab_of: Callable[..., Lab], tmp_path: Path) -> None:
    authority = Authority()
    keys = serving(authority.issue(tmp_path / "server", address="127.0.0.1"))
    lab = lab_of(keys=keys)
    works(lab.host(engine_tls=str(authority.issue(tmp_path / "mine"))))
    soon(lambda: lab.names == [], "the container outlived its leash")


@needs_sshd
def test_over_ssh(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = lab.served.url.removeprefix("unix://")
    with running(tmp_path, monkeypatch) as sshd:
        sshd.docker(DIAL_STDIO.format(python=sys.executable, socket=place))
        works(lab.host(engine=sshd.url))
        soon(lambda: lab.names == [], "the container outlived its leash")


def test_nothing_is_asked_for_that_was_not(lab: Lab) -> None:
    with lab.host(cache=False).connect():
        asked = lab.only()["HostConfig"]
    assert not asked.get("Devices")
    assert not asked.get("StorageOpt")
    assert not asked.get("NanoCpus")
    assert lab.windows.volumes == {}


def test_an_entry_point_of_the_image_does_not_come_between(lab: Lab) -> None:
    """Such as VsDevCmd.bat of Microsoft's example: our command would be its argument."""
    made = lab.windows.registry[reference("20348")]
    assert isinstance(made, dict)
    made["Config"]["Entrypoint"] = ["C:\\BuildTools\\VsDevCmd.bat", "&&", "powershell.exe"]
    with lab.host().connect():
        assert lab.only()["Config"]["Entrypoint"][0].lower().endswith("findstr.exe")
        assert not lab.only()["Config"]["Cmd"]


def test_one_that_a_command_uses_is_not_removed_by_hand(lab: Lab) -> None:
    with lab.host().connect() as session:
        with pytest.raises(HostError, match="in use by another command"):
            lab.host().teardown()
        session.call(files.stat, path=".")


def test_one_that_does_not_go_away_fails_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As "Removal In Progress" for weeks: https://github.com/moby/moby/issues/40162."""
    host = lab.host()
    host.connect().close()
    genuine = host.manager.remove
    monkeypatch.setattr("pipelines.hosts.engine.manager._GONE", 0.0)
    monkeypatch.setattr(Made, "remove", lambda *_, **__: None)
    host.close()
    assert "cannot be removed" in caplog.text
    monkeypatch.undo()
    for one in host.manager.all("win"):
        genuine(one)


# -- lasting ones --------------------------------------------------------------------------------


def test_a_lasting_one_of_another_order_is_not_taken(lab: Lab) -> None:
    lab.host(keep=True, memory="4g").connect().close()
    with pytest.raises(ConfigError, match="does not match host"):
        lab.host(keep=True, memory="8g").connect()
    assert len(lab.names) == 1


def test_no_image_is_built_for_a_lasting_one_of_another(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as after an update: that takes hours, and the container does not match it."""
    lab.host(keep=True).connect().close()
    monkeypatch.setattr("pipelines.hosts.images.find", lambda *_: None)
    monkeypatch.setattr("pipelines.hosts.images.ensure", lambda *_: pytest.fail("it was built"))
    later = lab.host(keep=True, image="windows")
    assert later.unmade() == ""
    with pytest.raises(ConfigError, match="does not match host"):
        later.connect()


def test_a_lasting_one_that_its_maker_is_filling_is_waited_for(lab: Lab) -> None:
    """Started before it is filled it would have no Python."""
    first, second = lab.host(keep=True), lab.host(keep=True)
    fill, held, go_on = first.backend.fill, threading.Event(), threading.Event()

    def slowly(container: Made, cache: Any) -> None:
        held.set()
        assert go_on.wait(20)
        fill(container, cache)

    first.backend.fill = slowly  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as both:
        making = both.submit(first.connect)
        assert held.wait(20)
        adopting = both.submit(second.connect)
        time.sleep(0.3)
        assert lab.only()["State"]["Status"] == "created", "not started by the other"
        go_on.set()
        for one in (making, adopting):
            one.result(30).close()
    assert len(lab.names) == 1


def test_a_lasting_one_whose_maker_was_killed_before_its_start_is_made_anew(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = lab.host(keep=True)
    order = host.container_spec()
    with monkeypatch.context() as killed:
        killed.setattr(owners, "process_identity", lambda: f"{owners.machine_id()}/999999999/1-1")
        left = host.manager._create(order, 0, f"wcw-{owners.project_id()[:6]}-win")
    with host.connect() as session:
        assert session.call(files.stat, path=".") is not None
    assert lab.only()["Id"] != left.id


def test_a_lasting_one_that_only_says_it_is_of_this_order(lab: Lab) -> None:
    host = lab.host(keep=True)
    order = host.container_spec()
    lab.windows.add_image("other:1")
    labels = {"project": owners.project_id(), "host": "win", "keep": "1", "spec": order.digest}
    host.engine.client.containers.create(
        "other:1", name="x", labels={f"{LABEL}{key}": text for key, text in labels.items()}
    ).start()
    with pytest.raises(ConfigError, match="does not match host"):
        host.connect()


def test_names_of_hosts_and_numbers_do_not_meet(lab: Lab) -> None:
    with lab.host("a").connect(), lab.host("a-1", keep=True).connect():
        assert len(lab.names) == 2


@pytest.mark.parametrize("key", ["project", "host", "slot"])
def test_a_volume_of_another_is_not_taken(lab: Lab, key: str) -> None:
    labels = {"project": owners.project_id(), "host": "win", "slot": "1"} | {key: "another"}
    name = f"wcw-{owners.project_id()[:6]}-win-1-units"
    host = lab.host()
    host.engine.client.volumes.create(
        name, labels={f"{LABEL}{one}": text for one, text in labels.items()}
    )
    with pytest.raises(ConfigError, match=f"volume '{name}' does not belong to this host"):
        host.connect()
    assert lab.names == []


# -- what a Windows engine refuses ----------------------------------------------------------------


def refused(lab: Lab, kind: type[PipelineError], says: str, **keys: Any) -> PipelineError:
    host = lab.host(**keys)
    with pytest.raises(kind, match=says) as raised:
        host.connect()
    host.close()
    assert lab.names == [], "what was made for nothing is removed"
    return raised.value


def test_another_windows_than_the_engines(lab: Lab) -> None:
    told = refused(lab, ConfigError, "for a different Windows from the engine's", build="17763")
    assert "'isolation: hyperv'" in told.hint
    refused(lab, ConfigError, "newer Windows than the engine's own", build="26100")
    with lab.host(build="17763", isolation="hyperv").connect():
        asked = lab.only()["HostConfig"]
        assert asked["Isolation"] == "hyperv"
        assert asked["NanoCpus"] == lab.windows.info()["NCPU"] * 10**9, "a machine of two else"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Isolation", "hyperv"),
        ("Memory", 0),
        ("NanoCpus", None),
        ("StorageOpt", None),
        ("Devices", []),
    ],
)
def test_an_engine_that_makes_another_container(lab: Lab, key: str, value: object) -> None:
    def other(handler: Handler) -> None:
        shown = lab.windows.find(handler.asked.split("/")[2]).inspect()
        handler.answer({**shown, "HostConfig": {**shown["HostConfig"], key: value}})

    lab.served.replace("GET /containers/[^/]+/json", other)
    host = lab.host(cpus=2, disk="200g", gpu=True)
    with pytest.raises(HostError, match=f"{key} is .*requested was"):
        host.connect()


def test_it_is_restarted_with_its_files(lab: Lab) -> None:
    host = lab.host()
    session = host.connect()
    session.call(files.make_dirs, path="kept")
    first = lab.only()["State"]["Pid"]
    with host.restart(session) as again:
        assert again.call(files.stat, path="kept") is not None
    assert lab.only()["State"]["Pid"] != first
    assert host._managed is not None
    host._managed.close()
    soon(lambda: lab.names == [], "the container outlived its second leash")


def test_a_gpu_that_the_machine_has_not(lab: Lab) -> None:
    refused(lab, HostError, "the container has no GPU", gpu=True)


def test_limits_that_the_machine_has_not(lab: Lab) -> None:
    assert "'cpus'" in refused(lab, ConfigError, "fewer processors", cpus=64).hint


def test_winrm_is_refused_before_anything_is_made(lab: Lab) -> None:
    with pytest.raises(ConfigError, match="publishes ports on all addresses") as raised:
        lab.host(via="winrm")
    assert "via: exec" in raised.value.hint


def test_an_image_without_the_python_that_was_named(lab: Lab) -> None:
    told = refused(
        lab, PipelineError, r"C:\\Python311\\python\.exe", python=r"C:\Python311\python.exe"
    )
    assert "does not start" in told.message  # why, may have been lost: see hijack.py
    assert "Check that this Python exists" in told.hint


def test_an_engine_for_linux_containers(lab: Lab) -> None:
    def linux(handler: Handler) -> None:
        handler.answer(
            {**lab.windows.info(), "OSType": "linux", "OperatingSystem": "Docker Desktop"}
        )

    lab.served.replace("GET /info", linux)
    told = refused(lab, ConfigError, "needs an engine for Windows containers")
    assert "Switch to Windows containers" in told.hint


@pytest.mark.parametrize("machine", ["aarch64", None])
def test_an_engine_on_another_processor(lab: Lab, machine: str | None) -> None:
    about = {**lab.windows.info(), "Architecture": machine}
    lab.served.replace("GET /info", lambda handler: handler.answer(about))
    refused(lab, ConfigError, f"x86-64.*{machine}")


def test_an_image_that_is_not_to_be_had(lab: Lab) -> None:
    nowhere = f"{SERVERCORE}@sha256:{'0' * 64}"
    refused(lab, ConfigError, "the registry has no such image", image=nowhere)
    lab.windows.registry[nowhere] = "unauthorized: authentication required"
    refused(lab, PipelineError, "requires a sign-in", image=nowhere)


@pytest.mark.parametrize("host", ["17763", "20348", "26100"])
@pytest.mark.parametrize("version", ["17763", "20348", "26100"])
def test_the_doctor_and_the_engine_agree_on_builds(host: str, version: str) -> None:
    ours = windows.is_image_compatible(f"10.0.{host}", LTSC[version])
    assert ours in (runs(host, version, "process"), None)


def test_the_doctor_says_before_what_the_start_would_refuse(lab: Lab) -> None:
    """Nothing is made for it."""
    found = {one.id: one for one in passthrough.judge(Facts(lab.host(gpu=True).prerequisites()))}
    assert found["engine"].level == "ok"
    assert "Windows Server 2022" in found["engine"].actual
    assert lab.names == []
