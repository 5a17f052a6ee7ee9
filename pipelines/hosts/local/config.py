"""``kind: local`` of ``pipeline.yaml``."""

from __future__ import annotations

import sys
from typing import Literal

from pipelines.hosts.base import Host, HostConfig, Opening, Supply
from pipelines.hosts.gpus import DriverGpu
from pipelines.toolchain.lock import ToolchainLock


class LocalHost(HostConfig):
    """The machine that the pipeline itself runs on, Linux or Windows."""

    kind: Literal["local"]
    """This machine."""
    python: str | None = None
    """A Python whose environment is used as it is: nothing is installed into it.

    Without it the machine is made ready as any other Windows is, which only a Windows can be.
    """
    root: str | None = None
    """Directory for builds and their cache; default below ``~/.cache``, on Windows ``C:\\wcw``."""
    cuda: str | None = None
    """Directory of the CUDA toolkit; default ``$CUDA_PATH``, ``$CUDA_HOME``, that of ``nvcc``."""
    gpu: DriverGpu | None = None
    """GPUs to test on: ``true`` or ``all``, or by nvidia-smi's numbers; default what is there."""

    @property
    def place(self) -> str:
        """Here."""
        return "this machine"

    @property
    def windows(self) -> bool:
        """What this machine is."""
        return sys.platform == "win32"

    def supply(self, lock: ToolchainLock) -> Supply:
        """What is installed here; of a Windows to be made ready, what the lock has for one.

        Raises what :meth:`open` does.
        """
        if self.python is None:
            return super().supply(lock)
        from pipelines.hosts.local.host import installed

        return installed(self, lock)

    def open(self, name: str, given: Opening) -> Host:
        """Open this machine; :class:`ConfigError` when there is no such Python or toolkit."""
        from pipelines.hosts.local.host import ThisMachine

        return ThisMachine(name, self, events=given.events)
