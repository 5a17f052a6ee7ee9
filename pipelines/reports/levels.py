"""The evidence level that a run has reached, which may be lower than its host's."""

from __future__ import annotations

from pipelines.core.evidence import Evidence
from pipelines.record.results import RunFacts, SmokeResult


def evidence_of(facts: RunFacts, test: SmokeResult | None) -> Evidence | None:
    """The level of a run: that of its host, with a GPU if a bridge was used.

    What a host may show is not what was shown: without a self-test and a case on the GPU there was
    no bridge, and nothing of a GPU where the suite saw none, or was the import alone.
    """
    if facts.evidence is Evidence.GPU and (test is None or not test.gpus or test.instead):
        return Evidence.WRITTEN
    bridge = test.bridge if test is not None else None
    ran = bridge is not None and bridge.name and bridge.selftest and bridge.cases
    return Evidence.BRIDGED if ran and facts.evidence is Evidence.BINARIES else facts.evidence
