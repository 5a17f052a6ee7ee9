"""What differs between a Windows container and the sandbox in a Linux one."""

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
from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.containerfiles import read_file
from pipelines.hosts.engine.engine import Engine, System
from pipelines.hosts.engine.entrance import WINRM, Entrance, bound, url_of
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.gpus import by_class, is_wanted
from pipelines.hosts.passthrough.windows import devices
from pipelines.hosts.windows import FIRST_PYTHON
from pipelines.hosts.windows.payload import payload
from pipelines.session.transports.identify import answers
from pipelines.toolchain.lock import Cache

_SYSTEM32 = r"C:\Windows\System32"


class Face(ABC):
    """One system in a container."""

    system: System
    python: str
    """Path of the Python that runs the pipeline's own code."""
    capabilities: Capabilities
    evidence: Evidence
    gpu: GpuWay
    instead: Mapping[str, str] = MappingProxyType({})
    """As the host's."""
    caches: Mapping[str, str]
    """Name -> directory that a named volume keeps."""
    tied: Mapping[str, Any]
    """What the SDK's ``create`` is given besides, for one that ends with its input."""

    @abstractmethod
    def winrm(self, engine: Engine) -> bool:
        """Whether it is entered by WinRM; by exec otherwise."""

    @abstractmethod
    def keys(self, engine: Engine) -> dict[str, Any]:
        """What the SDK's ``create`` is given."""

    @abstractmethod
    def fill(self, container: Container, cache: Cache) -> None:
        """Put into it, before it starts, what it needs to be entered."""

    @abstractmethod
    def entrance(self, box: Box, engine: Engine) -> Entrance | None:
        """How it is entered; ``None`` while it cannot be."""

    @abstractmethod
    def command(self, program: list[str]) -> list[str]:
        """What is started by exec for a Windows program."""


class SandboxFace(Face):
    """Debian, Wine and our own WinRM service."""

    system: System = "linux"
    capabilities = Capabilities(windows=True, msvc=False, gpu=False, publishable=False)
    evidence = Evidence.BINARIES
    gpu = GpuWay()
    instead = IN_SANDBOX
    home = "/sandbox"

    def __init__(self, config: ContainerHost, python: str) -> None:
        self._config = config
        self.python = rf"C:\Python{python.replace('.', '')}\python.exe"
        drive = f"{self.home}/prefix/drive_c"
        self.caches = {"builds": f"{drive}/b", "wheels": f"{drive}/w"} if config.cache else {}
        self.tied = {"command": ["--tied"]}

    def winrm(self, engine: Engine) -> bool:
        """As it is asked for; else where the port is on this machine's loopback."""
        return self._config.via == "winrm" or (self._config.via is None and not engine.remote)

    def fill(self, container: Container, cache: Cache) -> None:
        """Nothing: its image has all."""

    def keys(self, engine: Engine) -> dict[str, Any]:
        """Limits, no rights that it does not need, and WinRM's port on loopback alone."""
        config = self._config
        ports = {WINRM: (bound(engine), config.port or None)}
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

    def entrance(self, box: Box, engine: Engine) -> Entrance | None:
        """What its service has published: where only the engine's owner can look."""
        raw = read_file(box.container, f"{self.home}/run/state.json")
        if raw is None:
            return None
        try:
            pin = str(json.loads(raw)["certificate_sha256"])
        except (ValueError, KeyError, TypeError):
            raise HostError(f"container '{box.name}' says nothing of its certificate") from None
        if not self.winrm(engine):
            return Entrance()
        url = url_of(box, engine)
        if not url or not answers(url, pin):
            return None
        known = read_file(box.container, f"{self.home}/run/credentials") or b""
        _, user, password = (known.decode("utf-8", "replace").strip() + "::").split(":", 2)
        return Entrance(url, pin, user, password.removesuffix("::"))

    def command(self, program: list[str]) -> list[str]:
        """In its prefix, by its Wine."""
        module = "pipelines.hosts.sandbox.execute"
        return ["/opt/venv/bin/python", "-m", module, self.home, *program]


class WindowsFace(Face):
    """A Windows container on a Windows engine; nobody has shown it on a real one."""

    system: System = "windows"
    evidence = Evidence.WRITTEN
    #: Reads its input to the end, and is in every Windows: it ends with the leash. In place of the
    #: image's entry point (VsDevCmd.bat, in Microsoft's example), which would make it an argument.
    tied: Mapping[str, Any] = {"entrypoint": [rf"{_SYSTEM32}\findstr.exe", "^"]}

    def __init__(self, config: ContainerHost, python: str) -> None:  # noqa: ARG002 - of a Face
        """Raises :class:`ConfigError` for what a Windows engine cannot give."""
        if config.via == "winrm":
            raise ConfigError(
                "via: winrm: a Windows engine publishes ports on all addresses, never on loopback",
                hint="Use 'via: exec', which needs no port, password or certificate.",
            )
        self._config = config
        self.python = config.python or FIRST_PYTHON
        self.capabilities = Capabilities(
            windows=True, msvc=True, gpu=is_wanted(config.gpu), publishable=True
        )
        self.gpu = by_class(config.gpu)
        # Builds stay in its own layer: in a volume opens fail at random, and directories cannot be
        # renamed twice. https://github.com/microsoft/Windows-Containers/issues/635
        self.caches = {"units": r"C:\sccache"} if config.cache else {}

    def winrm(self, engine: Engine) -> bool:  # noqa: ARG002 - refused above
        """Never."""
        return False

    def keys(self, engine: Engine) -> dict[str, Any]:
        """Limits, isolation, devices; what a Windows engine refuses is not there."""
        config = self._config
        isolation = config.isolation or "process"
        # A virtual machine has two unless more are asked for:
        # https://github.com/microsoft/hcsshim/blob/main/internal/uvm/create.go
        cpus = config.cpus or (isolation == "hyperv" and int(engine.about.get("NCPU") or 0))
        return {
            "isolation": isolation,
            "mem_limit": config.memory,
            # A lasting one: it never ends by itself. What it prints is kept by the engine.
            "entrypoint": [rf"{_SYSTEM32}\PING.EXE", "-t", "localhost"],
            "log_config": {"Type": "json-file", "Config": {"max-size": "1m"}},
            **({"nano_cpus": round(cpus * 1e9)} if cpus else {}),
            **({"storage_opt": {"size": config.disk}} if config.disk else {}),
            **({"devices": [*given]} if (given := devices(config.gpu, isolation)) else {}),
        }

    def fill(self, container: Container, cache: Cache) -> None:
        """The Python that runs the pipeline's own code, unless one of the image's was named."""
        if self._config.python is None:
            put_python(container, cache)

    def entrance(self, box: Box, engine: Engine) -> Entrance | None:  # noqa: ARG002 - as above
        """By exec, as soon as it runs."""
        return Entrance() if box.container.status == "running" else None

    def command(self, program: list[str]) -> list[str]:
        """As it is."""
        return program


def put_python(container: Container, cache: Cache) -> None:
    """Put the pinned Python where :data:`FIRST_PYTHON` says, through the engine.

    Raises what :func:`pipelines.hosts.windows.payload.payload` does.
    """
    folder = PureWindowsPath(FIRST_PYTHON).parent
    above, below = folder.parts[1:-1], folder.parts[-1]
    with tempfile.TemporaryFile(prefix="python-") as packed:
        with (
            payload(cache, "3.11") as parcel,
            zipfile.ZipFile(parcel.file) as files,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for item in files.infolist():
                member = tarfile.TarInfo("/".join((*above, below, item.filename)))
                member.size, member.mode = item.file_size, 0o755
                with files.open(item) as file:
                    archive.addfile(member, file)
        packed.seek(0)
        with telling(f"put Python into container '{container.name}'"):
            container.put_archive("C:\\", packed)


def face_of(config: ContainerHost, python: str) -> Face:
    """The face of a host; :class:`ConfigError` for what its system cannot give."""
    return SandboxFace(config, python) if config.is_sandbox else WindowsFace(config, python)
