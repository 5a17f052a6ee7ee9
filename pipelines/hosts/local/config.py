"""``kind: local`` of ``pipeline.yaml``."""

from __future__ import annotations

import sys
from typing import Literal

from pipelines.hosts.base import HERE, Host, HostConfig, OpenOptions, Supply
from pipelines.hosts.gpus import DriverGpu
from pipelines.toolchain.lock import ToolchainLock


class LocalHost(HostConfig):
    """The machine that the pipeline itself runs on, Linux or Windows."""

    kind: Literal["local"]
    """This machine."""
    python: str | None = None
    """The Python of an environment to use unchanged: nothing is installed into it.

    Without it the machine is provisioned like any other Windows host, which requires Windows.
    """
    root: str | None = None
    """Directory for builds and their cache; default below ``~/.cache``, on Windows ``C:\\wcw``."""
    cuda: str | None = None
    """Directory of the CUDA toolkit; default ``$CUDA_PATH``, ``$CUDA_HOME``, that of ``nvcc``."""
    gpu: DriverGpu | None = None
    """GPUs to test on: ``true`` or ``all``, or numbers from nvidia-smi; default all present."""

    @property
    def place(self) -> str:
        """Here."""
        return HERE

    @property
    def is_windows(self) -> bool:
        """Whether this machine runs Windows."""
        return sys.platform == "win32"

    def supply(self, lock: ToolchainLock) -> Supply:
        """What is installed here; for a Windows machine to be provisioned, what the lock has.

        Raises what :meth:`open` does.
        """
        if self.python is None:
            return super().supply(lock)
        from pipelines.hosts.local.host import installed

        return installed(self, lock)

    def open(self, name: str, options: OpenOptions) -> Host:
        """Open this machine; :class:`ConfigError` if the Python or toolkit does not exist."""
        from pipelines.hosts.local.host import ThisMachine

        return ThisMachine(name, self, events=options.events)
