"""What every stage is given: the order, the recipe, the host and its session, the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.config import ROOT, Config
from pipelines.hosts.base import Host, Session
from pipelines.plan.archs import ArchList
from pipelines.plan.recipes import Recipe
from pipelines.plan.resources import (
    Layout,
    Place,
    Resources,
    Wanted,
    layout_of,
    load_resources,
    wanted_resources,
)
from pipelines.run import Run, StageRecord
from pipelines.toolchain.lock import Cache


@dataclass(frozen=True)
class Order:
    """What the user asked for, checked."""

    host: str
    recipe: str
    python: str
    archs: ArchList
    jobs: int | None
    """Compile units at a time; ``None`` means the host's cores."""

    @property
    def place(self) -> tuple[str, str, str]:
        """What one session on one host serves."""
        return self.host, self.recipe, self.python

    @property
    def label(self) -> str:
        """Names runs: ``smoke-attention-cp311``."""
        return f"{self.recipe}-cp{self.python.replace('.', '')}"


class Work:
    """One order on its way through the stages."""

    def __init__(
        self, order: Order, config: Config, recipe: Recipe, host: Host, cache: Cache
    ) -> None:
        self.order = order
        self.config = config
        self.recipe = recipe
        self.host = host
        self.cache = cache
        self._session: Session | None = None
        self._run: Run | None = None
        self._facts: dict[str, Any] | None = None
        self.provisioned: StageRecord | None = None
        """What provision left, once it has run in this process."""

    @property
    def out(self) -> Path:
        """The directory of runs."""
        return ROOT / self.config.out

    @property
    def session(self) -> Session:
        """The session with the host; connects at the first use."""
        if self._session is None:
            self._session = self.host.connect()
        return self._session

    def adopt(self, session: Session) -> None:
        """Go on with another session: the host was restarted."""
        self._session, self._facts = session, None

    @property
    def facts(self) -> dict[str, Any]:
        """What the host says of itself."""
        if self._facts is None:
            self._facts = self.session.call("facts.facts")
        return self._facts

    @cached_property
    def resources(self) -> Resources:
        """``resources.yaml``."""
        return load_resources()

    @cached_property
    def place(self) -> Place:
        """What decides the wanted state of this host for this cell."""
        return Place(
            capabilities=asdict(self.host.capabilities),
            python=self.order.python,
            cuda=self.recipe.cuda,
            executable=self.host.executable,
        )

    @cached_property
    def wanted(self) -> list[Wanted]:
        """What the host is wanted to have."""
        return wanted_resources(self.resources, self.recipe, self.cache.lock, self.place)

    @cached_property
    def layout(self) -> Layout:
        """Where things are on the host."""
        return layout_of(self.resources, self.place)

    @property
    def run(self) -> Run:
        """The run of this process, or the latest."""
        if self._run is None:
            self._run = Run.open(self.out)
        return self._run

    def new_run(self) -> Run:
        """Begin a run, or go on with one of the same order that was cut off in its build."""
        order = self.order
        facts = {
            "host": order.host,
            "recipe": order.recipe,
            "python": order.python,
            "archs": str(order.archs),
            "cuda": self.recipe.cuda,
            "jobs": order.jobs,
            "evidence": self.host.evidence,
            "publishable": self.host.capabilities.publishable,
        }
        self._run = Run.take_up(self.out, facts) or Run.create(self.out, order.label, facts)
        return self._run

    @property
    def has_run(self) -> bool:
        """Whether this process has begun or opened a run."""
        return self._run is not None

    def close(self) -> None:
        """Leave the host as it was found."""
        try:
            if self._session is not None:
                self._session.close()
        finally:
            self._session = None
            if self._run is not None:
                self._run.close()
            self.host.close()
