"""What the container of a machine is created with: the face of dockurr/windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import Mount, Ulimit

from pipelines.core.errors import ConfigError
from pipelines.hosts.engine.entrance import WINRM
from pipelines.hosts.engine.keys import in_bytes
from pipelines.hosts.passthrough.vfio import Passed
from pipelines.hosts.vm.config import VmHost

#: User and password, for the guest: its \\host.lan\Data\winrm, which it removes.
GIVEN = "/shared/winrm"
#: The same, for whoever finds a lasting machine again: who owns the engine owns the machine.
KNOWN = "/etc/windows-cuda-wheels/winrm"
#: Seconds that Windows may take to shut down, and then the container to end.
SHUTDOWN = 105
STOP = SHUTDOWN + 20
#: What QEMU and Samba use besides the guest's memory, bytes.
_BESIDE = 2 << 30
_ENTRY = Path(__file__).with_name("entry.sh")


@dataclass(frozen=True)
class Runner:
    """The image that runs QEMU, as an engine has it."""

    id: str
    start: tuple[str, ...]
    """Its entry point and what follows it."""

    def entrypoint(self, life: str) -> list[str]:
        """Ours around the image's own; ``life``: tied or kept."""
        return ["/bin/bash", "-c", _ENTRY.read_text("utf-8"), "windows-cuda-wheels", life]


def runner_of(about: Mapping[str, Any], name: str) -> Runner:
    """Of what ``docker image inspect`` says; :class:`ConfigError` for one that starts nothing."""
    config = about.get("Config") or {}
    start = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
    if not start:
        raise ConfigError(
            f"image {name} has no entry point: it is not one that runs a Windows",
            hint="Leave 'image' of the host out, or name dockurr/windows by its digest.",
        )
    return Runner(str(about["Id"]), tuple(start))


def keys_of(config: VmHost, runner: Runner, *, passed: Passed | None) -> dict[str, Any]:
    """What the SDK's ``create`` is given for a machine, without its disks; nothing secret."""
    environment = {
        # Of what is installed here it decides the ISO; the image wants one in any case.
        "VERSION": config.windows or "2025",
        "RAM_SIZE": config.memory.upper(),
        "CPU_CORES": str(config.cpus),
        "DISK_SIZE": config.disk.upper(),
        "DISK_FMT": "qcow2",
        "KVM": "Y" if config.kvm else "N",
        "DISPLAY": "none",
        "WEB": "N",
        "SHORTCUT": "N",
        # Only where there is no NET_ADMIN: its NAT forwards every port.
        "USER_PORTS": "5986",
        "TIMEOUT": str(SHUTDOWN),
    }
    if config.edition == "core":
        environment["EDITION"] = "core"
    devices = ["/dev/kvm"] if config.kvm else []
    devices.append("/dev/net/tun")
    keys: dict[str, Any] = {
        "hostname": "windows",
        "entrypoint": runner.entrypoint("kept"),
        "command": list(runner.start),
        "environment": environment,
        "devices": devices,
        "cap_add": ["NET_ADMIN"],
        "mem_limit": in_bytes(config.memory) + _BESIDE,
        "ports": {WINRM: ("127.0.0.1", None)},
    }
    if passed is not None and passed.devices:
        environment["ARGUMENTS"] = " ".join(passed.arguments)
        devices += passed.devices
        # VFIO locks all of the guest's memory, so that the card can reach it; usual are 64 KiB.
        keys["ulimits"] = [Ulimit(name="memlock", soft=passed.memlock, hard=passed.memlock)]
    return keys


def golden_mount(volume: str) -> Mount:
    """The golden disk, which no machine may change."""
    return Mount("/golden", volume, type="volume", read_only=True)
