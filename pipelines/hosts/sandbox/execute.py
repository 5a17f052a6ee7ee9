"""Start a Windows program of a sandbox that runs: what an exec into its container is.

``python -m pipelines.hosts.sandbox.execute HOME PROGRAM ARGUMENT...``. This process becomes the
program's; its standard handles must be pipes (see :mod:`pipelines.hosts.sandbox.wine`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pipelines.hosts.sandbox.wine import Prefix


def main() -> None:
    """Entry point; does not return."""
    home, *command = sys.argv[1:]
    prefix = Prefix(Path(home) / "prefix")
    os.chdir(prefix.drive / "users/builder")
    started = [*prefix.command(), *command]
    os.execvpe(started[0], started, prefix.environment())  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
