"""The sandbox's WS-Man server, driven by the clients people really use: pywinrm and pypsrp."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from pypsrp.exceptions import WSManFaultError as PsrpFault
from pypsrp.shell import Process, SignalCode, WinRS
from pypsrp.wsman import WSMan
from timing import until
from winrm.exceptions import (
    InvalidCredentialsError,
    WinRMOperationTimeoutError,
    WinRMTransportError,
    WSManFaultError,
)
from winrm.protocol import Protocol

from pipelines.core.errors import SetupError
from pipelines.hosts.sandbox.wsman import connection, faults, pipes, shells, soap
from pipelines.hosts.sandbox.wsman.auth import write_credentials
from pipelines.hosts.sandbox.wsman.certificate import create_certificate
from pipelines.hosts.sandbox.wsman.commands import tagged_process_ids
from pipelines.hosts.sandbox.wsman.faults import WsmanFaultError
from pipelines.hosts.sandbox.wsman.server import LOOPBACK, WsmanServer
from pipelines.hosts.sandbox.wsman.shells import Limits
from pipelines.session.transports import identify

USER, PASSWORD = "builder", "s3cret, with a comma"
EVERY_BYTE = bytes(range(256))
LIMITS = Limits(max_shells=20, linger=0.2)


def launch(
    line: str, /, *, skip_cmd_shell: bool, env: Mapping[str, str], cwd: str | None
) -> subprocess.Popen[bytes]:
    if line.startswith("missing"):
        raise FileNotFoundError(2, "no such <file> & more", line)
    return subprocess.Popen(
        ["sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **env},
        cwd=cwd,
    )


@dataclass
class Files:
    users: Path
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("wsman")
    made = Files(folder / "users", folder / "host.pem", folder / "host.key")
    write_credentials(made.users, USER, PASSWORD)
    create_certificate(made.certificate, made.key)
    return made


@pytest.fixture(scope="module")
def server(files: Files) -> Iterator[WsmanServer]:
    with WsmanServer(
        launch, files.users, certificate=files.certificate, key=files.key, limits=LIMITS
    ) as running:
        yield running


def client(server: WsmanServer, files: Files, kind: str = "http", **changes: Any) -> Protocol:
    settings: dict[str, Any] = {
        "transport": "ntlm",
        "username": USER,
        "password": PASSWORD,
        "operation_timeout_sec": 5,
        "read_timeout_sec": 10,
        "proxy": None,
    }
    if kind == "http":
        settings |= {"message_encryption": "always", "ca_trust_path": None}
    else:
        settings["ca_trust_path"] = str(files.certificate)
    url = server.http_url if kind == "http" else str(server.https_url)
    return Protocol(url, **(settings | changes))


@contextlib.contextmanager
def shell_of(protocol: Protocol, **options: Any) -> Iterator[str]:
    shell = protocol.open_shell(**options)
    try:
        yield shell
    finally:
        with contextlib.suppress(WSManFaultError):
            protocol.close_shell(shell)


@pytest.fixture(params=["http", "https"])
def either(request: pytest.FixtureRequest, server: WsmanServer, files: Files) -> Protocol:
    return client(server, files, request.param)


@pytest.fixture
def plain(server: WsmanServer, files: Files) -> Protocol:
    return client(server, files)


def send_message(url: str, body: bytes, **options: Any) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.post(url, data=body, timeout=60, **options)


# --- commands ---


def test_output_errors_and_exit_code(either: Protocol) -> None:
    with shell_of(either, env_vars={"GREETING": "a <b> & 'c'"}, working_directory="/") as shell:
        command = either.run_command(shell, 'echo "$GREETING"; pwd; echo oops >&2; exit', ["42"])
        assert either.get_command_output(shell, command) == (b"a <b> & 'c'\n/\n", b"oops\n", 42)


def test_stdin_is_8_bit_clean(either: Protocol) -> None:
    payload = EVERY_BYTE * 1200  # 300 KiB: both ways in one message each
    with shell_of(either) as shell:
        command = either.run_command(shell, "cat", console_mode_stdin=False)
        either.send_command_input(shell, command, EVERY_BYTE)
        assert either.get_command_output_raw(shell, command)[0] == EVERY_BYTE
        either.send_command_input(shell, command, payload, end=True)
        assert either.get_command_output(shell, command) == (payload, b"", 0)
        either.send_command_input(shell, command, b"", end=True)  # closing twice is no error
        with pytest.raises(WSManFaultError, match="pipe is being closed"):
            either.send_command_input(shell, command, b"late")


@pytest.mark.parametrize(
    ("ssl_on", "encryption"), [(False, "auto"), (True, "auto"), (True, "always")]
)
@pytest.mark.parametrize("auth", ["negotiate", "ntlm"])
def test_pypsrp(
    server: WsmanServer, files: Files, ssl_on: bool, encryption: str, auth: str
) -> None:
    port = int(str(server.https_url if ssl_on else server.http_url).split(":")[2].split("/")[0])
    trust: Any = str(files.certificate) if ssl_on else True
    with WSMan(
        "127.0.0.1",
        port=port,
        username=USER,
        password=PASSWORD,
        ssl=ssl_on,
        auth=auth,
        encryption=encryption,
        no_proxy=True,
        cert_validation=trust,
    ) as wsman:
        wsman.update_max_payload_size()
        assert wsman.max_envelope_size == 512000
        with WinRS(wsman, environment={"A": "1"}, idle_time_out=60) as shell:
            assert shell._get_shell()["Owner"] == USER
            process = Process(shell, "sh", ["-c", "'cat; echo $A; echo no >&2; exit 3'"])
            process.begin_invoke()
            process.send(EVERY_BYTE)
            process.end_invoke()
            assert (process.stdout, process.stderr, process.rc) == (EVERY_BYTE + b"1\n", b"no\n", 3)
            process.signal(SignalCode.TERMINATE)
            with pytest.raises(PsrpFault) as caught:
                Process(shell, "missing").begin_invoke()
            assert caught.value.code == faults.FILE_NOT_FOUND


def test_operation_timeout_then_output(plain: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = plain
    monkeypatch.setattr(protocol, "build_wsman_header", _with_timeout(protocol, "PT0.3S"))
    with shell_of(protocol) as shell:
        command = protocol.run_command(shell, "cat", console_mode_stdin=False)
        started = time.monotonic()
        with pytest.raises(WinRMOperationTimeoutError):  # much later it would be a read time-out
            protocol.get_command_output_raw(shell, command)
        assert time.monotonic() - started > 0.29
        protocol.send_command_input(shell, command, b"now", end=True)
        assert protocol.get_command_output(shell, command)[0] == b"now"


def test_send_while_another_connection_receives(server: WsmanServer, files: Files) -> None:
    writer, reader = client(server, files), client(server, files, "https")
    with shell_of(writer) as shell:
        command = writer.run_command(shell, "cat", console_mode_stdin=False)
        got: list[Any] = []
        thread = threading.Thread(
            target=lambda: got.append(reader.get_command_output(shell, command))
        )
        thread.start()
        for _ in range(10):
            writer.send_command_input(shell, command, EVERY_BYTE)
        writer.send_command_input(shell, command, b"", end=True)
        thread.join()
        assert got == [(EVERY_BYTE * 10, b"", 0)]


def test_finished_commands_are_forgotten_in_the_end(files: Files) -> None:
    limits = Limits(max_commands=2)
    with WsmanServer(launch, files.users, limits=limits) as server:
        protocol = client(server, files)
        shell = protocol.open_shell()
        commands = []
        for _ in range(6):
            commands.append(protocol.run_command(shell, "echo x"))
            protocol.get_command_output(shell, commands[-1])
        with pytest.raises(WSManFaultError):
            protocol.get_command_output(shell, commands[0])
        assert len(server.shells.get(shell, USER)._commands) <= limits.max_commands * 2


def test_a_receive_whose_client_is_gone_swallows_nothing(
    server: WsmanServer, files: Files, plain: Protocol
) -> None:
    lost = client(server, files, operation_timeout_sec=1, read_timeout_sec=2)
    lost.operation_timeout_sec = 30
    lost.transport.read_timeout_sec = cast(int, 0.1)
    with shell_of(plain) as shell:
        command = plain.run_command(shell, "cat", console_mode_stdin=False)
        with pytest.raises(requests.exceptions.ReadTimeout):
            lost.get_command_output_raw(shell, command)
        lost.transport.close_session()
        plain.send_command_input(shell, command, b"kept", end=True)
        assert plain.get_command_output(shell, command)[0] == b"kept"


def test_pipes_which_outlive_their_command_do_not_hang_the_client(plain: Protocol) -> None:
    with shell_of(plain) as shell:
        command = plain.run_command(shell, "sleep 60 & echo started")
        assert plain.get_command_output(shell, command) == (b"started\n", b"", 0)


# --- the end of commands, shells and server ---

FAMILY = "setsid sh -c 'setsid sleep 61 & sleep 62' & sleep 63 & echo up; wait"


@pytest.mark.parametrize("how", ["terminate", "delete"])
def test_the_whole_tree_goes(plain: Protocol, how: str) -> None:
    with shell_of(plain) as shell:
        command = plain.run_command(shell, FAMILY)
        assert plain.get_command_output_raw(shell, command)[0] == b"up\n"
        until(lambda: len(tagged_process_ids(command)) >= 4)
        if how == "terminate":
            plain.cleanup_command(shell, command)
            with pytest.raises(WSManFaultError) as caught:
                plain.get_command_output_raw(shell, command)
            assert caught.value.wsman_fault_code == faults.SHELL_NOT_FOUND
        else:
            plain.close_shell(shell)
        assert tagged_process_ids(command) == []


def test_terminate_wakes_a_waiting_receive(
    server: WsmanServer, files: Files, plain: Protocol
) -> None:
    reader = client(server, files)
    with shell_of(plain) as shell:
        command = plain.run_command(shell, "sleep 60")
        got: list[WSManFaultError] = []

        def receive() -> None:
            with pytest.raises(WSManFaultError) as caught:
                reader.get_command_output_raw(shell, command)
            got.append(caught.value)

        thread = threading.Thread(target=receive)
        thread.start()
        live = server.shells.get(shell, USER).command(command)
        until(live._receiving.locked)
        plain.cleanup_command(shell, command)
        thread.join()
        assert got[0].wsman_fault_code == faults.OPERATION_ABORTED


def test_control_c_ends_the_command_with_windows_exit_code(
    server: WsmanServer, plain: Protocol
) -> None:
    with shell_of(plain) as shell:
        command = plain.run_command(shell, "sleep 60")
        server.shells.get(shell, USER).command(command).interrupt()
        assert plain.get_command_output(shell, command) == (b"", b"", 0xC000013A)


def test_a_shell_dies_of_idleness_but_not_while_used(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead)
    monkeypatch.setattr(shells, "time", clock)
    with WsmanServer(launch, files.users) as server:
        protocol, reader = client(server, files), client(server, files)

        def later() -> set[str]:
            """An idle time-out later: the shells that are left once the server has looked."""
            nonlocal ahead
            ahead += 61
            other = server.shells.create("somebody", env={}, cwd=None, idle_timeout=0.01)
            until(lambda: other.id not in server.shells._shells)
            return set(server.shells._shells)

        shell = protocol.open_shell(idle_timeout="PT60S")
        command = protocol.run_command(shell, "cat", console_mode_stdin=False)
        got: list[Any] = []
        reading = threading.Thread(
            target=lambda: got.append(reader.get_command_output(shell, command))
        )
        reading.start()
        here = server.shells.get(shell, USER)
        until(here.command(command)._receiving.locked)
        assert later() == {shell}
        protocol.send_command_input(shell, command, b"alive", end=True)
        reading.join()
        assert got == [(b"alive", b"", 0)]
        until(lambda: not here._in_use)  # a moment after the answer
        assert later() == set()
        with pytest.raises(WSManFaultError) as caught:
            protocol.run_command(shell, "true")
        assert caught.value.wsman_fault_code == faults.SHELL_NOT_FOUND


def test_stop_leaves_no_process_and_no_thread(files: Files) -> None:
    threads = set(threading.enumerate())
    server = WsmanServer(launch, files.users)
    protocol = client(server, files)
    shell = protocol.open_shell()
    command = protocol.run_command(shell, FAMILY)
    until(lambda: len(tagged_process_ids(command)) >= 4)
    server.stop()
    server.stop()
    assert tagged_process_ids(command) == []
    until(lambda: set(threading.enumerate()) <= threads)
    port = int(server.http_url.split(":")[2].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


# --- bounds ---


def test_output_waits_in_the_pipe(server: WsmanServer, plain: Protocol, tmp_path: Path) -> None:
    with shell_of(plain, working_directory=str(tmp_path)) as shell:
        line = "head -c 16M /dev/zero | tee count | head -c 2500000; echo end >&2"
        command = plain.run_command(shell, line)
        plain.get_command_output_raw(shell, command)  # the writer runs, and then blocks
        # Two pipes and what was received; the rest waits for the next request.
        settled = (tmp_path / "count").stat().st_size
        time.sleep(0.05)
        assert settled <= (tmp_path / "count").stat().st_size < 4 << 20
        out, err, code = plain.get_command_output(shell, command)
        assert (err, code) == (b"end\n", 0)
        assert 1_000_000 < len(out) < 2_500_000


def test_input_waits_for_its_reader(
    server: WsmanServer, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = client(server, files, operation_timeout_sec=1)
    chunk = b"x" * 300_000
    with shell_of(protocol) as shell:
        command = protocol.run_command(shell, "sleep 60", console_mode_stdin=False)
        build = _with_timeout(protocol, "PT0.2S")
        monkeypatch.setattr(protocol, "build_wsman_header", build)
        with pytest.raises(WinRMOperationTimeoutError):
            protocol.send_command_input(shell, command, chunk)
        for _ in range(2):
            with pytest.raises(WSManFaultError) as caught:
                protocol.send_command_input(shell, command, chunk)
            assert caught.value.wsman_fault_code == faults.BUSY
        pipe = server.shells.get(shell, USER).command(command).input
        assert pipe._size == len(chunk) - pipes.INPUT_SIZE


def _with_timeout(protocol: Protocol, timeout: str) -> Any:
    original = protocol.build_wsman_header

    def build(*args: Any, **named: Any) -> Any:
        request = original(*args, **named)
        request["env:Header"]["w:OperationTimeout"] = timeout
        return request

    return build


def test_too_many_shells_and_commands(files: Files) -> None:
    limits = Limits(max_shells=1, max_commands=1)
    with WsmanServer(launch, files.users, limits=limits) as server:
        protocol = client(server, files)
        shell = protocol.open_shell()
        protocol.run_command(shell, "sleep 60")
        with pytest.raises(WSManFaultError) as commands:
            protocol.run_command(shell, "sleep 60")
        with pytest.raises(WSManFaultError) as shells:
            protocol.open_shell()
        assert commands.value.wsman_fault_code == faults.TOO_MANY_OPERATIONS
        assert shells.value.wsman_fault_code == faults.TOO_MANY_SHELLS


def test_envelope_too_large(either: Protocol) -> None:
    with shell_of(either) as shell:
        command = either.run_command(shell, "cat", console_mode_stdin=False)
        with pytest.raises(WSManFaultError) as caught:
            either.send_command_input(shell, command, b"x" * 400_000)
        assert caught.value.wsman_fault_code == faults.ENVELOPE_TOO_LARGE
        # The connection and its cipher state live on.
        either.send_command_input(shell, command, b"fine", end=True)
        assert either.get_command_output(shell, command)[0] == b"fine"


def test_a_body_beyond_all_bounds(server: WsmanServer) -> None:
    with socket.create_connection(("127.0.0.1", int(server.http_url.split(":")[2][:-6]))) as raw:
        raw.sendall(b"POST /wsman HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


# --- who may come in ---


def test_identify_needs_no_sign_in(server: WsmanServer, files: Files) -> None:
    url = str(server.https_url)
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(files.certificate.read_text())).hexdigest()
    assert identify.is_winrm_listening(url, pin)
    assert not identify.is_winrm_listening(url, "0" * 64)
    assert not identify.is_winrm_listening(url.replace("/wsman", "/elsewhere"), pin)
    asked = {"WSMANIDENTIFY": "unauthenticated"}
    request, ca = identify.REQUEST.encode(), str(files.certificate)
    assert b"ProtocolVersion" in send_message(url, request, headers=asked, verify=ca).content
    for other in (b"<x/>", b"no XML", b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'):
        assert send_message(server.http_url, other, headers=asked).status_code == 400


def test_a_service_that_tells_strangers_nothing(
    server: WsmanServer, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Windows where Identify is switched off: to ask for a sign-in is a sign of life too."""
    monkeypatch.delitem(identify.HEADERS, "WSMANIDENTIFY")
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(files.certificate.read_text())).hexdigest()
    assert identify.is_winrm_listening(str(server.https_url), pin)


def test_it_listens_where_it_is_told(files: Files) -> None:
    with WsmanServer(launch, files.users, host="127.0.0.2") as elsewhere:
        port = int(elsewhere.http_url.split(":")[2][:-6])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with socket.create_connection(("127.0.0.2", port)):
            pass


@pytest.mark.parametrize("wrong", [{"password": "no"}, {"username": "nobody"}])
def test_wrong_credentials(server: WsmanServer, files: Files, wrong: dict[str, str]) -> None:
    for kind in ("http", "https"):
        with pytest.raises(InvalidCredentialsError):
            client(server, files, kind, **wrong).open_shell()


def test_certificate_is_verified(server: WsmanServer, files: Files, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    create_certificate(other, tmp_path / "other.key")
    with pytest.raises(requests.exceptions.SSLError):
        client(server, files, "https", ca_trust_path=str(other)).open_shell()
    strict = ssl.create_default_context(cafile=str(files.certificate))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    port = int(str(server.https_url).split(":")[2][:-6])
    for name in ("localhost", "127.0.0.1"):
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            strict.wrap_socket(raw, server_hostname=name) as secure,
        ):
            assert secure.version() == "TLSv1.3"
    assert files.key.stat().st_mode & 0o777 == 0o600


def test_unsealed_plain_http_is_refused(server: WsmanServer, files: Files) -> None:
    with pytest.raises(WinRMTransportError, match="500"):
        client(server, files, message_encryption="never").open_shell()


@pytest.mark.parametrize("kind", ["http", "https"])
def test_basic_is_neither_offered_nor_taken(server: WsmanServer, files: Files, kind: str) -> None:
    with pytest.raises(InvalidCredentialsError):
        client(server, files, kind, transport="basic", message_encryption="never").open_shell()
    url, verify = (
        (server.http_url, True)
        if kind == "http"
        else (str(server.https_url), str(files.certificate))
    )
    answer = send_message(url, b"", verify=verify)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Negotiate, NTLM"


def test_credential_files(tmp_path: Path, files: Files) -> None:
    loose = write_credentials(tmp_path / "users", USER, PASSWORD)
    loose.chmod(0o644)
    with pytest.raises(SetupError, match="others can read"):
        WsmanServer(launch, loose)
    with pytest.raises(SetupError, match="cannot be read"):
        WsmanServer(launch, tmp_path / "none")
    with pytest.raises(SetupError, match="must not"):
        write_credentials(tmp_path / "bad", "a:b", "c")
    assert "NTLM_USER_FILE" not in os.environ


# --- hostile or broken requests ---

BOMB = b'<!DOCTYPE a [<!ENTITY b "boom">]><a>&b;</a>'


@pytest.mark.parametrize("body", [b"junk", b"<a/>", b"<a", BOMB, b"\xff\xfe\x00", b"<a>" * 5000])
def test_bad_documents_give_400_after_sign_in(either: Protocol, body: bytes) -> None:
    with pytest.raises(WinRMTransportError) as caught:
        either.transport.send_message(body)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /wsman HTTP/1.1\r\n\r\n", b"405"),
        (b"BREW /wsman HTTP/1.1\r\n\r\n", b"501"),
        (b"POST /other HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"404"),
        (b"POST /wsman HTTP/1.1\r\n\r\n", b"411"),
        (b"POST /wsman HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"POST /wsman HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST /wsman HTTP/1.1\r\nContent-Length: 0\r\nAuthorization: NTLM AAAA\r\n\r\n", b"401"),
        (b"POST /wsman HTTP/1.1\r\nContent-Length: 0\r\nAuthorization: Basic eDp5\r\n\r\n", b"401"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"POST /wsman HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
    ],
)
def test_bad_http(server: WsmanServer, head: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(server.http_url.split(":")[2][:-6]))) as raw:
        raw.settimeout(3)
        raw.sendall(head)
        answer = raw.recv(1000)
    assert status in answer.split(b"\r\n")[0]


def test_cut_out_streams_mean_what_the_parser_would_say(
    plain: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(plain, "send_message", sent.append)
    plain.send_command_input("S", "C", EVERY_BYTE * 40)
    whole = sent[0].encode()
    fast = soap.parse_soap_envelope(whole)
    slow = soap.parse_soap_envelope(whole.replace(b"<env:Body>", b"<env:Body><!-- x -->"))
    assert fast.stream_text is not None
    assert slow.stream_text is None
    for request in (fast, slow):
        stream = request.body.find(".//rsp:Stream", soap.NAMESPACES)
        assert stream is not None
        assert request.stream_data(stream) == EVERY_BYTE * 40
    broken = soap.parse_soap_envelope(whole.replace(b"</rsp:Stream>", b"*</rsp:Stream>"))
    with pytest.raises(WsmanFaultError, match="base64"):
        broken.stream_data(broken.body[0][0])


def test_durations_and_escapes() -> None:
    assert soap.parse_duration("P1DT1H1M1.5S") == 90061.5
    for wrong in ("", "20", "PT", "P", "PT-1S", "P1Y"):
        with pytest.raises(WsmanFaultError):
            soap.parse_duration(wrong)
    fault = soap.fault_envelope("<id>", WsmanFaultError(1, "a&b", "<x>\x00"))
    assert b"&lt;id&gt;" in fault
    assert b"&lt;x&gt;\xef\xbf\xbd" in fault


def test_taken_port(server: WsmanServer, files: Files) -> None:
    port = int(server.http_url.split(":")[2][:-6])
    with pytest.raises(OSError, match=str(port)):
        WsmanServer(launch, files.users, http_port=port)


def test_idle_connections_are_dropped(files: Files) -> None:
    with WsmanServer(launch, files.users, idle_timeout=0.1, max_connections=1) as server:
        port = int(server.http_url.split(":")[2][:-6])
        with socket.create_connection(("127.0.0.1", port)) as first:
            with socket.create_connection(("127.0.0.1", port)) as second:
                assert second.recv(1) == b""  # above the limit: not even served
            assert first.recv(1) == b""


_ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as sock:
    sock.sendall(b"POST /wsman HTTP/1.1\\r\\nContent-Length: 0\\r\\n\\r\\n")
    sys.stdout.buffer.write(sock.recv(100)[:12])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_this_machine_is_not_served(files: Files) -> None:
    """So that no client takes all connections: https://docs.kernel.org/networking/proc_net_tcp.html"""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no Python that other users can start")
    with WsmanServer(launch, files.users) as server:
        port = server.http_url.rpartition(":")[2].partition("/")[0]
        ask = [python, "-c", _ASK, port]
        ours = subprocess.run(ask, capture_output=True, check=True)
        assert ours.stdout == b"HTTP/1.1 401"
        theirs = subprocess.run(ask, user=65534, capture_output=True, check=False)
        assert theirs.stdout == b""


def test_who_does_not_sign_in_is_dropped_before_who_has(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_SIGN_IN_TIMEOUT", 0.1)
    with WsmanServer(launch, files.users, max_connections=1) as server:
        address = (LOOPBACK, int(server.http_url.rpartition(":")[2].partition("/")[0]))
        with socket.create_connection(address, timeout=60) as silent:
            assert silent.recv(1) == b""
        protocol = client(server, files)
        shell = protocol.open_shell()
        time.sleep(0.5)
        protocol.close_shell(shell)
