"""Whether a wheel keeps to torch's stable C shim and Python's limited API, and which it needs."""

from __future__ import annotations

from typing import Literal

from pipelines.model import Model


class Stable(Model):
    """Of a wheel's Windows binaries together."""

    torch: Literal["none", "stable", "unstable", "unknown"]
    """``none``: nothing of torch is imported. ``stable``: nothing but its C shim."""
    least_torch: str = ""
    """The least release that has all of the shim that is used, such as ``2.10.0``."""
    beyond_torch: tuple[str, ...] = ()
    """Names of torch that are not of the shim: the first few, demangled."""
    python: Literal["none", "limited", "bound", "unknown"]
    """``limited``: python3.dll alone, any later Python does. ``bound``: to the releases named."""
    least_python: str = ""
    """The least release whose limited API has all that is used, such as ``3.9``."""
    bound_to: tuple[str, ...] = ()
    """Releases whose own DLL is imported, such as ``3.11``."""
    beyond_python: tuple[str, ...] = ()
    """Names that python3.dll has not: the first few."""
    unread: tuple[str, ...] = ()
    """Binaries whose imports could not be read."""
