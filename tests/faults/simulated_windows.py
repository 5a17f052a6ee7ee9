"""A Windows that is none: our WinRM service, in front of stand-ins for PowerShell and shutdown.exe.

The client, the protocol and what crosses it are the real ones. Only the programs at the far end are
replaced: ``powershell.exe`` by one that does what no genuine one can be made to do.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from hooked import hooked
from test_first_python_payload import FILES, cache_of, distribution

from pipelines.hosts.sandbox.wsman.auth import write_credentials
from pipelines.hosts.sandbox.wsman.server import WsmanServer
from pipelines.hosts.sandbox.wsman.service import WsmanService
from pipelines.session.transports.endpoint import Endpoint
from pipelines.toolchain.lock import Cache

PASSWORD = "Passw0rd!"

#: SIMULATED is the directory of the host.
POWERSHELL = r"""
import json, os, pathlib, sys, time

here = pathlib.Path(os.environ["SIMULATED"])
mode = (here / "mode").read_text()
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
told = json.loads(sys.stdin.readline())
fact = {"python": told["Target"] + "\\python.exe", "version": "3.11.9", "bits": 64}
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

SHUTDOWN = """
import os, pathlib, sys

here = pathlib.Path(os.environ["SIMULATED"])
log = here / "shutdown-log"
log.write_text((log.read_text() if log.exists() else "") + sys.argv[1] + "\\n")
(here / "asked").touch()
"""


class Secret:
    def __init__(self, value: str = PASSWORD) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        return self._value


class SimulatedWindows:
    """A host that lies, falls silent, is restarted and switched off."""

    def __init__(self, place: Path, *, hooks: object = None) -> None:
        self.place = place
        self.hooks = hooks
        (place / "bin").mkdir()
        self.mode("good")
        self.boot("boot-1")
        self._program(place / "bin/powershell.exe", POWERSHELL)
        self._program(place / "bin/shutdown.exe", SHUTDOWN)
        self.python = place / "venv/bin/python"
        venv.create(place / "venv", symlinks=True)
        self._users = write_credentials(place / "users", "builder", PASSWORD)
        self._port = 0
        self.server: WsmanServer | None = None
        self.start()

    def _program(self, path: Path, text: str) -> None:
        # -S -I: nothing of the simulated host's own Python belongs in there
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -I {path}.py "$@"\n')
        path.with_name(path.name + ".py").write_text(text)
        path.chmod(0o755)

    def mode(self, mode: str) -> None:
        (self.place / "mode").write_text(mode)

    def boot(self, identity: str) -> None:
        (self.place / "boot-id").write_text(identity + "\n")

    def start(self) -> None:
        self.server = WsmanServer(
            self._launch,
            self._users,
            http_port=self._port,
            service=hooked(self.hooks) if self.hooks else WsmanService,
        )
        self._port = int(self.server.http_url.rpartition(":")[2].partition("/")[0])

    def stop(self) -> None:
        """Every shell and connection ends, the port is closed."""
        if self.server is not None:
            self.server.stop()
        self.server = None

    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, "builder", Secret(), operation_timeout=2, read_timeout=6)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/wsman"

    def _launch(
        self, command_line: str, /, *, skip_cmd_shell: bool, env: Mapping[str, str], cwd: str | None
    ) -> subprocess.Popen[bytes]:
        program, space, rest = command_line.partition(" ")
        return subprocess.Popen(
            ["sh", "-c", f"exec {program}{space}{rest}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **os.environ,
                **env,
                "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
                "SIMULATED": str(self.place),
            },
            cwd=self.place,
            start_new_session=True,
        )

    def when_asked(self, then: Callable[[], None]) -> threading.Thread:
        """Do ``then`` once shutdown.exe is to restart the host."""

        def watch() -> None:
            deadline = time.monotonic() + 60
            while not (self.place / "asked").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            then()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread


def small_cache(root: Path) -> Cache:
    """A cache whose cpython-3.11 has the form of the real one, too large for one Send."""
    noise = random.Random(1).randbytes(1_500_000)
    return cache_of(root, distribution({**FILES, "cp311/python311.dll": noise}))
