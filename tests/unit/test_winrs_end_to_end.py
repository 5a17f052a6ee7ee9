"""A session through pywinrm, NTLM and a WS-Management server, to a Python of this machine."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.server
import os
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spnego
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hooked import DropConnectionError, hooked
from timing import until
from winrm_programs import launch

from pipelines.core.errors import AuthError, HostError
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.sandbox.wsman.auth import Acceptor, Step, write_credentials
from pipelines.hosts.sandbox.wsman.certificate import create_certificate
from pipelines.hosts.sandbox.wsman.server import WsmanServer
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.remote import facts, files, rpc
from pipelines.session import link
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports import signins, winrs, winrs_http
from pipelines.session.transports.endpoint import Endpoint, Secret
from pipelines.session.transports.winrs import WinRSStream
from pipelines.toolchain.lock import Cache, load_lock

pytestmark = pytest.mark.slow


COMMAND = bootstrap_command(sys.executable)


PASSWORD = Secret("Passw0rd!")


class Faults:
    """Cuts the connection of the next request or answer whose action ends with ``action``."""

    def __init__(self) -> None:
        self.before = ""
        self.within = ""

    def before_request(self, action: str) -> None:
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
    pin = create_certificate(place / "cert.pem", place / "key.pem")
    with WsmanServer(
        launch,
        write_credentials(place / "users", "builder", PASSWORD.get_secret_value()),
        certificate=place / "cert.pem",
        key=place / "key.pem",
        service=hooked(faults),
    ) as running:
        running.place, running.pin = place, pin  # type: ignore[attr-defined]
        yield running


def stream(server: WsmanServer) -> WinRSStream:
    return WinRSStream(Endpoint(server.http_url, "builder", PASSWORD), COMMAND)


def test_calls_and_files(
    server: WsmanServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "FAREWELL", 120.0)
    monkeypatch.setattr(winrs, "FAREWELL", 120.0)
    data = os.urandom(3_000_000)
    (tmp_path / "source").write_bytes(data)
    with open_session(stream(server), name="host") as session:
        assert session.call(facts.facts)["executable"] == sys.executable
        session.put(tmp_path / "source", str(tmp_path / "there"))
        session.get(str(tmp_path / "there"), tmp_path / "back")
        pid = session.call(facts.facts)["pid"]
        started = time.monotonic()
    assert time.monotonic() - started < 60, "a farewell took all the time that it may"
    assert (tmp_path / "back").read_bytes() == data
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_certificate_that_nobody_vouches_for(server: WsmanServer) -> None:
    with pytest.raises(HostError, match=r"certificate of .* is not trusted"):
        WinRSStream(Endpoint(server.https_url or "", "builder", PASSWORD), COMMAND)


@pytest.mark.parametrize("trusted", ["ca", "pin"])
def test_sign_ins_are_bound_to_the_connection(
    server: WsmanServer, trusted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that was set up by our script refuses others: CbtHardeningLevel Strict."""
    bindings: list[Any] = []
    client = spnego.client

    def noted(*words: Any, **options: Any) -> Any:
        bindings.append(options["channel_bindings"])
        return client(*words, **options)

    monkeypatch.setattr(spnego, "client", noted)
    place: Path = server.place  # type: ignore[attr-defined]
    pin: str = server.pin  # type: ignore[attr-defined]
    known: dict[str, Any] = {"ca": place / "cert.pem"} if trusted == "ca" else {"pin": pin}
    assert server.https_url is not None
    endpoint = Endpoint(server.https_url, "builder", PASSWORD, **known)
    with open_session(WinRSStream(endpoint, COMMAND), name="host") as session:
        assert session.call(rpc.ping)
    expected = b"tls-server-end-point:" + bytes.fromhex(pin)
    assert {bound and bound.application_data for bound in bindings} == {expected}


def test_nobody_there() -> None:
    with pytest.raises(HostError, match="no connection to") as caught:
        WinRSStream(Endpoint("http://127.0.0.1:9/wsman", "builder", PASSWORD), COMMAND)
    assert caught.value.hint


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
        tail = session.call(files.read_tail, path=str(tmp_path / "source"), limit=1_000_000)
        assert tail == (tmp_path / "source").read_bytes()[-1_000_000:]
    assert getattr(faults, knob) == "", "the fault was never met"


def test_shell_that_went_away(server: WsmanServer) -> None:
    opened = stream(server)
    with open_session(opened, name="host", reconnect=lambda: stream(server)) as session:
        session.call(rpc.ping)
        opened._connect().close_shell(opened._shell)
        until(lambda: session._current.io.failure)
        assert session.call(rpc.ping)


def test_connections_are_closed_at_once(server: WsmanServer) -> None:
    opened = stream(server)
    session: Any = opened._sender.transport.session
    pools = session.get_adapter(server.http_url).poolmanager.pools
    (pool,) = map(pools.__getitem__, pools.keys())
    assert pool.pool is not None
    opened.kill()
    assert pool.pool is None


# -- who the host is -------------------------------------------------------------------------------


class Steps:
    """What came of every step of a sign-in at the host."""

    def __init__(self) -> None:
        self.seen: list[Step] = []

    @property
    def refused(self) -> int:
        return self.seen.count(Step.REFUSED)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    original = Acceptor.step

    def step(self: Acceptor, authorization: str | None) -> tuple[Step, str | None]:
        outcome = original(self, authorization)
        made.seen.append(outcome[0])
        return outcome

    monkeypatch.setattr(Acceptor, "step", step)
    monkeypatch.setattr(signins, "_accounts", {})
    return made


def test_pin_is_checked_on_every_connection(server: WsmanServer, tmp_path: Path) -> None:
    """The host gets another certificate in mid-run: new connections refuse it."""
    pin: str = server.pin  # type: ignore[attr-defined]
    connection = winrs_http.create_winrm_client(
        Endpoint(server.https_url or "", "builder", PASSWORD, pin=pin)
    )
    connection.close_shell(connection.open_shell(codepage=65001))
    create_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    listener = server._listeners[1]
    original = listener._tls
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    listener._tls = other
    try:
        connection.transport.close_session()
        with pytest.raises(Exception, match="Fingerprints did not match"):
            connection.open_shell(codepage=65001)
    finally:
        listener._tls = original


@pytest.mark.parametrize("transport", ["ntlm", "basic"])
def test_other_certificate_gets_nothing(server: WsmanServer, steps: Steps, transport: str) -> None:
    pin: str = server.pin  # type: ignore[attr-defined]
    wrong = ("0" if pin[0] != "0" else "1") + pin[1:]
    endpoint = Endpoint(
        server.https_url or "",
        "builder",
        PASSWORD,
        transport,  # type: ignore[arg-type]
        pin=wrong,
    )
    with pytest.raises(HostError, match=r"identity of .* changed") as caught:
        WinRSStream(endpoint, COMMAND)
    assert pin in caught.value.message
    assert wrong in caught.value.message
    assert "pipeline.yaml" in caught.value.hint
    assert not steps.seen, "nothing may be said before the certificate was compared"


class Impostor(http.server.ThreadingHTTPServer):
    """Not WinRM: records requests, and answers with ``status`` and ``headers``."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Told)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.tls = tls
        self.told: list[str | None] = []
        self.subjects: list[object] = []
        self.status = 401
        self.headers: dict[str, str] = {}
        self.body = b""
        self.later = False
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server_port}/wsman"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    def handle_error(self, *_: object) -> None:
        """A client that leaves is no news."""

    def stop(self) -> None:
        self.shutdown()
        self._thread.join(5)
        self.server_close()


class _Told(http.server.BaseHTTPRequestHandler):
    server: Impostor

    def _certified(self) -> bool:
        assert isinstance(self.connection, ssl.SSLSocket)
        with contextlib.suppress(TimeoutError):
            self.connection.recv(1)
        return bool(self.connection.getpeercert())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.told.append(self.headers.get("Authorization"))
        if isinstance(self.connection, ssl.SSLSocket):
            if self.server.later:
                self.connection.verify_client_post_handshake()
                self.connection.settimeout(0.05)  # the certificate is no data, but comes by reading
                until(self._certified)
            self.server.subjects.append(self.connection.getpeercert())
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def impostor(server: WsmanServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Impostor]:
    place: Path = server.place  # type: ignore[attr-defined]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(place / "cert.pem", place / "key.pem")
    monkeypatch.setattr(signins, "_accounts", {})
    made = Impostor(tls)
    yield made
    made.stop()


def pinned(server: WsmanServer, impostor: Impostor, **keys: object) -> Endpoint:
    pin: str = server.pin  # type: ignore[attr-defined]
    keys = {"password": PASSWORD, "pin": pin} | keys
    return Endpoint(impostor.url, "builder", **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", ["ntlm", "basic"])
def test_redirects_are_not_followed(
    server: WsmanServer, impostor: Impostor, transport: str
) -> None:
    elsewhere = Impostor()
    impostor.status, impostor.headers = 307, {"Location": elsewhere.url}
    try:
        with pytest.raises(HostError, match="redirects to another address"):
            WinRSStream(pinned(server, impostor, transport=transport), COMMAND)
        assert not elsewhere.told
    finally:
        elsewhere.stop()


def signs_in(impostor: Impostor, place: Path) -> None:
    """Make a user's certificate, which the server asks for and trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "builder")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (place / "user.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (place / "user.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    assert impostor.tls
    impostor.tls.verify_mode = ssl.CERT_REQUIRED
    impostor.tls.load_verify_locations(place / "user.pem")


def test_netrc_does_not_sign_in(
    server: WsmanServer, impostor: Impostor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login x password from-netrc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    signs_in(impostor, tmp_path)
    endpoint = pinned(
        server,
        impostor,
        transport="certificate",
        certificate=tmp_path / "user.pem",
        certificate_key=tmp_path / "user.key",
    )
    with pytest.raises(AuthError, match="by certificate") as caught:
        WinRSStream(endpoint, COMMAND)
    assert "ClientCertificate" in caught.value.hint
    assert impostor.told == ["http://schemas.dmtf.org/wbem/wsman/1/wsman/secprofile/https/mutual"]
    assert impostor.subjects[0], "the certificate was shown"


@pytest.mark.parametrize("pin", [True, False])
def test_certificate_is_asked_for_after_the_handshake(
    server: WsmanServer,
    impostor: Impostor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pin: bool,
) -> None:
    """As Windows 11 and Server 2022 do (https://github.com/ansible/ansible/issues/81197)."""
    place: Path = server.place  # type: ignore[attr-defined]
    monkeypatch.setenv("SSL_CERT_FILE", str(place / "cert.pem"))
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    signs_in(impostor, tmp_path)
    assert impostor.tls
    impostor.tls.post_handshake_auth = impostor.later = True
    own = {"certificate": tmp_path / "user.pem", "certificate_key": tmp_path / "user.key"}
    endpoint = pinned(
        server, impostor, transport="certificate", **own, **({} if pin else {"pin": None})
    )
    with pytest.raises(AuthError, match="by certificate"):
        WinRSStream(endpoint, COMMAND)
    assert impostor.subjects[0], "the certificate was shown"


BOMB = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bb">]><a>&b;</a>'


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (BOMB.encode(), 200, "document type"),
        (BOMB.encode(), 500, "document type"),
        (BOMB.encode("utf-16"), 200, "document type"),
        (b"x" * (winrs_http.ANSWER_LIMIT + 1), 200, "larger than 16 MiB"),
        (b"\xff\x1b]0;no XML\x07", 200, "ParseError"),
    ],
    ids=["entities", "entities in a fault", "UTF-16", "endless", "no XML"],
)
def test_hostile_answers(
    server: WsmanServer, impostor: Impostor, body: bytes, status: int, said: str
) -> None:
    impostor.body, impostor.status = body, status
    with pytest.raises(HostError, match=said):
        WinRSStream(pinned(server, impostor, transport="basic"), COMMAND)


# -- passwords that are wrong ----------------------------------------------------------------------


def test_wrong_password_is_tried_twice_at_most(server: WsmanServer, steps: Steps) -> None:
    said = []
    for _ in range(5):
        with pytest.raises(AuthError) as caught:
            WinRSStream(Endpoint(server.http_url, "builder", Secret("wrong")), COMMAND)
        said.append(caught.value.message)
    assert steps.refused == 2
    assert "refused the sign-in" in said[0]
    assert "2 times in a row" in said[-1]
    assert "not tried again" in said[-1]
    stream(server).kill()  # another password is another matter


def test_wrong_password_by_basic_is_tried_twice_at_most(
    server: WsmanServer, impostor: Impostor
) -> None:
    for _ in range(5):
        with pytest.raises(AuthError):
            WinRSStream(pinned(server, impostor, transport="basic"), COMMAND)
    assert len(impostor.told) == 2
    assert all(told and told.startswith("Basic ") for told in impostor.told)


@pytest.mark.parametrize("parallel", [1, 8])
def test_password_rotated_in_mid_run(
    server: WsmanServer,
    faults: Faults,
    steps: Steps,
    parallel: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place: Path = server.place  # type: ignore[attr-defined]
    monkeypatch.setenv("LAB_PASSWORD", PASSWORD.get_secret_value())
    settings = {
        "kind": "winrm",
        "endpoint": server.http_url,
        "username": "builder",
        "password_env": "LAB_PASSWORD",
        "python": sys.executable,
    }
    host = WinRMHost.model_validate(settings).open("lab", OpenOptions("3.11", Cache(load_lock())))
    sessions = [host.connect() for _ in range(parallel)]
    errors: list[BaseException] = []

    def use(session: object) -> None:
        for _ in range(3):
            try:
                session.call(rpc.ping)  # type: ignore[attr-defined]
            except HostError as error:
                errors.append(error)

    try:
        write_credentials(place / "users", "builder", "new-password")
        for session in sessions:
            session._current.io.stream._renew(session._current.io.stream._sender)  # type: ignore[attr-defined]
        threads = [threading.Thread(target=use, args=(session,)) for session in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [error for error in errors if isinstance(error, AuthError)]
        assert 1 <= steps.refused <= 2
        monkeypatch.setenv("LAB_PASSWORD", "new-password")
        assert all(session.call(rpc.ping) for session in sessions), "asked for anew"
        assert steps.refused <= 2
    finally:
        write_credentials(place / "users", "builder", PASSWORD.get_secret_value())
        monkeypatch.setenv("LAB_PASSWORD", PASSWORD.get_secret_value())
        for session in sessions:
            session.close()


class _CredSSP(_Told):
    """The acceptor of MS-CSSP, and nothing after it."""

    protocol_version = "HTTP/1.1"  # a sign-in belongs to its connection
    context: Any = None

    def do_POST(self) -> None:
        import spnego

        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        status, answer = 401, "CredSSP"
        if scheme == "CredSSP":
            if self.context is None:
                self.server.told.append("began")
                self.context = spnego.server(protocol="credssp")
            out = self.context.step(base64.b64decode(token))  # a wrong password gets a token, too
            answer = f"CredSSP {base64.b64encode(out or b'').decode()}"
            if self.context.complete:
                status = 200
                self.server.told.append("accepted")
        self.send_response(status)
        self.send_header("WWW-Authenticate", answer)
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_wrong_password_by_credssp_is_tried_twice_at_most(
    server: WsmanServer, impostor: Impostor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("requests_credssp", reason="an optional package")
    place: Path = server.place  # type: ignore[attr-defined]
    monkeypatch.setenv("NTLM_USER_FILE", str(place / "users"))
    monkeypatch.setenv("LM_COMPAT_LEVEL", "5")
    impostor.RequestHandlerClass = _CredSSP
    wrong = pinned(server, impostor, transport="credssp", password=Secret("wrong"))
    for _ in range(4):
        with pytest.raises(AuthError):
            WinRSStream(wrong, COMMAND)
    assert impostor.told == ["began", "began"]
    right = pinned(server, impostor, transport="credssp")
    with pytest.raises(HostError) as caught:  # it is no WinRM
        WinRSStream(right, COMMAND)
    assert type(caught.value) is HostError
    assert impostor.told[2:4] == ["began", "accepted"]
