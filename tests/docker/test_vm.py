"""Kind vm on a real engine, with the stand-in: Linux under QEMU/TCG, not Windows (evidence B)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from docker.models.containers import Container

from pipelines.core.errors import ConfigError, HostError, SetupError
from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.engine.containerfiles import read_container_file
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.enginehost import ConnectionInfo
from pipelines.hosts.engine.manager import ContainerManager
from pipelines.hosts.images import Image
from pipelines.hosts.vm import disks
from pipelines.hosts.vm import host as vm_host
from pipelines.hosts.vm.config import VmHost
from pipelines.hosts.vm.golden import GoldenDiskBuilder
from pipelines.hosts.vm.host import Vm
from pipelines.hosts.vm.machine import GIVEN, KNOWN, keys_of
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.remote import facts, files
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Endpoint, Secret
from pipelines.session.transports.identify import is_winrm_listening
from pipelines.toolchain.lock import Cache

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REPOSITORY = "windows-cuda-wheels-standin"
PYTHON = r"C:\Python311\python.exe"
BOOT_MINUTES = 10.0
#: How the image ends when it was asked to (src/power.sh of dockur/windows): the signal's code.
STOPPED = 128 + signal.SIGTERM

Make = Callable[..., Vm]


class Steps(Silent):
    """What the host tells."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def step(self, text: str) -> None:
        self.told.append(text)
        print(f"{time.monotonic() - BEGAN:7.1f} s  {text}", flush=True)


BEGAN = time.monotonic()


def figure(what: str, seconds: float) -> None:
    print(f"FIGURE {what}: {seconds:.1f} s", flush=True)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    figure(what, time.monotonic() - began)


def debian(engine: Engine, image: Image) -> str:
    """What the sandbox's image stands on."""
    base = image.record["inputs"]["base"]
    digest = str(base["digest"])
    names = (
        f"windows-cuda-wheels/base:{digest.removeprefix('sha256:')[:24]}",
        f"{base['name']}@{digest}",
        digest,
    )
    found = next(filter(None, map(engine.image, names)))
    return str(found["Id"])


@pytest.fixture(scope="session")
def standin(engine: Engine, sandbox_image: Image, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of the stand-in's image; of older ones nothing is left."""
    packed = tmp_path_factory.mktemp("standin") / "context.tar"
    told = hashlib.sha256(sandbox_image.id.encode())
    with tarfile.open(packed, "w") as archive:
        for path in sorted((HERE / "standin").iterdir()):
            archive.add(path, path.name)
            told.update(path.read_bytes())
    tag = f"{REPOSITORY}:{told.hexdigest()[:12]}"
    about = engine.image(tag)
    if about is None:
        arguments = {"BASE": debian(engine, sandbox_image), "SANDBOX": sandbox_image.id}
        with timed("stand-in built"):
            about = engine.build_image(packed, tag, print, buildargs=arguments)
        for old in engine.client.images.list(name=REPOSITORY):
            if old.id != about["Id"]:
                with contextlib.suppress(APIError):  # another run uses it
                    engine.client.images.remove(str(old.id))
    return str(about["Id"])


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project of its own: what other commands on this engine make is not touched."""
    here, there = Path.cwd(), tmp_path_factory.mktemp("project")
    os.chdir(there)
    yield there
    os.chdir(here)


@pytest.fixture(scope="module")
def boxes(engine: Engine, place: Path) -> Iterator[ContainerManager]:
    """What there is of this project; it is empty at the end."""
    made = ContainerManager(engine)
    yield made
    for found in made.all():
        made.remove(found)
    for volume in made.volumes():
        volume.remove(force=True)


def keys(standin: str, **other: Any) -> dict[str, Any]:
    return {
        "kind": "vm",
        "windows": "2025",
        "image": standin,
        "memory": "2g",
        "cpus": 2,
        "disk": "32g",
        "kvm": False,
        "python": PYTHON,
        "start_minutes": BOOT_MINUTES,
        **other,
    }


@pytest.fixture(scope="module")
def make(standin: str, cache: Cache, boxes: ContainerManager) -> Make:
    """A host of the stand-in's."""

    def made(name: str = "vm", **other: Any) -> Vm:
        given = VmHost.model_validate(keys(standin, **other))
        MADE.append(Vm(name, given, OpenOptions("3.11", cache, Steps())))
        return MADE[-1]

    return made


MADE: list[Vm] = []


@pytest.fixture(autouse=True)
def closed(boxes: ContainerManager) -> Iterator[None]:
    """What a test that failed has left would take the others' processors."""
    yield
    while MADE:
        MADE.pop().close()
    for found in boxes.all():
        boxes.remove(found)


@pytest.fixture(scope="module")
def golden(make: Make) -> disks.Record:
    """The golden disk that all machines here are overlays of."""
    with timed("golden disk installed and sealed"):
        vm = make()
        vm.prepare()
    return vm.golden_builder.ensure()


def disks_of(containers: Iterable[Container]) -> set[str]:
    """The volumes without a name: each machine's own disk."""
    mounts = [mount for one in containers for mount in one.attrs["Mounts"]]
    found = {m["Name"] for m in mounts if m["Destination"] == "/storage"}
    assert all(re.fullmatch("[0-9a-f]{64}", name) for name in found), found
    return found


def left(engine: Engine, volumes: set[str]) -> set[str]:
    """Those that are still there."""
    return volumes & {volume.name for volume in engine.client.volumes.list()}


def gone(boxes: ContainerManager, host: str, seconds: float) -> float:
    """How long it takes until no container of that host is left."""
    began = time.monotonic()
    while boxes.all(host):
        assert time.monotonic() - began < seconds, [one.name for one in boxes.all(host)]
        time.sleep(0.05)
    return time.monotonic() - began


def size_of(session: Session, path: str) -> int | None:
    found = session.call(files.stat, path=path)
    return None if found is None else found["size"]


def inside(engine: Engine, standin: str, volume: str, script: str) -> str:
    """What a script prints in a volume, by another way than the code under test."""
    made = engine.client.containers.create(
        standin,
        ["-ec", f"cd /v; {script}"],
        entrypoint="sh",
        volumes={volume: {"bind": "/v", "mode": "rw"}},
        network_mode="none",
    )
    try:
        made.start()
        assert made.wait()["StatusCode"] == 0, made.logs()
        return made.logs().decode()
    finally:
        made.remove(force=True, v=True)


# -- the golden disk -------------------------------------------------------------------------------


def test_a_golden_disk_is_made_and_sealed(
    engine: Engine, standin: str, make: Make, boxes: ContainerManager, golden: disks.Record
) -> None:
    volume = make().golden_builder.volume.name
    rows = inside(engine, standin, volume, "sha256sum data.qcow2 windows.*").split()
    assert {n: f.sha256 for n, f in golden.files.items()} == dict(
        zip(rows[1::2], rows[::2], strict=True)
    )
    assert {"data.qcow2", "windows.boot", "windows.base"} <= golden.files.keys()
    assert golden.origin["windows"] == "2025"
    assert re.fullmatch("[0-9a-f]{64}", golden.pin)
    assert not boxes.all("vm"), "the installing container is left"
    with timed("golden disk compared, sizes and times"):
        assert make().golden_builder.ensure() == golden
    with timed("golden disk compared, every byte"):
        assert make().golden_builder.ensure(thorough=True) == golden


def test_what_it_is_made_of_decides_which_it_is(make: Make, golden: disks.Record) -> None:
    same, other = make().golden_builder, make(disk="40g").golden_builder
    assert same.volume.key == golden.key
    assert other.volume.find() is None


# -- machines --------------------------------------------------------------------------------------


def test_two_at_once_then_nothing_is_left(
    engine: Engine, make: Make, boxes: ContainerManager, golden: disks.Record, tmp_path: Path
) -> None:
    pair = make(), make()
    sent = tmp_path / "sent"
    sent.write_bytes(os.urandom(3 << 20))
    with timed("two machines at once: overlay, boot, pin, session"), ThreadPoolExecutor(2) as pool:
        sessions = list(pool.map(Vm.connect, pair))
    held = [vm._managed for vm in pair]
    containers = [box.container for box in held if box is not None]
    assert len({c.id for c in containers}) == 2
    with sessions[0] as first, sessions[1] as second:
        with timed("a call"):
            assert first.call(facts.facts)["platform"] == "win32"
        with timed("3 MiB sent"):
            digest = first.put(sent, r"C:\sent")
        assert digest == hashlib.sha256(sent.read_bytes()).hexdigest()
        assert size_of(first, r"C:\sent") == 3 << 20
        assert size_of(second, r"C:\sent") is None, "a disk of its own"
        for container in containers:
            container.reload()
            account = read_container_file(container, KNOWN)
            assert account
            password = account.decode().strip().partition(":")[2]
            assert len(password) > 24
            assert password not in json.dumps(container.attrs)
            assert read_container_file(container, GIVEN) is None, "the guest has not removed it"
            # The guest's own disk, an overlay of the golden one, goes with the container.
            mounts = {m["Destination"]: m for m in container.attrs["Mounts"]}
            assert mounts["/golden"]["RW"] is False
            assert re.fullmatch("[0-9a-f]{64}", mounts["/storage"]["Name"])
            _, told = container.exec_run(["stat", "-c", "%s", "/storage/data.qcow2"])
            assert isinstance(told, bytes)
            print(f"FIGURE overlay in use: {int(told) / 1e6:.1f} MB")
    overlays = disks_of(containers)
    assert left(engine, overlays) == overlays
    assert len(overlays) == 2
    with timed("both discarded"):
        for vm in pair:
            vm.close()
    gone(boxes, "vm", 5)
    assert not left(engine, overlays)
    assert make().golden_builder.ensure(thorough=True) == golden, (
        "a machine has changed the golden disk"
    )


def typed(place: Path, *words: str) -> str:
    """What a command says that ends well."""
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", *words],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    print(f"$ invoke {' '.join(words)}\n{done.stdout}{done.stderr}", flush=True)
    assert done.returncode == 0
    return done.stdout + done.stderr


def _rows(told: Any) -> list[dict[str, Any]]:
    """Every object of an answer that says what it is."""
    if isinstance(told, dict):
        found = [told] if "what" in told else []
        return found + [row for each in told.values() for row in _rows(each)]
    return [row for each in told for row in _rows(each)] if isinstance(told, list) else []


@pytest.fixture
def settings(standin: str, place: Path) -> Iterator[Path]:
    """A directory with the same machine in its pipeline.yaml."""
    file = place / "pipeline.yaml"
    file.write_text(json.dumps({"hosts": {"last": keys(standin, keep=True)}}))
    yield place
    file.unlink()


def known_by_its_pin(entrance: ConnectionInfo) -> None:
    """The certificate is the one that the guest has said on COM1, and no other."""
    wrong = "0" * 64
    secret = Secret(entrance.password)
    with pytest.raises(HostError):
        over_winrs(Endpoint(entrance.url, entrance.user, secret, pin=wrong), PYTHON, "last")
    assert is_winrm_listening(entrance.url, entrance.pin)
    assert not is_winrm_listening(entrance.url, wrong)


@pytest.mark.usefixtures("golden")
def test_a_lasting_one(engine: Engine, make: Make, boxes: ContainerManager, settings: Path) -> None:
    """Made, found again, restarted inside, shut down in order, started again, removed.

    By what people type, where there is a command for it.
    """
    with timed("a lasting machine: overlay, boot, pin, session"):
        told = typed(settings, "host", "start", "--host", "last")
    assert "booting Windows Server 2025" in told
    found = boxes.persistent("last")
    assert found is not None
    assert f"machine {found.name}" in told
    things = json.loads(typed(settings, "hosts", "--json"))
    assert {"vm", "golden disk"} <= {row["what"] for row in _rows(things)}
    assert found.attrs["Config"]["StopTimeout"] >= 120
    overlay = disks_of([found])
    assert left(engine, overlay)

    vm = make("last", keep=True)
    began = time.monotonic()
    entrance = vm._connect()
    figure("adopted: container, pin and Identify", time.monotonic() - began)
    assert time.monotonic() - began < 1
    with timed("a session with it"):
        session = vm.connect()
    assert [box.id for box in boxes.all("last")] == [found.id]
    known_by_its_pin(entrance)

    sent = settings / "sent"
    sent.write_bytes(b"kept")
    session.put(sent, r"C:\sent")
    with timed("Windows restarted inside, the container stays"):
        session = reboot_and_wait(
            vm.connect,
            session,
            command=[PYTHON, "-c", r"open('C:\\restart', 'w')"],
            identity=r"C:\boot-id",
            progress=vm.options.events.step,
        )
    assert size_of(session, r"C:\sent") == 4
    after = vm._connect()
    assert after.pin != entrance.pin, "the stand-in makes a certificate at each start"
    assert after.password == entrance.password
    session.close()

    with pytest.raises(ConfigError, match="does not match host"):
        make("last", keep=True, cpus=1).connect()
    with timed("shut down by ACPI"):
        assert "stopped" in typed(settings, "host", "stop", "--host", "last", "--force")
    found.reload()
    assert found.attrs["State"]["ExitCode"] == STOPPED
    assert b"power button, shutting down" in found.logs(tail=50)
    assert "exited" in typed(settings, "host", "status", "--host", "last")
    assert not vm.stop()
    again = make("last", keep=True)
    with timed("started again on its disk"), again.connect() as session:
        assert size_of(session, r"C:\sent") == 4
    again.close()
    typed(settings, "host", "remove", "--host", "last", "--force")
    gone(boxes, "last", 5)
    assert not left(engine, overlay)
    assert again.golden_builder.volume.find() is not None, "the golden disk is not the machine's"
    vm.close()


CONTROLLER = """
import json, sys, time
from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.vm.config import VmHost
from pipelines.toolchain.lock import Cache, load_lock
options = OpenOptions("3.11", Cache(load_lock()))
vm = VmHost.model_validate(json.loads(sys.argv[1])).open("vm", options)
vm.connect()
print("ready", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def controller(place: Path, settings: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CONTROLLER), json.dumps(settings)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("golden")
def test_a_machine_ends_with_its_controller(
    engine: Engine, standin: str, make: Make, boxes: ContainerManager, place: Path
) -> None:
    with controller(place, keys(standin)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(HostError, match="in use by another command"):
            make().teardown()
        overlay = disks_of(boxes.all("vm"))
        assert len(overlay) == 1
        process.send_signal(signal.SIGKILL)
        process.wait()
        figure("controller killed: machine, container and disk gone", gone(boxes, "vm", 15))
    assert not left(engine, overlay)


def test_half_an_installation_is_no_golden_disk(
    make: Make, boxes: ContainerManager, standin: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = make(disk="40g")
    volume = vm.golden_builder.volume
    with controller(place, keys(standin, disk="40g")) as process:
        while not any(box.status == "running" for box in boxes.all("vm")):
            assert process.poll() is None
            time.sleep(0.1)
        with pytest.raises(HostError, match="by another command"):
            vm.prepare()
        process.send_signal(signal.SIGKILL)
        process.wait()
        gone(boxes, "vm", 15)
    found = disks.read_disk_state(volume)
    assert found.record is None
    assert "data.qcow2" in found.states, "the disk was there already"
    with pytest.raises(disks.DamagedDiskError, match="never finished"):
        disks.verify_disk(volume, found)

    class BegunError(Exception):
        pass

    def begin(making: GoldenDiskBuilder) -> disks.Record:
        assert making.volume.find() is None, "what was half-made is still there"
        raise BegunError

    monkeypatch.setattr(GoldenDiskBuilder, "make", begin)
    with pytest.raises(BegunError):
        vm.connect()
    assert "unfinished golden disk" in vm.options.events.told[-1]  # type: ignore[attr-defined]


# -- what may happen to a disk ---------------------------------------------------------------------


@pytest.fixture
def small(engine: Engine, standin: str, make: Make) -> Iterator[Vm]:
    """A machine with a golden disk on which there is nothing."""
    vm = make("small", disk="33g")
    volume = vm.golden_builder.volume
    volume.create()
    try:
        script = "qemu-img create -q -f qcow2 data.qcow2 64M; : >windows.boot"
        inside(engine, standin, volume.name, script)
        disks.seal_disk(volume, vm.golden_builder.origin, pin="", licensed=0, seconds=1)
        yield vm
    finally:
        vm.close()
        volume.remove()


@pytest.mark.parametrize(
    ("script", "thorough", "words"),
    [
        ("printf x >>data.qcow2", False, "data.qcow2 has .* bytes, recorded are"),
        ("rm windows.boot", False, "windows.boot is missing"),
        ("rm data.qcow2", False, "data.qcow2 is missing"),
        (": >windows.new", False, "windows.new is new"),
        ("printf x | dd of=data.qcow2 conv=notrunc bs=1 seek=4000 status=none", False, "sha256"),
        (
            "touch -r data.qcow2 /t; printf x | dd of=data.qcow2 conv=notrunc bs=1 seek=4000 "
            "status=none; touch -r /t data.qcow2",
            True,
            "sha256",
        ),
        ("printf '{' >record.json", False, "record cannot be read"),
        ('sed -i \'s/"key":"[0-9a-f]*/"key":"0/\' record.json', False, "another disk"),
    ],
)
def test_a_damaged_disk_is_refused(
    engine: Engine, standin: str, small: Vm, script: str, *, thorough: bool, words: str
) -> None:
    volume = small.golden_builder.volume
    inside(engine, standin, volume.name, script)
    with pytest.raises(disks.DamagedDiskError, match=words) as caught:
        small.prepare(repair=True) if thorough else small.connect()
    assert f"docker volume rm {volume.name}" in caught.value.hint


def test_another_time_alone_is_no_damage(engine: Engine, standin: str, small: Vm) -> None:
    before = small.golden_builder.ensure()
    assert before.virtual_size == 64 << 20
    inside(engine, standin, small.golden_builder.volume.name, "touch data.qcow2")
    after = small.golden_builder.ensure()
    assert after.files["data.qcow2"].time != before.files["data.qcow2"].time
    assert disks.read_disk_state(small.golden_builder.volume).record == after


def test_an_overlay_is_no_golden_disk(engine: Engine, standin: str, small: Vm) -> None:
    """Of a disk with a backing file half would be elsewhere."""
    script = "qemu-img create -q -f qcow2 /a 1M; "
    script += "qemu-img create -q -f qcow2 -F qcow2 -b /a data.qcow2"
    inside(engine, standin, small.golden_builder.volume.name, script)
    with pytest.raises(HostError):
        disks.seal_disk(small.golden_builder.volume, {}, pin="", licensed=0, seconds=1)


def test_no_kvm_is_explained(
    small: Vm, boxes: ContainerManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image's exit code 88, seen through an engine that removes the container at once."""

    def without_the_device(config: VmHost, *given: Any, **named: Any) -> dict[str, Any]:
        asked = config.model_copy(update={"kvm": True})
        return {**keys_of(asked, *given, **named), "devices": []}

    monkeypatch.setattr(vm_host, "keys_of", without_the_device)
    with pytest.raises(SetupError, match="no KVM") as caught:
        small.connect()
    assert "'kvm: false'" in caught.value.hint
    gone(boxes, "small", 5)


def test_a_guest_that_does_not_come_up_is_not_left(small: Vm, boxes: ContainerManager) -> None:
    small.config = small.config.model_copy(update={"start_minutes": 0.15})
    with pytest.raises(HostError):
        small.connect()
    gone(boxes, "small", 5)
