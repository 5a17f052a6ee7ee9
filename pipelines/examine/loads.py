"""Whether Windows could load a wheel's binaries beside given DLLs: each imported name looked up.

Of one that lacks a name Windows says no more than "the specified procedure could not be found".
"""

from __future__ import annotations

from typing import Literal

from pydantic import computed_field

from pipelines.model import Model


class Missing(Model):
    """A name that a binary imports and its library does not export."""

    binary: str
    """Its path within the wheel."""
    library: str
    """The DLL, in lower case."""
    symbol: str
    """As it stands in the binary; a number as ``#12``."""
    demangled: str
    """The same as C++ has it; as it stands where it is none of C++'s."""
    delayed: bool = False
    """Looked for when it is first called: the binary loads without it."""


class Loads(Model):
    """What came of one set of DLLs."""

    against: str
    """Such as ``torch 2.8.0 (cp311)``."""
    missing: tuple[Missing, ...] = ()
    unknown: tuple[str, ...] = ()
    """What was not looked at, and why: ``c10_cuda.dll: not in torch 2.8.0 of the index``."""
    checked: int = 0
    """How many names were looked up."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> Literal["ok", "problem", "unknown"]:
        """``ok`` only where everything was looked at; ``problem`` also where something was not."""
        if self.missing:
            return "problem"
        return "unknown" if self.unknown or not self.checked else "ok"
