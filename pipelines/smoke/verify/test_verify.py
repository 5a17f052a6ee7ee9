"""The recipe's ``verify``, for a package without a suite."""

from __future__ import annotations

import subprocess
import sys

from smoke_facts import Expected, ended

_SECONDS = 600


def test_verify(expected: Expected) -> None:
    """It runs to its end, in a process of its own: what does not load may end any other."""
    code = expected["verify"]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{code} {ended(done.returncode)}: {done.stdout[-3000:]}"
