"""A wheel that was checked: a copy that no other process can change, and what was found in it.

A path says where some bytes were. What is signed and published are those that were looked into, so
after the check a wheel is handed on as this.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import AuditError
from pipelines.core.files import disk_errors
from pipelines.core.finding import Finding, failure_lines
from pipelines.core.hosttext import safe_text
from pipelines.wheels.checking import Policy
from pipelines.wheels.checks import OURS, check_wheel
from pipelines.wheels.metadata import WheelFacts, inspect_wheel


@dataclass(frozen=True)
class CheckedWheel:
    """The bytes of a wheel, with their sha256 and findings."""

    path: Path
    """A copy, in a directory that only this user can enter."""
    facts: WheelFacts
    findings: tuple[Finding, ...]

    @property
    def name(self) -> str:
        """The wheel's file name."""
        return self.path.name

    @property
    def sha256(self) -> str:
        """Of the bytes."""
        return self.facts.sha256


def check_copy(path: Path, room: Path, policy: Policy = OURS) -> CheckedWheel:
    """Copy a wheel into ``room``, a directory of this process alone, and check the copy.

    It is checked without an order, as what any wheel must be. Raises :class:`AuditError` where it
    is not what it says.
    """
    wheel = look_into_copy(path, room, policy)
    if wrong := failure_lines(wheel.findings):
        raise AuditError(
            f"{safe_text(path.name, 200)} is rejected: {safe_text('; '.join(wrong), 400)}",
            hint="Its contents do not match its name: build it again.",
        )
    return wheel


def look_into_copy(path: Path, room: Path, policy: Policy = OURS) -> CheckedWheel:
    """The same of a wheel that is only compared: whatever its findings, unless it is hostile."""
    copy = Path(tempfile.mkdtemp(dir=room)) / path.name
    with disk_errors(room):
        shutil.copyfile(path, copy)
    facts = inspect_wheel(copy)
    return CheckedWheel(copy, facts, check_wheel(facts, policy))
