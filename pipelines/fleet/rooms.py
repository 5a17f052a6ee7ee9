"""What a host has left at this moment: slots, memory, GPUs. Nothing begins that does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.fleet.model import Machine, Work


def seconds_on(work: Work, machine: Machine) -> float:
    """What a work takes there by the plan, with the host's tool chain in place."""
    return work.core_seconds / min(work.width, max(1, machine.cores // machine.slots))


@dataclass
class Room:
    """A host that takes works."""

    machine: Machine
    warm: set[str] = field(default_factory=set)
    """What it keeps of works that it has done."""
    held: dict[str, Work] = field(default_factory=dict)
    """What runs there, or may."""
    ends: dict[str, float] = field(default_factory=dict)
    """When each of them is done, by the plan."""
    slots: int = field(init=False)
    """That are free; so are ``memory`` and ``gpus``."""
    memory: int = field(init=False)
    gpus: list[str] = field(init=False)
    idle_since: float = 0.0

    def __post_init__(self) -> None:
        self.name = self.machine.name
        self.slots, self.memory = self.machine.slots, self.machine.memory
        self.gpus = [*self.machine.gpus]
        self._gpu_of: dict[str, str] = {}

    def can(self, work: Work) -> bool:
        """Whether it could ever do the work, as far as its size goes."""
        needs, machine = work.needs, self.machine
        if needs.gpu and not set(needs.gpu) & set(machine.gpus):
            return False
        return needs.slots <= machine.slots and needs.memory <= machine.memory

    def fits(self, work: Work) -> bool:
        """Whether there is room for it now."""
        needs = work.needs
        if needs.slots > self.slots or needs.memory > self.memory:
            return False
        return not needs.gpu or any(gpu in needs.gpu for gpu in self.gpus)

    def take(self, work: Work, ends: float) -> None:
        """It begins, or may still be running from before; then there may be less than nothing."""
        self.held[work.key], self.ends[work.key] = work, ends
        self.slots -= work.needs.slots
        self.memory -= work.needs.memory
        if gpu := next((one for one in self.gpus if one in work.needs.gpu), ""):
            self.gpus.remove(gpu)
            self._gpu_of[work.key] = gpu

    def drop(self, key: str, now: float) -> None:
        """It has ended; one that is not there changes nothing."""
        if (work := self.held.pop(key, None)) is None:
            return
        del self.ends[key]
        self.slots += work.needs.slots
        self.memory += work.needs.memory
        if gpu := self._gpu_of.pop(key, ""):
            self.gpus.append(gpu)
        if not self.held:
            self.idle_since = now

    def seconds(self, work: Work) -> float:
        """What a work takes here, with what must be brought first."""
        cold = work.cold_seconds if work.warm and work.warm not in self.warm else 0.0
        return seconds_on(work, self.machine) + cold

    def free_at(self, now: float) -> float:
        """When a slot is free, by the plan; one that is late is late by half as much again."""
        if self.slots > 0:
            return now
        ends = (end for key, end in self.ends.items() if self.held[key].needs.slots)
        return min((now + max(end - now, (now - end) / 2) for end in ends), default=now)
