"""Looks at wheels, one or hundreds at a time: whatever they are, each ends in an :class:`Examined`.

A wheel that cannot be read is a finding, and so is one at which a worker died.
"""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from packaging.tags import parse_tag

from pipelines import units
from pipelines.architectures.archs import ArchList
from pipelines.errors import PipelineError, StorageError
from pipelines.examine.binaries import binary_findings, gpu_findings
from pipelines.examine.cards import gpus_of
from pipelines.examine.findings import Examined, Finding
from pipelines.examine.loading import Beside, load_findings, loads_of, stable_findings
from pipelines.examine.packaging import limits, packaging_findings
from pipelines.examine.stable import stable_of
from pipelines.examine.taking import Taken
from pipelines.examine.workers import DiedError, TookLongerError, each_apart
from pipelines.hosttext import line
from pipelines.record import CheckResult
from pipelines.remote.limits import cores
from pipelines.wheels.checks import gate
from pipelines.wheels.metadata import WheelFacts, inspect

_log = logging.getLogger(__name__)
_CPYTHON = re.compile(r"cp3(\d{1,2})")


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
        facts = inspect(taken.path, traces=True)
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


def _unread(taken: Taken, check: str, problem: str) -> Examined:
    return _without(taken, Finding(check=check, level="problem", found=line(problem, 600)))


def _without(taken: Taken, found: Finding) -> Examined:
    """Of which nothing more is known."""
    rest = Finding(check="everything else", level="unknown", found="it could not be read")
    return Examined(
        file=line(taken.file, 300),
        place=line(taken.place, 300),
        sha256=taken.sha256,
        findings=(found, rest),
    )


def _examined(taken: Taken, facts: WheelFacts, asked: Asked) -> Examined:
    checks = {one.name: one for one in _gate(facts)}
    gpus = gpus_of(facts, asked.gpus)
    windows = any(not one.name.endswith(".so") for one in facts.binaries)
    stable = stable_of(facts.binaries) if windows else None
    loads = loads_of(facts, asked.beside)
    findings = [
        Finding(check="readable", level="ok", found=units.counted(len(facts.members), "file")),
        *_stated(taken, facts),
        *packaging_findings(facts, checks),
        *binary_findings(facts, checks),
        *(stable_findings(facts, stable) if stable else ()),
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
        stable=stable,
        findings=tuple(findings),
    )


def _stated(taken: Taken, facts: WheelFacts) -> Iterator[Finding]:
    """Of what was fetched, whether its place says which bytes these are."""
    if taken.sha256:
        yield Finding(check="sha256", level="ok", found=f"{facts.sha256}, as its place states")
    elif taken.remote:
        yield Finding(check="sha256", level="unknown", found="its place states none")


def _gate(facts: WheelFacts) -> Iterator[CheckResult]:
    """The checks of our own wheels, as if what it says of itself had been asked for."""
    tags = [tag for text in facts.tags for tag in parse_tag(text)]
    minors = [found[1] for tag in tags if (found := _CPYTHON.fullmatch(tag.interpreter))]
    yield from gate(
        facts,
        ArchList(()),
        platform=tags[0].platform,
        python=f"3.{minors[0] if minors else 12}",
        cuda="12",
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
        found = Finding(check="readable", level="unknown", asked=True, found=why)
        return _without(taken, found)
    if isinstance(error, DiedError):
        return _unread(taken, "readable", "the process that read it died: out of memory?")
    return _unread(taken, "readable", f"it cannot be read: {type(error).__name__}: {error}")
