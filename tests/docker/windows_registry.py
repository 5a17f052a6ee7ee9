"""A registry on loopback with one image for Windows, and whatever else an engine may meet there."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_DOCKER = "application/vnd.docker."
MANIFEST, INDEX, CONFIG, LAYER = (
    f"{_DOCKER}distribution.manifest.v2+json",
    f"{_DOCKER}distribution.manifest.list.v2+json",
    f"{_DOCKER}container.image.v1+json",
    f"{_DOCKER}image.rootfs.diff.tar.gzip",
)


class WindowsRegistry:
    """``host``/windows:list, :plain, :none; ``host``/secret:x wants a sign-in, /busy is busy."""

    def __init__(self) -> None:
        self.blobs: dict[str, tuple[str, bytes]] = {}
        plain = self._image("windows", "10.0.20348.2700")
        platform = {"os": "windows", "architecture": "amd64", "os.version": "10.0.20348.2700"}
        entry = {"mediaType": MANIFEST, **self._described(plain), "platform": platform}
        listed = self._add(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]})
        self.tags = {"plain": plain, "list": listed}
        handler = type("Bound", (_Handler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _add(self, kind: str, value: object) -> str:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = (kind, data)
        return digest

    def _described(self, digest: str) -> dict[str, Any]:
        return {"digest": digest, "size": len(self.blobs[digest][1])}

    def _image(self, system: str, version: str) -> str:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w"):
            pass
        layer = self._add(LAYER, gzip.compress(made.getvalue()))
        diff = f"sha256:{hashlib.sha256(made.getvalue()).hexdigest()}"
        config = {
            "os": system,
            "architecture": "amd64",
            "os.version": version,
            "rootfs": {"type": "layers", "diff_ids": [diff]},
            "config": {"Cmd": ["cmd"]},
            "history": [{"created": "2026-01-01T00:00:00Z"}],
        }
        parts = {
            "config": {"mediaType": CONFIG, **self._described(self._add(CONFIG, config))},
            "layers": [{"mediaType": LAYER, **self._described(layer)}],
        }
        return self._add(MANIFEST, {"schemaVersion": 2, "mediaType": MANIFEST, **parts})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _said(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: WindowsRegistry

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        name, _, what = self.path.partition("?")[0].removeprefix("/v2/").rpartition("/")
        status, kind, data = 200, "application/json", b"{}"
        digest = self.registry.tags.get(what, what)
        if name.startswith("secret"):
            status, data = 401, _said("UNAUTHORIZED", "authentication required")
        elif name.startswith("busy"):
            status, data = 429, _said("TOOMANYREQUESTS", "You have reached your pull rate limit")
        elif digest in self.registry.blobs:
            kind, data = self.registry.blobs[digest]
        elif name:
            status, data = 404, _said("MANIFEST_UNKNOWN", "manifest unknown")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(data).hexdigest()}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815 - http.server's name
