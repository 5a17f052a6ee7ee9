"""The controller's own machine as a host: the Python is a child process.

Used on GitHub's Windows runners and GPU workstations. With ``python`` in its configuration that
Python's environment is used unchanged; without, the machine is provisioned like any Windows host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.evidence import Evidence
from pipelines.hosts.base import (
    Capabilities,
    Events,
    Existing,
    Host,
    Silent,
    Supply,
    supply_of,
)
from pipelines.hosts.gpus import is_wanted, own
from pipelines.hosts.local.config import LocalHost
from pipelines.record.toolsets import MSVC, NATIVE, STUB
from pipelines.remote.inspection.kernel import wine
from pipelines.session.base import Session
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session
from pipelines.session.transports.popen import PopenStream
from pipelines.toolchain.lock import ToolchainLock

WINDOWS = sys.platform == "win32"
#: Directory for reproducible builds on every machine: on a disk, unlike /tmp perhaps.
FIXED = "C:/wcw-fixed" if WINDOWS else "/var/tmp/wcw-fixed"  # noqa: S108 - its owner is checked


EXAMPLE = r"C:\envs\torch\python.exe" if WINDOWS else "/opt/conda/envs/torch/bin/python"


class ThisMachine(Host):
    """Implements :class:`pipelines.hosts.base.Host` for the controller's own machine."""

    def __init__(self, name: str, config: LocalHost, *, events: Events | None = None) -> None:
        """Raises :class:`ConfigError` if the Python or toolkit does not exist."""
        self.name = name
        self.config = config
        self.events = events or Silent()
        if config.python is None:
            if not WINDOWS:
                raise ConfigError(
                    f"host '{name}': python is missing: only Windows can be provisioned",
                    hint="Set python to that of an environment to use unchanged, such as "
                    "/path/to/python3",
                )
            self.executable = sys.executable
        else:
            self.executable = self._python(config.python)
            self.existing = Existing(
                root=str(self._root()),
                toolkit=str(self._toolkit() or ""),
                sccache=shutil.which("sccache") or "",
                fixed=FIXED,
            )
        gpu = has_driver() if config.gpu is None else is_wanted(config.gpu)
        emulated = wine() is not None
        self.evidence = Evidence.BINARIES if emulated else Evidence.WRITTEN
        if gpu and not WINDOWS:
            self.evidence = Evidence.GPU
        self.capabilities = Capabilities(
            windows=WINDOWS,
            msvc=WINDOWS,
            gpu=gpu,
            publishable=not emulated,
            toolkit=bool(self.existing and self.existing.toolkit),
        )
        self.gpu_way = own(config.gpu)

    def _python(self, text: str) -> str:
        program = shutil.which(os.path.expandvars(Path(text).expanduser()))
        if program is None:
            raise ConfigError(
                f"host '{self.name}': python: {text} does not exist or is not executable",
                hint=f"Use its full path, such as {EXAMPLE}.",
            )
        # Not resolved: the target of a virtual environment's link does not have its packages.
        return os.path.abspath(program)  # noqa: PTH100

    def _root(self) -> Path:
        if self.config.root:
            return Path(os.path.expandvars(Path(self.config.root).expanduser())).absolute()
        if WINDOWS:
            return Path("C:/wcw")
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(base).expanduser() / "windows-cuda-wheels" / "local"

    def _toolkit(self) -> Path | None:
        nvcc = "nvcc.exe" if WINDOWS else "nvcc"
        if self.config.cuda:
            place = Path(os.path.expandvars(Path(self.config.cuda).expanduser()))
            if not (place / "bin" / nvcc).is_file():
                raise ConfigError(
                    f"host '{self.name}': cuda: {place / 'bin' / nvcc} does not exist",
                    hint="Name the toolkit's directory, the one that contains 'bin'.",
                )
            return place.absolute()
        places = [Path(os.environ[n]) for n in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(n)]
        if program := shutil.which(nvcc):
            places.append(Path(program).resolve().parents[1])
        if not WINDOWS:
            places.append(Path("/usr/local/cuda"))
        return next((place for place in places if (place / "bin" / nvcc).is_file()), None)

    def connect(self) -> Session:
        """Start the Python and open a session with it; :class:`HostError` if it does not run."""

        def stream() -> PopenStream:
            try:
                return PopenStream(bootstrap_argv(self.executable))
            except OSError as error:
                raise HostError(
                    f"{self.name}: {self.executable} cannot be started: {error.strerror}",
                    hint="Fix 'python' of this host in pipeline.yaml.",
                ) from error

        return open_session(stream(), name=self.name, reconnect=stream)

    def restart(self, session: Session) -> Session:  # noqa: ARG002 - of the protocol
        """Refused: it would end the controller as well."""
        raise HostError(
            f"{self.name} is this machine, which cannot be restarted from here",
            hint="Restart it yourself, then run the same command again.",
        )

    def close(self) -> None:
        """Does nothing: everything it started ends with its session."""


def installed(config: LocalHost, lock: ToolchainLock) -> Supply:
    """What an existing environment provides: the versions of its Python and its toolkit.

    A program that does not report its version leaves it open. Raises :class:`ConfigError` if the
    Python or toolkit does not exist.
    """
    machine = ThisMachine("local", config)
    python = _version([machine.executable, "--version"], r"Python (\d+\.\d+)\.")
    toolkit = machine.existing.toolkit if machine.existing else ""
    cuda: tuple[str, ...] | None = supply_of(lock).cuda if WINDOWS else ()
    if toolkit:
        nvcc = str(Path(toolkit) / "bin" / ("nvcc.exe" if WINDOWS else "nvcc"))
        cuda = _version([nvcc, "--version"], r"release (\d+\.\d+),")
    origin = f"{machine.executable} and {toolkit or 'PATH'}"
    tools = (MSVC if wine() is None else STUB) if WINDOWS else NATIVE
    return Supply(cuda=cuda, python=python, toolset=tools, origin=origin, existing=True)


def _version(command: list[str], pattern: str) -> tuple[str, ...] | None:
    """The version a program reports."""
    try:
        output = subprocess.run(command, capture_output=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, output.decode("utf-8", "replace"))
    return (match[1],) if match else None


def has_driver() -> bool:
    """Whether there is an NVIDIA driver; cheap, nothing is loaded."""
    if WINDOWS:
        return (Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "System32/nvcuda.dll").is_file()
    files = ("/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
    return any(Path(file).exists() for file in files) or shutil.which("nvidia-smi") is not None
