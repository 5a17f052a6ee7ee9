"""What a controller with 200 hosts takes of memory: under 300 MB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pipelines.core.paths import PACKAGE

HOSTS, TASKS = 200, 400
MOST = 300_000_000


def test_two_hundred_hosts_fit_into_300_mb(tmp_path: Path) -> None:
    script = Path(__file__).with_name("fleet_controller_memory.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(HOSTS), str(TASKS)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        stdout=subprocess.PIPE,
        check=True,
    )
    told = json.loads(done.stdout)
    sys.stdout.write(
        f"\nFLEET MEMORY {HOSTS} hosts, {TASKS} tasks: {told['VmHWM'] / 1e6:.0f} MB at most, "
        f"{told['threads']} threads, {told['seconds']:.0f} s\n"
    )
    assert told["tasks"] == {"done": TASKS}
    assert told["VmHWM"] < MOST
