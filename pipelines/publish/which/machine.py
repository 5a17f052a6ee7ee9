"""What of a machine decides which wheel fits it, and the line in which people pass that on."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

PREFIX = "wcw1:"


@dataclass(frozen=True)
class Machine:
    """A Python and what it runs on; no names and no paths."""

    platform: str
    """As the tags of wheels have it: ``win_amd64``."""
    python: str
    """``3.12``; ``3.13t`` without the global lock."""
    torch: str = ""
    """Its version as pip knows it, also where its files say ``+cu130`` besides; empty: none."""
    cuda: str = ""
    """``torch.version.cuda``; empty: a torch for the processor alone, or none."""
    driver: str = ""
    """The release of CUDA that the driver reports; empty: no driver."""
    gpus: tuple[str, ...] = ()
    """The compute capability of each."""

    @property
    def line(self) -> str:
        """As one line, which the index's page reads."""
        values = {
            "platform": self.platform,
            "python": self.python,
            "torch": self.torch,
            "cuda": self.cuda,
            "driver": self.driver,
            "gpu": ",".join(self.gpus),
        }
        return PREFIX + "&".join(f"{key}={quote(value, safe=',')}" for key, value in values.items())
