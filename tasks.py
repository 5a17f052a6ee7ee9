"""The command line: ``invoke provision build test``; see pipelines/commands."""

from __future__ import annotations

from pipelines.commands.program import OneOrder
from pipelines.commands.program import namespace as all_tasks

__all__ = [
    "OneOrder",
    "namespace",
]  # invoke.yaml names the first, invoke itself looks for the other

namespace = all_tasks()
