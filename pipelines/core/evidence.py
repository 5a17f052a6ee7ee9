"""How far a claim has been shown: the levels of docs/evidence/levels.md."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator

from pipelines.core.model import Model


class Evidence(StrEnum):
    """From the least to the most; the value is the letter that is printed."""

    WRITTEN = "W"
    STATIC = "S"
    SIMULATED = "F"
    BINARIES = "B"
    BRIDGED = "B + GPU"
    GPU = "G"
    WINDOWS = "R"

    @property
    def meaning(self) -> str:
        """The level in words."""
        return _MEANING[self]

    @property
    def unshown(self) -> tuple[str, ...]:
        """What a reader may take for shown, and is not."""
        return _UNSHOWN.get(self, ())


_MEANING = {
    Evidence.WRITTEN: "nothing of this is shown for Windows",
    Evidence.STATIC: "checked statically",
    Evidence.SIMULATED: "run against a simulator",
    Evidence.BINARIES: "run with genuine Windows binaries, not on Windows",
    Evidence.BRIDGED: (
        "genuine Windows wheel and Python on a real GPU; Wine for Windows, NVIDIA's Linux driver "
        "through a bridge"
    ),
    Evidence.GPU: "run on a real GPU",
    Evidence.WINDOWS: "run on real Windows",
}
_UNSHOWN = {
    Evidence.BRIDGED: (
        "Windows' driver and its models (WDDM, TCC, MCDM)",
        "its time-out for kernels (TDR)",
        "sharing with Direct3D and OpenGL",
        "Windows' management of a GPU's memory",
        "times on Windows",
    )
}


#: Kinds of hosts that keys of other controllers are trusted for -> the levels of their runs.
HOSTS: Mapping[str, frozenset[Evidence]] = MappingProxyType(
    {
        "windows": frozenset({Evidence.WRITTEN}),
        "linux": frozenset({Evidence.WRITTEN, Evidence.GPU}),
        "sandbox": frozenset({Evidence.BINARIES}),
    }
)
#: Those whose wheels may be published.
PUBLISHING = frozenset({"windows", "linux"})
#: Whose records are trusted, and for which kind of host: ``KEY=KIND``.
TRUST = rf"^[0-9a-f]{{64}}=({'|'.join(HOSTS)})$"
#: In the place of a key: whoever it is.
ANY = "any"


def is_trusted(key: str, kinds: Collection[str], trusted: Collection[str]) -> bool:
    """Whether one of ``trusted``, :data:`TRUST` each, is about the key and one of the kinds."""
    return any(f"{name}={kind}" in trusted for name in (key, ANY) for kind in kinds)


def _capability(text: str) -> str:
    """A host's word for it, or nothing."""
    return text if re.fullmatch(r"\d{1,2}\.\d", text) else ""


class GpuResult(Model):
    """A GPU that a smoke suite saw."""

    name: str
    capability: Annotated[str, AfterValidator(_capability)] = ""
    """Its own word, such as ``8.6``: of two GPUs with nearly the same name one may be older."""
    driver_model: str = ""
    """WDDM, TCC or MCDM of Windows; elsewhere the system."""


class Bridge(Model):
    """What stands in for Windows' GPU driver on a host: a DLL that hands its calls to Linux'."""

    name: str = ""
    """What that DLL calls itself, as a smoke suite has read it."""
    cases: int = 0
    """How many cases of that suite have passed on a GPU, as far as it tells."""
    driver: str = ""
    """Version of this machine's driver."""
    cuda: str = ""
    """The newest CUDA that it knows, such as 13.0."""
    gpus: tuple[str, ...] = ()
    """Those that may be used."""
    built: bool = False
    """Whether the host has it; it is built at the host's next start otherwise."""
    selftest: str = ""
    """How that of the start which goes on went; empty: there was none."""
    warnings: tuple[str, ...] = ()
    """What it has said of calls that it does not know."""


class Origin(Model):
    """What a host was made from, of those that are made on a container engine."""

    kind: str = ""
    engine: str = ""
    """Which, on what."""
    image: str = ""
    """Its id."""
    image_key: str = ""
    """Of an image of ours: the hash of all that it was made from."""
