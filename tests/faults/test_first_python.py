"""Why a bare Windows gets no Python over a real WinRM connection; tests/powershell has the rest."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import get_args

import pytest
from simulator import SimulatedHost, reset
from test_first_python_payload import FILES, cache_of, distribution

from pipelines.core.errors import (
    HostError,
    PipelineError,
    ProvisionError,
    StorageError,
    TransferError,
)
from pipelines.hosts.windows import firstpython
from pipelines.hosts.windows.firstpython import install_python_over_winrm
from pipelines.session.transports import winrs
from pipelines.toolchain.lock import Cache

#: What bootstrap.ps1 tells apart, and what is raised of it if that is not a ProvisionError.
KINDS = get_args(firstpython.Answer.model_fields["kind"].annotation)
ERRORS = {"damaged": TransferError, "disk-full": StorageError}

PYTHON = "C:\\wcw\\python\\python.exe"


#: What no genuine one can be made to do; its directory is the host's.
POWERSHELL = r"""
import json, os, sys, time

mode = open("mode").read()
assert sys.argv[-2] == "-EncodedCommand", sys.argv

def answer(**said):
    print("wcw-bootstrap " + json.dumps(said), flush=True)

def fail(kind, message):
    answer(state="failed", kind=kind, message=message)
    sys.exit(0)

if mode == "policy":
    sys.exit("Cannot invoke method. Method invocation is supported only on core types \x1b[31m")
if mode == "silent":
    time.sleep(60)
sys.stdin.readline()
given = json.loads(sys.stdin.readline())
fact = {"python": given["Target"] + "\\python.exe", "version": "3.11.9", "bits": 64}
if mode == "banner":
    print("\ufeffCopyright (C) Microsoft\nwcw-bootstra\n\n\ufeffno line end: ", end="", flush=True)
    answer(state="present", **fact)
if mode == "not json":
    print("wcw-bootstrap {state", flush=True)
if mode == "endless":
    while True:
        sys.stdout.write("x" * 4096)
if mode == "flood":
    while True:
        print("y" * 100)
if mode == "unknown key":
    answer(state="present", also="this", **fact)
if mode == "unknown state":
    answer(state="perhaps", **fact)
if mode == "another place":
    answer(state="present", **dict(fact, python="C:\\Windows\\evil.exe\x1b]0;x\x07"))
if mode == "32 bits":
    answer(state="present", **dict(fact, bits=32))
if mode == "another version":
    answer(state="present", **dict(fact, version="3.11.8"))
if mode.startswith("failed "):
    fail(mode.removeprefix("failed "), "said \x1b[31m")

answer(state="need")
for number, _ in enumerate(sys.stdin, 1):
    if mode == "dies" and number == 7:
        sys.stderr.write("out of memory\n")
        sys.stderr.flush()
        os._exit(1)
    if mode == "deaf" and number == 7:
        time.sleep(60)
fail("damaged", "the input ended")
"""


@pytest.fixture
def windows(host: SimulatedHost) -> SimulatedHost:
    """One with that for its ``powershell.exe``; the client and the protocol are the real ones."""
    (host.place / "mode").write_text("good")
    program = host.place / "powershell.exe"
    program.write_text(f"#!{sys.executable} -I\n{POWERSHELL}")
    program.chmod(0o755)
    return host


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """Its cpython-3.11 has the form of the real one, and is too large for one Send."""
    noise = random.Random(1).randbytes(1_500_000)
    return cache_of(tmp_path / "cache", distribution({**FILES, "cp311/python311.dll": noise}))


def test_banner_before_the_answer(windows: SimulatedHost, cache: Cache) -> None:
    (windows.place / "mode").write_text("banner")
    assert install_python_over_winrm(windows.endpoint(), cache) == PYTHON


@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        *((f"failed {kind}", ERRORS.get(kind, ProvisionError), "said") for kind in KINDS),
        ("dies", HostError, "ended without an answer.*exit code 1.*out of memory"),
        ("policy", HostError, "ended without an answer.*only on core types"),
        ("not json", HostError, "expected an answer of bootstrap.ps1"),
        ("endless", HostError, "expected an answer of bootstrap.ps1.*xxxx"),
        ("flood", HostError, "expected an answer of bootstrap.ps1.*yyyy"),
        ("unknown key", HostError, "expected an answer"),
        ("unknown state", HostError, "expected an answer"),
        ("another place", HostError, "evil"),
        ("32 bits", HostError, "32 bits"),
        ("another version", ProvisionError, "3.11.8.*3.11.9 is pinned"),
    ],
)
def test_what_goes_wrong(
    windows: SimulatedHost, cache: Cache, mode: str, kind: type[PipelineError], said: str
) -> None:
    (windows.place / "mode").write_text(mode)
    with pytest.raises(PipelineError, match=f"(?s){said}") as caught:
        install_python_over_winrm(windows.endpoint(), cache)
    assert type(caught.value) is kind
    assert caught.value.hint
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize("mode", ["silent", "deaf"])
def test_host_that_stops_answering(
    windows: SimulatedHost, cache: Cache, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winrs, "UNREAD", 1.5)
    (windows.place / "mode").write_text(mode)
    with pytest.raises(
        HostError, match=r"no answer from PowerShell within|does not read its input"
    ):
        install_python_over_winrm(windows.endpoint(), cache, patience=1.5)


def test_connection_cut_in_mid_upload(windows: SimulatedHost, cache: Cache) -> None:
    windows.faults.plan("Send", reset(), skip=3)
    with pytest.raises(HostError, match="connection was lost while Python"):
        install_python_over_winrm(windows.endpoint(), cache)
    assert windows.faults.hits == 1


def test_host_switched_off_in_mid_upload(windows: SimulatedHost, cache: Cache) -> None:
    def off(done: int, total: int) -> None:
        if done > total // 2:
            windows.stop()

    with pytest.raises(HostError):
        install_python_over_winrm(windows.endpoint(), cache, progress=off, patience=5)
