"""A server that speaks as GitHub's REST API does of releases, with the faults that it may have.

The shapes are those of docs.github.com/en/rest/releases, recorded; nobody has asked the real one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from loopback import listening

TOKEN = "ghp_only_for_this_test"
_PAGE = 100


@dataclass
class GitHub:
    """One repository with one release, ``v1`` of ``owner/wheels``."""

    address: str = ""
    assets: dict[int, dict[str, Any]] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    faults: list[tuple[str, int]] = field(default_factory=list)
    """Requests that fail, each once: a part of ``METHOD path``, and the status."""
    digests: bool = True
    renames: bool = False
    """Whether it calls assets as it likes, as for characters that it does not take."""
    draft: bool = False
    """A draft is in the list alone, and its files have other addresses until it is published:
    https://github.com/github/developer.github.com/pull/784
    https://github.com/adamallcock/tibotattle/pull/149"""
    freezes: bool = False
    """Whether the repository has immutable releases; 422 is what uploads to one get:
    https://github.com/concourse/github-release-resource/issues/151"""

    def release(self) -> dict[str, Any]:
        tag = "untagged-ab12" if self.draft else "v1"
        page = f"{self.address}/owner/wheels/releases/tag/{tag}"
        upload = f"{self.address}/repos/owner/wheels/releases/7/assets{{?name,label}}"
        frozen = self.freezes and not self.draft
        about = {"draft": self.draft, "immutable": frozen, "tag_name": "v1"}
        return {"id": 7, "html_url": page, "upload_url": upload, **about}

    def add(self, name: str, data: bytes, state: str = "uploaded") -> dict[str, Any]:
        number = 1000 + len(self.data)
        tag = "untagged-ab12" if self.draft else "v1"
        place = f"{self.address}/owner/wheels/releases/download/{tag}/{quote(name, safe='')}"
        self.data[number] = data
        self.assets[number] = {
            "url": f"{self.address}/repos/owner/wheels/releases/assets/{number}",
            "id": number,
            "name": name.replace("+", ".") if self.renames else name,
            "label": None,
            "content_type": "application/octet-stream",
            "state": state,
            "size": len(data),
            "digest": f"sha256:{hashlib.sha256(data).hexdigest()}" if self.digests else None,
            "download_count": 0,
            "browser_download_url": place,
        }
        return self.assets[number]

    def named(self) -> dict[str, bytes]:
        return {one["name"]: self.data[number] for number, one in self.assets.items()}


class _Handler(BaseHTTPRequestHandler):
    hub: GitHub

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _say(self, status: int, told: Any = None, kind: str = "application/json") -> None:
        data = (
            told if isinstance(told, bytes) else b"" if told is None else json.dumps(told).encode()
        )
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _do(self) -> None:  # noqa: PLR0912 - a branch a request
        hub, (path, query) = self.hub, urlsplit(self.path)[2:4]
        asked = parse_qs(query)
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = f"{self.command} {path}"
        hub.seen.append(what)
        for fault in hub.faults:
            if fault[0] in what:
                hub.faults.remove(fault)
                if self.command == "POST":  # what GitHub keeps of an upload that broke off
                    hub.add(asked["name"][0], b"", "starter")
                self._say(fault[1], {"message": "Server Error"})
                return
        if "/download/" in path:
            name = unquote(path.rpartition("/")[2])
            self._say(200, hub.named()[name], "application/octet-stream")
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._say(401, {"message": "Bad credentials"})
        elif path == "/repos/owner/wheels/releases/tags/v1":
            self._say(*((404, {}) if hub.draft else (200, hub.release())))
        elif path == "/repos/owner/wheels/releases":
            self._say(200, [hub.release()])
        elif path.endswith("/releases/7") and self.command == "PATCH":
            hub.draft = json.loads(sent)["draft"]
            for one in hub.assets.values():
                one["browser_download_url"] = one["browser_download_url"].replace(
                    "untagged-ab12", "v1"
                )
            self._say(200, hub.release())
        elif path.endswith("/7/assets") and self.command == "GET":
            first = (int(asked["page"][0]) - 1) * _PAGE
            self._say(200, [*hub.assets.values()][first : first + _PAGE])
        elif path.endswith("/7/assets"):
            name = asked["name"][0]
            if hub.freezes and not hub.draft:
                self._say(422, {"message": "Cannot upload assets to an immutable release."})
            elif name in hub.named():
                self._say(422, {"errors": [{"code": "already_exists", "field": "name"}]})
            else:
                self._say(201, hub.add(name, sent))
        elif found := re.search(r"/assets/(\d+)$", path):
            if self.command == "DELETE":
                del hub.assets[int(found[1])]
                self._say(204)
            else:
                self._say(200, hub.data[int(found[1])], "application/octet-stream")
        else:
            self._say(404, {"message": "Not Found"})

    do_GET = do_POST = do_DELETE = do_PATCH = _do  # noqa: N815


@contextmanager
def github() -> Iterator[GitHub]:
    """It, on this machine's loopback."""
    hub = GitHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with listening(handler) as hub.address:
        yield hub
