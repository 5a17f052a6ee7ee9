"""Transfers through pywinrm and the WS-Man simulator, while the network does what networks do."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hooked import DropConnectionError, hooked
from winrm_programs import PASSWORD, USER, launch

from pipelines.core.errors import HostError, StorageError, TransferError
from pipelines.hosts.sandbox.wsman.auth import write_credentials
from pipelines.hosts.sandbox.wsman.server import WsmanServer
from pipelines.remote import rpc
from pipelines.session.channel import ChannelSession, bootstrap_command, open_session
from pipelines.session.transports.endpoint import Endpoint, Secret
from pipelines.session.transports.winrs import WinRSStream

CHUNK = 64 * 1024
BLOCK = 8 * CHUNK
SIZE = 20 * BLOCK + 777


class Network:
    """Resets connections at requests or in the middle of answers, by the dice."""

    def __init__(self) -> None:
        self.dice = random.Random(0)
        self.resets = 0
        self.chance = 0.0
        self.action = ""
        self.sent = self.quiet = 0

    def begin(self, seed: int, action: str, chance: float, resets: int) -> None:
        self.dice = random.Random(seed)
        self.action, self.chance, self.resets, self.sent = action, chance, resets, 0
        self.quiet = 0

    def _hit(self, action: str) -> bool:
        if not (self.resets and action.endswith(self.action)):
            return False
        self.quiet -= 1
        if self.quiet > 0 or self.dice.random() >= self.chance:
            return False
        # Two blocks side by side take some 18 messages and a new connection begins with four: when
        # none gets across three times in a row, giving up is right, and tested below.
        self.quiet = 40 if self.chance < 1 else 0
        self.resets -= 1
        return True

    def before_request(self, action: str) -> None:
        self.sent += action.endswith("/Send")
        if self.action != "/Receive" and self._hit(action):
            raise DropConnectionError(reset=True)

    def before_response(self, action: str, body: bytes) -> bytes | None:
        if self.action == "/Receive" and len(body) > 10_000 and self._hit(action):
            raise DropConnectionError(sent=self.dice.randrange(len(body)), reset=True)
        return body


@pytest.fixture(scope="module")
def network() -> Network:
    return Network()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, network: Network) -> Iterator[WsmanServer]:
    users = write_credentials(tmp_path_factory.mktemp("s") / "users", USER, PASSWORD)
    with WsmanServer(launch, users, service=hooked(network)) as running:
        yield running


def connect(server: WsmanServer) -> ChannelSession:
    def stream() -> WinRSStream:
        endpoint = Endpoint(server.http_url, USER, Secret(PASSWORD))
        return WinRSStream(endpoint, bootstrap_command(sys.executable))

    session = open_session(stream(), name="host", reconnect=stream, pauses=(0.0, 0.1, 0.5))
    session._transfers = dataclasses.replace(session._transfers, chunk=CHUNK, block=BLOCK)
    return session


@pytest.fixture
def session(server: WsmanServer, network: Network) -> Iterator[ChannelSession]:
    network.begin(0, "", 0.0, 0)
    with connect(server) as opened:
        yield opened
        network.resets = 0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(random.Random(1).randbytes(SIZE))
    return path


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", [("put", "/Send"), ("get", "/Receive")])
def test_resets_at_random(
    session: ChannelSession, network: Network, source: Path, way: tuple[str, str], seed: int
) -> None:
    direction, action = way
    tmp_path = source.parent
    target = tmp_path / "there" / "target"
    told: list[int] = []
    session.call(rpc.ping)
    network.begin(seed, action, 0.05, 3)
    if direction == "put":
        digest = session.put(source, str(target), progress=lambda done, _: told.append(done))
    else:
        digest = session.get(str(source), target, progress=lambda done, _: told.append(done))
    assert digest == hashlib.sha256(source.read_bytes()).hexdigest()
    assert target.read_bytes() == source.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == ["target"]
    assert network.resets < 3, "no fault was met"
    assert told[-1] == SIZE


@pytest.mark.parametrize("direction", ["put", "get"])
def test_the_next_command_sends_only_the_rest(
    server: WsmanServer, network: Network, source: Path, tmp_path: Path, direction: str
) -> None:
    target = tmp_path / "target"

    def carry(session: ChannelSession, told: list[int]) -> None:
        def progress(done: int, _: int) -> None:
            told.append(done)
            if network.resets == 0 and done > SIZE // 2 and len(told) > 3:
                network.resets = 1_000_000

        if direction == "put":
            session.put(source, str(target), progress=progress)
        else:
            session.get(str(source), target, progress=progress)

    # From the middle on every request is cut: shells cannot even be opened any more.
    network.begin(1, "", 1.0, 0)
    with connect(server) as session, pytest.raises(HostError) as caught:
        carry(session, [])
    assert "again" in caught.value.hint
    assert not target.exists()
    network.begin(0, "", 0.0, 0)
    told: list[int] = []
    with connect(server) as session:
        session.call(rpc.ping)
        before = network.sent
        if direction == "put":
            session.put(source, str(target), progress=lambda done, _: told.append(done))
            assert (network.sent - before) * CHUNK < SIZE * 0.8
        else:
            session.get(str(source), target, progress=lambda done, _: told.append(done))
    assert target.read_bytes() == source.read_bytes()
    assert told[0] > SIZE // 4, "what the first command brought across was kept"


@pytest.mark.parametrize("direction", ["put", "get"])
def test_a_block_that_rots_on_the_disk(
    session: ChannelSession, source: Path, tmp_path: Path, direction: str
) -> None:
    """What an earlier command left is not believed but looked at."""
    target = tmp_path / "target"

    def interrupt(done: int, _: int) -> None:
        if done > 10 * BLOCK:
            raise KeyboardInterrupt

    def carry(progress: object = None) -> None:
        if direction == "put":
            session.put(source, str(target), progress=progress)  # type: ignore[arg-type]
        else:
            session.get(str(source), target, progress=progress)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        carry(interrupt)
    (part,) = tmp_path.glob("target.*.part")
    with part.open("r+b") as file:
        file.seek(2 * BLOCK + 99)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 4]))
    carry()
    assert target.read_bytes() == source.read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("direction", ["put", "get"])
def test_a_full_disk(session: ChannelSession, source: Path, tmp_path: Path, direction: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk to fill")
    try:
        target = disk / "target"
        ends = (source, str(target)) if direction == "put" else (str(source), target)
        with pytest.raises(StorageError, match=r"disk .*full"):
            getattr(session, direction)(*ends)
        assert not list(disk.iterdir())
        assert session.call(rpc.ping)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_bytes_that_change_on_the_host(
    session: ChannelSession, source: Path, tmp_path: Path
) -> None:
    """Whatever is wrong, it does not land: the source is rewritten all the time."""

    def rewrite(done: int, _: int) -> None:
        with source.open("r+b") as file:
            file.seek(done % SIZE)
            file.write(os.urandom(8))

    (tmp_path / "target").write_text("old")
    target = tmp_path / "target"
    with pytest.raises(TransferError):
        session.put(source, str(target), progress=rewrite)
    with pytest.raises(TransferError, match="changed during the download"):
        session.get(str(source), target, progress=rewrite)
    assert target.read_text() == "old"
