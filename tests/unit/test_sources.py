"""Downloads from inside a company: its proxy, its authority, its index with a password."""

from __future__ import annotations

import base64
import contextlib
import http.server
import importlib.util
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tls_keys import Authority

from pipelines.core.errors import LockError, SetupError
from pipelines.core.hosttext import redact
from pipelines.toolchain import obtaining
from pipelines.toolchain.sources import Source

DATA = b"the file"


class Server(http.server.ThreadingHTTPServer):
    """Serves DATA, and an index that names it without credentials; remembers who signed in."""

    def __init__(self, keys: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys / "cert.pem", keys / "key.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.asked: list[tuple[str, str]] = []
        self.status = 200
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        who = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic "))
        self.server.asked.append((self.path, who.decode()))
        page = b'<a href="/files/tool-1-py3-none-any.whl">tool-1-py3-none-any.whl</a>'
        body = page if self.path.startswith("/simple") else DATA
        self.send_response(self.server.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """One whose authority only the system knows."""
    keys = Authority().issue(tmp_path / "keys", address="127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(keys / "ca.pem"))
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    made = Server(keys)
    yield made
    made.shutdown()


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy that knows CONNECT alone, and what it was asked for."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[str] = []

    def relay(client: socket.socket) -> None:
        with client, contextlib.suppress(ConnectionError):
            head = client.recv(4096).decode()
            asked.append(head.split()[1])
            host, _, port = asked[-1].partition(":")
            with socket.create_connection((host, int(port))) as there:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                pair = {client: there, there: client}
                while ready := select.select([*pair], [], [], 10)[0]:
                    for one in ready:
                        if not (data := one.recv(65536)):
                            return
                        pair[one].sendall(data)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=relay, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def fetch(tmp_path: Path, url: str | None = None) -> bytes:
    """A file by its address, or one of the index."""
    target = tmp_path / "got"
    place = {"pypi": "tool==1"} if url is None else {"url": url}
    source = Source.model_validate({"file": "tool-1-py3-none-any.whl"} | place)
    obtaining.download_source(source, target, lambda *_: None)
    return target.read_bytes()


def test_the_systems_authority_holds_behind_a_proxy_too(
    server: Server,
    proxy: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = f"127.0.0.1:{server.server_port}"
    assert fetch(tmp_path, f"https://{place}/file") == DATA
    monkeypatch.setenv("HTTPS_PROXY", proxy[0])
    assert fetch(tmp_path, f"https://{place}/file") == DATA
    assert proxy[1] == [place]
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(tmp_path, f"https://{place}/file")


@pytest.mark.skipif(importlib.util.find_spec("socks") is not None, reason="pysocks is installed")
def test_a_socks_proxy_needs_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5h://me:s3crets@127.0.0.1:1")
    with pytest.raises(SetupError, match="pysocks") as caught:
        fetch(tmp_path, "https://127.0.0.1:1/file")
    assert "crets" not in str(caught.value)


def test_an_index_with_a_password(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent to that host alone, with every file, and never shown."""
    place = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("PIP_INDEX_URL", f"https://me:s%40crets@{place}/simple")
    assert fetch(tmp_path) == DATA
    assert {who for _, who in server.asked} == {"me:s@crets"}
    assert [path for path, _ in server.asked][-1].startswith("/files/")
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:s%40crets@other.invalid/simple")
    server.asked.clear()
    assert fetch(tmp_path, f"https://{place}/x") == DATA
    assert server.asked == [("/x", "")]
    monkeypatch.setenv("PIP_INDEX_URL", f"https://me:s%40crets@{place}/simple")
    server.status = 403
    with pytest.raises((OSError, LockError)) as caught:
        fetch(tmp_path)
    shown = redact(str(caught.value))
    assert "403" in shown
    assert "crets" not in shown
