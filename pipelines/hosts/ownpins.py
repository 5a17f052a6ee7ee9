"""Kinds of hosts that pin something besides the tool chain, where others publish what there is."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar


class OwnPins:
    """What such a kind is besides a configuration; ``invoke lock`` asks it."""

    #: What ``invoke lock --only`` calls its pins.
    own_pins: ClassVar[str]

    @classmethod
    @abstractmethod
    def make_pins(cls, *, anew: bool) -> None:
        """Complete the pins, or make them ``anew``; raises :class:`LockError`."""
