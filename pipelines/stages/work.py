"""What every stage is given: the order, the recipe, the host and its session, the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.architectures.archs import ArchList
from pipelines.config import Config
from pipelines.hosts.base import Host
from pipelines.paths import home
from pipelines.provisioning.resources import (
    EXISTING_FILE,
    RESOURCES_FILE,
    Layout,
    Place,
    Resources,
    Wanted,
    layout_of,
    load_resources,
    wanted_resources,
)
from pipelines.recipe.archmap import Translated, translate
from pipelines.recipe.model import Recipe
from pipelines.remote import facts as remote_facts
from pipelines.run import Run, StageRecord
from pipelines.session.base import Session
from pipelines.target import Target
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
    version: str = ""
    """Of the package; empty when the source tree says it."""
    torch: str | None = None
    cuda: str = ""
    minutes: float | None = None
    """After which a build is ended, to be gone on with by the next; ``None``: never."""

    @property
    def place(self) -> tuple[str | None, ...]:
        """What one session on one host serves."""
        return self.host, self.recipe, self.python, self.version, self.torch, self.cuda

    @property
    def label(self) -> str:
        """Names runs: ``smoke-attention-cp311``, ``flash-attn-2.8.3-cp312-torch2.8-cu128``."""
        parts = [self.recipe, self.version, f"cp{self.python.replace('.', '')}"]
        if self.torch:
            parts += [f"torch{self.torch}", f"cu{self.cuda.replace('.', '')}"]
        return "-".join(filter(None, parts))


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
        return home() / self.config.out

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
            self._facts = self.session.call(remote_facts.facts)
        return self._facts

    @property
    def target(self) -> Target:
        """The order as the rules of a plan judge it."""
        order, recipe = self.order, self.recipe
        return Target(
            host=order.host,
            recipe=order.recipe,
            version=order.version,
            python=order.python if recipe.kind == "wheel" else "",
            torch=recipe.torch or "",
            cuda=recipe.cuda,
            archs=order.archs,
        )

    @property
    def archs(self) -> Translated:
        """The architectures as the package understands them."""
        recipe = self.recipe
        return translate(recipe.arch_map, self.order.archs, recipe.cuda, recipe.name)

    @cached_property
    def resources(self) -> Resources:
        """What is wanted of hosts of this kind."""
        return load_resources(RESOURCES_FILE if self.host.existing is None else EXISTING_FILE)

    @cached_property
    def place(self) -> Place:
        """What decides the wanted state of this host for this cell."""
        return Place(
            capabilities=asdict(self.host.capabilities),
            python=self.order.python,
            cuda=self.recipe.cuda,
            executable=self.host.executable,
            torch=self.recipe.torch,
            existing=self.host.existing,
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

    def open_run(self, name: str) -> None:
        """Go on with a run of an earlier command: a name below ``out``, or a run's directory."""
        self._run = Run.find(self.out, name)

    def new_run(self) -> Run:
        """Begin a run, or go on with one of the same order that was cut off in its build."""
        order = self.order
        facts = {
            "host": order.host,
            "recipe": order.recipe,
            "python": order.python,
            "version": order.version,
            "torch": order.torch,
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
