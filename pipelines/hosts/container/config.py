"""``kind: container`` of ``pipeline.yaml``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipelines.hosts.base import Supply, supply_of, supply_of_sandbox
from pipelines.hosts.bounds import Amount
from pipelines.hosts.engine.keys import EngineKeys
from pipelines.hosts.gpus import DriverGpu, is_wanted
from pipelines.toolchain.lock import ToolchainLock

#: Images that the pipeline builds itself.
OURS = ("sandbox", "windows")
_DIGEST = re.compile(r"[\w./:-]+@sha256:[0-9a-f]{64}")


def _validate_image(text: str) -> str:
    if text not in OURS and not _DIGEST.fullmatch(text):
        raise ValueError(
            f"expected {' or '.join(OURS)}, or an image by digest, NAME@sha256:..., found "
            f"'{text}': a tag may refer to another image later"
        )
    return text


Image = Annotated[str, AfterValidator(_validate_image)]


class ContainerHost(EngineKeys):
    """A container that only exists while in use: a Windows one, or the sandbox on Linux."""

    adapter: ClassVar = "pipelines.hosts.container.host:Container"
    kind: Literal["container"]
    """A container on any engine with Docker's API."""
    image: Image = "sandbox"
    """``sandbox`` (Debian, Wine and our WinRM service; for Linux engines) or ``windows`` (MSVC and
    CUDA; for Windows engines), built if missing; or ``NAME@sha256:...``."""
    system: Literal["windows", "linux"] | None = None
    """The system of an image named by digest: ``linux`` is the sandbox; default Windows."""
    via: Literal["winrm", "exec"] | None = None
    """How to connect: WinRM through a port on loopback, or exec through the engine, with no port
    and no password; default winrm on this machine's Linux engine, else exec."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """For ``via: winrm``: the port on loopback; 0 picks a free one."""
    cache: bool = True
    """Whether compiled objects, and builds on Linux engines, are kept in named volumes."""
    python: str | None = None
    """Path of Python in a custom image; one is installed if missing."""
    isolation: Literal["process", "hyperv"] | None = None
    """Of a Windows container: ``hyperv`` runs other Windows builds than the engine's; no GPU."""
    disk: Amount | None = None
    """Of a Windows container: the size of drive C, such as 200g; default the engine's, 127 GB."""
    gpu: DriverGpu = False
    """GPUs of a Windows engine's machine: ``true`` or ``all``, or numbers from nvidia-smi."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.isolation == "hyperv" and is_wanted(self.gpu):
            raise ValueError("isolation: hyperv and gpu are mutually exclusive: use process")
        if self.via == "exec" and self.port:
            raise ValueError("port requires via: winrm")
        if self.system and self.image in OURS:
            raise ValueError("system requires an image named by digest")
        if self.is_sandbox:
            for name in ("isolation", "disk", "python"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is not valid for the sandbox: it is for Windows engines"
                    )
            if is_wanted(self.gpu):
                raise ValueError(
                    "gpu is for Windows engines: the sandbox container has none. On a Linux "
                    "machine with a GPU, a host of kind sandbox can use it: gpu: bridge"
                )
        if self.python is not None and not re.fullmatch(
            r"(?i)[a-z]:(\\[^\\/]+)+\\python\.exe", self.python
        ):
            raise ValueError(r"python: expected a path such as C:\Python311\python.exe")
        return self

    @property
    def is_sandbox(self) -> bool:
        """Whether the sandbox runs in it."""
        return self.image == "sandbox" or self.system == "linux"

    def supply(self, lock: ToolchainLock) -> Supply:
        """The sandbox's, or what the lock has for Windows."""
        if not self.is_sandbox:
            return supply_of(lock)
        supply = supply_of_sandbox(lock)
        if self.image == "sandbox":  # the current one, with libc++
            return supply
        missing = f"image {self.image} may not have libc++; image: sandbox has it"
        return replace(supply, toolset=replace(supply.toolset, apis=("plain",), limitation=missing))
