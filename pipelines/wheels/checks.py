"""The checks of a wheel, whoever made it, and what is an error for whom.

Builds, prebuilt and external wheels, ``audit`` and publishing all make the same checks. They
differ in what they know (an order, an installation), and in their :class:`Policy`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.core.finding import Finding
from pipelines.wheels import binaries, kernels, maker, packaging, stable
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Check, Inputs, Installation, Kernels, Order, Policy
from pipelines.wheels.devicecode import read_code
from pipelines.wheels.fatbin import inventory
from pipelines.wheels.imported import Exports
from pipelines.wheels.metadata import WheelFacts

#: All of them: each function of these modules that ``@check`` has made one of, as they stand there.
CHECKS: tuple[Check, ...] = tuple(
    one
    for module in (packaging, maker, binaries, kernels, stable)
    for one in vars(module).values()
    if isinstance(one, Check)
)
#: Of wheels that are built, taken instead of a build, or published.
OURS = Policy(
    errors=frozenset(
        {
            ("zip", "warning"),
            ("tags", "warning"),
            ("machine", "warning"),
            ("imported-names", "warning"),
            ("device-code-read", "unknown"),
        }
    )
)
#: Of others' wheels that are tested: what only a test can show is no reason to refuse one.
EXTERNAL = Policy(
    errors=frozenset({("zip", "warning"), ("device-code-read", "unknown")}),
    tolerated=frozenset(
        {
            "metadata",
            "requirements",
            "sbom",
            "paths",
            "cuda",
            "device-code-complete",
            "binaries-complete",
            "stable-abi",
        }
    ),
)
#: Of any wheel, for whoever wants to know.
ANY = Policy()


def check_wheel(
    facts: WheelFacts,
    policy: Policy = OURS,
    *,
    order: Order | None = None,
    kernels: Kernels | None = None,
    installation: Installation | None = None,
    stated: str | None = None,
    torches: Mapping[str, Exports | None] | None = None,
) -> tuple[Finding, ...]:
    """All findings on a wheel; checks of what is not given do not apply."""
    inputs = Inputs(
        facts.binaries, facts.elsewhere, facts, order, kernels, installation, stated, torches
    )
    return _findings(inputs, policy)


def check_library(name: str, data: bytes, ordered: Kernels) -> tuple[Finding, ...]:
    """All findings on the device code of a static library."""
    code = inventory(data)
    binary = Binary(name, code, code=read_code(data, code))
    return _findings(Inputs((binary,), kernels=ordered), OURS)


def _findings(inputs: Inputs, policy: Policy) -> tuple[Finding, ...]:
    return tuple(finding for check in CHECKS for finding in check.run(inputs, policy))
