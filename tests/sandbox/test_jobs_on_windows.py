"""Detached jobs on genuine Windows CPython, in and out of a Windows job object."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from conftest import make_sandbox

from pipelines.core.paths import PACKAGE
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.remote import process
from pipelines.remote.jobs import follow, launch, store
from pipelines.session.base import Session

JOB = r"C:\j\one"
TREE = (
    "import subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(90)'])\n"
    "print('up', flush=True)\ntime.sleep(90)"
)


def spec(sandbox: Sandbox, code: str) -> store.Spec:
    command = [sandbox.executable, "-u", "-c", code]
    return {"title": "t", "function": "process.stream", "arguments": {"command": command}}


def start(session: Session, given: store.Spec) -> store.State:
    return session.call(launch.start, directory=JOB, spec=given)


def first_bytes(session: Session, attempt: int = 1) -> bytes:
    for item in session.stream(follow.follow, directory=JOB, attempt=attempt, offset=0):
        if item:
            assert isinstance(item, bytes)
            return item
    raise AssertionError("no log")


def pythons(sandbox: Sandbox) -> int:
    """Windows Pythons that run in the prefix."""
    prefix, found = f"WINEPREFIX={sandbox.home}/prefix".encode(), 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            mine = prefix in (entry / "environ").read_bytes().split(b"\0")
            started = (entry / "cmdline").read_bytes()
            found += mine and started.startswith(rb"C:\Python311\python.exe")
        except OSError:
            continue
    return found


def until(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_job_breaks_away_and_what_does_not_ends_with_its_shell(tmp_path: Path) -> None:
    sandbox = make_sandbox(tmp_path / "s")
    sandbox.start(ephemeral=True)
    with sandbox.connect() as session:
        assert start(session, spec(sandbox, TREE))["way"] == "breakaway"
        assert first_bytes(session) == b"up\r\n"
        items = iter(session.stream(process.stream, command=[sandbox.executable, "-c", TREE]))
        first = next(items)
        assert isinstance(first, bytes)
        assert first.startswith(b"up")
        until(lambda: pythons(sandbox) == 6)
    # The session's own Python, and the two that it started, are gone; runner and tree are not.
    until(lambda: pythons(sandbox) == 3)
    with sandbox.connect() as session:
        assert session.call(store.state, directory=JOB)["state"] == "running"
        told = session.call(follow.cancel, directory=JOB)
        assert told["result"]
        assert told["result"]["cancelled"] is True
        until(lambda: pythons(sandbox) == 1)
    sandbox.close()
    sandbox.teardown()


def test_a_job_whose_windows_went_away_begins_again(tmp_path: Path) -> None:
    sandbox = make_sandbox(tmp_path / "s")
    sandbox.start(ephemeral=False)
    with sandbox.connect() as session:
        start(session, spec(sandbox, TREE))
        first_bytes(session)
        with sandbox.restart(session) as after:
            assert after.call(store.state, directory=JOB)["state"] == "lost"
            assert start(after, spec(sandbox, "print('again')"))["attempt"] == 2
            assert first_bytes(after, 2) == b"again\r\n"
    sandbox.teardown()


def test_a_killed_controller_finds_its_build_again(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.yaml"
    config.write_text(
        f"hosts: {{sandbox: {{kind: sandbox, home: {tmp_path}/s}}}}\nout: {tmp_path}/out\n"
    )
    environment = {**os.environ, "WCW_CONFIG": str(config)}

    def invoke(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "invoke", *words],
            cwd=PACKAGE.parent,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    assert invoke("host.start").wait(120) == 0
    try:
        killed = invoke("build", "--archs", "75;86")
        assert killed.stdout is not None
        for line in killed.stdout:
            if re.search(r"\[1/5\]", line):
                break
        killed.send_signal(signal.SIGKILL)
        killed.wait(10)
        said, _ = invoke("jobs").communicate(timeout=60)
        assert "running" in said
        said, _ = invoke("build", "--archs", "75;86").communicate(timeout=180)
        assert "reconnected: attempt 1" in said
        (run,) = (tmp_path / "out").glob("2*")
        log = (run / "build.log").read_text()
        before, *healed = log.split("--- healed")  # nvcc may end silently under Wine
        units = re.findall(r"^\[(\d)/5\]", before, re.MULTILINE)
        assert units == ["1", "2", "3", "4", "5"][: None if not healed else len(units)]
        assert log.count("running bdist_wheel") == 1 + len(healed)
        assert len(list((run / "wheels").glob("*.whl"))) == 1
    finally:
        invoke("host.remove", "--force").wait(60)


#: In a program of the job: what it was given, and what the shipped module does on Windows.
LOOK = r"""
import ctypes, glob, sys, time
kernel32 = ctypes.windll.kernel32
sys.path.insert(0, glob.glob(r"C:\j\one\runner-*.pyz")[0])
from remote import awake, events
awake.begin()
held = kernel32.SetThreadExecutionState(ctypes.c_uint32(0x80000000)) & 0xFFFFFFFF
began = awake.seconds()
time.sleep(1)
spent = awake.seconds() - began
print(hex(kernel32.GetErrorMode()), hex(held), 0.9 < spent < 5, events.driver_resets(60))
"""


def test_a_job_holds_windows_awake_and_shows_no_boxes(tmp_path: Path) -> None:
    sandbox = make_sandbox(tmp_path / "s")
    with sandbox.connect() as session:
        start(session, spec(sandbox, LOOK))
        # Wine keeps its own word of both, but its children do not inherit the mode as Windows' do.
        assert first_bytes(session) == b"0x8003 0x80000001 True []\r\n"
    sandbox.close()
    sandbox.teardown()


def test_a_program_that_was_ended_is_no_failure_of_the_job(tmp_path: Path) -> None:
    """By its exit code; a console event comes to none of these processes under Wine."""
    sandbox = make_sandbox(tmp_path / "s")
    with sandbox.connect() as session:
        start(session, spec(sandbox, "import os; os._exit(-1073741510)"))
        until(lambda: session.call(store.state, directory=JOB)["state"] != "running")
        found = session.call(store.state, directory=JOB)
        assert (found["state"], bool(found["why"])) == ("lost", True)
    sandbox.close()
    sandbox.teardown()
