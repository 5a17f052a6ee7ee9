"""The controller's own machine as a host: the Python is a child process.

Used on GitHub's Windows runners and GPU workstations. With ``python`` in its configuration that
Python's environment is used unchanged; without, the machine is provisioned like any Windows host.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pipelines.core.errors import HostError
from pipelines.core.evidence import Evidence
from pipelines.hosts.base import Capabilities, Existing, Host, OpenOptions
from pipelines.hosts.gpus import host_gpu_way, is_wanted
from pipelines.hosts.local.config import WINDOWS, LocalHost
from pipelines.remote.inspection.kernel import wine
from pipelines.session.base import Session
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session
from pipelines.session.transports.popen import PopenStream

#: Directory for reproducible builds on every machine: on a disk, unlike /tmp perhaps.
FIXED = "C:/wcw-fixed" if WINDOWS else "/var/tmp/wcw-fixed"  # noqa: S108 - its owner is checked


class ThisMachine(Host):
    """Implements :class:`pipelines.hosts.base.Host` for the controller's own machine."""

    def __init__(self, name: str, config: LocalHost, _: OpenOptions) -> None:
        """Raises :class:`ConfigError` if the Python or toolkit does not exist."""
        self.name = name
        self.config = config
        self.executable = config.executable(name)
        if config.python is not None:
            self.existing = Existing(
                root=config.directory(),
                toolkit=config.toolkit(name) or "",
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
        self.gpu_way = host_gpu_way(config.gpu)

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


def has_driver() -> bool:
    """Whether there is an NVIDIA driver; cheap, nothing is loaded."""
    if WINDOWS:
        return (Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "System32/nvcuda.dll").is_file()
    files = ("/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
    return any(Path(file).exists() for file in files) or shutil.which("nvidia-smi") is not None
