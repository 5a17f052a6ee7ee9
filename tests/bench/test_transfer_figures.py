"""Transfers against what else there is, each ratio from one run: ``pytest -m bench -s``.

The server is the WS-Man simulator in a process of its own, on loopback, in front of this machine's
Python. Peers and we take turns, and the best of each counts: the machine may be busy. Nothing here
passes or fails by the clock.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.paths import PACKAGE
from pipelines.remote import rpc
from pipelines.session.channel import ChannelSession, bootstrap_command, open_session
from pipelines.session.transports.endpoint import Endpoint, Secret
from pipelines.session.transports.winrs import SEND_LIMIT, WinRSStream, connect_winrs

MB = 1_000_000
SIZE = 64 << 20
BIG = 240 << 20
ROUNDS = 3
#: What Ansible's winrm connection sends to one PowerShell after the other (about 500 KiB).
PIECE = 512 << 10

SERVER = """
import os, subprocess, sys
from pathlib import Path
from pipelines.hosts.sandbox.wsman.auth import write_credentials
from pipelines.hosts.sandbox.wsman.certificate import create_certificate
from pipelines.hosts.sandbox.wsman.server import WsmanServer
def launch(line, /, *, skip_cmd_shell, env, cwd):
    return subprocess.Popen(["sh", "-c", f"exec {line}"], stdin=-1, stdout=-1, stderr=-1, cwd=cwd,
                            start_new_session=True, env={**os.environ, **env})
place = Path(sys.argv[1])
create_certificate(place / "cert.pem", place / "key.pem")
users = write_credentials(place / "users", "builder", "Passw0rd!")
with WsmanServer(launch, users, certificate=place / "cert.pem", key=place / "key.pem") as server:
    print(server.http_url, server.https_url, flush=True)
    sys.stdin.read()
"""

#: A controller of its own, so that its memory is its own: prints peak MiB before and after.
CONTROLLER = """
import re, sys
from pathlib import Path
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs import WinRSStream
class Secret:
    def get_secret_value(self): return "Passw0rd!"
def peak(): # not getrusage, which counts what was there before exec
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
endpoint = Endpoint(sys.argv[1], "builder", Secret("Passw0rd!"))
def stream(): return WinRSStream(endpoint, bootstrap_command(sys.executable))
with open_session(stream(), name="host", reconnect=stream) as session:
    session.call("rpc.ping")
    print(peak())
    session.put(Path(sys.argv[2]), sys.argv[3])
    print(peak())
    session.get(sys.argv[3], Path(sys.argv[4]))
    print(peak())
"""


def show(figure: str, value: str, goal: str = "-") -> None:
    sys.stdout.write(f"\nFIGURE {figure:<58} {value:>14}   goal {goal}")
    sys.stdout.flush()


class Place:
    """A server, files of it, and ways to reach it."""

    def __init__(self, base: Path, http: str, https: str) -> None:
        self.base, self.http, self.https = base, http, https
        self.source = base / "source.whl"
        self.source.write_bytes(random.Random(3).randbytes(SIZE))

    def endpoint(self, url: str = "") -> Endpoint:
        url = url or self.http
        ca = self.base / "cert.pem" if url.startswith("https") else None
        return Endpoint(url, "builder", Secret("Passw0rd!"), ca=ca)

    def session(self, url: str = "") -> ChannelSession:
        def stream() -> WinRSStream:
            return WinRSStream(self.endpoint(url), bootstrap_command(sys.executable))

        return open_session(stream(), name="host", reconnect=stream)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    base = tmp_path_factory.mktemp("transfers")
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(base)],
        cwd=PACKAGE.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        yield Place(base, *server.stdout.readline().split())
    finally:
        server.stdin.close()
        server.wait(10)


@contextlib.contextmanager
def slowed(place: Place, milliseconds: float) -> Iterator[str]:
    """The server, further away."""
    port = place.http.split(":")[2].partition("/")[0]
    script = Path(__file__).with_name("slow_network.py")
    proxy = subprocess.Popen(
        [sys.executable, str(script), port, str(milliseconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert proxy.stdout is not None
    assert proxy.stdin is not None
    try:
        yield f"http://127.0.0.1:{proxy.stdout.readline().strip()}/wsman"
    finally:
        proxy.stdin.close()
        proxy.wait(10)


def seconds(what: Callable[[], object]) -> float:
    began = time.monotonic()
    what()
    return time.monotonic() - began


def forget(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def ours(place: Place, url: str = "") -> tuple[float, float]:
    there, back = place.base / "there.whl", place.base / "back.whl"
    forget(there, back)
    with place.session(url) as session:
        session.call(rpc.ping)
        up = seconds(lambda: session.put(place.source, str(there)))
        down = seconds(lambda: session.get(str(there), back))
    assert (
        hashlib.sha256(back.read_bytes()).digest()
        == hashlib.sha256(place.source.read_bytes()).digest()
    )
    return up, down


def raw(place: Place, url: str = "") -> tuple[float, float]:
    """pywinrm's own Send and Receive in a loop, into and out of ``cat``: no checks, no rename."""
    protocol: Any = connect_winrs(place.endpoint(url))
    shell = protocol.open_shell(codepage=65001)

    def send() -> None:
        command = protocol.run_command(
            shell, f"cat > {place.base / 'raw'}", console_mode_stdin=False
        )
        with place.source.open("rb") as file:
            while data := file.read(SEND_LIMIT):
                protocol.send_command_input(shell, command, data)
        protocol.send_command_input(shell, command, b"", end=True)
        protocol.get_command_output_raw(shell, command)
        protocol.cleanup_command(shell, command)

    def receive() -> None:
        command = protocol.run_command(shell, f"cat {place.source}", console_mode_stdin=False)
        with (place.base / "raw-back").open("wb") as file:
            done = False
            while not done:
                out, _, _, done = protocol.get_command_output_raw(shell, command)
                file.write(out)
        protocol.cleanup_command(shell, command)

    times = seconds(send), seconds(receive)
    protocol.close_shell(shell)
    return times


def best(*peers: Callable[[], tuple[float, float]]) -> list[tuple[float, float]]:
    """Each peer's best times; they take turns."""
    runs = [[peer() for peer in peers] for _ in range(ROUNDS)]
    return [
        (min(run[n][0] for run in runs), min(run[n][1] for run in runs)) for n in range(len(peers))
    ]


def compare(title: str, mine: tuple[float, float], theirs: tuple[float, float], goal: str) -> None:
    for way, own, other in zip(("up", "down"), mine, theirs, strict=True):
        rates = f"{SIZE / own / MB:.1f}/{SIZE / other / MB:.1f} MB/s"
        show(f"{title}, {way}: ours/theirs", rates)
        show(f"{title}, {way}: ratio", f"{other / own:.2f}", goal)


@pytest.mark.parametrize("kind", ["http, sealed", "https"])
def test_against_pywinrms_raw_loop(place: Place, kind: str) -> None:
    url = place.https if kind == "https" else place.http
    mine, theirs = best(lambda: ours(place, url), lambda: raw(place, url))
    compare(f"64 MB against raw Send/Receive, {kind}", mine, theirs, ">= 0.9")


def test_against_a_process_per_piece(place: Place) -> None:
    """As winrmcp (8 KB on a command line) and Ansible (512 KiB, a PowerShell each) do it.

    The process is this machine's Python, which starts much faster than a PowerShell.
    """
    protocol: Any = connect_winrs(place.endpoint())
    pieces = 6

    def by_input() -> None:
        for number in range(pieces):
            shell = protocol.open_shell(codepage=65001)
            code = "import sys,shutil;shutil.copyfileobj(sys.stdin.buffer,open(sys.argv[1],'ab'))"
            line = f'{sys.executable} -c "{code}" {place.base / "pieces"}'
            command = protocol.run_command(shell, line, console_mode_stdin=False)
            data = random.Random(number).randbytes(PIECE)
            for start in range(0, PIECE, SEND_LIMIT):
                piece = data[start : start + SEND_LIMIT]
                protocol.send_command_input(shell, command, piece, end=start + SEND_LIMIT >= PIECE)
            protocol.get_command_output(shell, command)
            protocol.close_shell(shell, close_session=False)

    def by_command_line() -> None:
        shell = protocol.open_shell(codepage=65001)
        for number in range(pieces):
            text = base64.b64encode(random.Random(number).randbytes(6000)).decode()
            line = f"echo {text} >> {place.base / 'lines'}"
            command = protocol.run_command(shell, line)
            protocol.get_command_output(shell, command)
            protocol.cleanup_command(shell, command)
        protocol.close_shell(shell, close_session=False)

    mine = SIZE / min(ours(place)[0] for _ in range(2))
    for title, loop, size in (
        ("a process per 512 KiB", by_input, PIECE),
        ("a command per 6 KB", by_command_line, 6000),
    ):
        rate = pieces * size / min(seconds(loop) for _ in range(2))
        show(f"up against {title}: theirs", f"{rate / MB:.2f} MB/s")
        show(f"up against {title}: ratio", f"{mine / rate:.1f}", ">= 10")


def test_latency(place: Place) -> None:
    """Near and far."""
    with slowed(place, 20) as far:
        for title, url in (("loopback", place.http), ("20 ms", far)):
            up, down = raw(place, url)
            rates = f"{SIZE / up / MB:.1f}/{SIZE / down / MB:.1f} MB/s"
            show(f"{title}: raw Send/Receive, up/down", rates)
            up, down = ours(place, url)
            show(f"{title}: ours, up/down", f"{SIZE / up / MB:.1f}/{SIZE / down / MB:.1f} MB/s")


def test_memory(place: Place) -> None:
    big = place.base / "big"
    with big.open("wb") as file:
        for seed in range(BIG >> 20):
            file.write(random.Random(seed).randbytes(1 << 20))
    arguments = [place.http, str(big), str(place.base / "big-there"), str(place.base / "big-back")]
    done = subprocess.run(
        [sys.executable, "-c", CONTROLLER, *arguments],
        cwd=PACKAGE.parent,
        stdout=subprocess.PIPE,
        check=True,
    )
    connected, put, got = map(float, done.stdout.split())
    show("peak memory of the controller, connected", f"{connected:.0f} MiB")
    show("after 240 MB up", f"{put:.0f} MiB", "64 MB")
    show("after 240 MB down", f"{got:.0f} MiB", "64 MB")
    assert put - connected < 64
    assert got - connected < 64
    forget(big, Path(arguments[2]), Path(arguments[3]))
