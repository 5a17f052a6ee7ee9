"""How patient a dispatcher is: seconds and counts, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Seconds, unless it says otherwise."""

    grace: float = 300.0
    """That a work waits for the host that has begun it, before it is given to another."""
    pause: float = 15.0
    """Before a lost host is looked at again, or a work tried again: each time twice as long."""
    most_pause: float = 900.0
    boot: float = 900.0
    """In which a host that was asked for must be there."""
    worth: float = 120.0
    """Work for each slot that is worth the start of another host."""
    idle: float = 120.0
    """After which a host made on demand is given back, when nothing waits for it."""
    tries: int = 2
    """Attempts lost at a host that is there, after which the work goes elsewhere."""
    deaths: int = 2
    """Different hosts that were gone with a work, after which it is quarantined."""
    losses: int = 6
    """Attempts lost in all, after which it is quarantined."""
    stuck: float = 7200.0
    """With nothing running and no host for what is left, after which the dispatcher ends."""
    poll: float = 1.0
    """At most between two looks at orders and hosts."""

    @property
    def longest(self) -> float:
        """No time that is set lies further ahead."""
        return max(self.grace, self.most_pause, self.boot, self.idle) + 1.0
