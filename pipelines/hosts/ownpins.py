"""Kinds of hosts with pins besides the toolchain's, from files that others publish."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar


class OwnPins:
    """The interface of such a kind besides its configuration, used by ``invoke lock``."""

    #: The name of its pins for ``invoke lock --only``.
    own_pins: ClassVar[str]

    @classmethod
    @abstractmethod
    def make_pins(cls, *, force: bool) -> None:
        """Complete the pins, or recreate all of them; raises :class:`LockError`."""
