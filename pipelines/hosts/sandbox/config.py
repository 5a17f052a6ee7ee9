"""``kind: sandbox`` of ``pipeline.yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.hosts.base import Host, HostConfig, Kept, Opening, Supply, Thing, supply_of_sandbox
from pipelines.hosts.gpus import BridgedGpu, bridged_numbers
from pipelines.paths import home
from pipelines.toolchain.lock import Cache, ToolchainLock


class SandboxHost(HostConfig):
    """The embedded sandbox: genuine Windows tools under Wine, behind our own WinRM service."""

    kind: Literal["sandbox"]
    """The sandbox on this machine."""
    home: str | None = None
    """Directory that holds it; default ``.sandbox/<name>``."""
    http_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port on loopback; 0 takes a free one."""
    https_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """The same for https."""
    listener: Literal["https", "http"] = "https"
    """``http`` means NTLM with message encryption."""

    gpu: BridgedGpu = False
    """``bridge``: run CUDA on this machine's NVIDIA GPUs, by a DLL that hands the calls of Windows'
    driver to Linux' (docs/gpu-bridge.md); ``bridge:0,1``: on these, as nvidia-smi counts them."""
    flagged_gpu: ClassVar[object] = "bridge"

    def supply(self, lock: ToolchainLock) -> Supply:
        """What the lock has for a sandbox; with a bridge also what this machine's driver gives."""
        given = supply_of_sandbox(lock)
        if not self.gpu:
            return given
        from pipelines.hosts.sandbox.bridge import driver
        from pipelines.hosts.sandbox.bridge.lacks import lacks

        found = driver.look()
        numbers = bridged_numbers(self.gpu)
        return replace(given, lacks=lacks(found, numbers), driver=found.cuda)

    def notes(self, name: str) -> Iterable[str]:
        """The GPUs, their driver, and what there is of the bridge."""
        if self.gpu:
            from pipelines.hosts.sandbox.bridge.attached import notes

            yield from notes(self.base(name), bridged_numbers(self.gpu))

    def open(self, name: str, given: Opening) -> Host:
        """The sandbox, which need not be there yet."""
        from pipelines.hosts.sandbox.host import Sandbox

        return Sandbox(name, self, given)

    @property
    def place(self) -> str:
        """Here."""
        return "this machine"

    def things(self, hosts: Mapping[str, HostConfig]) -> Iterable[Thing]:
        """The sandboxes of this checkout."""
        from pipelines.hosts.sandbox.inventory import sandboxes

        bases = {n: h.base(n) for n, h in hosts.items() if isinstance(h, SandboxHost)}
        return sandboxes(bases)

    def base(self, name: str) -> Path:
        """Its directory; each Python has one of its own, whose name ends with ``-py3.11``.

        One with a bridge ends with ``-py3.11-gpu``: both may be there at once.
        """
        return home() / (self.home or Path(".sandbox", name))

    def kept(self, cache: Cache) -> Iterable[Kept]:
        """Images and libc++, of which those of today's tools are useful; bridges to a driver."""
        from pipelines.hosts.sandbox import libcxx
        from pipelines.hosts.sandbox.bridge import attached
        from pipelines.hosts.sandbox.image import image_key

        yield from attached.kept(cache)

        made = {"images": ("sandbox images", image_key), "libcxx": ("libc++", libcxx.key)}
        for folder, (what, key) in made.items():
            here = cache.root / folder
            for path in sorted(here.iterdir()) if here.is_dir() else ():
                python = path.name.rpartition("-py")[2]
                if path.is_dir():
                    yield Kept(what, path, path.name == f"{key(cache, python)}-py{python}")
