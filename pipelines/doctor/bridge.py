"""Findings on a bridge to this machine's GPU driver: what is there of it without a look inside.

What the driver does not support is a finding of the host's own rules; here stands what there is.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.core.finding import Finding
from pipelines.doctor.model import Facts, make_finding

AREA = "GPU bridge"
_MOST = 20  # GPUs, and warnings


def judge(facts: Facts) -> Iterator[Finding]:
    """Of the facts below ``bridge``: GPUs and driver, the bridge itself, what it has complained of.

    They are :class:`pipelines.core.evidence.Bridge`.
    """
    gpus = [name for row in (facts.rows("gpus") or [])[:_MOST] if (name := row.text())]
    driver = facts.text("driver")
    if not gpus:
        yield make_finding(AREA, "driver", "unknown", "no GPU is reached: see below for the reason")
        return
    cuda = facts.text("cuda") or "unknown"
    yield make_finding(AREA, "driver", "ok", f"{driver or 'of an unknown version'}, CUDA {cuda}")
    for gpu in gpus:
        yield make_finding(AREA, "GPU", "ok", gpu)
    built = facts.at("built").tree is True
    there = "built" if built else "not built yet: it is when the sandbox starts"
    yield make_finding(AREA, "bridge", "ok" if built else "unknown", there)
    tested = facts.text("selftest")
    untested = "none at this start: it is made when a command uses the sandbox"
    yield make_finding(AREA, "self-test", "ok" if tested else "unknown", tested or untested)
    for row in (facts.rows("warnings") or [])[:_MOST]:
        if said := row.text():
            hint = "report it with the program that was run: docs/gpu-bridge.md says what it means"
            yield make_finding(AREA, "warning", "warning", said, hint=hint)
