"""The container of a machine: its arguments, and why it ended: the interface of dockurr/windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from docker.types import Mount, Ulimit
from pydantic import Field

from pipelines.core import errors
from pipelines.core.errors import ConfigError
from pipelines.core.model import Model, read_data
from pipelines.hosts.bounds import in_bytes
from pipelines.hosts.engine.enginehost import WINRM
from pipelines.hosts.passthrough.vfio import Passthrough
from pipelines.hosts.vm.config import VmHost

#: User and password, for the guest: its \\host.lan\Data\winrm, which it removes.
GIVEN = "/shared/winrm"
#: The same, for reconnecting to a persistent machine: the engine's owner owns the machine.
KNOWN = "/etc/windows-cuda-wheels/winrm"
#: Seconds that Windows may take to shut down, and then the container to end.
SHUTDOWN = 105
STOP = SHUTDOWN + 20
#: Bytes that QEMU and Samba use besides the guest's memory.
_BESIDE = 2 << 30
_ENTRY = Path(__file__).with_name("entry.sh")


@dataclass(frozen=True)
class Runner:
    """The image that runs QEMU, on an engine."""

    id: str
    start: tuple[str, ...]
    """Its entry point and arguments."""

    def entrypoint(self, life: str) -> list[str]:
        """Our entry point around the image's own; ``life``: tied or kept."""
        return ["/bin/bash", "-c", _ENTRY.read_text("utf-8"), "windows-cuda-wheels", life]


def runner_of(about: Mapping[str, Any], name: str) -> Runner:
    """From ``docker image inspect``; :class:`ConfigError` for one without an entry point."""
    config = about.get("Config") or {}
    start = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
    if not start:
        raise ConfigError(
            f"image {name} has no entry point: it cannot run Windows",
            hint="Remove 'image' of the host, or name dockurr/windows by its digest.",
        )
    return Runner(str(about["Id"]), tuple(start))


def keys_of(config: VmHost, runner: Runner, *, passed: Passthrough | None) -> dict[str, Any]:
    """Arguments of the SDK's ``create`` for a machine, without its disks and without secrets."""
    environment = {
        # It selects the ISO for an installation; the image requires a value in any case.
        "VERSION": config.windows or "2025",
        "RAM_SIZE": config.memory.upper(),
        "CPU_CORES": str(config.cpus),
        "DISK_SIZE": config.disk.upper(),
        "DISK_FMT": "qcow2",
        "KVM": "Y" if config.kvm else "N",
        "DISPLAY": "none",
        "WEB": "N",
        "SHORTCUT": "N",
        # Only without NET_ADMIN: its NAT forwards every port.
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
        # VFIO locks all of the guest's memory so that the card can reach it; the default is 64 KiB.
        keys["ulimits"] = [Ulimit(name="memlock", soft=passed.memlock, hard=passed.memlock)]
    return keys


def golden_mount(volume: str) -> Mount:
    """The golden disk, read-only for machines."""
    return Mount("/golden", volume, type="volume", read_only=True)


_FILE = Path(__file__).with_name("exit_codes.yaml")


class ExitCode(Model):
    """The meaning of some exit codes."""

    codes: Annotated[tuple[int, ...], Field(min_length=1)]
    kind: Literal["ConfigError", "SetupError", "HostError", "StorageError"]
    message: str
    hint: str


class _Table(Model):
    exit_codes: tuple[ExitCode, ...]


def exit_codes() -> tuple[ExitCode, ...]:
    """All exit codes."""
    return read_data(_FILE, _Table, hint="").exit_codes


def container_exit_error(code: int, name: str, output: str) -> errors.PipelineError | None:
    """The error for a container that ended with ``code``; ``None``: unknown.

    ``output`` is the end of its output.
    """
    row = next((row for row in exit_codes() if code in row.codes), None)
    if row is None:
        return None
    kind = errors.error_class(row.kind)
    return kind(f"machine '{name}': {row.message} (exit code {code}): {output}", hint=row.hint)
