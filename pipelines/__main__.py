"""The program's start: ``wcw``, ``python -m pipelines``, and what ``tasks.py`` hands over to.

Nothing is imported here but the standard library, and what of ours needs no more: whatever
happens from then on ends in a line.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from pipelines.core import called, output
from pipelines.core.errors import INTERRUPTED, SetupError


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    # Until a command runs nothing is open, and what becomes of an exception amid an import is open.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    gc.set_threshold(10_000)  # else it runs five times while modules are imported
    output.install_safe_streams()
    called.started_as(sys.argv[0] if words is None else "invoke")
    try:
        from pipelines.cli.program import run_command_line
    except ImportError as error:
        print(
            f"{SetupError.title} error: this Python ({sys.executable}) has no {error.name}\n"
            "-> In a checkout type: scripts/setup, then ./wcw in place of wcw or invoke",
            file=sys.stderr,
        )
        sys.exit(SetupError.exit_code)
    code = run_command_line(sys.argv[1:] if words is None else words)
    gc.freeze()  # or Python ends with a look at all that was imported, for a tenth of a second
    sys.exit(code)


if __name__ == "__main__":
    main()
