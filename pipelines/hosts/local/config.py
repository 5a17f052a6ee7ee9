"""``kind: local`` of ``pipeline.yaml``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

from pipelines.core.errors import ConfigError
from pipelines.core.toolsets import MSVC, NATIVE, STUB
from pipelines.hosts.base import HERE, HostConfig, Supply, supply_of
from pipelines.hosts.gpus import DriverGpu
from pipelines.toolchain.lock import ToolchainLock

WINDOWS = sys.platform == "win32"
NVCC = "nvcc.exe" if WINDOWS else "nvcc"
EXAMPLE = r"C:\envs\torch\python.exe" if WINDOWS else "/opt/conda/envs/torch/bin/python"


class LocalHost(HostConfig):
    """The machine that the pipeline itself runs on, Linux or Windows."""

    adapter: ClassVar = "pipelines.hosts.local.host:ThisMachine"
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
        return WINDOWS

    def supply(self, lock: ToolchainLock) -> Supply:
        """What is installed here; for a Windows machine to be provisioned, what the lock has.

        Raises what :meth:`open` does.
        """
        if self.python is None:
            return super().supply(lock)
        from pipelines.remote.inspection.kernel import wine

        python = self.executable("local")
        toolkit = self.toolkit("local") or ""
        cuda = supply_of(lock).cuda if WINDOWS else ()
        if toolkit:
            cuda = _probe_program_version(
                [str(Path(toolkit) / "bin" / NVCC), "--version"], r"release (\d+\.\d+),"
            )
        return Supply(
            cuda=cuda,
            python=_probe_program_version([python, "--version"], r"Python (\d+\.\d+)\."),
            toolset=(MSVC if wine() is None else STUB) if WINDOWS else NATIVE,
            origin=f"{python} and {toolkit or 'PATH'}",
            existing=True,
        )

    def notes(self, name: str) -> Iterable[str]:
        """Where the plan is not for this very machine."""
        if self.python is None and not self.is_windows:
            yield f"{name}: this plan is for a Windows machine; this machine cannot build it"

    def executable(self, name: str) -> str:
        """The Python of host ``name``; :class:`ConfigError` if it does not exist."""
        if self.python is None:
            if not WINDOWS:
                raise ConfigError(
                    f"host '{name}': python is missing: only Windows can be provisioned",
                    hint="Set python to that of an environment to use unchanged, such as "
                    "/path/to/python3",
                )
            return sys.executable
        program = shutil.which(str(_expand_path(self.python)))
        if program is None:
            raise ConfigError(
                f"host '{name}': python: {self.python} does not exist or is not executable",
                hint=f"Use its full path, such as {EXAMPLE}.",
            )
        # Not resolved: the target of a virtual environment's link does not have its packages.
        return os.path.abspath(program)  # noqa: PTH100

    def toolkit(self, name: str) -> str | None:
        """Directory of its CUDA toolkit, if any; :class:`ConfigError` if ``cuda`` is none."""
        if self.cuda:
            place = _expand_path(self.cuda)
            if not (place / "bin" / NVCC).is_file():
                raise ConfigError(
                    f"host '{name}': cuda: {place / 'bin' / NVCC} does not exist",
                    hint="Name the toolkit's directory, the one that contains 'bin'.",
                )
            return str(place.absolute())
        places = [Path(os.environ[n]) for n in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(n)]
        if program := shutil.which(NVCC):
            places.append(Path(program).resolve().parents[1])
        if not WINDOWS:
            places.append(Path("/usr/local/cuda"))
        return next((str(place) for place in places if (place / "bin" / NVCC).is_file()), None)

    def directory(self) -> str:
        """Directory for builds and their cache."""
        if self.root:
            return str(_expand_path(self.root).absolute())
        if WINDOWS:
            return "C:\\wcw"
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return str(Path(base).expanduser() / "windows-cuda-wheels" / "local")


def _expand_path(path: str) -> Path:
    return Path(os.path.expandvars(Path(path).expanduser()))


def _probe_program_version(command: list[str], pattern: str) -> tuple[str, ...] | None:
    """The version a program reports; ``None``: not known."""
    try:
        output = subprocess.run(command, capture_output=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, output.decode("utf-8", "replace"))
    return (match[1],) if match else None
