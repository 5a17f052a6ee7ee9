"""Retries and errors of the WinRS stream, with a scripted protocol object."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from urllib3.connection import HTTPConnection
from urllib3.exceptions import MaxRetryError, NewConnectionError
from winrm.exceptions import (
    InvalidCredentialsError,
    WinRMOperationTimeoutError,
    WinRMTransportError,
    WSManFaultError,
)

from pipelines.core.errors import AuthError, ConfigError, HostError
from pipelines.session.transports import signins, winrs, winrs_http
from pipelines.session.transports.endpoint import Endpoint, Secret
from pipelines.session.transports.winrs import SEND_LIMIT, WinRSStream
from pipelines.session.transports.winrs_errors import explain_winrm_error

ENDPOINT = Endpoint("http://host:5985/wsman", "user", Secret("hunter2"))


class FakeTransport:
    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.encryption: object = object()

    def close_session(self) -> None:
        self.log.append("close_session")


class FakeHost:
    """Every connection of a stream; ``script`` has what Send and Receive do next."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.received = b""
        self.sends: list[Exception] = []
        self.receives: list[Any] = []
        self.opening: list[Exception] = []
        self.starting: list[Exception] = []
        self.operation_timeout_sec = self.opened_within = 0
        self.transport = FakeTransport(self.log)

    def __call__(self) -> FakeHost:
        return self

    def open_shell(self, **options: Any) -> str:
        if self.opening:
            raise self.opening.pop(0)
        self.opened_within = self.operation_timeout_sec
        self.log.append(("open", options["codepage"]))
        return "S"

    def run_command(self, shell: str, command: str, **options: Any) -> str:
        if self.starting:
            raise self.starting.pop(0)
        self.log.append((command, options))
        return "C"

    def send_command_input(self, shell: str, command: str, data: bytes, end: bool) -> None:
        assert (shell, command) == ("S", "C")
        self.log.append("end" if end else len(data))
        problem = self.sends.pop(0) if self.sends else None
        if problem is None or isinstance(problem, WinRMOperationTimeoutError):
            self.received += data
        if problem:
            raise problem

    def get_command_output_raw(self, shell: str, command: str) -> Any:
        assert (shell, command) == ("S", "C")
        item = self.receives.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    def cleanup_command(self, shell: str, command: str) -> None:
        self.log.append("terminate")

    def close_shell(self, shell: str, close_session: bool) -> None:
        self.log.append("delete")


def unreachable() -> Exception:
    reason = NewConnectionError(HTTPConnection("host"), "Connection refused")
    return requests.ConnectionError(MaxRetryError(None, "/wsman", reason))  # type: ignore[arg-type]


def cut() -> Exception:
    return requests.ConnectionError("Connection aborted.", ConnectionResetError(104, "reset"))


def dropped() -> Exception:
    return WinRMTransportError("http", 400, "")


def fault(code: int) -> Exception:
    return WSManFaultError(500, "m", "r", "some reason", wsman_fault_code=code)


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


def stream_to(host: FakeHost) -> WinRSStream:
    return WinRSStream(ENDPOINT, "python", connections=cast(Any, host), pauses=(0.0, 0.0))


def test_starts_with_pipes(host: FakeHost) -> None:
    stream_to(host)
    options = {"console_mode_stdin": False, "skip_cmd_shell": False}
    assert host.log == [("open", 65001), ("python", options)]


def test_writes_in_pieces_that_fit(host: FakeHost) -> None:
    stream = stream_to(host)
    data = bytes(range(256)) * 3000
    stream.write(data)
    assert host.received == data
    assert max(size for size in host.log if isinstance(size, int)) <= SEND_LIMIT == 330 * 1024


def test_reads_exactly_and_waits(host: FakeHost) -> None:
    stream = stream_to(host)
    host.receives = [
        WinRMOperationTimeoutError(),
        (b"ab", b"", 0, False),
        (b"cde", b"warning", 0, False),
        (b"", b" no memory", 7, True),
    ]
    assert stream.read(3) == b"abc"
    assert stream.read(2) == b"de"
    with pytest.raises(EOFError, match="exit code 7: warning no memory"):
        stream.read(1)
    assert stream.wait() == 7


@pytest.mark.parametrize(
    "refusal",
    [dropped, unreachable, lambda: fault(170), lambda: InvalidCredentialsError("no")],
    ids=["idle drop", "unreachable", "busy", "signed out"],
)
def test_what_was_refused_is_repeated(host: FakeHost, refusal: Callable[[], Exception]) -> None:
    stream = stream_to(host)
    host.sends = [refusal()]
    stream.write(b"once")
    assert host.received == b"once"
    assert "close_session" in host.log
    assert host.transport.encryption is None
    host.receives = [refusal(), (b"x", b"", 0, False)]
    assert stream.read(1) == b"x"


@pytest.mark.parametrize(
    "doubtful",
    [cut, lambda: requests.ReadTimeout("slow")],
    ids=["cut", "no answer"],
)
def test_doubtful_sends_are_not_repeated(host: FakeHost, doubtful: Callable[[], Exception]) -> None:
    stream = stream_to(host)
    host.sends = [doubtful()]
    with pytest.raises(ConnectionError):
        stream.write(b"once")
    with pytest.raises(BrokenPipeError):
        stream.write(b"more")
    assert host.received == b""


def test_input_that_is_not_read_in_time_is_neither_lost_nor_sent_again(host: FakeHost) -> None:
    """WinRM goes on with a Send whose time is over, and answers 170 to the next one so long."""
    stream = stream_to(host)
    host.sends = [WinRMOperationTimeoutError(), *(fault(170) for _ in range(20))]
    stream.write(b"first")
    stream.write(b"second")
    assert host.received == b"firstsecond"
    assert not host.sends


def test_patience_with_input_that_is_not_read_ends(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winrs, "UNREAD", 0.0)
    stream = stream_to(host)
    host.sends = [fault(170) for _ in range(20)]
    with pytest.raises(ConnectionError, match="does not read"):
        stream.write(b"first")
    with pytest.raises(BrokenPipeError):
        stream.write(b"second")


def test_first_sign_in_of_an_account_may_take_its_time(host: FakeHost) -> None:
    """Windows makes its profile meanwhile: https://github.com/diyan/pywinrm/issues/123."""
    host.opening, host.starting = [WinRMOperationTimeoutError()], []
    stream_to(host)
    assert host.opened_within == winrs.FIRST
    assert host.operation_timeout_sec == ENDPOINT.operation_timeout
    host.log.clear()
    host.starting = [WinRMOperationTimeoutError()]
    stream_to(host)
    began = [one if isinstance(one, str) else one[0] for one in host.log]
    assert began == ["open", "delete", "open", "python"]
    host.starting = [WinRMOperationTimeoutError(), WinRMOperationTimeoutError()]
    with pytest.raises(HostError) as caught:
        stream_to(host)
    assert "profile" in caught.value.hint


def test_doubtful_receives_are_not_repeated(host: FakeHost) -> None:
    stream = stream_to(host)
    host.receives = [cut(), (b"x", b"", 0, False)]
    with pytest.raises(HostError, match="no connection"):
        stream.read(1)


@pytest.mark.parametrize(
    ("error", "kind", "said", "left"),
    [
        (dropped(), HostError, "HTTP status 400", 6),
        (InvalidCredentialsError("no"), AuthError, None, 7),  # a password
    ],
)
def test_repetition_is_bounded(
    host: FakeHost, error: Exception, kind: type[Exception], said: str | None, left: int
) -> None:
    stream = stream_to(host)
    host.receives = [error] * 9
    with pytest.raises(kind, match=said):
        stream.read(1)
    assert len(host.receives) == left


def test_silent_connections_are_renewed_before_a_send(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_to(host)
    monkeypatch.setattr(winrs, "IDLE_LIMIT", -1.0)
    stream.write(b"x")
    assert host.log[-2:] == ["close_session", 1]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (InvalidCredentialsError("no"), AuthError, "refused the sign-in of 'user' by ntlm"),
        (
            requests.exceptions.SSLError("certificate verify failed: self-signed hunter2"),
            HostError,
            r"certificate of .* not trusted: .* self-signed \*\*\*",
        ),
        (requests.exceptions.SSLError("EOF occurred"), HostError, "no TLS with .* EOF occurred"),
        (unreachable(), HostError, "no connection to http://host:5985/wsman: Connection refused$"),
        (requests.ConnectTimeout("slow"), HostError, "does not answer"),
        (fault(2150858843), HostError, "the remote shell is gone"),
        (fault(2), HostError, r"refused: some reason \(code 2\)"),
        (fault(2150859173), HostError, "code 2150859173"),
        (WinRMTransportError("http", 404, ""), HostError, "HTTP status 404"),
        (ValueError("hunter2 broke"), HostError, r"ValueError: \*\*\* broke"),
    ],
)
def test_errors_in_words(
    host: FakeHost, error: Exception, kind: type[HostError], words: str
) -> None:
    host.opening = [error]
    ENDPOINT.secret()  # as a real connection does
    with pytest.raises(kind, match=words) as caught:
        stream_to(host)
    assert type(caught.value) is kind
    assert "hunter2" not in caught.value.message + caught.value.hint
    assert caught.value.__cause__ is None


def test_a_refused_sign_in_has_every_cause_named() -> None:
    """NTLM's answer is the same for all of them."""
    hint = explain_winrm_error(InvalidCredentialsError("no"), ENDPOINT).hint
    assert all(word in hint for word in ("expired", "must be changed", "locked", "net user"))
    delegated = replace(ENDPOINT, transport="credssp")
    said = explain_winrm_error(
        InvalidCredentialsError("STATUS_PASSWORD_EXPIRED"), delegated
    ).message
    assert said.endswith("by credssp: STATUS_PASSWORD_EXPIRED")


def test_the_password_is_nowhere_to_be_seen(host: FakeHost) -> None:
    assert "hunter2" not in repr(ENDPOINT) + str(ENDPOINT) + repr(stream_to(host))
    pydantic = pytest.importorskip("pydantic")
    assert Endpoint("u", "n", pydantic.SecretStr("p")).secret() == "p"


def test_kill_says_goodbye_once(host: FakeHost) -> None:
    stream = stream_to(host)
    stream.kill()
    stream.kill()
    assert host.log[2:] == ["terminate", "delete", "close_session", "close_session"]
    with pytest.raises(EOFError, match="closed"):
        stream.read(1)


def test_kill_neither_lingers_nor_raises(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winrs, "FAREWELL", 0.1)
    stream = stream_to(host)
    held, ended = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        held.wait(60)
        ended.set()

    monkeypatch.setattr(host, "cleanup_command", hang)
    stream.kill()
    assert not ended.is_set(), "it waited for a host that does not answer"
    held.set()


def test_connection_settings(tmp_path: Path) -> None:
    endpoint = Endpoint("https://h:5986/wsman", "u", Secret("p"), ca=tmp_path / "ca.pem")
    transport = winrs_http.create_winrm_client(endpoint).transport
    assert transport.ca_trust_path == str(tmp_path / "ca.pem")
    assert transport.server_cert_validation == "validate"
    session = transport.build_session()
    assert session.verify == str(tmp_path / "ca.pem")
    assert list(session.adapters) == ["https://"]
    assert not session.trust_env


def test_what_cannot_be_sealed_is_not_sent_over_http() -> None:
    """Unless it was said outright, which only the configuration can after its second naming."""
    with pytest.raises(HostError, match="message encryption is set to 'always'"):
        WinRSStream(Endpoint("http://127.0.0.1:9/wsman", "u", Secret("hunter2"), "basic"), "x")


def test_session_whose_sealing_failed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """pywinrm keeps it, and what came next would go as it is."""
    transport = winrs_http.create_winrm_client(
        Endpoint("http://h/wsman", "u", Secret("p"))
    ).transport
    seen: list[object] = []

    def send(session: requests.Session, request: requests.PreparedRequest) -> requests.Response:
        seen.append(request.body)
        raise InvalidCredentialsError("no")

    monkeypatch.setattr(transport, "_send_message_request", send)
    for _ in range(2):
        with pytest.raises(InvalidCredentialsError):
            transport.send_message("<s:Envelope/>")
    assert seen == [None, None]


def test_password_is_read_for_each_connection(host: FakeHost) -> None:
    class Changing:
        now = "first"

        def get_secret_value(self) -> str:
            return self.now

    secret = Changing()
    transport: Any = winrs_http.create_winrm_client(
        Endpoint("https://h/wsman", "u", secret)
    ).transport
    assert transport.build_session().auth.password == "first"
    secret.now = "second"
    transport.close_session()
    assert transport.build_session().auth.password == "second"


def test_refusal_is_told_to_the_source(host: FakeHost) -> None:
    told: list[bool] = []
    endpoint = Endpoint("http://h/wsman", "u", Secret("p"), refused=lambda: told.append(True))
    host.opening = [InvalidCredentialsError("no")]
    with pytest.raises(AuthError):
        WinRSStream(endpoint, "python", connections=cast(Any, host))
    assert told == [True]


def test_who_is_shut_out_does_not_knock_again(host: FakeHost) -> None:
    """Neither the other direction nor the goodbye: each would be a sign-in of its own."""
    stream = stream_to(host)
    host.receives = [InvalidCredentialsError("no") for _ in range(9)]
    with pytest.raises(AuthError):
        stream.read(1)
    host.sends = [InvalidCredentialsError("no") for _ in range(9)]
    with pytest.raises(ConnectionError, match="refused the sign-in"):
        stream.write(b"x")
    assert len(host.sends) == 8
    stream.kill()
    assert not {"terminate", "delete"} & {entry for entry in host.log if isinstance(entry, str)}


def test_source_that_fails_says_so_itself() -> None:
    class Gone:
        def get_secret_value(self) -> str:
            raise ConfigError("LAB_PASSWORD is not set")

    with pytest.raises(ConfigError, match="LAB_PASSWORD is not set"):
        WinRSStream(Endpoint("http://127.0.0.1:9/wsman", "u", Gone()), "x")


def negotiated(kind: int) -> str:
    message = b"NTLMSSP\0" + kind.to_bytes(4, "little") + b"rest"
    return base64.b64encode(b"\x60\x10spnego" + message).decode()


@pytest.mark.parametrize(
    ("header", "judged"),
    [
        ("Basic dTpw", True),
        (b"Basic dTpw", True),
        (f"NTLM {negotiated(3)}", True),
        (f"Negotiate {negotiated(3)}", True),
        (f"NTLM {negotiated(1)}", False),
        ("NTLM ???", False),
        ("NTLM TlRMTVNTUAAD", False),
        ("Negotiate YIIF", False),
        ("http://schemas.dmtf.org/wbem/wsman/1/wsman/secprofile/https/mutual", False),
        (None, False),
    ],
)
def test_which_request_holds_the_password(header: str | bytes | None, judged: bool) -> None:
    assert winrs_http.judges_password(header) is judged


def test_sign_ins_at_a_time_never_exceed_what_is_left() -> None:
    account = signins.shared_account("url", "Name", "wrong")
    assert account is signins.shared_account("url", "name", "wrong")
    asked: list[int] = []

    def knock() -> None:
        with contextlib.suppress(signins.RefusedBeforeError), account.sign_in() as verdict:
            asked.append(1)
            time.sleep(0.02)
            verdict.judge(accepted=False)

    threads = [threading.Thread(target=knock) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(asked) == signins.LIMIT == 2
    with signins.shared_account("url", "name", "right").sign_in() as verdict:
        verdict.judge(accepted=True)


def test_success_between_refusals_starts_anew() -> None:
    account = signins.shared_account("url", "name", "flapping")
    for accepted in (False, True, False, True, False):
        with account.sign_in() as verdict:
            verdict.judge(accepted=accepted)
    with account.sign_in():
        pass  # no answer: neither way
    with account.sign_in() as verdict:
        verdict.judge(accepted=False)
    with pytest.raises(signins.RefusedBeforeError), account.sign_in():
        pass


def test_password_that_was_right_is_tried_again_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock: Any = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(signins, "time", clock)
    account, asked = signins.Account(), []
    for now in range(1800):
        clock.now = float(now)
        with contextlib.suppress(signins.RefusedBeforeError), account.sign_in() as verdict:
            verdict.judge(accepted=not now)
            asked.append(now)
    assert asked == [0, 1, 2, 12, 32, 72, 152, 312, 632, 1272]
