"""``kind: sandbox`` of ``pipeline.yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from pipelines.core.paths import project_dir
from pipelines.core.toolsets import MSVC
from pipelines.hosts.base import (
    HERE,
    CacheEntry,
    HostConfig,
    OwnedItem,
    Supply,
    supply_of,
    supply_of_sandbox,
)
from pipelines.hosts.gpus import BridgedGpu, bridged_numbers
from pipelines.toolchain.lock import Cache, ToolchainLock

if TYPE_CHECKING:
    from pipelines.hosts.sandbox.msvc.slot import Slot


class SandboxHost(HostConfig):
    """The embedded sandbox: real Windows tools under Wine, behind our own WinRM service."""

    adapter: ClassVar = "pipelines.hosts.sandbox.host:Sandbox"
    kind: Literal["sandbox"]
    """The sandbox on this machine."""
    home: str | None = None
    """Directory that contains it; default ``.sandbox/<name>``."""
    http_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """HTTP port on loopback; 0 picks a free one."""
    https_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """HTTPS port on loopback; 0 picks a free one."""
    listener: Literal["https", "http"] = "https"
    """``http`` means NTLM with message encryption."""

    gpu: BridgedGpu = False
    """``bridge``: run CUDA on this machine's NVIDIA GPUs, through a DLL that forwards Windows
    driver calls to the Linux driver (docs/gpu-bridge.md); ``bridge:0,1``: on these GPUs only, with
    nvidia-smi's numbers."""
    flagged_gpu: ClassVar[object] = "bridge"

    msvc: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Microsoft's compiler instead of the stub toolchain (docs/msvc.md): a directory with a tree of
    Visual Studio or msvc-wine."""
    msvc_version: Annotated[str, StringConstraints(pattern=r"^14(\.\d+){0,2}$")] | None = None
    """The toolset to use of a directory with several, such as 14.44."""
    windows_sdk: Annotated[str, StringConstraints(pattern=r"^10(\.\d+){0,3}$")] | None = None
    """The Windows SDK to use of a directory with several, such as 10.0.26100."""

    @model_validator(mode="after")
    def _keys_of_msvc(self) -> Self:
        if (self.msvc_version or self.windows_sdk) and self.msvc is None:
            raise ValueError("msvc_version and windows_sdk require msvc: DIRECTORY")
        return self

    @property
    def slot(self) -> Slot | None:
        """The source of its compiler, unless it is the stub toolchain."""
        if self.msvc is None:
            return None
        from pipelines.hosts.sandbox.msvc.slot import Slot

        return Slot(
            msvc=self.msvc,
            version=self.msvc_version or "",
            sdk=self.windows_sdk or "",
        )

    def supply(self, lock: ToolchainLock) -> Supply:
        """What the lock has for a sandbox; with a bridge also its driver's CUDA."""
        supply = self._supply_of_compiler(lock)
        if not self.gpu:
            return supply
        from pipelines.hosts.sandbox.bridge import driver
        from pipelines.hosts.sandbox.bridge.problems import find_driver_problems

        gpu_driver = driver.inspect_gpu_driver()
        numbers = bridged_numbers(self.gpu)
        return replace(
            supply,
            missing=(*supply.missing, *find_driver_problems(gpu_driver, numbers)),
            driver=gpu_driver.cuda,
        )

    def _supply_of_compiler(self, lock: ToolchainLock) -> Supply:
        """With MSVC the same as any Windows, except for Python, which is the image's."""
        supply = supply_of_sandbox(lock)
        if (slot := self.slot) is None:
            return replace(supply, slot="set 'msvc' of this host in pipeline.yaml")
        missing = slot.missing()
        version, files = ("", "") if missing else slot.which()
        msvc = replace(MSVC, version=version, files=files)
        supply = replace(supply_of(lock), python=supply.python, toolset=msvc, missing=missing)
        return replace(supply, programs=False, msvc_tools=False)

    def notes(self, name: str) -> Iterable[str]:
        """The user's compiler; the GPUs, their driver, and the state of the bridge."""
        if (slot := self.slot) is not None:
            yield from slot.notes()
        if self.gpu:
            from pipelines.hosts.sandbox.bridge.attachment import bridge_plan_notes

            yield from bridge_plan_notes(self.base(name), bridged_numbers(self.gpu))

    @property
    def place(self) -> str:
        """Here."""
        return HERE

    def owned_items(self, hosts: Mapping[str, HostConfig]) -> Iterable[OwnedItem]:
        """The sandboxes of this checkout."""
        from pipelines.hosts.sandbox.inventory import list_sandboxes

        bases = {n: h.base(n) for n, h in hosts.items() if isinstance(h, SandboxHost)}
        return list_sandboxes(bases)

    def base(self, name: str) -> Path:
        """Its directory; there is one for each Python, with a name ending in ``-py3.11``.

        With MSVC it ends in ``-py3.11-msvc``, with a bridge in ``-gpu``: all can exist at the same
        time.
        """
        return project_dir() / (self.home or Path(".sandbox", name))

    def cache_entries(self, cache: Cache) -> Iterable[CacheEntry]:
        """Wine, images and libc++; the current ones are useful. Also bridges to a driver."""
        from pipelines.hosts.sandbox import debian, libcxx
        from pipelines.hosts.sandbox.bridge import attachment
        from pipelines.hosts.sandbox.image import image_key

        yield from attachment.cache_entries(cache)

        pythons = supply_of_sandbox(cache.lock).python or ()
        made = {
            "wine": ("Wine", {debian.wine_cache_key(cache)}),
            "images": ("sandbox images", {f"{image_key(cache, one)}-py{one}" for one in pythons}),
            "libcxx": (
                "libc++",
                {f"{libcxx.libcxx_cache_key(cache, one)}-py{one}" for one in pythons},
            ),
        }
        for folder, (what, current) in made.items():
            here = cache.root / folder
            for path in sorted(here.iterdir()) if here.is_dir() else ():
                if path.is_dir():  # also what is being made, or is left of that
                    yield CacheEntry(what, path, path.name in current)
