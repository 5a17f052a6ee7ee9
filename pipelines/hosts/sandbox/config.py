"""``kind: sandbox`` of ``pipeline.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from pipelines.core.paths import home
from pipelines.hosts.base import (
    Host,
    HostConfig,
    Kept,
    Opening,
    Supply,
    Thing,
    supply_of,
    supply_of_sandbox,
)
from pipelines.hosts.gpus import BridgedGpu, bridged_numbers
from pipelines.hosts.ownpins import OwnPins
from pipelines.record.toolsets import MSVC
from pipelines.toolchain.lock import Cache, ToolchainLock

if TYPE_CHECKING:
    from pipelines.hosts.sandbox.msvc.slot import Slot


class SandboxHost(HostConfig, OwnPins):
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

    msvc: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Microsoft's compiler in place of the stand-in (docs/msvc.md): a directory with a tree of
    Visual Studio or msvc-wine, or ``fetch``: from Microsoft, at the versions of the lock."""
    accept_license: Annotated[str, StringConstraints(pattern=r"^https://\S+$")] | None = None
    """With ``msvc: fetch``: the address of the licence that you accept, as Microsoft names it."""
    msvc_version: Annotated[str, StringConstraints(pattern=r"^14(\.\d+){0,2}$")] | None = None
    """Of a directory with several tool sets: which, such as 14.44."""
    windows_sdk: Annotated[str, StringConstraints(pattern=r"^10(\.\d+){0,3}$")] | None = None
    """Of a directory with several Windows SDKs: which, such as 10.0.26100."""

    own_pins: ClassVar[str] = "msvc"

    @classmethod
    def make_pins(cls, *, anew: bool) -> None:
        """Ask Microsoft's manifests for what ``msvc: fetch`` takes."""
        from pipelines.hosts.sandbox.msvc.pinning import run_pin

        run_pin(anew=anew)

    @model_validator(mode="after")
    def _keys_of_msvc(self) -> Self:
        if self.accept_license and self.msvc != "fetch":
            raise ValueError("accept_license goes with msvc: fetch, where Microsoft is asked")
        if (self.msvc_version or self.windows_sdk) and self.msvc in (None, "fetch"):
            raise ValueError("msvc_version and windows_sdk go with msvc: DIRECTORY")
        return self

    @property
    def slot(self) -> Slot | None:
        """Where its compiler comes from, unless it is the stand-in."""
        if self.msvc is None:
            return None
        from pipelines.hosts.sandbox.msvc.slot import Slot

        return Slot(
            msvc=self.msvc,
            accept_license=self.accept_license or "",
            version=self.msvc_version or "",
            sdk=self.windows_sdk or "",
        )

    def supply(self, lock: ToolchainLock) -> Supply:
        """What the lock has for a sandbox; with a bridge also what this machine's driver gives."""
        given = self._supply_of_compiler(lock)
        if not self.gpu:
            return given
        from pipelines.hosts.sandbox.bridge import driver
        from pipelines.hosts.sandbox.bridge.lacks import lacks

        found = driver.look()
        numbers = bridged_numbers(self.gpu)
        return replace(given, lacks=(*given.lacks, *lacks(found, numbers)), driver=found.cuda)

    def _supply_of_compiler(self, lock: ToolchainLock) -> Supply:
        """With MSVC it is what any Windows gives, but for Python, which is the image's."""
        given = supply_of_sandbox(lock)
        if (slot := self.slot) is None:
            return replace(given, slot="name your MSVC with 'msvc' of this host in pipeline.yaml")
        lacks = slot.lacks()
        version, files = ("", "") if lacks else slot.which()
        msvc = replace(MSVC, version=version, files=files)
        given = replace(supply_of(lock), python=given.python, toolset=msvc, lacks=lacks)
        return replace(given, programs=False, lent=False)

    def notes(self, name: str) -> Iterable[str]:
        """The user's compiler; the GPUs, their driver, and what there is of the bridge."""
        if (slot := self.slot) is not None:
            yield from slot.notes()
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

        One with MSVC ends with ``-py3.11-msvc``, one with a bridge with ``-gpu``: all may be there
        at once.
        """
        return home() / (self.home or Path(".sandbox", name))

    def kept(self, cache: Cache) -> Iterable[Kept]:
        """Wine, images and libc++, of which today's are useful; bridges to a driver."""
        from pipelines.hosts.sandbox import debian, libcxx
        from pipelines.hosts.sandbox.bridge import attached
        from pipelines.hosts.sandbox.image import image_key
        from pipelines.hosts.sandbox.msvc import fetch

        yield from attached.kept(cache)
        yield from fetch.kept(cache)

        made: dict[str, tuple[str, Callable[[str], str]]] = {
            "wine": ("Wine", lambda _: debian.key(cache)),
            "images": ("sandbox images", lambda python: f"{image_key(cache, python)}-py{python}"),
            "libcxx": ("libc++", lambda python: f"{libcxx.key(cache, python)}-py{python}"),
        }
        for folder, (what, name_for) in made.items():
            here = cache.root / folder
            for path in sorted(here.iterdir()) if here.is_dir() else ():
                if path.is_dir():
                    yield Kept(what, path, path.name == name_for(path.name.rpartition("-py")[2]))
