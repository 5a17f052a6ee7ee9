"""What the doctor says of an engine, its machine and its GPUs before anything is started."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pcitrees import AUDIO, BRIDGE, DISK, GIB, Device, Tree
from test_doctor import Host, make_plan

from pipelines.core.errors import UNFIT, ConfigError, HostError, SetupError
from pipelines.core.finding import Finding
from pipelines.doctor import passthrough, run
from pipelines.doctor.model import Facts
from pipelines.hosts.gpus import Gpu
from pipelines.hosts.passthrough import linux, prerequisites, vfio, windows
from pipelines.hosts.passthrough.prerequisites import Requirements, survey_prerequisites
from pipelines.remote.inspection import tools

FIRST, SECOND = Device("0000:01:00.0"), Device("0000:02:00.0", group=15)
SOUND = Device("0000:01:00.1", AUDIO)
STRANGER = Device("0000:03:00.0", DISK, vendor="144d")
CARD = [FIRST, SOUND]
PORT = Device("0000:00:01.0", BRIDGE, driver="pcieport", vendor="8086")


class Engine:
    """An engine as far as it is surveyed."""

    def __init__(
        self,
        system: str = "linux",
        *,
        rootless: bool = False,
        remote: str = "",
        build: str = "",
        patch: int | None = None,
        image: Mapping[str, object] | None = None,
        isolation: str = "process",
    ) -> None:
        self.system, self.remote, self.build, self.patch = system, remote, build, patch
        self.title = "Docker 29.1 on a made-up machine"
        options = ["name=seccomp", *(["name=rootless"] if rootless else [])]
        self.about = {"SecurityOptions": options, "Isolation": isolation}
        self._image, self.closed = image, False

    def image(self, _: str) -> Mapping[str, object] | None:
        return self._image

    def close(self) -> None:
        self.closed = True


def judged(
    tmp_path: Path, tree: Tree, gpu: Gpu = True, engine: Engine | None = None
) -> dict[str, Finding]:
    """The verdicts on a virtual machine there, by name."""
    made = engine or Engine()
    root = tree.write(tmp_path / "root")
    wanted = Requirements(system="linux", gpu=gpu, kvm=True)
    found = survey_prerequisites(lambda _: made, wanted, lambda: linux.inspect_linux_machine(root))  # type: ignore[arg-type, return-value]
    assert made.closed
    return by_name(found)


def by_name(found: Mapping[str, object]) -> dict[str, Finding]:
    verdicts = [*passthrough.judge(Facts(found))]
    told = {verdict.title: verdict for verdict in verdicts}
    assert len(told) == len(verdicts), "no two of one name"
    for one in verdicts:
        assert one.level in ("ok", "unknown") or one.hint, one
    return told


ONE = "GPU 0000:01:00"


def test_a_machine_that_can(tmp_path: Path) -> None:
    told = judged(tmp_path, Tree(devices=[*CARD, PORT, replace(STRANGER, group=20)]))
    assert {verdict.level for verdict in told.values()} == {"ok"}
    assert [*told] == [
        *("engine", "KVM", "IOMMU", "VFIO"),
        *(f"{ONE} {what}" for what in ("group", "driver .0", "driver .1", "device file")),
    ]


def nodes(*without: str) -> tuple[str, ...]:
    return tuple(name for name in Tree().nodes if name not in without)


NO_IOMMU = [replace(one, group=None, driver="") for one in CARD]
#: What is changed of the machine -> the verdicts that are not ok: level, and what is said.
MACHINES: dict[str, tuple[Tree, dict[str, tuple[str, str]]]] = {
    "no KVM": (Tree(nodes=nodes("kvm")), {"KVM": ("error", "there is no /dev/kvm")}),
    "no IOMMU": (
        Tree(devices=NO_IOMMU, cmdline="quiet", nodes=nodes("vfio/vfio", "vfio/14")),
        {
            "IOMMU": ("error", "no groups"),
            "VFIO": ("error", "there is no /dev/vfio/vfio"),
            f"{ONE} group": ("error", "in no IOMMU group"),
        },
    ),
    "IOMMU off in the firmware": (
        Tree(devices=NO_IOMMU),
        {
            "IOMMU": ("error", "though the kernel would use one"),
            f"{ONE} group": ("error", "in no IOMMU group"),
        },
    ),
    "a stranger with a driver": (
        Tree(devices=[*CARD, replace(STRANGER, driver="nvme")]),
        {f"{ONE} group": ("error", "group 14 is shared with 0000:03:00.0 (nvme)")},
    ),
    "a stranger that is given up": (
        Tree(devices=[*CARD, STRANGER]),
        {f"{ONE} group": ("warning", "shared with 0000:03:00.0 (vfio-pci)")},
    ),
    "a bridge is no stranger": (Tree(devices=[*CARD, PORT]), {}),
    "bound to nvidia": (
        Tree(
            devices=[replace(FIRST, driver="nvidia"), SOUND],
            nodes=nodes("vfio/14"),
        ),
        {
            f"{ONE} driver .0": ("error", "bound to nvidia"),
            f"{ONE} device file": ("error", "there is no /dev/vfio/14"),
        },
    ),
    "its sound has its own driver": (
        Tree(devices=[FIRST, replace(SOUND, driver="snd_hda_intel")]),
        {f"{ONE} driver .1": ("error", "bound to snd_hda_intel")},
    ),
    "bound to nothing": (
        Tree(devices=[replace(one, driver="") for one in CARD], nodes=nodes("vfio/14")),
        {
            f"{ONE} driver .0": ("error", "bound to no driver"),
            f"{ONE} driver .1": ("error", "bound to no driver"),
            f"{ONE} device file": ("error", "there is no /dev/vfio/14"),
        },
    ),
    "no GPU": (Tree(devices=[STRANGER]), {"GPU": ("error", "that machine has no such GPU")}),
}


@pytest.mark.parametrize(("tree", "wrong"), MACHINES.values(), ids=MACHINES)
def test_what_is_missing_is_said(
    tmp_path: Path, tree: Tree, wrong: dict[str, tuple[str, str]]
) -> None:
    told = judged(tmp_path, tree)
    assert {n: v.level for n, v in told.items() if v.level != "ok"} == {
        name: level for name, (level, _) in wrong.items()
    }
    for name, (_, said) in wrong.items():
        assert said in told[name].actual


def test_cures_name_the_very_device(tmp_path: Path) -> None:
    told = judged(tmp_path, Tree(devices=[replace(FIRST, driver="nouveau"), SOUND]))
    verdict = told[f"{ONE} driver .0"]
    assert "vfio-pci.ids=10de:2684" in verdict.hint
    assert verdict.command == "driverctl set-override 0000:01:00.0 vfio-pci"


def test_a_file_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert judged(tmp_path / "a", Tree())["KVM"].level == "ok", "the engine is root"
    told = judged(tmp_path / "b", Tree(), engine=Engine(rootless=True))
    assert (told["KVM"].level, told["KVM"].actual) == (
        "error",
        "/dev/kvm may not be written by you",
    )


@pytest.mark.parametrize("remote", ["server.example", ""])
def test_a_machine_that_was_not_looked_at_is_not_known(remote: str) -> None:
    """Neither that of a remote engine nor that of one which does not answer; and never as ok."""

    def reach(_: float) -> Any:
        if not remote:
            raise SetupError("no Docker engine", hint="install one")
        return Engine(remote=remote)

    def look() -> linux.Machine:
        raise AssertionError("these are the files of another machine")

    told = by_name(
        survey_prerequisites(reach, Requirements(system="linux", gpu=True, kvm=True), look)
    )
    assert {v.level for name, v in told.items() if name != "engine"} == {"unknown"}
    assert [*told] == ["engine", "KVM", "IOMMU", "VFIO", "GPU"]
    assert (told["engine"].level == "ok") is bool(remote)
    assert "not checked" in told["GPU"].actual


SCRIPT = Path(prerequisites.__file__).with_name("remote_machine.sh")


def printed(root: Path) -> str:
    """What the script says of a machine whose files are below ``root``."""
    command = ["/bin/sh", str(SCRIPT), str(root), str(root / "proc")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "tree",
    [
        Tree(),
        Tree(devices=[]),
        Tree(
            devices=[*CARD, PORT, replace(SECOND, bar=64 * GIB)],
            cpu="AuthenticAMD",
        ),
    ],
)
def test_a_machine_elsewhere_is_read_as_this_one(tmp_path: Path, tree: Tree) -> None:
    root = tree.write(tmp_path / "root")
    assert prerequisites.parse_machine_listing(printed(root)) == linux.inspect_linux_machine(root)


ZERO = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
#: One of two H200 in a machine without an IOMMU, by its kernel.
H200 = {
    "vendor": "0x10de\n",
    "device": "0x2335\n",
    "class": "0x030200\n",
    "resource": f"0x0000104002000000 0x0000104002ffffff 0x000000000014220c\n{ZERO}"
    f"0x0000100000000000 0x0000103fffffffff 0x000000000014220c\n{ZERO}"
    f"0x0000104000000000 0x0000104001ffffff 0x000000000014220c\n{ZERO}{ZERO}",
}


def test_a_card_as_a_real_kernel_tells_it() -> None:
    place = "sys/bus/pci/devices/0000:00:06.0"
    rows = [f"F {place}/{name} {text.encode().hex()}" for name, text in H200.items()]
    link = f"L {place}/driver ../../../bus/pci/drivers/nvidia"
    found = prerequisites.parse_machine_listing("\n".join([f"D {place}", *rows, link, "END"]))
    (card,) = found.functions
    assert (card.is_gpu, card.driver, card.group) == (True, "nvidia", None)
    assert (card.bar, card.ids) == (256 * GIB, "10de:2335")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "was cut off"),
        ("N dev/kvm\n", "was cut off"),
        ("N dev/../../etc/x\nEND\n", "unexpected description"),
        ("N /etc/passwd\nEND\n", "unexpected description"),
        ("F etc/passwd 00\nEND\n", "unexpected description"),
        ("X dev/kvm\nEND\n", "unexpected description"),
    ],
)
def test_a_machine_elsewhere_that_tells_nonsense(said: str, why: str) -> None:
    with pytest.raises(HostError, match=why):
        prerequisites.parse_machine_listing(said)


class Elsewhere(Engine):
    """An engine on another machine: its containers print what the script does there."""

    def __init__(self, root: Path, image: Mapping[str, object] | None) -> None:
        super().__init__(remote="server.example", image=image)
        self.said, self.given, self.removed = printed(root).encode(), {}, 0  # type: ignore[var-annotated]
        self.client = SimpleNamespace(containers=self)

    def create(self, image: str, **keys: Any) -> Elsewhere:
        self.given = {"image": image, **keys}
        return self

    def start(self) -> None: ...

    def wait(self, timeout: float) -> None: ...

    def logs(self, **_: object) -> bytes:
        return self.said

    def remove(self, **_: object) -> None:
        self.removed += 1


WITH_IMAGE = Requirements(system="linux", gpu=True, kvm=True, image="sha256:1")


def test_the_machine_of_an_engine_elsewhere(tmp_path: Path) -> None:
    """Read by a container of the host's image."""
    made = Elsewhere(Tree().write(tmp_path / "root"), {})
    told = by_name(survey_prerequisites(lambda _: made, WITH_IMAGE))  # type: ignore[arg-type, return-value]
    assert {v.level for v in told.values()} == {"ok"}
    assert made.removed == 1
    assert made.given["network_mode"] == "none"
    assert {one["mode"] for one in made.given["volumes"].values()} == {"ro"}
    assert "look" in made.given["labels"].values()


def test_nothing_is_fetched_to_look_elsewhere(tmp_path: Path) -> None:
    made = Elsewhere(Tree().write(tmp_path / "root"), None)
    told = by_name(survey_prerequisites(lambda _: made, WITH_IMAGE))  # type: ignore[arg-type, return-value]
    assert told["KVM"].level == told["GPU"].level == "unknown"
    assert "does not have yet" in told["KVM"].actual
    assert not made.given


def test_an_engine_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "PATIENCE", 0.2)
    forever = threading.Event()
    told = by_name(
        survey_prerequisites(
            lambda _: forever.wait() and None,  # type: ignore[arg-type, return-value]
            Requirements(system="linux"),
        )
    )
    forever.set()
    assert [*told] == ["engine"]
    assert told["engine"].level == "error"
    assert "did not answer within 0.2 s" in told["engine"].actual


# -- which cards, and what a container needs for them ---------------------------------------------


def machine(tmp_path: Path, *devices: Device, **more: Any) -> linux.Machine:
    return linux.inspect_linux_machine(Tree(devices=[*devices], **more).write(tmp_path / "root"))


@pytest.mark.parametrize(
    ("gpu", "slots"),
    [
        (False, []),
        ("all", ["01", "02"]),
        (0, ["01"]),
        (1, ["02"]),
        ((1, 0), ["02", "01"]),
        ("0000:01:00.1", ["01"]),
        (("0000:01:00.0", "0000:01:00.1"), ["01"]),
    ],
)
def test_cards_that_are_asked_for(tmp_path: Path, gpu: Gpu, slots: list[str]) -> None:
    found = machine(tmp_path, SECOND, SOUND, FIRST, STRANGER)
    assert vfio.select_gpu_slots(found, gpu) == tuple(f"0000:{slot}:00" for slot in slots)


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (True, "gpu: true, but that machine has 2 GPUs"),
        (2, "gpu: 2: that machine has no such GPU"),
        ((0, 2), r"gpu: \[0, 2\]: that machine has no such GPU"),
        ("0000:03:00.0", "has no such GPU"),
    ],
)
def test_cards_that_are_not_there(tmp_path: Path, gpu: Gpu, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        vfio.select_gpu_slots(machine(tmp_path, FIRST, SECOND, SOUND, STRANGER), gpu)
    assert "0 is 0000:01:00.0, 1 is 0000:02:00.0" in caught.value.hint


def test_all_of_a_machine_without_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no such GPU"):
        vfio.select_gpu_slots(machine(tmp_path, STRANGER), "all")


def test_what_a_guest_needs(tmp_path: Path) -> None:
    """Every function of the card, and no stranger of its group."""
    found = machine(tmp_path, *CARD, SECOND, STRANGER)
    told = vfio.plan_passthrough(found, ("0000:01:00",))
    assert told.devices == ("/dev/vfio/vfio", "/dev/vfio/14")
    assert told.arguments == (
        *("-device", "vfio-pci,host=0000:01:00.0"),
        *("-device", "vfio-pci,host=0000:01:00.1"),
    )
    assert told.memlock == -1
    both = vfio.plan_passthrough(found, vfio.select_gpu_slots(found, "all"))
    assert both.devices == ("/dev/vfio/vfio", "/dev/vfio/14", "/dev/vfio/15")
    assert "-fw_cfg" in both.arguments, "three windows of 16 GiB need room"
    assert vfio.plan_passthrough(found, ()) == vfio.Passthrough((), ())


@pytest.mark.parametrize(("gib", "room"), [(32, None), (64, 1 << 18), (128, 1 << 19)])
def test_a_large_window_of_memory(tmp_path: Path, gib: int, room: int | None) -> None:
    """The firmware's room is given in MiB: twice what is needed, or more."""
    found = machine(tmp_path, replace(FIRST, bar=gib * GIB))
    told = vfio.plan_passthrough(found, found.slots).arguments
    wanted = () if room is None else ("-fw_cfg", f"name=opt/ovmf/X-PciMmio64Mb,string={room}")
    assert told[2:] == wanted
    assert room is None or room >= 2 * gib * 1024


def test_a_card_without_a_group(tmp_path: Path) -> None:
    found = machine(tmp_path, replace(FIRST, group=None))
    with pytest.raises(ConfigError, match="is in no IOMMU group"):
        vfio.plan_passthrough(found, found.slots)


def test_a_machine_that_shows_nothing(tmp_path: Path) -> None:
    found = linux.inspect_linux_machine(tmp_path)
    assert (found.kvm, found.vfio, found.groups, found.functions) == ("absent", "absent", 0, ())


# -- Windows -------------------------------------------------------------------------------------

S2022, S2025, W11 = "10.0.20348", "10.0.26100", "10.0.22631"


@pytest.mark.parametrize(
    ("host", "image", "fits"),
    [
        (S2022, S2022, True),
        (S2022, S2025, False),
        (S2025, S2022, True),
        (S2025, S2025, True),
        (W11, S2022, True),
        (W11, S2025, False),
        ("10.0.26200", S2025, True),
        ("10.0.17763", "10.0.17763", True),
        ("10.0.17763", S2022, None),
        (S2022, "", None),
        ("", S2022, None),
        ("11.0.1", S2022, None),
    ],
)
def test_which_windows_runs_which(host: str, image: str, fits: bool | None) -> None:
    assert windows.is_image_compatible(host, f"{image}.2762" if image else "") is fits


def test_the_class_of_gpus_needs_process_isolation() -> None:
    assert windows.container_gpu_devices(False, "hyperv") == ()
    assert windows.container_gpu_devices(0, "process") == (
        "class/5B45201D-F2F2-4F3B-85BB-30FF1F953599",
    )
    with pytest.raises(ConfigError, match="GPUs need process isolation"):
        windows.container_gpu_devices(True, "hyperv")


def on_windows(
    monkeypatch: pytest.MonkeyPatch, wanted: Requirements, gpus: Callable[[], Any], **engine: Any
) -> dict[str, Finding]:
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setattr(tools, "gpus", gpus)
    made = Engine("windows", **{"build": S2022, **engine})
    return by_name(survey_prerequisites(lambda _: made, wanted))  # type: ignore[arg-type, return-value]


BY_DIGEST = Requirements(system="windows", gpu=True, image="windows@sha256:0")
FITS = {"OsVersion": f"{S2022}.1"}
MCDM = [{"model": "MCDM"}]
CASES: dict[str, tuple[Requirements, Any, dict[str, Any], dict[str, tuple[str, str]]]] = {
    "it can": (BY_DIGEST, MCDM, {"image": FITS}, {}),
    "an image of a month whose updates the engine's Windows lacks": (
        BY_DIGEST,
        MCDM,
        {"image": {"OsVersion": f"{S2022}.2762"}, "patch": 2700},
        {"Windows of the image": ("warning", "2762")},
    ),
    "an image of an earlier month": (BY_DIGEST, MCDM, {"image": FITS, "patch": 2700}, {}),
    "no GPU is wanted": (replace(BY_DIGEST, gpu=False), None, {"image": FITS}, {}),
    "TCC": (
        BY_DIGEST,
        [{"model": "WDDM"}, {"model": "TCC"}],
        {"image": FITS},
        {"driver model": ("error", "WDDM, TCC")},
    ),
    "no driver": (
        BY_DIGEST,
        None,
        {"image": FITS},
        {"driver model": ("error", "no NVIDIA GPU with a driver")},
    ),
    "a model that nobody knows": (
        BY_DIGEST,
        [{"model": "[N/A]"}],
        {"image": FITS},
        {"driver model": ("unknown", "[N/A]")},
    ),
    "hyperv by default": (
        BY_DIGEST,
        MCDM,
        {"image": FITS, "isolation": "hyperv"},
        {"isolation": ("error", "hyperv, the engine's own")},
    ),
    "hyperv without a GPU": (
        replace(BY_DIGEST, gpu=False, isolation="hyperv"),
        None,
        {"image": {"OsVersion": f"{S2025}.1"}},
        {},
    ),
    "a newer image": (
        BY_DIGEST,
        MCDM,
        {"image": {"OsVersion": f"{S2025}.1"}},
        {"Windows of the image": ("error", "10.0.26100.1 on Windows Server 2022 (10.0.20348)")},
    ),
    "an older image": (
        BY_DIGEST,
        MCDM,
        {"image": FITS, "build": S2025},
        {},
    ),
    "builds of which nobody says so": (
        BY_DIGEST,
        MCDM,
        {"image": FITS, "build": "10.0.17763"},
        {"Windows of the image": ("unknown", "on 10.0.17763")},
    ),
    "an image that is not there": (
        BY_DIGEST,
        MCDM,
        {"image": None},
        {"Windows of the image": ("unknown", "not at the engine yet")},
    ),
    "an image of ours": (
        replace(BY_DIGEST, image=""),
        MCDM,
        {},
        {"Windows of the image": ("unknown", "not checked")},
    ),
    "an image that says nothing": (
        BY_DIGEST,
        MCDM,
        {"image": {}},
        {"Windows of the image": ("unknown", "")},
    ),
    "another machine": (
        BY_DIGEST,
        MCDM,
        {"image": FITS, "remote": "win1"},
        {"driver model": ("unknown", "not checked")},
    ),
}


@pytest.mark.parametrize(("wanted", "gpus", "engine", "wrong"), CASES.values(), ids=CASES)
def test_windows_engines(
    monkeypatch: pytest.MonkeyPatch,
    wanted: Requirements,
    gpus: Any,
    engine: dict[str, Any],
    wrong: dict[str, tuple[str, str]],
) -> None:
    told = on_windows(monkeypatch, wanted, lambda: gpus, **engine)
    assert {n: v.level for n, v in told.items() if v.level != "ok"} == {
        name: level for name, (level, _) in wrong.items()
    }
    for name, (_, said) in wrong.items():
        assert said in told[name].actual
    assert ("driver model" in told) is bool(wanted.gpu)


def test_a_driver_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise OSError("nvidia-smi exited with 9")

    told = on_windows(monkeypatch, BY_DIGEST, broken, image=FITS)
    assert (told["driver model"].level, told["driver model"].actual) == (
        "unknown",
        "nvidia-smi exited with 9",
    )


def test_an_engine_of_the_other_system() -> None:
    told = by_name(
        survey_prerequisites(
            lambda _: Engine(),  # type: ignore[arg-type, return-value]
            Requirements(system="windows", gpu=True),
        )
    )
    assert [*told] == ["engine"]
    assert told["engine"].level == "error"
    assert "for Windows" in told["engine"].expected


# -- in the doctor -------------------------------------------------------------------------------


class Ground(Host):
    """A host that stands on something."""

    def __init__(self, level: str) -> None:
        self.connected = 0
        super().__init__(self._never)
        self._engine = Engine("windows" if level == "error" else "linux")

    def _never(self) -> Any:
        self.connected += 1
        raise HostError("started")

    def prerequisites(self) -> Mapping[str, object]:
        return survey_prerequisites(lambda _: self._engine, Requirements(system="linux"))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("level", ["error", "ok"])
def test_what_cannot_work_is_not_started(tmp_path: Path, level: str) -> None:
    host = Ground(level)
    plan = make_plan(host, tmp_path)
    seen = run.run_diagnosis(plan, run_session(host))
    told = {verdict.title: verdict for verdict in seen.findings}
    assert told["engine"].level == level
    assert host.connected == (level == "ok")
    if level == "error":
        assert told["connection"].level == "unknown"
        assert "nothing was started" in told["connection"].actual
        assert seen.exit_code == UNFIT


def test_what_takes_hours_to_make_is_not_made_for_a_look(tmp_path: Path) -> None:
    class Unmade(Ground):
        def missing_image(self) -> str:
            return "no golden disk yet"

    host = Unmade("ok")
    seen = run.run_diagnosis(make_plan(host, tmp_path), run_session(host))
    (told,) = (one for one in seen.findings if one.id == "connection")
    assert told.level == "unknown"
    assert "no golden disk yet" in told.actual
    assert not host.connected
    Unmade.lifecycle = SimpleNamespace(address=lambda: "process 1")  # type: ignore[assignment]
    run.run_diagnosis(make_plan(host, tmp_path), run_session(host))
    assert host.connected, "what runs is looked at, whatever its image"


def run_session(host: Host) -> Any:
    from pipelines.hosts.live import LiveSession

    return LiveSession(host)
