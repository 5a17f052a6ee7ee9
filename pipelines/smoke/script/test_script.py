"""A program of the user's, run where the wheel is installed: its exit code, its numbers.

A line of its output that reads ``NAME = NUMBER`` is a number of the report, which
``invoke compare`` sets against that of another run.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import smoke_used
from smoke_batches import Record
from smoke_facts import ended

_FOLDER = Path(__file__).resolve().parent / "script"
_SECONDS = float(os.environ.get("SMOKE_CASE_SECONDS", "180")) - 20
_NUMBER = re.compile(
    r"([A-Za-z][\w. -]{0,59}?) = ([-+]?"
    r"(?:(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[-+]?\d{1,3})?|nan|inf(?:inity)?))",
    re.IGNORECASE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE, _LINES, _NUMBERS = 2000, 200, 200


def test_script(record_property: Record, record_suite: Record, tmp_path: Path) -> None:
    """It exits with 0; what it prints last and its numbers are in the report.

    Whether it had a GPU at its end is recorded too: then it counts as a case that ran on one.
    """
    used = tmp_path / "used"
    (script,) = _FOLDER.iterdir()
    record_suite("script", script.name)
    record_suite("script_sha256", hashlib.sha256(script.read_bytes()).hexdigest())
    tail: deque[str] = deque(maxlen=_LINES)
    numbers: dict[str, str] = {}
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-u", smoke_used.__file__, str(used), str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        late = threading.Event()
        timer = threading.Timer(_SECONDS, lambda: (late.set(), process.kill()))
        timer.start()
        assert process.stdout is not None
        while piece := process.stdout.readline(_LINE):
            # onnxruntime's log on Windows has wide characters where narrow ones are meant.
            line = _COLOUR.sub("", piece.replace("\0", "")).rstrip()
            tail.append(line)
            found = _NUMBER.fullmatch(line)
            name = found[1].strip() if found else ""
            if found and (name in numbers or len(numbers) < _NUMBERS):
                numbers[name] = found[2]  # the last counts, a nan after a number too
        code = process.wait()
        timer.cancel()
    for name, value in numbers.items():
        record_property(f"script.{name}", value)
    if used.is_file():
        record_property("on_gpu", "yes")
    said = "\n".join(tail)[-6000:]
    record_property("output", said)
    last = next((line for line in reversed(tail) if line), "it printed nothing")
    assert not late.is_set(), f"{script.name} hung for {_SECONDS:.0f} s: {last}\n{said}"
    assert code == 0, f"{script.name} {ended(code)}: {last}\n{said}"
