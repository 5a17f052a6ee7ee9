"""GPUs in Windows containers: the device class, the isolation mode, the compatible builds.

CUDA in Windows containers is unsupported by Microsoft and NVIDIA; others have shown it, we have
not: https://github.com/TensorWorks/DirectX-Device-Plugins
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.core.model import Model, read_data
from pipelines.hosts.gpus import Gpu, gpu_option_text, is_wanted

#: All GPUs of the machine, as an argument of Docker's ``--device``.
#: https://learn.microsoft.com/en-us/virtualization/windowscontainers/deploy-containers/gpu-acceleration
GPU_CLASS = "class/5B45201D-F2F2-4F3B-85BB-30FF1F953599"
_FILE = Path(__file__).with_name("windows.yaml")


class _Build(Model):
    build: int
    name: str
    runs: tuple[int, ...]


class _Builds(Model):
    hosts: tuple[_Build, ...]


def container_gpu_devices(gpu: Gpu, isolation: str) -> tuple[str, ...]:
    """The devices of a Windows container; ``isolation``: its isolation mode.

    Raises :class:`ConfigError` for a GPU with another isolation than ``process``.
    """
    if not is_wanted(gpu):
        return ()
    if isolation != "process":
        raise ConfigError(
            f"{gpu_option_text(gpu)} and isolation: {isolation}: GPUs need process isolation",
            hint="Set 'isolation: process' for the host, or 'gpu: false'.",
        )
    return (GPU_CLASS,)


@functools.cache
def _known_windows_builds() -> dict[int, _Build]:
    return {build.build: build for build in read_data(_FILE, _Builds).hosts}


def windows_build_number(version: str) -> int | None:
    """The build in a Windows version: 20348 of ``10.0.20348.2762``."""
    match = re.match(r"10\.0\.(\d{4,6})(?:\.|$)", version)
    return int(match[1]) if match else None


def is_image_compatible(host: str, image: str) -> bool | None:
    """Whether a Windows runs an image under process isolation, by their versions.

    ``None``: unknown for these builds.
    """
    on, of = windows_build_number(host), windows_build_number(image)
    if on is None or of is None:
        return None
    if on == of:
        return True
    return of in _known_windows_builds()[on].runs if on in _known_windows_builds() else None


def image_has_newer_patch(host: int | None, image: str) -> bool:
    """Whether an image has updates that its host's Windows, at patch level ``host``, does not."""
    patch = image.split(".")[3:4]
    return host is not None and patch != [] and patch[0].isdecimal() and int(patch[0]) > host


def windows_display_name(version: str) -> str:
    """The name of a Windows version, for people."""
    known = _known_windows_builds().get(windows_build_number(version) or 0)
    return f"{known.name} ({version})" if known else version
