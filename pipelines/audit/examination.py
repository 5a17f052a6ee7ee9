"""Audits wheels, one or hundreds at a time, and makes a :class:`WheelReport` of each.

A wheel that cannot be read is a finding, and so is one whose worker process died.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from pipelines.audit.cards import gpu_findings, has_no_code, wheel_gpu_support
from pipelines.audit.findings import WheelReport
from pipelines.audit.inputs import Input
from pipelines.audit.load_checks import References, load_findings, loads_of
from pipelines.audit.remote import read_remote
from pipelines.core.errors import LockError, PipelineError, SetupError, StorageError
from pipelines.core.finding import Finding, Level
from pipelines.core.hosttext import safe_line
from pipelines.core.workers import DiedError, TimedOutError, run_isolated
from pipelines.remote.limits import cores
from pipelines.wheels.checks import ANY, check_wheel
from pipelines.wheels.metadata import Depth, WheelFacts, inspect_wheel
from pipelines.wheels.packaging import load_wheel_limits
from pipelines.wheels.stable import stable_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuditOptions:
    """What to check in addition to the checks that always run."""

    gpus: tuple[tuple[str, str], ...] = ()
    """Cards by name and architecture."""
    references: References | None = None
    """DLLs to look up imports in: torch's, CUDA's and MSVC's."""
    most: int = 0
    """Bytes to fetch of a wheel on a server."""


def audit_wheel(taken: Input, options: AuditOptions) -> WheelReport:
    """All findings of one wheel; raises only if this machine has no space, or not the extra."""
    if not taken.path and not taken.offer:
        return _unreadable_wheel_report(taken, "taken", taken.problem)
    if taken.path and not taken.path.is_file():  # reading a named pipe would block forever
        return _unreadable_wheel_report(taken, "readable", "not a file, or a broken link")
    # pefile runs the garbage collector for each binary it cannot read: 35 ms each, and a wheel may
    # have thousands. Freezing what exists already makes that cheap.
    gc.freeze()
    try:
        if taken.path:
            facts = inspect_wheel(taken.path)
        elif taken.offer:
            facts = read_remote(taken.offer, options.most)
        if taken.sha256 and facts.sha256 not in ("", taken.sha256):
            problem = f"sha256 {facts.sha256}, expected {taken.sha256}"
            return _unreadable_wheel_report(taken, "sha256", problem)
        return _examined(taken, facts, options)
    except (SetupError, StorageError):  # of this machine, not of the wheel
        raise
    except PipelineError as error:
        remote = isinstance(error, LockError)  # of a server
        return _unreadable_wheel_report(
            taken, "readable", error.message, "unknown" if remote else "error"
        )
    except Exception as error:
        # A wheel made to break a reader is a finding; where it broke goes to the log.
        _log.info("%s", taken.file, exc_info=error)
        return _unreadable_wheel_report(
            taken, "readable", f"it cannot be read: {type(error).__name__}: {error}"
        )
    finally:
        gc.collect()  # before unfreezing, or this garbage is frozen with the next wheel
        gc.unfreeze()


def _unreadable_wheel_report(
    taken: Input, check: str, problem: str, level: Level = "error"
) -> WheelReport:
    """The report of a wheel that could not be read."""
    unreadable = Finding(
        id=check, title=check, level=level, actual=problem, requested=level == "unknown"
    )
    rest = Finding(
        id="rest", title="everything else", level="unknown", actual="it could not be read"
    )
    return WheelReport(
        file=safe_line(taken.file, 300),
        place=safe_line(taken.place, 300),
        sha256=taken.sha256,
        findings=(unreadable, rest),
    )


def _examined(taken: Input, facts: WheelFacts, options: AuditOptions) -> WheelReport:
    gpus = wheel_gpu_support(facts, options.gpus)
    loads = loads_of(facts, options.references)
    stated = (taken.sha256 or "") if taken.sha256 or taken.remote else None
    findings = [
        *(
            finding
            for finding in check_wheel(facts, ANY, stated=stated)
            if finding.level != "skipped"
        ),
        *load_findings(loads),
        *gpu_findings(
            gpus, [file.name for file in facts.elsewhere], len(options.gpus), has_no_code(facts)
        ),
    ]
    return WheelReport(
        file=safe_line(facts.filename, 300),
        sha256=facts.sha256 or taken.sha256,
        size=facts.size,
        name=facts.name,
        version=facts.version,
        tags=facts.tags,
        place=safe_line(taken.place, 300),
        partial=facts.depth < Depth.ALL,
        fetched=facts.fetched,
        gpus=gpus,
        loads=loads,
        stable=stable_of(facts),
        findings=tuple(findings),
    )


def examine_all(
    taken: Sequence[Input],
    options: AuditOptions,
    step: Callable[[WheelReport], object] = lambda _: None,
    workers: int | None = None,
    seconds: float | None = None,
) -> tuple[WheelReport, ...]:
    """Audit all of them in parallel, one process per core; the results are in their order.

    A worker that dies (a wheel may take more memory than there is) or takes longer than ``seconds``
    (default: from ``limits.yaml``) is a finding of its wheel alone.
    """
    limit = seconds or load_wheel_limits().seconds
    done: dict[int, WheelReport] = {}
    workers = min(workers or cores(), len(taken))
    with closing(
        run_isolated(partial(audit_wheel, options=options), taken, workers, limit)
    ) as results:
        for number, result in results:
            if isinstance(result, SetupError | StorageError):
                raise result
            report = (
                result
                if isinstance(result, WheelReport)
                else _failed_worker_report(taken[number], result, limit)
            )
            done[number] = report
            step(report)
    return tuple(done[number] for number in range(len(taken)))


def _failed_worker_report(taken: Input, error: Exception, limit: float) -> WheelReport:
    if isinstance(error, TimedOutError):
        why = f"timed out after {limit:g} s"
        return _unreadable_wheel_report(taken, "readable", why, "unknown")
    if isinstance(error, DiedError):
        return _unreadable_wheel_report(
            taken, "readable", "the process that read it died: out of memory?"
        )
    return _unreadable_wheel_report(
        taken, "readable", f"it cannot be read: {type(error).__name__}: {error}"
    )
