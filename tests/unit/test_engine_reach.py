"""Every way to an engine that Docker knows, and what is said where there is none."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_api import WindowsEngine
from engine_simulator import Handler, Served
from tls_keys import Authority, serving

from pipelines.core.errors import ConfigError, HostError, PipelineError, SetupError
from pipelines.hosts.engine import engine as engine_module
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.reach import engine_address, unreachable_engine_error

VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No engine of the machine that the test runs on: its own configuration of Docker."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "docker-config"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


@pytest.fixture
def windows(tmp_path: Path) -> WindowsEngine:
    return WindowsEngine(tmp_path / "engine")


@pytest.fixture
def served(windows: WindowsEngine, tmp_path: Path) -> Iterator[Served]:
    with Served(windows, socket_file=tmp_path / "docker.sock") as served:
        yield served


def reached(name: str = "", tls: Path | None = None) -> Engine:
    engine = Engine(name, tls=tls)
    assert engine.system == "windows"
    assert engine.build == "10.0.20348"
    assert engine.title == "Docker 29.1.5 on Microsoft Windows Server 2022 (OS Build 20348.2700)"
    assert engine.patch == 2700
    return engine


# -- sockets -------------------------------------------------------------------------------------


def test_a_socket(served: Served) -> None:
    assert reached(served.url).remote == ""


@pytest.mark.parametrize(
    ("url", "kind", "said", "hint"),
    [
        ("unix:///none.sock", SetupError, "no Docker engine at unix:", "'engine' of the host"),
        ("npipe:////./pipe/docker_engine", ConfigError, "named pipe", "ssh://USER@SERVER"),
    ],
)
def test_addresses_without_an_engine(
    url: str, kind: type[PipelineError], said: str, hint: str
) -> None:
    with pytest.raises(kind, match=said) as raised:
        Engine(url)
    assert hint in raised.value.hint


def test_a_wrong_docker_host_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/none.sock"
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(SetupError) as raised:
        Engine()
    assert raised.value.message.endswith(f"at {address} (DOCKER_HOST)")
    assert "DOCKER_HOST" in raised.value.hint


def test_without_anything_set_it_is_dockers_own_place() -> None:
    told = unreachable_engine_error("", FileNotFoundError(2, "No such file"))
    assert told.message == "no Docker engine at unix:///var/run/docker.sock"
    assert told.hint.startswith("Type: sudo apt-get install docker.io")


def test_on_windows_nothing_is_installed_by_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.hosts.engine.reach.sys.platform", "win32")
    for name in ("", "npipe:////./pipe/other"):
        hint = unreachable_engine_error(name, FileNotFoundError(2, "no pipe")).hint
        assert hint
        assert "docker.io" not in hint


def test_a_socket_that_nobody_listens_to_is_an_engine_that_does_not_run(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "stale.sock"))
    with pytest.raises(HostError, match="is not running") as raised:
        Engine(f"unix://{tmp_path}/stale.sock")
    assert "systemctl start docker" in raised.value.hint


def test_a_socket_that_is_not_ours_to_use(tmp_path: Path) -> None:
    """Made up: whoever runs the tests may be root."""
    inner = PermissionError(13, "Permission denied")
    told = unreachable_engine_error("", ConnectionError("Connection aborted.", inner))
    assert isinstance(told, SetupError)
    assert "usermod -aG docker" in told.hint


def test_an_engine_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_FIRST", 1.0)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf.sock"))
        deaf.listen()
        began = time.monotonic()
        with pytest.raises(HostError, match="does not respond") as raised:
            Engine(f"unix://{tmp_path}/deaf.sock")
    assert time.monotonic() - began < 25
    assert "restart docker" in raised.value.hint


def test_an_engine_that_hangs_later_is_given_up_too(served: Served) -> None:
    engine = Engine(served.url, timeout=1)
    served.replace("GET /images/", lambda _: time.sleep(5))
    with pytest.raises(HostError, match="image x: the engine stopped responding"):
        engine.image("x")


def test_an_engine_that_ends_within_a_stream(served: Served) -> None:
    """The SDK lets errors of urllib3 out there."""
    engine = Engine(served.url)

    def die(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b'50\r\n{"stat')
        handler.close_connection = True

    served.replace("POST /images/create", die)
    with pytest.raises(HostError, match="image x: the engine stopped responding"):
        engine.pull("x", lambda *_: None)


def test_what_is_no_engine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def answer() -> None:
            connection, _ = web.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>Hi</html>")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(HostError, match="does not answer"):
            Engine(f"tcp://127.0.0.1:{web.getsockname()[1]}")


# -- tcp -----------------------------------------------------------------------------------------


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def secured(windows: WindowsEngine, tmp_path: Path, authority: Authority) -> Iterator[Served]:
    keys = authority.issue(tmp_path / "server", address="127.0.0.1")
    with Served(windows, keys=serving(keys)) as served:
        yield served


def test_tcp_with_keys(secured: Served, tmp_path: Path, authority: Authority) -> None:
    engine = reached(secured.url, authority.issue(tmp_path / "mine"))
    engine.client.images.list()


def test_tcp_with_the_keys_of_the_environment(
    secured: Served, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", secured.url)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(authority.issue(tmp_path / "mine")))
    assert engine_address("") == secured.url
    reached()


def test_an_authority_of_the_environment_changes_nothing(
    secured: Served, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """requests takes REQUESTS_CA_BUNDLE before what it was given."""
    another = Authority("another").issue(tmp_path / "another")
    mine = authority.issue(tmp_path / "mine")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(another / "ca.pem"))
    reached(secured.url, mine)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(mine / "ca.pem"))
    with pytest.raises(HostError, match="TLS"):
        Engine(secured.url, tls=another)


def test_an_engine_that_another_authority_has_signed_is_refused(
    secured: Served, tmp_path: Path, authority: Authority
) -> None:
    keys = authority.issue(tmp_path / "mine", authority=Authority("another"))
    with pytest.raises(HostError, match="TLS") as raised:
        Engine(secured.url, tls=keys)
    assert "engine_tls" in raised.value.hint


@pytest.mark.parametrize(
    ("days", "address", "said"), [(-1, "127.0.0.1", "TLS.*expired"), (1, "192.0.2.1", "TLS")]
)
def test_an_engine_whose_certificate_is_out_of_date_or_another_address_is_refused(
    windows: WindowsEngine,
    tmp_path: Path,
    authority: Authority,
    *,
    days: int,
    address: str,
    said: str,
) -> None:
    wrong = authority.issue(tmp_path / "server", days=days, address=address)
    mine = authority.issue(tmp_path / "mine")
    with Served(windows, keys=serving(wrong)) as served, pytest.raises(HostError, match=said):
        Engine(served.url, tls=mine)


def test_who_has_no_key_of_theirs_is_not_let_in(secured: Served, tmp_path: Path) -> None:
    mine = Authority("another")
    mine.issue(tmp_path / "mine")
    ca = (tmp_path / "server/ca.pem").read_bytes()
    (tmp_path / "mine/ca.pem").write_bytes(ca)
    with pytest.raises(HostError, match="TLS"):
        Engine(secured.url, tls=tmp_path / "mine")


def test_keys_for_a_port_without_tls(
    windows: WindowsEngine, tmp_path: Path, authority: Authority
) -> None:
    with Served(windows) as plain, pytest.raises(HostError, match="TLS"):
        Engine(plain.url, tls=authority.issue(tmp_path / "mine"))


def test_plain_tcp_is_for_loopback_alone(windows: WindowsEngine) -> None:
    with Served(windows) as plain:
        reached(plain.url)
    for name in ("tcp://192.0.2.1:2375", "tcp://win1"):
        with pytest.raises(ConfigError, match="plain tcp"):
            Engine(name)


def test_plain_tcp_of_the_environment_is_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(ConfigError, match="plain tcp"):
        Engine()


def test_keys_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine_tls: .*ca\.pem"):
        Engine("tcp://192.0.2.1:2376", tls=tmp_path)


def test_a_port_that_nobody_listens_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(HostError, match="is not running"):
        Engine(f"tcp://127.0.0.1:{port}")


def test_a_machine_that_nobody_knows(tmp_path: Path, authority: Authority) -> None:
    keys = authority.issue(tmp_path / "mine")
    with pytest.raises(HostError, match="unknown host name"):
        Engine("tcp://no-such-machine.invalid:2376", tls=keys)


# -- contexts ------------------------------------------------------------------------------------


def context(config: Path, name: str, host: str, keys: Path | None = None) -> None:
    """As ``docker context create`` writes it: the directory is the hash of the name."""
    identity = hashlib.sha256(name.encode()).hexdigest()
    meta = config / "contexts/meta" / identity
    meta.mkdir(parents=True)
    endpoints = {"docker": {"Host": host, "SkipTLSVerify": False}}
    about = {"Name": name, "Metadata": {}, "Endpoints": endpoints}
    (meta / "meta.json").write_text(json.dumps(about))
    if keys is not None:
        tls = config / "contexts/tls" / identity / "docker"
        tls.mkdir(parents=True)
        for file in ("ca.pem", "cert.pem", "key.pem"):
            (tls / file).write_bytes((keys / file).read_bytes())


def test_a_context_by_its_name(served: Served, nothing_set: Path) -> None:
    context(nothing_set, "win1", served.url)
    assert reached("win1").remote == ""
    assert engine_address("win1") == served.url


def test_the_context_in_use(
    served: Served, nothing_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context(nothing_set, "win1", served.url)
    (nothing_set / "config.json").write_text('{"currentContext": "win1"}')
    reached()
    (nothing_set / "config.json").write_text("{}")
    monkeypatch.setenv("DOCKER_CONTEXT", "win1")
    reached()


def test_a_context_with_keys(
    secured: Served, nothing_set: Path, tmp_path: Path, authority: Authority
) -> None:
    context(nothing_set, "win1", secured.url, authority.issue(tmp_path / "mine"))
    reached("win1")
    wrong = authority.issue(tmp_path / "wrong", authority=Authority("another"))
    context(nothing_set, "win2", secured.url, wrong)
    with pytest.raises(HostError, match="win2 failed"):
        Engine("win2")


def test_a_context_that_is_not_there(served: Served, nothing_set: Path) -> None:
    context(nothing_set, "win1", served.url)
    with pytest.raises(ConfigError, match="has no context 'win2'; it has default, win1") as raised:
        Engine("win2")
    assert "docker context create win2" in raised.value.hint


def test_a_context_that_is_damaged(nothing_set: Path) -> None:
    context(nothing_set, "win1", "unix:///x")
    (file,) = nothing_set.rglob("meta.json")
    for text in ("{", "[]", '{"Endpoints": []}', '{"Endpoints": {"docker": {"Host": 5}}}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match="context 'win1' cannot be read") as raised:
            Engine("win1")
        assert "docker context inspect win1" in raised.value.hint


def test_the_environment_comes_before_the_context(
    served: Served, nothing_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context(nothing_set, "win1", "unix:///nowhere.sock")
    (nothing_set / "config.json").write_text('{"currentContext": "win1"}')
    monkeypatch.setenv("DOCKER_HOST", served.url)
    reached()
