"""`invoke lock` and base images: what a registry says is computed anew, and written down once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from pipelines.core.errors import LockError
from pipelines.toolchain import registry
from pipelines.toolchain.generate import lock_text
from pipelines.toolchain.lock import ToolchainLock, load_lock
from pipelines.toolchain.pinning import pin_images
from pipelines.toolchain.sources import BaseImage, with_pins

MANIFEST = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


class Registry(ThreadingHTTPServer):
    """One on loopback that wants a token, as Docker's own does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = f"127.0.0.1:{self.server_port}"
        self.digest = DIGEST
        self.realm = f"http://{self.name}/token"
        self.manifest = MANIFEST
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        self.server.asked.append(place.path)
        if place.path == "/token":
            scope = parse_qs(place.query)["scope"][0]
            return self._send(200, json.dumps({"token": f"for {scope}"}).encode())
        scope = f"repository:{place.path[4:].partition('/manifests/')[0]}:pull"
        if self.headers.get("Authorization") != f"Bearer for {scope}":
            said = f'Bearer realm="{self.server.realm}",service="it",scope="{scope}"'
            return self._send(401, b"{}", **{"WWW-Authenticate": said})
        assert "image.index" in self.headers["Accept"]
        if not place.path.endswith("/good"):
            return self._send(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
        return self._send(
            200, self.server.manifest, **{"Docker-Content-Digest": self.server.digest}
        )

    def _send(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server() -> Iterator[Registry]:
    with Registry() as made:
        thread = Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def image(server: Registry, tag: str = "good", **more: Any) -> BaseImage:
    return BaseImage(image=f"{server.name}/some/base", tag=tag, **more)


def test_the_digest_is_that_of_what_came(server: Registry) -> None:
    assert registry.digest_behind(image(server)) == DIGEST
    assert server.asked[1] == "/token"
    server.digest = f"sha256:{'1' * 64}"
    with pytest.raises(LockError, match="but what came has"):
        registry.digest_behind(image(server))


def test_what_a_registry_does_not_give_is_said(server: Registry) -> None:
    with pytest.raises(LockError, match="404"):
        registry.digest_behind(image(server, "none"))
    server.manifest = b"x" * (5 << 20)
    with pytest.raises(LockError, match="that is no manifest"):
        registry.digest_behind(image(server))
    server.realm = "http://elsewhere.example/token"  # a token is not sent for without TLS
    with pytest.raises(LockError, match="a sign-in that is not anybody's"):
        registry.digest_behind(image(server))
    server.shutdown()
    server.server_close()
    with pytest.raises(LockError, match="does not say what it is"):
        registry.digest_behind(image(server))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("debian", ("registry-1.docker.io", "library/debian")),
        ("dockurr/windows", ("registry-1.docker.io", "dockurr/windows")),
        ("docker.io/library/debian", ("registry-1.docker.io", "library/debian")),
        ("mcr.example/windows/servercore", ("mcr.example", "windows/servercore")),
        ("localhost/x", ("localhost", "x")),
        ("localhost:5000/x", ("localhost:5000", "x")),
    ],
)
def test_a_name_is_read_as_docker_reads_it(name: str, place: tuple[str, str]) -> None:
    assert registry._place(name) == place


def test_invoke_lock_writes_down_what_is_new_and_nothing_else(
    server: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "toolchain.lock.yaml"
    known = f"sha256:{'2' * 64}"
    images = {
        "new": image(server),
        "lost": image(server, "none"),
        "known": image(server, "moved", digest=known),
    }
    before = ToolchainLock(version=1, images=images, tools={})
    path.write_text(lock_text(before))
    with pytest.raises(LockError, match="could not be pinned"):
        pin_images(path)
    after = load_lock(path)
    assert {name: one.digest for name, one in after.images.items()} == {
        "new": DIGEST,
        "lost": None,
        "known": known,
    }
    assert pin_images(path, ["new", "known"]) == {}
    with pytest.raises(LockError, match="is not pinned"):
        _ = after.images["lost"].reference
    assert after.images["new"].reference == f"{server.name}/some/base@{DIGEST}"


def test_a_digest_belongs_to_an_image_and_its_tag() -> None:
    one, two = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
    locked = {"a": BaseImage(image="debian", tag="1", digest=one)}
    same = {"b": BaseImage(image="debian", tag="1")}
    assert with_pins(same, locked)["b"].digest == one
    assert with_pins({"a": BaseImage(image="debian", tag="2")}, locked)["a"].digest is None
    with pytest.raises(LockError, match=r"toolchain\.yaml says"):
        with_pins({"a": BaseImage(image="debian", tag="1", digest=two)}, locked)


def test_the_shipped_images_are_all_pinned() -> None:
    text = lock_text(load_lock())
    assert {*yaml.safe_load(text)["images"]} == {*load_lock().images}
    for name, one in load_lock().images.items():
        assert one.digest, name
