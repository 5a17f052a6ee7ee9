"""Looks at wheels, one or hundreds at a time: whatever they are, each ends in an :class:`Examined`.

A wheel that cannot be read is a finding, and so is one at which a worker died.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from pipelines.audit.cards import gpu_findings, gpus_of
from pipelines.audit.findings import Examined
from pipelines.audit.loading import Beside, load_findings, loads_of
from pipelines.audit.taking import Taken
from pipelines.audit.workers import DiedError, TookLongerError, each_apart
from pipelines.core.errors import PipelineError, StorageError
from pipelines.core.finding import Finding, Level
from pipelines.core.hosttext import line
from pipelines.remote.limits import cores
from pipelines.wheels.checks import ANY, check_wheel
from pipelines.wheels.metadata import WheelFacts, inspect
from pipelines.wheels.packaging import limits
from pipelines.wheels.stable import stable_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What is wanted to be known, besides what is always looked at."""

    gpus: tuple[tuple[str, str], ...] = ()
    """Cards by name and architecture."""
    beside: Beside | None = None
    """What it is held against: torch's DLLs, CUDA's and MSVC's."""


def examine(taken: Taken, asked: Asked) -> Examined:
    """Everything there is to say of one wheel; only a full disk is an error, ``StorageError``."""
    if taken.path is None:
        return _unread(taken, "taken", taken.problem)
    if not taken.path.is_file():  # a pipe of that name would be waited for, for ever
        return _unread(taken, "readable", "no file, or a link to none")
    # pefile collects all garbage for each binary that it cannot read: 35 ms, of which a wheel may
    # have thousands, unless what is there already is left out of it.
    gc.freeze()
    try:
        facts = inspect(taken.path)
        if taken.sha256 and facts.sha256 != taken.sha256:
            problem = f"sha256 {facts.sha256}, and {taken.sha256} is stated"
            return _unread(taken, "sha256", problem)
        return _examined(taken, facts, asked)
    except StorageError:  # of this machine, not of the wheel
        raise
    except PipelineError as error:
        return _unread(taken, "readable", error.message)
    except Exception as error:
        # What somebody made to break a reader is a finding; where it broke is for the log.
        _log.info("%s", taken.file, exc_info=error)
        return _unread(taken, "readable", f"it cannot be read: {type(error).__name__}: {error}")
    finally:
        gc.collect()  # while little is looked at: else it would be frozen with the next wheel
        gc.unfreeze()


def _unread(taken: Taken, check: str, problem: str, level: Level = "error") -> Examined:
    """Of which nothing more is known."""
    found = Finding(
        id=check, title=check, level=level, actual=problem, requested=level == "unknown"
    )
    rest = Finding(
        id="rest", title="everything else", level="unknown", actual="it could not be read"
    )
    return Examined(
        file=line(taken.file, 300),
        place=line(taken.place, 300),
        sha256=taken.sha256,
        findings=(found, rest),
    )


def _examined(taken: Taken, facts: WheelFacts, asked: Asked) -> Examined:
    gpus = gpus_of(facts, asked.gpus)
    loads = loads_of(facts, asked.beside)
    stated = (taken.sha256 or "") if taken.sha256 or taken.remote else None
    findings = [
        *(one for one in check_wheel(facts, ANY, stated=stated) if one.level != "skipped"),
        *load_findings(loads),
        *gpu_findings(gpus, [one.name for one in facts.elsewhere], len(asked.gpus)),
    ]
    return Examined(
        file=line(facts.filename, 300),
        sha256=facts.sha256,
        size=facts.size,
        name=facts.name,
        version=facts.version,
        tags=facts.tags,
        place=line(taken.place, 300),
        gpus=gpus,
        loads=loads,
        stable=stable_of(facts),
        findings=tuple(findings),
    )


def examine_all(
    taken: Sequence[Taken],
    asked: Asked,
    step: Callable[[Examined], object] = lambda _: None,
    workers: int | None = None,
    seconds: float | None = None,
) -> tuple[Examined, ...]:
    """All of them, in their order, in as many processes as there are cores, none longer than that.

    A worker that dies (a wheel may take more memory than there is) or that has taken ``seconds``
    (default: of ``limits.yaml``) is a finding of its wheel alone.
    """
    limit = seconds or limits().seconds
    done: dict[int, Examined] = {}
    workers = min(workers or cores(), len(taken))
    with closing(each_apart(partial(examine, asked=asked), taken, workers, limit)) as found:
        for number, one in found:
            if isinstance(one, StorageError):
                raise one
            whole = one if isinstance(one, Examined) else _lost(taken[number], one, limit)
            done[number] = whole
            step(whole)
    return tuple(done[number] for number in range(len(taken)))


def _lost(taken: Taken, error: Exception, limit: float) -> Examined:
    if isinstance(error, TookLongerError):
        why = f"took longer than {limit:g} s, and was given up"
        return _unread(taken, "readable", why, "unknown")
    if isinstance(error, DiedError):
        return _unread(taken, "readable", "the process that read it died: out of memory?")
    return _unread(taken, "readable", f"it cannot be read: {type(error).__name__}: {error}")
