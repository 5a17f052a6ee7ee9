"""Kind vm without an engine: keys, what containers are made with, the log, golden records."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from docker.models.containers import Container
from pydantic import ValidationError

from pipelines.core.errors import ConfigError, HostError, SetupError
from pipelines.core.evidence import Evidence
from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.engine import owners
from pipelines.hosts.engine.container import ContainerSpec, ManagedContainer
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.enginehost import ConnectionInfo
from pipelines.hosts.engine.manager import LABEL, ContainerManager
from pipelines.hosts.passthrough import linux
from pipelines.hosts.passthrough.vfio import Passthrough
from pipelines.hosts.vm import disks, golden, host, machine
from pipelines.hosts.vm import host as vm_host
from pipelines.hosts.vm.config import VmHost
from pipelines.hosts.vm.host import RUNNER, Vm
from pipelines.hosts.vm.volume import GoldenVolume
from pipelines.session.base import Session
from pipelines.toolchain.lock import Cache, load_lock

PIN = "ab" * 32
SHA256 = "5" * 64
HERE = cast(Engine, SimpleNamespace(remote=""))
RUN = machine.Runner("sha256:" + "1" * 64, ("/usr/bin/tini", "-s", "/run/entry.sh"))


def config(**keys: Any) -> VmHost:
    given = {"kind": "vm", "windows": "2025", **keys}
    return VmHost.model_validate({k: v for k, v in given.items() if v is not None})


# -- pipeline.yaml ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"windows": None}, "either windows or iso"),
        ({"iso": "own.iso", "sha256": SHA256}, "either windows or iso"),
        ({"windows": "2019"}, "'2022' or '2025'"),
        ({"windows": None, "iso": "own.iso"}, "needs the sha256"),
        ({"sha256": SHA256}, "needs the sha256"),
        ({"windows": None, "iso": "http://example.org/w.iso", "sha256": SHA256}, "https"),
        ({"key_env": "PRODUCT_KEY"}, "evaluation ISOs take no product key"),
        ({"key": "AAAAA-BBBBB-CCCCC-DDDDD-EEEEE"}, "secrets are not allowed"),
        ({"password": "hunter2"}, "secrets are not allowed"),
        ({"image": "dockurr/windows:latest"}, "image"),
        ({"memory": "1g"}, "Windows Server needs 2g"),
        ({"memory": "16"}, "memory"),
        ({"disk": "20g"}, "Windows Server needs 32g"),
        ({"cpus": 0}, "cpus"),
        ({"gpu": True, "kvm": False}, "gpu requires kvm"),
        ({"gpu": "01:00"}, "gpu"),
        ({"via": "exec"}, "via"),
        ({"python": "python3"}, "python"),
    ],
)
def test_keys_that_cannot_be(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        config(**keys)


def test_a_product_key_never_shows_in_the_error() -> None:
    with pytest.raises(ValidationError) as caught:
        config(key="AAAAA-BBBBB-CCCCC-DDDDD-EEEEE")
    assert all("AAAAA" not in problem["msg"] for problem in caught.value.errors())


def test_what_a_machine_is_known_to_be() -> None:
    vm = config(gpu=["0000:01:00.0"]).open("vm", OpenOptions("3.11", Cache(load_lock())))
    can = vm.capabilities
    assert (can.windows, can.msvc, can.services, can.publishable, can.gpu) == (True,) * 5
    assert vm.evidence is Evidence.WRITTEN
    assert config(edition="core", windows="2022").title == "Windows Server 2022 Core"


def test_the_lock_names_the_image_that_runs_it() -> None:
    assert load_lock().images[RUNNER].reference.startswith("dockurr/windows@sha256:")


# -- what its container is made with ---------------------------------------------------------------


def test_the_container_of_a_machine() -> None:
    keys = machine.keys_of(config(memory="16g", cpus=8, disk="200g"), RUN, passed=None)
    told = keys["environment"]
    assert (told["RAM_SIZE"], told["CPU_CORES"], told["DISK_SIZE"]) == ("16G", "8", "200G")
    assert (told["VERSION"], told["KVM"], told["DISK_FMT"]) == ("2025", "Y", "qcow2")
    assert "ARGUMENTS" not in told
    assert "EDITION" not in told
    assert keys["devices"] == ["/dev/kvm", "/dev/net/tun"]
    assert keys["cap_add"] == ["NET_ADMIN"]
    assert keys["mem_limit"] == 18 << 30
    assert "ulimits" not in keys
    assert keys["ports"] == {"5986/tcp": ("127.0.0.1", None)}
    assert keys["entrypoint"][-1] == "kept"
    assert keys["command"] == list(RUN.start)
    assert not {"USERNAME", "PASSWORD", "KEY"} & told.keys()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({}, "Memory is 0, requested was 19327352832"),
        ({"Memory": 18 << 30}, "Devices is .*, requested was .*/dev/kvm"),
    ],
)
def test_a_machine_that_is_not_what_was_asked_for_is_not_waited_for(
    made: dict[str, Any], says: str
) -> None:
    keys = machine.keys_of(config(memory="16g"), RUN, passed=None)
    order = ContainerSpec(host="vm", kind="vm", image=RUN.id, keys=keys)
    container = SimpleNamespace(name="vm-1", attrs={"HostConfig": made})
    boxes = ContainerManager(cast(Engine, SimpleNamespace()))
    with pytest.raises(HostError, match=says):
        boxes.await_ready(ManagedContainer(cast(Container, container), order), lambda _: True)


def test_without_kvm_its_device_is_not_asked_for() -> None:
    keys = machine.keys_of(config(kvm=False), RUN, passed=None)
    assert keys["devices"] == ["/dev/net/tun"]
    assert keys["environment"]["KVM"] == "N"


def test_a_gpu_goes_in_by_vfio() -> None:
    words = ("-device", "vfio-pci,host=0000:01:00.0", "-device", "vfio-pci,host=0000:01:00.1")
    passed = Passthrough(("/dev/vfio/vfio", "/dev/vfio/12"), words)
    keys = machine.keys_of(config(gpu=True), RUN, passed=passed)
    assert keys["devices"] == ["/dev/kvm", "/dev/net/tun", "/dev/vfio/vfio", "/dev/vfio/12"]
    assert keys["environment"]["ARGUMENTS"] == " ".join(words)
    (limit,) = keys["ulimits"]
    assert (limit["Name"], limit["Soft"], limit["Hard"]) == ("memlock", -1, -1)


def test_an_image_without_an_entry_point_runs_no_windows() -> None:
    with pytest.raises(ConfigError, match="no entry point"):
        machine.runner_of({"Id": "sha256:1", "Config": {}}, "x")
    about = {"Id": "sha256:1", "Config": {"Entrypoint": ["a", "b"], "Cmd": ["c"]}}
    assert machine.runner_of(about, "x").start == ("a", "b", "c")


class Put:
    """A container that keeps what is put into it."""

    name = "made"

    def __init__(self) -> None:
        self.archives: list[bytes] = []

    def put_archive(self, _path: str, data: bytes) -> bool:
        self.archives.append(data)
        return True


def vm_of(monkeypatch: pytest.MonkeyPatch, **keys: Any) -> Vm:
    """A host whose engine is never asked."""
    vm = Vm("vm", config(**keys), OpenOptions("3.11", Cache(load_lock()), Silent()))
    engine = cast(Engine, SimpleNamespace(remote="", system="linux", client=None))
    monkeypatch.setitem(vm.__dict__, "engine", engine)
    monkeypatch.setitem(vm.__dict__, "boxes", ContainerManager(engine))
    monkeypatch.setitem(vm.__dict__, "runner", RUN)
    return vm


def test_a_password_is_in_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    vm, there = vm_of(monkeypatch, keep=True), Put()
    order = vm.container_spec("golden-volume")
    order.fill(cast(Any, there))
    (account,) = {
        line for raw in there.archives for line in raw.split(b"\0") if line.startswith(b"wcw-")
    }
    password = account.decode().strip().partition(":")[2]
    assert len(password) > 24
    assert len(there.archives) == 2, "one for the guest, one to find it again by"
    assert password not in json.dumps(dict(order.keys)) + json.dumps(
        dict(order.ephemeral_keys)
    ) + repr(order)
    other = Put()
    order.fill(cast(Any, other))
    assert other.archives != there.archives, "each machine has an account of its own"


def test_an_order_is_the_same_for_the_same_keys_and_gives_windows_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (vm_of(monkeypatch, keep=True).container_spec("volume") for _ in range(2))
    assert first.digest == second.digest
    assert first.digest != vm_of(monkeypatch, keep=True, cpus=2).container_spec("volume").digest
    assert first.digest != vm_of(monkeypatch, keep=True).container_spec("other-volume").digest
    assert first.stop_seconds >= 120
    assert int(first.keys["environment"]["TIMEOUT"]) < first.stop_seconds
    (mount,) = first.keys["mounts"]
    assert (mount["Target"], mount["Source"], mount["ReadOnly"]) == ("/golden", "volume", True)


def test_the_cards_are_those_of_the_engines_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [
        linux.Function(address=f"0000:01:00.{n}", vendor="10de", device="2204", kind=kind, group=12)
        for n, kind in enumerate(("0300", "0403"))
    ]
    bare = linux.inspect_linux_machine(Path("/nowhere"))
    shown = bare.model_copy(update={"functions": tuple(there)})
    monkeypatch.setattr(
        vm_host, "inspect_engine_machine", lambda engine, image: {RUN.id: shown}[image]
    )
    vm = vm_of(monkeypatch, gpu=0)
    keys = vm.container_spec("volume").keys
    assert keys["devices"][-2:] == ["/dev/vfio/vfio", "/dev/vfio/12"]
    assert "vfio-pci,host=0000:01:00.1" in keys["environment"]["ARGUMENTS"]
    assert (vm.gpu_way.way, vm.gpu_way.count) == ("VFIO in a virtual machine", 1)
    with pytest.raises(ConfigError, match="no such GPU"):
        vm_of(monkeypatch, gpu="0000:02:00.0").container_spec("volume")


# -- how it ends -----------------------------------------------------------------------------------


def test_exit_codes_are_told_apart() -> None:
    codes = [code for row in machine.exit_codes() for code in row.codes]
    assert len(codes) == len(set(codes))
    error = machine.container_exit_error(88, "vm-1", "ERROR: KVM acceleration is not available")
    assert isinstance(error, SetupError)
    assert "no KVM" in error.message
    assert "vm-1" in error.message
    assert machine.container_exit_error(0, "vm-1", "") is None
    assert machine.container_exit_error(137, "vm-1", "") is None


# -- around the image's own entry point ------------------------------------------------------------

Entry = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def entry(tmp_path: Path) -> Iterator[Entry]:
    """Starts entry.sh, with /golden and /storage in the test's directory."""
    text = Path(machine.__file__).with_name("entry.sh").read_text()
    for name in ("golden", "storage"):
        (tmp_path / name).mkdir()
        text = text.replace(f"/{name}", str(tmp_path / name))
    tool = tmp_path / "bin/qemu-img"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nfor last; do :; done; echo "$*" >"$last"\n')
    tool.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []

    def start(life: str, *command: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                ["bash", "-c", text, "entry", life, *command],
                stdin=stdin,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"},
            )
        )
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def test_the_entry_makes_an_overlay_once(entry: Entry, tmp_path: Path) -> None:
    for name in ("data.qcow2", "windows.boot", "windows.mac", "record.json"):
        (tmp_path / "golden" / name).write_text("golden")
    assert entry("kept", "true").wait(10) == 0
    assert sorted(path.name for path in (tmp_path / "storage").iterdir()) == [
        "data.qcow2",
        "windows.boot",
        "windows.mac",
    ]
    made = tmp_path / "storage/data.qcow2"
    assert f"-F qcow2 -b {tmp_path}/golden/data.qcow2" in made.read_text()
    made.write_text("in use")
    assert entry("kept", "true").wait(10) == 0
    assert made.read_text() == "in use"


def test_the_entry_says_that_there_is_no_overlay(entry: Entry, tmp_path: Path) -> None:
    (tmp_path / "golden/data.qcow2").write_text("golden")  # and no state files next to it
    assert entry("kept", "true").wait(10) == 122
    assert not (tmp_path / "storage/data.qcow2").exists()
    assert machine.container_exit_error(122, "x", "") is not None


def test_the_entry_ends_with_its_input_if_it_is_tied(entry: Entry) -> None:
    process = entry("tied", "sleep", "60")
    time.sleep(0.3)
    assert process.poll() is None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(5) == 128 + signal.SIGKILL


def test_the_entry_stays_without_input_if_it_is_kept(entry: Entry) -> None:
    process = entry("kept", "sleep", "60", stdin=subprocess.DEVNULL)
    time.sleep(0.5)
    assert process.poll() is None


def test_the_entry_hands_signal_and_exit_code_on(entry: Entry) -> None:
    script = 'trap "sleep 0.3; echo down; exit 7" TERM; echo up; while :; do sleep 0.1; done'
    process = entry("kept", "bash", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.terminate()
    assert process.wait(10) == 7
    assert process.stdout.read() == b"down\n", "it was waited for"
    assert entry("tied", "sh", "-c", "exit 88").wait(10) == 88


# -- what the guest says ---------------------------------------------------------------------------


def booted(log: bytes) -> ManagedContainer:
    """A box whose container has said that."""
    container = SimpleNamespace(
        name="vm-1",
        attrs={"State": {"StartedAt": "2026-11-22T15:06:13.123456789Z"}},
        logs=lambda **_: log,
        ports={"5986/tcp": [{"HostIp": "127.0.0.1", "HostPort": "40001"}]},
    )
    return cast(ManagedContainer, SimpleNamespace(name="vm-1", container=container))


def ready(
    monkeypatch: pytest.MonkeyPatch, log: bytes, *, answers: bool = True
) -> ConnectionInfo | None:
    asked: list[tuple[str, str]] = []

    def answer(url: str, pin: str) -> bool:
        asked.append((url, pin))
        return answers

    monkeypatch.setattr(host, "is_winrm_listening", answer)
    monkeypatch.setattr(host, "read_container_file", lambda *_: b"wcw-1:secret:with-colon\n")
    found = host.Boot(HERE, Silent())(booted(log))
    if found is not None:
        assert asked == [(found.url, found.pin)]
    return found


def test_the_last_pin_on_com1_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"WCW-READY %s\r\nreboot\r\nhalf a line WCW-READY %s\r\n" % (b"0" * 64, PIN.encode())
    found = ready(monkeypatch, log)
    assert found == ConnectionInfo(
        "https://127.0.0.1:40001/wsman", PIN, "wcw-1", "secret:with-colon"
    )
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    "log", [b"", b"booting", b"WCW-READY", b"WCW-READY abc", b"WCW-READY " + b"g" * 64]
)
def test_without_a_pin_it_is_not_ready(monkeypatch: pytest.MonkeyPatch, log: bytes) -> None:
    assert ready(monkeypatch, log) is None


def test_a_pin_that_nobody_shows_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ready(monkeypatch, b"WCW-READY " + PIN.encode(), answers=False) is None


def test_only_what_it_has_said_since_it_was_started_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def logs(*, since: int, tail: int) -> bytes:
        asked.append(since)
        return b""[:tail]

    box = booted(b"")
    monkeypatch.setattr(box.container, "logs", logs)
    assert host.Boot(HERE, Silent())(box) is None
    assert asked == [int(datetime(2026, 11, 22, 15, 6, 13, tzinfo=UTC).timestamp())]
    box.container.attrs = {"State": {"StartedAt": "0001-01-01T00:00:00Z"}}
    assert host.Boot(HERE, Silent())(box) is None
    assert asked[1:] == [], "it does not run yet"


def test_what_failed_in_the_guest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match=r"there is no \\\\host.lan") as caught:
        ready(monkeypatch, b"WCW-FAILED there is no \\\\host.lan\\Data\\winrm\x1b[2J\r\n")
    assert "\x1b" not in caught.value.message


# -- golden disks ----------------------------------------------------------------------------------


class Local(GoldenVolume):
    """A volume that is a directory here; its scripts run in earnest."""

    def __init__(self, folder: Path, key: str) -> None:
        self.key, self.name, self.folder = key, "a volume", folder
        folder.mkdir()
        tool = folder.parent / "qemu-img"
        about = {"format": "qcow2", "virtual-size": 32 << 30}
        tool.write_text(f"#!/bin/sh\n[ \"$1\" = check ] || echo '{json.dumps(about)}'\n")
        tool.chmod(0o755)

    def run(self, script: str, *, write: bool = False, **environment: str) -> str:
        path = f"{self.folder.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-ec", script],
            cwd=self.folder,
            env={**os.environ, **environment, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise HostError(f"{done.stderr.strip()} ({done.returncode})")
        return done.stdout


ORIGIN = {"windows": "2025", "image": RUN.id}


@pytest.fixture
def volume(tmp_path: Path) -> Local:
    made = Local(tmp_path / "volume", disks.key_of(ORIGIN))
    for name in ("data.qcow2", "windows.boot", "windows.mac", "2025.iso"):
        (made.folder / name).write_text(f"content of {name}")
    return made


def test_a_disk_is_sealed_with_what_it_is(volume: Local) -> None:
    record = disks.seal_disk(volume, ORIGIN, pin=PIN, licensed=0, seconds=900.4)
    assert sorted(record.files) == ["data.qcow2", "windows.boot", "windows.mac"]
    assert (record.pin, record.seconds, record.virtual_size) == (PIN, 900, 32 << 30)
    assert not (volume.folder / "2025.iso").exists(), "8 GB that nobody needs"
    found = disks.read_disk_state(volume)
    assert found.record == record
    assert (
        disks.verify_disk(volume, found)
        == disks.verify_disk(volume, found, thorough=True)
        == record
    )
    disk = volume.folder / "data.qcow2"
    times = disk.stat().st_atime_ns, disk.stat().st_mtime_ns
    disk.write_text(disk.read_text().upper())
    os.utime(disk, ns=times)
    assert disks.verify_disk(volume, disks.read_disk_state(volume)) == record, (
        "times and sizes are the same"
    )
    with pytest.raises(disks.DamagedDiskError, match=r"data\.qcow2: the sha256 differs"):
        disks.verify_disk(volume, disks.read_disk_state(volume), thorough=True)


def test_what_windows_has_not_left_in_good_order_is_not_sealed(volume: Local) -> None:
    (volume.folder / "windows.boot").unlink()
    with pytest.raises(HostError, match="not shut down cleanly"):
        disks.seal_disk(volume, ORIGIN, pin=PIN, licensed=0, seconds=1)
    assert disks.read_disk_state(volume).record is None
    with pytest.raises(disks.DamagedDiskError, match="never finished"):
        disks.verify_disk(volume, disks.read_disk_state(volume))


def test_an_overlay_is_not_sealed(volume: Local) -> None:
    about = {"format": "qcow2", "virtual-size": 1, "backing-filename": "/elsewhere"}
    tool = volume.folder.parent / "qemu-img"
    tool.write_text(f"#!/bin/sh\n[ \"$1\" = check ] || echo '{json.dumps(about)}'\n")
    with pytest.raises(HostError, match="backing file /elsewhere"):
        disks.seal_disk(volume, ORIGIN, pin="", licensed=0, seconds=1)


def test_a_record_of_another_version_is_not_read_as_ours(volume: Local) -> None:
    disks.seal_disk(volume, ORIGIN, pin=PIN, licensed=0, seconds=1)
    path = volume.folder / disks.RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(disks.DamagedDiskError, match="another disk"):
        disks.read_disk_state(volume)


def test_why_a_disk_could_not_be_made_is_told_though_nothing_can_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(*_: object) -> None:
        asked.append(1)
        raise HostError("the engine does not answer")

    asked: list[int] = []
    box = SimpleNamespace(
        container=None, exit_code=1, ended=lambda: HostError("QEMU has died"), close=lambda: None
    )
    vm = vm_of(monkeypatch)
    monkeypatch.setattr(vm.manager, "open", lambda *_: (box, PIN))
    monkeypatch.setattr(vm.manager, "remove", silent)
    monkeypatch.setattr(golden, "label_value", lambda *_: owners.process_identity())
    monkeypatch.setattr(GoldenVolume, "create", lambda _: None)
    monkeypatch.setattr(GoldenVolume, "remove", silent)
    with pytest.raises(HostError, match="QEMU has died"):
        vm.golden_builder.make()
    assert len(asked) == 2


def test_a_machine_that_another_command_uses_is_not_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = {f"{LABEL}keep": "0", f"{LABEL}owner": owners.process_identity()}
    vm = vm_of(monkeypatch)
    used = SimpleNamespace(name="wcw-vm.1", attrs={"Labels": labels})
    monkeypatch.setattr(vm.manager, "all", lambda _: [used])
    with pytest.raises(HostError, match=r"'wcw-vm\.1' is in use by another command"):
        vm.teardown()


def test_what_decides_which_disk_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = disks.key_of(golden.origin_of(config(), RUN))
    same = (config(memory="4g", cpus=1, gpu=True, keep=True), config(start_minutes=1))
    assert {disks.key_of(golden.origin_of(one, RUN)) for one in same} == {usual}
    others = (config(windows="2022"), config(edition="core"), config(disk="64g"))
    assert usual not in {disks.key_of(golden.origin_of(one, RUN)) for one in others}
    newer = machine.Runner("sha256:" + "2" * 64, RUN.start)
    assert disks.key_of(golden.origin_of(config(), newer)) != usual
    scripts = golden.oem_files()
    monkeypatch.setattr(golden, "oem_files", lambda: {**scripts, "golden.ps1": b"another"})
    assert disks.key_of(golden.origin_of(config(), RUN)) != usual


def test_all_that_the_scripts_of_oem_name_is_there() -> None:
    scripts = {name: data.decode() for name, data in golden.oem_files().items()}
    assert "C:\\OEM\\golden.ps1" in scripts["install.bat"]
    for name in ("enable-winrm-https.ps1", "serial.ps1", "ready.ps1"):
        assert f"'{name}'" in scripts["golden.ps1"]
    assert machine.GIVEN.rpartition("/")[2] == "winrm"
    assert r"\\host.lan\Data\winrm" in scripts["ready.ps1"]
    assert "WCW-READY" in scripts["ready.ps1"]
    assert "WCW-GOLDEN" in scripts["golden.ps1"]


def making(monkeypatch: pytest.MonkeyPatch, **keys: Any) -> golden.GoldenDiskBuilder:
    vm = vm_of(monkeypatch, **keys)
    return golden.GoldenDiskBuilder("vm", vm.config, vm.manager, RUN, vm.options)


@pytest.mark.parametrize("value", [None, "", "not a key", "AAAAA-BBBBB-CCCCC-DDDDD"])
def test_a_product_key_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("PRODUCT_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("PRODUCT_KEY", value)
    made = making(monkeypatch, windows=None, iso="own.iso", sha256=SHA256, key_env="PRODUCT_KEY")
    with pytest.raises(ConfigError, match="PRODUCT_KEY is not a product key"):
        made._product_key()


def test_the_installing_container_has_no_port_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRODUCT_KEY", "AAAAA-BBBBB-CCCCC-DDDDD-EEEEE")
    made = making(monkeypatch, windows=None, iso="own.iso", sha256=SHA256, key_env="PRODUCT_KEY")
    keys = made._keys()
    assert "ports" not in keys
    assert "AAAAA" not in json.dumps(keys)
    (mount,) = keys["mounts"]
    assert (mount["Target"], mount["ReadOnly"]) == ("/storage", False)
    there = Put()
    made._fill(cast(Any, there), iso=None, key=made._product_key())
    together = b"".join(there.archives)
    assert b"AAAAA-BBBBB-CCCCC-DDDDD-EEEEE" in together
    assert b"WCW-GOLDEN" in together


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("", None),
        ("WCW-STEP product key", None),
        (f"x\nWCW-GOLDEN {PIN} 1 0\nguest: off", (PIN, 0)),
        (f"x\nWCW-GOLDEN {PIN} 1 259200\nguest: off", (PIN, 259200)),
        (f"x\nWCW-GOLDEN {PIN} 2 14400\nguest: off", (PIN, 14400)),
        ("WCW-GOLDEN 12", None),
        (f"WCW-GOLDEN {PIN}", None),
    ],
)
def test_an_installation_is_over_when_its_pin_is_said(
    monkeypatch: pytest.MonkeyPatch, said: str, found: tuple[str, int] | None
) -> None:
    box = cast(ManagedContainer, SimpleNamespace(output=lambda: said))
    assert making(monkeypatch)._installed(box, began=time.monotonic()) == found


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (f"WCW-GOLDEN {PIN} 0 0", "LicenseStatus 0"),
        (f"WCW-GOLDEN {PIN} 5 0", "LicenseStatus 5"),
        (
            f"accounts are still enabled\nWCW-GOLDEN {PIN}\nWCW-FAILED golden.ps1 ended",
            r"(?s)golden.ps1 ended.*accounts are still enabled",
        ),
    ],
)
def test_a_windows_without_a_licence_or_half_installed_is_no_golden_disk(
    monkeypatch: pytest.MonkeyPatch, output: str, said: str
) -> None:
    box = cast(ManagedContainer, SimpleNamespace(output=lambda: output))
    with pytest.raises(HostError, match=said):
        making(monkeypatch)._installed(box, began=time.monotonic())


@pytest.mark.parametrize(("days", "again"), [(None, False), (2, False), (0.9, True), (-3, True)])
def test_a_golden_disk_is_made_again_before_its_licence_ends(
    monkeypatch: pytest.MonkeyPatch, days: float | None, again: bool
) -> None:
    until = "" if days is None else str(datetime.now(UTC) + timedelta(days=days))
    record = disks.Record(
        key="k", origin={}, made="", seconds=1, pin=PIN, licensed=until, virtual_size=1, files={}
    )
    done: list[str] = []
    made = making(monkeypatch)
    monkeypatch.setattr(made.volume, "find", object)
    monkeypatch.setattr(made.volume, "remove", lambda: done.append("removed"))
    monkeypatch.setattr(disks, "read_disk_state", lambda _: disks.Found(record, {}))

    def make() -> disks.Record:
        done.append("made")
        return record

    monkeypatch.setattr(made, "make", make)
    assert made.ensure() is record
    assert done == (["removed", "made"] if again else [])


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    made = making(monkeypatch, windows=None, iso="/nowhere/own.iso", sha256=SHA256)
    with pytest.raises(ConfigError, match="iso: /nowhere/own"):
        made._iso()


@pytest.mark.parametrize(
    ("cpus", "memory", "fits"),
    [(4, 15.9, True), (8, 16.0, True), (2, 15.9, False), (4, 7.9, False), (4, None, False)],
)
def test_a_guest_that_has_less_than_was_asked_for(
    cpus: int, memory: float | None, *, fits: bool
) -> None:
    """The image lowers both to what its machine has, with a line in its log."""
    found = {"cpus": cpus, "memory": memory and {"total": int(memory * (1 << 30))}}
    closed: list[bool] = []
    session = cast(
        Session, SimpleNamespace(call=lambda _: found, close=lambda: closed.append(True))
    )
    machine = cast(Vm, SimpleNamespace(name="box", config=config()))
    if fits:
        assert Vm._check_limits(machine, session) is session
    else:
        with pytest.raises(HostError, match="requested were 4 and 16g"):
            Vm._check_limits(machine, session)
    assert closed == [True] * (not fits)
