"""A registry on loopback that takes and gives images, as small as the protocol allows."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit


class Registry(ThreadingHTTPServer):
    """https://distribution.github.io/distribution/spec/api/: blobs, uploads, manifests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = f"127.0.0.1:{self.server_port}"
        self.blobs: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.refuses = False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def log_message(self, *_: object) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if self.server.refuses:
            return self._send(401, b"{}", WWW_Authenticate='Basic realm="it"')
        last = path.rpartition("/")[2]
        if path == "/v2/":
            return self._send(200, b"{}")
        if "/manifests/" in path and last in self.server.manifests:
            kind, data = self.server.manifests[last]
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            return self._send(200, data, Content_Type=kind, Docker_Content_Digest=digest)
        if "/blobs/" in path and last in self.server.blobs:
            data = self.server.blobs[last]
            return self._send(200, data, Docker_Content_Digest=last)
        return self._send(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')

    do_HEAD = do_GET  # noqa: N815 - as http.server wants it

    def do_POST(self) -> None:
        self._body()
        name = uuid.uuid4().hex
        self.server.uploads[name] = b""
        place = urlsplit(self.path).path.rstrip("/")
        return self._send(202, Location=f"{place}/{name}", Docker_Upload_UUID=name)

    def do_PATCH(self) -> None:
        path = urlsplit(self.path).path
        name = path.rpartition("/")[2]
        self.server.uploads[name] += self._body()
        end = len(self.server.uploads[name]) - 1
        return self._send(202, Location=path, Docker_Upload_UUID=name, Range=f"0-{end}")

    def do_PUT(self) -> None:
        place = urlsplit(self.path)
        last, data = place.path.rpartition("/")[2], self._body()
        if "/manifests/" in place.path:
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            kind = self.headers["Content-Type"]
            self.server.manifests |= {last: (kind, data), digest: (kind, data)}
        else:
            digest = parse_qs(place.query)["digest"][0]
            self.server.blobs[digest] = self.server.uploads.pop(last) + data
        return self._send(201, Docker_Content_Digest=digest, Location=place.path)


@contextmanager
def running() -> Iterator[Registry]:
    """One that answers as long as it is entered."""
    with Registry() as made:
        thread = Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()
