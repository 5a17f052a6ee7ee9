"""What a fleet is asked to do: as it was typed, and the plan of it for each host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelines.buildplan import Request
from pipelines.config import Config
from pipelines.divided import shards_of
from pipelines.fleet.cells import planned_on
from pipelines.fleet.survey import Surveyed
from pipelines.matrix.hostfacts import HostFacts
from pipelines.matrix.plan import Plan
from pipelines.toolchain.lock import load_lock


@dataclass(frozen=True)
class Asked:
    """What was typed, and how a plan is made of it for a host."""

    settings: Config
    request: Request
    """Its axes may have several values each, as for ``invoke plan``."""
    plan: Callable[[str, HostFacts | None], Plan]
    """The cells on a host of that name, of which more may be known."""
    hosts: tuple[str, ...] = ()
    select: str = ""
    test: bool = False
    """Whether every wheel is tested as well."""

    @property
    def shards(self) -> int | None:
        """Into so many shares each wheel is divided; 0: ``auto``; ``None``: it is built whole."""
        return None if self.request.shards is None else shards_of(self.request.shards)

    @property
    def hash(self) -> str:
        """Of what is to be built: the same command finds its fleet by it, on whatever hosts."""
        told = {
            "axes": dict(sorted(self.request.axes.items())),
            "select": self.select,
            "test": self.test,
            "jobs": self.request.jobs,
            "shards": self.request.shards,
            "reproducible": self.request.reproducible,
            "default": self.settings.default.model_dump(mode="json"),
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def plans_of(asked: Asked, names: Sequence[str], known: Surveyed) -> dict[str, Plan | str]:
    """The plan for each of these hosts, by what is known of it, or why it can have none."""
    lock = load_lock()
    hosts = {name: asked.settings.host(name) for name in names}
    return planned_on(
        hosts,
        lambda name: hosts[name].supply(lock),
        known.facts,
        lambda name: asked.plan(name, known.facts.get(name)),
    )
