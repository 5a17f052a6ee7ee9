"""``kind: vm`` of ``pipeline.yaml``: a Windows Server under QEMU, in a container."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from pipelines.hosts.bounds import Amount, in_bytes
from pipelines.hosts.engine.keys import EngineKeys
from pipelines.hosts.gpus import Gpu, is_wanted
from pipelines.hosts.windows import FIRST_PYTHON
from pipelines.toolchain.sources import Sha256

#: Minimum for an installation of Windows Server, bytes.
LEAST_MEMORY, LEAST_DISK = 2 << 30, 32 << 30


class VmHost(EngineKeys):
    """A virtual machine with Windows Server that only exists while in use."""

    adapter: ClassVar = "pipelines.hosts.vm.host:Vm"
    kind: Literal["vm"]
    """A virtual machine with KVM on a Linux engine, created by the image dockurr/windows."""
    windows: Literal["2022", "2025"] | None = None
    """Windows Server from Microsoft's evaluation ISO, which runs for 180 days."""
    iso: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Instead of ``windows``: your own ISO, a file or an https address."""
    sha256: Sha256 | None = None
    """Hash of the file behind ``iso``."""
    edition: Literal["desktop", "core"] = "desktop"
    """``core`` is Windows Server without a desktop."""
    key_env: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    """For ``iso``: name of the environment variable with the product key; never the key itself."""
    image: (
        Annotated[str, StringConstraints(pattern=r"^([\w./:-]+@)?sha256:[0-9a-f]{64}$")] | None
    ) = None
    """The image that runs QEMU, by its digest, or by the id of one the engine has; default
    that of the lock."""
    python: str = FIRST_PYTHON
    """The Python that runs the pipeline's own code there; installed unless one is named."""
    memory: Amount = "16g"
    """Guest memory; QEMU's container may use 2g more."""
    cpus: Annotated[int, Field(ge=1, le=512)] = 4
    """Guest processors."""
    disk: Amount = "128g"
    """Size of the guest's drive C; only written data uses disk space."""
    gpu: Gpu = False
    """Whole GPUs of the engine's machine, by VFIO: ``true``, numbers, or quoted PCI addresses."""
    kvm: bool = True
    """``false``: without hardware acceleration, about ten times slower."""
    start_minutes: Annotated[float, Field(gt=0, le=24 * 60)] = 5.0
    """How long it may take to boot; an installation takes longer and is not limited by this."""

    @model_validator(mode="before")
    @classmethod
    def _no_secrets(cls, keys: object) -> object:
        for key in keys if isinstance(keys, dict) else ():
            if str(key).casefold() in ("key", "product_key", "password"):
                raise ValueError(
                    f"{key}: secrets are not allowed in this file. For a product key use "
                    "'key_env: NAME' of an environment variable; the machine's password is "
                    "generated for each. If it was a real one, change it"
                )
        return keys

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if bool(self.windows) == bool(self.iso):
            raise ValueError("either windows or iso is needed")
        if bool(self.sha256) != bool(self.iso):
            raise ValueError(
                "iso needs the sha256 of its file, as printed by sha256sum; windows needs none"
            )
        if self.iso and "://" in self.iso and not self.iso.startswith("https://"):
            raise ValueError("iso: expected a file, or an https address")
        if self.key_env and not self.iso:
            raise ValueError(
                "key_env requires iso: Microsoft's evaluation ISOs take no product key"
            )
        return self

    @model_validator(mode="after")
    def _large_enough(self) -> Self:
        if in_bytes(self.memory) < LEAST_MEMORY:
            raise ValueError(f"memory: Windows Server needs 2g, found {self.memory}")
        if in_bytes(self.disk) < LEAST_DISK:
            raise ValueError(f"disk: Windows Server needs 32g, found {self.disk}")
        if is_wanted(self.gpu) and not self.kvm:
            raise ValueError("gpu requires kvm: true: CUDA does not work on an emulated processor")
        if not re.fullmatch(r"(?i)[a-z]:(\\[^\\/]+)+\\python\.exe", self.python):
            raise ValueError(r"python: expected a path such as C:\Python311\python.exe")
        return self

    @property
    def title(self) -> str:
        """The Windows edition, for people."""
        core = " Core" if self.edition == "core" else ""
        return f"Windows Server {self.windows}{core}" if self.windows else f"Windows{core} from ISO"
