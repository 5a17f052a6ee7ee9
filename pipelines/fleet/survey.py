"""Looks at all hosts of a fleet before it begins: what each has, or why it is set aside."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pipelines.config import Config
from pipelines.errors import PipelineError
from pipelines.fleet.lines import LineErrand
from pipelines.fleet.model import Machine
from pipelines.hosttext import line
from pipelines.matrix.hostfacts import HostFacts

_log = logging.getLogger(__name__)
#: Hosts that are looked at at a time.
_AT_ONCE = 32


@dataclass
class Surveyed:
    """What hosts said of themselves."""

    machines: dict[str, Machine] = field(default_factory=dict)
    """All of them; one that did not answer is taken to be as this machine."""
    facts: dict[str, HostFacts] = field(default_factory=dict)
    """Of those that answered."""
    aside: dict[str, str] = field(default_factory=dict)
    """Host -> why it cannot be used now."""


def survey(settings: Config, errands: Mapping[str, LineErrand]) -> Surveyed:
    """Reach every host but those that are made on demand."""
    found = Surveyed()
    asked = [name for name in errands if not settings.host(name).made]

    def look(name: str) -> tuple[HostFacts, tuple[str, ...]] | str:
        try:
            facts, gpus = errands[name].survey()
        except PipelineError as error:
            return line(error.message, 500) or error.title
        except Exception as error:
            _log.info("%s: survey", name, exc_info=error)
            return f"this should not happen: {type(error).__name__}: {line(error)}"
        return HostFacts.told(facts, name=name, native=gpus or None), gpus

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="survey") as pool:
        answers = dict(zip(asked, pool.map(look, asked), strict=True))
    local = HostFacts.local()
    for name in errands:
        answer = answers.get(name)
        if isinstance(answer, str):
            found.aside[name] = answer
        facts, gpus = answer if isinstance(answer, tuple) else (local, ())
        if isinstance(answer, tuple):
            found.facts[name] = facts
        found.machines[name] = _machine(settings, name, facts, gpus)
    return found


def _machine(settings: Config, name: str, facts: HostFacts, gpus: tuple[str, ...]) -> Machine:
    config = settings.host(name)
    return Machine(
        name=name,
        slots=config.slots,
        cores=facts.cores,
        memory=facts.usable,
        gpus=gpus,
        price=config.price,
        made=config.made,
    )
