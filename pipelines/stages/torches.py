"""A smoke suite that runs with several releases of torch: what was loaded, one report of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from pipelines.core.console import say
from pipelines.core.errors import SmokeError
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import line
from pipelines.core.versions import minor
from pipelines.record.results import SmokeResult, TorchSuite
from pipelines.record.run import StageLog
from pipelines.reports.junit import read_pytest, write
from pipelines.reports.model import Suite

_REPORT = "smoke.xml"
_LOADED = "torch"  # the property of the suite that says what it imported


def keep_apart(log: StageLog, asked: str, read: Suite) -> SmokeResult:
    """Keep ``smoke.xml`` as the report of the torch that was ``asked``, and write one of all.

    In that one a case is called by its torch as well, and so is a property that differs.
    """
    run, known = log.run, log.result
    assert isinstance(known, SmokeResult)  # noqa: S101 - kept before the suite is followed
    one = TorchSuite(
        asked=asked,
        loaded=line(read.properties.get(_LOADED, ""), 80),
        report=f"smoke-torch{asked}.xml",
        outcomes={**Counter(case.outcome for case in read.cases)},
    )
    (run.path / _REPORT).replace(run.path / one.report)
    torches = (*known.torches, one)
    suites = {t.asked: read_pytest((run.path / t.report).read_bytes()) for t in torches}
    write(run.path / _REPORT, [_merged(suites)])
    total = sum((Counter(t.outcomes) for t in torches), Counter[str]())
    made = {"torches": torches, "outcomes": {**total}, "report": sha256_of(run.path / _REPORT)}
    return log.keep(known.model_copy(update=made))


def require_torch(asked: str, read: Suite) -> None:
    """Refuse a report of another torch than ``asked``, or of none."""
    loaded = line(read.properties.get(_LOADED, ""), 80)
    if minor(loaded) != minor(asked):
        raise SmokeError(
            f"the smoke suite was to run with torch {asked}, and ran with {loaded or 'none'}",
            hint="Its environment on the host is made of the lock's wheels: invoke provision.",
        )


def keep_untested(log: StageLog, wanted: tuple[str, ...], done: SmokeResult) -> SmokeResult:
    """Keep and say with which of ``wanted`` it did not run: the host has none of it."""
    left = tuple(one for one in wanted if one not in [t.asked for t in done.torches])
    if left:
        say(f"not tested with torch {', '.join(left)}: there is none of it here", style="yellow")
    return log.keep(done.model_copy(update={"untested": left}))


def _merged(suites: Mapping[str, Suite]) -> Suite:
    first = next(iter(suites.values()))
    properties = dict(first.properties)
    for torch, read in suites.items():
        properties |= {
            f"torch{torch}.{name}": value
            for name, value in read.properties.items()
            if name == _LOADED or first.properties.get(name) != value
        }
    cases = tuple(
        replace(case, classname=f"torch{torch}.{case.classname}".rstrip("."))
        for torch, read in suites.items()
        for case in read.cases
    )
    return replace(first, cases=cases, properties=properties)
