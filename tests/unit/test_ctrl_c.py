"""Ctrl-C in a console of Windows, where it reaches every process and no wait for a lock ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="a console of Windows")

TYPE = str(Path(__file__).with_name("ctrl_c.py"))
#: Asks a Python of its own, as with `kind: local`, for what takes a minute, and then once more.
ASKING = """
import os, sys, threading, time
from pipelines.remote import process
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session
from pipelines.session.transports.popen import PopenStream

def say_when_it_runs():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.1)
    print("begun", flush=True)

threading.Thread(target=say_when_it_runs, daemon=True).start()
session = open_session(PopenStream(bootstrap_argv(sys.executable)), name="here")
code = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(60)"
try:
    session.call(process.capture, command=[sys.executable, "-c", code, sys.argv[1]], timeout=90)
except KeyboardInterrupt:
    print(session.call(process.capture, command=[sys.executable, "-c", "print(7)"], timeout=60)[1])
    session.close()
    sys.exit(130)
"""


def interrupted(*words: str, **env: str) -> tuple[int, str, float]:
    """The exit code, what it said after Ctrl-C, and the seconds until it ended."""
    done = subprocess.run(
        [sys.executable, TYPE, "begun", sys.executable, *words],
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    code, said, seconds = json.loads(done.stdout)
    return code, said, seconds


def test_while_the_program_starts(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("import time; print('begun', flush=True); time.sleep(50)")
    code, said, seconds = interrupted("-m", "pipelines", "plan", PYTHONPATH=str(tmp_path))
    assert (code, said) == (130, "")
    assert seconds < 25


def test_while_a_host_is_asked(tmp_path: Path) -> None:
    """The wait ends; the host's Python, in the same console, answers the next question."""
    code, said, seconds = interrupted("-c", ASKING, str(tmp_path / "runs"))
    assert (code, said.split()) == (130, ["7"])
    assert seconds < 45
