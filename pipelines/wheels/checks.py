"""The list of all checks of wheels, and the policies.

Builds, prebuilt and external wheels, ``audit`` and publishing run the same checks. They differ in
what they know (an order, an installation) and in their :class:`Policy`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.core.finding import Finding
from pipelines.wheels import binaries, kernels, maker, packaging, stable
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Check, Inputs, Installation, Kernels, Order, Policy
from pipelines.wheels.devicecode import read_code
from pipelines.wheels.fatbin import inventory
from pipelines.wheels.imports import Exports
from pipelines.wheels.metadata import WheelFacts

#: Every function with ``@check`` in these modules, in order.
CHECKS: tuple[Check, ...] = tuple(
    value
    for module in (packaging, maker, binaries, kernels, stable)
    for value in vars(module).values()
    if isinstance(value, Check)
)
#: For wheels that are built, prebuilt or published.
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
#: For external wheels that are tested: what only a test can show is no reason to refuse one.
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
#: For any wheel, as ``audit`` reports on it.
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
    """All findings on a wheel; checks without their inputs do not apply."""
    inputs = Inputs(
        facts.binaries, facts.elsewhere, facts, order, kernels, installation, stated, torches
    )
    return _collect_findings(inputs, policy)


def check_library(name: str, data: bytes, ordered: Kernels) -> tuple[Finding, ...]:
    """All findings on the device code of a static library."""
    code = inventory(data)
    binary = Binary(name, code, code=read_code(data, code))
    return _collect_findings(Inputs((binary,), kernels=ordered), OURS)


def _collect_findings(inputs: Inputs, policy: Policy) -> tuple[Finding, ...]:
    return tuple(finding for check in CHECKS for finding in check.run(inputs, policy))
