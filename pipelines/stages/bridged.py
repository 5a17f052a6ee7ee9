"""What a smoke suite gets to know of a bridge instead of a driver, and what counts of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipelines.core.console import say
from pipelines.core.errors import SmokeError
from pipelines.core.evidence import Bridge
from pipelines.core.hosttext import safe_line
from pipelines.record.results import SmokeResult
from pipelines.stages.hooks import SuiteHooks


class Bridged(SuiteHooks):
    """What stands in for the driver, whether or not somebody asked for it."""

    def read(self, properties: Mapping[str, str], done: SmokeResult) -> Mapping[str, object]:
        """What is known of it, with what its DLL has called itself in the suite."""
        name, passed, host = (
            safe_line(properties.get("driver_bridge"), 80),
            properties.get("gpu_cases", ""),
            self.plan.host,
        )
        known = host.bridge() or (Bridge() if name else None)
        if known is None:
            return {"bridge": None}
        cases = int(passed) if done.gpus and re.fullmatch(r"[0-9]{1,6}", passed) else 0
        # What a host says of itself is not believed alone: somebody asked for it, it was tested
        # from here since its start, and there are so many cases.
        believed = (
            host.gpu_way.bridged
            and known.selftest
            and not _gpu_report_mismatch(properties, done, known)
        )
        if not believed or cases > done.outcomes.get("passed", 0):
            cases = 0
        bridge = known.model_copy(update={"name": name if done.gpus else "", "cases": cases})
        for said in bridge.warnings:
            say(f"  GPU bridge: {said}", style="yellow")
        return {"bridge": bridge}

    def require(self, properties: Mapping[str, str], done: SmokeResult) -> None:
        """Compare the request with what the suite has seen, whatever its own cases say.

        :class:`SmokeError` where they differ.
        """
        gpu, name = self.plan.host.gpu_way, done.bridge.name if done.bridge else ""
        if name and not gpu.bridged:
            raise SmokeError(
                f"the host's driver is a GPU bridge ({name}), which was not requested",
                hint="Remove it from that host: its results are not those of the Windows driver.",
            )
        if gpu.bridged and not name:
            raise SmokeError(
                f"{gpu.requested} was requested, but the driver in the smoke test did not identify "
                "itself as a bridge",
                hint="To test the bridge alone: invoke doctor --gpu",
            )
        if done.bridge and (other := _gpu_report_mismatch(properties, done, done.bridge)):
            raise SmokeError(
                f"the smoke suite saw {other}",
                hint="Type: invoke host stop --gpu, then the same command again, which tests it.",
            )


def _gpu_report_mismatch(properties: Mapping[str, str], done: SmokeResult, known: Bridge) -> str:
    """What a suite says of a driver or GPU that are not those of this machine; empty: nothing."""
    version = safe_line(properties.get("driver_version"), 40)
    if known.driver and version not in ("", "unknown", known.driver):
        return f"driver {version}, but this machine has {known.driver}"
    for gpu in done.gpus if known.gpus else ():
        if not any(f"{gpu.name[:80]} (" in mine for mine in known.gpus):
            return f"{gpu.name}, but this machine has {'; '.join(known.gpus)}"
    return ""
