"""The differences between a Windows container and the sandbox in a Linux container."""

from __future__ import annotations

import json
import tarfile
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import PureWindowsPath
from types import MappingProxyType
from typing import Any

from docker.models.containers import Container

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.evidence import Evidence
from pipelines.hosts.base import IN_SANDBOX, Capabilities, GpuWay
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.engine.container import ManagedContainer
from pipelines.hosts.engine.containerfiles import read_container_file
from pipelines.hosts.engine.engine import Engine, System
from pipelines.hosts.engine.enginehost import WINRM, ConnectionInfo, port_bind_address, url_of
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.gpus import by_class, is_wanted
from pipelines.hosts.passthrough.windows import container_gpu_devices
from pipelines.hosts.windows import FIRST_PYTHON
from pipelines.hosts.windows.payload import open_python_payload
from pipelines.session.transports.identify import is_winrm_listening
from pipelines.toolchain.lock import Cache

_SYSTEM32 = r"C:\Windows\System32"


class Backend(ABC):
    """One system in a container."""

    system: System
    python: str
    """Path of the Python that runs the pipeline's own code."""
    capabilities: Capabilities
    evidence: Evidence
    gpu: GpuWay
    replacements: Mapping[str, str] = MappingProxyType({})
    """As for the host."""
    caches: Mapping[str, str]
    """Name -> directory kept in a named volume."""
    ephemeral_keys: Mapping[str, Any]
    """Extra arguments of the SDK's ``create``, for a container that ends with its input."""

    @abstractmethod
    def winrm(self, engine: Engine) -> bool:
        """Whether it is reached by WinRM; otherwise by exec."""

    @abstractmethod
    def keys(self, engine: Engine) -> dict[str, Any]:
        """Arguments of the SDK's ``create``."""

    @abstractmethod
    def fill(self, container: Container, cache: Cache) -> None:
        """Write the files it needs for connections into it, before it starts."""

    @abstractmethod
    def connection_info(self, managed: ManagedContainer, engine: Engine) -> ConnectionInfo | None:
        """How to connect to it; ``None`` while that is not possible."""

    @abstractmethod
    def command(self, program: list[str]) -> list[str]:
        """The command for a Windows program started by exec."""


class SandboxBackend(Backend):
    """Debian, Wine and our own WinRM service."""

    system: System = "linux"
    capabilities = Capabilities(windows=True, msvc=False, gpu=False, publishable=False)
    evidence = Evidence.BINARIES
    gpu = GpuWay()
    replacements = IN_SANDBOX
    home = "/sandbox"

    def __init__(self, config: ContainerHost, python: str) -> None:
        self._config = config
        self.python = rf"C:\Python{python.replace('.', '')}\python.exe"
        drive = f"{self.home}/prefix/drive_c"
        self.caches = {"builds": f"{drive}/b", "wheels": f"{drive}/w"} if config.cache else {}
        self.ephemeral_keys = {"command": ["--tied"]}

    def winrm(self, engine: Engine) -> bool:
        """As configured; otherwise if the port is on this machine's loopback."""
        return self._config.via == "winrm" or (self._config.via is None and not engine.remote)

    def fill(self, container: Container, cache: Cache) -> None:
        """Does nothing: its image is complete."""

    def keys(self, engine: Engine) -> dict[str, Any]:
        """Limits, minimal privileges, and WinRM's port on loopback only."""
        config = self._config
        ports = {WINRM: (port_bind_address(engine), config.port or None)}
        return {
            "hostname": "sandbox",
            "mem_limit": config.memory,
            "memswap_limit": config.memory,
            "pids_limit": 8192,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            **({"nano_cpus": round(config.cpus * 1e9)} if config.cpus else {}),
            **({"ports": ports} if self.winrm(engine) else {}),
        }

    def connection_info(self, managed: ManagedContainer, engine: Engine) -> ConnectionInfo | None:
        """The data its service has published, in a place only the engine's owner can read."""
        raw = read_container_file(managed.container, f"{self.home}/run/state.json")
        if raw is None:
            return None
        try:
            pin = str(json.loads(raw)["certificate_sha256"])
        except (ValueError, KeyError, TypeError):
            raise HostError(f"container '{managed.name}' does not report its certificate") from None
        if not self.winrm(engine):
            return ConnectionInfo()
        url = url_of(managed, engine)
        if not url or not is_winrm_listening(url, pin):
            return None
        known = read_container_file(managed.container, f"{self.home}/run/credentials") or b""
        _, user, password = (known.decode("utf-8", "replace").strip() + "::").split(":", 2)
        return ConnectionInfo(url, pin, user, password.removesuffix("::"))

    def command(self, program: list[str]) -> list[str]:
        """In its prefix, with its Wine."""
        module = "pipelines.hosts.sandbox.execute"
        return ["/opt/venv/bin/python", "-m", module, self.home, *program]


class WindowsBackend(Backend):
    """A Windows container on a Windows engine; not yet run on a real one."""

    system: System = "windows"
    evidence = Evidence.WRITTEN
    #: Reads its input to the end, and is part of every Windows: it ends with the keep-alive pipe.
    #: It replaces the image's entry point (VsDevCmd.bat in Microsoft's example), which would take
    #: it as an argument.
    ephemeral_keys: Mapping[str, Any] = {"entrypoint": [rf"{_SYSTEM32}\findstr.exe", "^"]}

    def __init__(self, config: ContainerHost, python: str) -> None:  # noqa: ARG002 - of a Backend
        """Raises :class:`ConfigError` for what a Windows engine does not support."""
        if config.via == "winrm":
            raise ConfigError(
                "via: winrm: a Windows engine publishes ports on all addresses, not only on "
                "loopback",
                hint="Use 'via: exec', which needs no port, password or certificate.",
            )
        self._config = config
        self.python = config.python or FIRST_PYTHON
        self.capabilities = Capabilities(
            windows=True, msvc=True, gpu=is_wanted(config.gpu), publishable=True
        )
        self.gpu = by_class(config.gpu)
        # Builds stay in its own layer: in a volume, opens fail at random and directories cannot be
        # renamed twice. https://github.com/microsoft/Windows-Containers/issues/635
        self.caches = {"units": r"C:\sccache"} if config.cache else {}

    def winrm(self, engine: Engine) -> bool:  # noqa: ARG002 - refused above
        """Never."""
        return False

    def keys(self, engine: Engine) -> dict[str, Any]:
        """Limits, isolation, devices; without options that a Windows engine refuses."""
        config = self._config
        isolation = config.isolation or "process"
        # A virtual machine has two unless more are requested:
        # https://github.com/microsoft/hcsshim/blob/main/internal/uvm/create.go
        cpus = config.cpus or (isolation == "hyperv" and int(engine.about.get("NCPU") or 0))
        return {
            "isolation": isolation,
            "mem_limit": config.memory,
            # A persistent one never ends by itself. The engine keeps its output.
            "entrypoint": [rf"{_SYSTEM32}\PING.EXE", "-t", "localhost"],
            "log_config": {"Type": "json-file", "Config": {"max-size": "1m"}},
            **({"nano_cpus": round(cpus * 1e9)} if cpus else {}),
            **({"storage_opt": {"size": config.disk}} if config.disk else {}),
            **(
                {"devices": [*gpu_devices]}
                if (gpu_devices := container_gpu_devices(config.gpu, isolation))
                else {}
            ),
        }

    def fill(self, container: Container, cache: Cache) -> None:
        """The Python that runs the pipeline's own code, unless one of the image is configured."""
        if self._config.python is None:
            install_container_python(container, cache)

    def connection_info(self, managed: ManagedContainer, engine: Engine) -> ConnectionInfo | None:  # noqa: ARG002 - as above
        """By exec, as soon as it runs."""
        return ConnectionInfo() if managed.container.status == "running" else None

    def command(self, program: list[str]) -> list[str]:
        """Unchanged."""
        return program


def install_container_python(container: Container, cache: Cache) -> None:
    """Install the pinned Python at :data:`FIRST_PYTHON`, through the engine.

    Raises what :func:`pipelines.hosts.windows.payload.open_python_payload` does.
    """
    folder = PureWindowsPath(FIRST_PYTHON).parent
    above, below = folder.parts[1:-1], folder.parts[-1]
    with tempfile.TemporaryFile(prefix="python-") as packed:
        with (
            open_python_payload(cache, "3.11") as parcel,
            zipfile.ZipFile(parcel.file) as files,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for item in files.infolist():
                member = tarfile.TarInfo("/".join((*above, below, item.filename)))
                member.size, member.mode = item.file_size, 0o755
                with files.open(item) as file:
                    archive.addfile(member, file)
        packed.seek(0)
        with engine_errors(f"install Python in container '{container.name}'"):
            container.put_archive("C:\\", packed)


def container_backend(config: ContainerHost, python: str) -> Backend:
    """The backend of a host; :class:`ConfigError` for what its system does not support."""
    return SandboxBackend(config, python) if config.is_sandbox else WindowsBackend(config, python)
