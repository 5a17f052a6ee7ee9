"""A session through pywinrm, NTLM and a WS-Management server, to a Python of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pipelines.errors import AuthError, HostError
from pipelines.hosts.channel import bootstrap_command, open_session
from pipelines.hosts.sandbox.wsman import (
    DropConnectionError,
    WsmanServer,
    create_certificate,
    write_credentials,
)
from pipelines.hosts.transports.winrs import Endpoint, WinRSStream

COMMAND = bootstrap_command(sys.executable)


class Secret:
    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        return self._value


PASSWORD = Secret("Passw0rd!")


def launch(
    command_line: str, /, *, skip_cmd_shell: bool, env: Mapping[str, str], cwd: str | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", f"exec {command_line}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
        cwd=cwd,
        start_new_session=True,
    )


class Faults:
    """Cuts the connection of the next request or answer whose action ends with ``action``."""

    def __init__(self) -> None:
        self.before = ""
        self.within = ""

    def before_request(self, action: str, shell_id: str | None) -> None:
        if self.before and action.endswith(self.before):
            self.before = ""
            raise DropConnectionError(reset=True)

    def before_response(self, action: str, body: bytes) -> bytes | None:
        if self.within and action.endswith(self.within) and len(body) > 10_000:
            self.within = ""
            raise DropConnectionError(sent=2000, reset=True)
        return body


@pytest.fixture(scope="module")
def faults() -> Faults:
    return Faults()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, faults: Faults) -> Iterator[WsmanServer]:
    place = tmp_path_factory.mktemp("server")
    create_certificate(place / "cert.pem", place / "key.pem")
    with WsmanServer(
        launch,
        write_credentials(place / "users", "builder", PASSWORD.get_secret_value()),
        certificate=place / "cert.pem",
        key=place / "key.pem",
        hooks=faults,
    ) as running:
        running.place = place  # type: ignore[attr-defined]
        yield running


def stream(server: WsmanServer) -> WinRSStream:
    return WinRSStream(Endpoint(server.http_url, "builder", PASSWORD), COMMAND)


def test_calls_and_files(server: WsmanServer, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "source").write_bytes(data)
    with open_session(stream(server), name="host") as session:
        assert session.call("facts.facts")["executable"] == sys.executable
        session.put(tmp_path / "source", str(tmp_path / "there"))
        session.get(str(tmp_path / "there"), tmp_path / "back")
        pid = session.call("facts.facts")["pid"]
        started = time.monotonic()
    assert time.monotonic() - started < 2
    assert (tmp_path / "back").read_bytes() == data
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_over_https(server: WsmanServer) -> None:
    assert server.https_url is not None
    place: Path = server.place  # type: ignore[attr-defined]
    endpoint = Endpoint(server.https_url, "builder", PASSWORD, ca=place / "cert.pem")
    with open_session(WinRSStream(endpoint, COMMAND), name="host") as session:
        assert session.call("rpc.ping")
    with pytest.raises(HostError, match=r"certificate of .* is not trusted"):
        WinRSStream(Endpoint(server.https_url, "builder", PASSWORD), COMMAND)


def test_wrong_password_and_nobody_there(server: WsmanServer) -> None:
    with pytest.raises(AuthError, match="refused the sign-in of 'builder'"):
        WinRSStream(Endpoint(server.http_url, "builder", Secret("wrong")), COMMAND)
    with pytest.raises(HostError, match="no connection to") as caught:
        WinRSStream(Endpoint("http://127.0.0.1:9/wsman", "builder", PASSWORD), COMMAND)
    assert caught.value.advice


def test_no_such_program(server: WsmanServer) -> None:
    endpoint = Endpoint(server.http_url, "builder", PASSWORD)
    with pytest.raises(HostError, match=r"exit code 127.*no-python.*not found"):
        open_session(WinRSStream(endpoint, bootstrap_command("no-python")), name="host")


@pytest.mark.parametrize(("knob", "action"), [("before", "Send"), ("within", "Receive")])
def test_cut_connections(
    server: WsmanServer, faults: Faults, tmp_path: Path, knob: str, action: str
) -> None:
    (tmp_path / "source").write_bytes(os.urandom(2_000_000))
    with open_session(
        stream(server), name="host", reconnect=lambda: stream(server), pauses=(0.0, 0.5)
    ) as session:
        setattr(faults, knob, action)
        tail = session.call("files.read_tail", path=str(tmp_path / "source"), limit=1_000_000)
        assert tail == (tmp_path / "source").read_bytes()[-1_000_000:]
    assert getattr(faults, knob) == "", "the fault was never met"


def test_shell_that_went_away(server: WsmanServer) -> None:
    opened = stream(server)
    with open_session(opened, name="host", reconnect=lambda: stream(server)) as session:
        session.call("rpc.ping")
        opened._connect().close_shell(opened._shell)
        time.sleep(0.2)
        assert session.call("rpc.ping")
