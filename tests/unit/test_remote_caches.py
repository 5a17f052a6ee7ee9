"""Caches that several hosts share: the real sccache against a small server of ours.

The server knows as much of S3 and WebDAV as sccache asks for. It checks WebDAV's password, and of
S3's signature whose it is.
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_runs import SCCACHE, cache, told

from pipelines.remote import compilecache
from pipelines.toolchain import compilecache as plan

COMPILER = shutil.which("g++") or ""
WORD = "a-word-never-shown"
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the compiler is started by sh"),
    pytest.mark.skipif(not (SCCACHE and COMPILER), reason="needs sccache and g++"),
]
DAV = """<?xml version="1.0"?><d:multistatus xmlns:d="DAV:"><d:response><d:href>{path}</d:href>
<d:propstat><d:prop><d:resourcetype><d:collection/></d:resourcetype>
<d:getlastmodified>Thu, 01 Jan 2026 00:00:00 GMT</d:getlastmodified></d:prop>
<d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response></d:multistatus>"""


class Store(http.server.ThreadingHTTPServer):
    """Objects by path; ``proof`` must be in the Authorization of every request."""

    proof = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.refused = 0


class Handler(http.server.BaseHTTPRequestHandler):
    server: Store

    def answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def handle_one(self) -> None:
        sent, objects = self.body(), self.server.objects
        if self.server.proof not in self.headers.get("Authorization", ""):
            self.server.refused += 1
            self.answer(403)
        elif self.command == "PUT":
            objects[self.path] = sent
            self.answer(201)
        elif self.command == "MKCOL":
            self.answer(201)
        elif self.command == "PROPFIND":
            self.answer(207, DAV.format(path=self.path).encode())
        elif self.path in objects:
            self.answer(200, objects[self.path])
        else:
            self.answer(404)

    do_GET = do_HEAD = do_PUT = do_MKCOL = do_PROPFIND = handle_one  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Store() as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield made
        made.shutdown()


KINDS: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "s3": (
        {"bucket": "units", "region": "us-east-1", "prefix": "team"},
        {"AWS_ACCESS_KEY_ID": "KEYNAME", "AWS_SECRET_ACCESS_KEY": WORD},
        "Credential=KEYNAME/",
    ),
    "webdav": (
        {"prefix": "team"},
        {"SCCACHE_WEBDAV_USERNAME": "me", "SCCACHE_WEBDAV_PASSWORD": WORD},
        "Basic " + base64.b64encode(f"me:{WORD}".encode()).decode(),
    ),
}


def compiled(
    root: Path, keys: dict[str, Any], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> tuple[compilecache.Figures, str]:
    """The cache's figures of one unit, built on a host of its own, and what the log says."""
    source = root / "src"
    source.mkdir(parents=True)
    (source / "a.cpp").write_text("int f(int x) { return x + 1; }\n")
    where = cache(**keys)
    # Hosts have the same fixed places, and a directory of their own for the local cache.
    spec = told(root, SCCACHE, where) | {
        "place": str(root.parent / "s"),
        "packages": str(root.parent / "p"),
        "nvcc": COMPILER,
    }
    assert WORD not in json.dumps(spec)
    monkeypatch.setenv(compilecache.SECRETS, json.dumps(plan.sccache_secrets(where, environ)))
    with compilecache.running(spec, source) as made:
        unit = made.source / "a.cpp"
        subprocess.run(
            ["sh", "-c", f"$PYTORCH_NVCC -c {unit} -o {unit}.o"],
            env={**os.environ, **made.environment},
            check=True,
            timeout=60,
        )
        figures, said = made.figures(), made.status
        assert WORD not in json.dumps(made.environment)
        for path in root.rglob("*"):  # the server's log and address, what it keeps
            assert not path.is_file() or WORD.encode() not in path.read_bytes(), path
    return figures, said


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_hosts_share_their_units(
    store: Store, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, environ, store.proof = KINDS[kind]
    keys = {**keys, "kind": kind, "endpoint": f"http://127.0.0.1:{store.server_port}"}
    first, said = compiled(tmp_path / "1", keys, environ, monkeypatch)
    assert said.startswith(f"{kind}, "), said
    assert (first["hits"], first["misses"], first["errors"]) == (0, 1, 0)
    assert any("/team/" in path for path in store.objects), list(store.objects)
    second, _ = compiled(tmp_path / "2", keys, environ, monkeypatch)
    assert (second["hits"], second["misses"], second["errors"]) == (1, 0, 0)
    assert not store.refused


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_refuses_costs_no_build(
    store: Store, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, environ, _ = KINDS[kind]
    store.proof = "somebody else"
    keys = {**keys, "kind": kind, "endpoint": f"http://127.0.0.1:{store.server_port}"}
    figures, said = compiled(tmp_path / "1", keys, environ, monkeypatch)
    assert said.startswith(f"{kind} is not used"), said
    assert "403" in said
    assert said.endswith("; local disk instead"), said
    assert figures["misses"] == 1
    assert WORD not in said
    assert store.refused
    assert not store.objects
