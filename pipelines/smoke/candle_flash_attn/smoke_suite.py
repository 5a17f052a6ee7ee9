"""What the shared part must know of this suite: the crate's own test programs are run.

``SMOKE_EXPECT`` has ``artifacts``: the directory that cargo built in (``target``). Its test
programs are ``<profile>/deps/flash_attn_tests-<hash>``, made by ``cargo test --no-run``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoke_facts import Expected

TORCH = False
MODULES: tuple[str, ...] = ()
PROGRAM = "flash_attn_tests-"


def files(expected: Expected) -> list[Path]:
    """The test programs: they hold the kernels. The newest of each profile."""
    root = expected.get("artifacts")
    if not root:
        return []
    newest: dict[Path, Path] = {}
    for path in sorted(Path(root).glob(f"**/deps/{PROGRAM}*"), key=lambda p: p.stat().st_mtime):
        runs = path.suffix == ".exe" if os.name == "nt" else os.access(path, os.X_OK)
        if path.is_file() and runs and path.suffix in ("", ".exe"):
            newest[path.parent] = path
    return list(newest.values())


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  other suites ask the GPU
    """Nothing is imported, so nothing is asked."""
    return {}


def lost() -> bool:
    """Each test is a process of its own."""
    return False
