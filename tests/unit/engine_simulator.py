"""A Windows engine that is none: the Docker Engine API over HTTP, for the real Docker SDK.

What it answers is read from moby's source; it runs no Windows. Its containers
are directories, their programs are programs of this machine. What is shown against it has evidence
level F.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from engine_api import Refused, WindowsEngine, refusal

#: Takes a request instead of the engine: for answers that no honest engine gives.
Instead = Callable[["Handler"], None]


class _Threads(socketserver.ThreadingMixIn):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone, or was not let in, is no error of ours; the rest is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[misc]


class _Local(_Threads, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64


class _Tcp(_Threads, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    engine: WindowsEngine
    instead: list[tuple[re.Pattern[str], Instead]]
    keys: ssl.SSLContext | None

    def setup(self) -> None:
        if self.keys is not None:
            self.request = self.keys.wrap_socket(self.request, server_side=True)
        super().setup()

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._do()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 - http.server's names

    def _do(self) -> None:
        parts = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        self.asked = re.sub(r"^/v\d\.\d+", "", unquote(parts.path))
        try:
            self._route(f"{self.command} {self.asked}")
        except Refused as refused:
            self.answer({"message": refused.says}, refused.status)

    def _route(self, request: str) -> None:
        for pattern, instead in self.instead:
            if pattern.search(request):
                instead(self)
                return
        for pattern, work in ROUTES:
            if found := pattern.fullmatch(request):
                work(self, *found.groups())
                return
        self.answer({"message": "page not found"}, 404)

    # -- answers ---------------------------------------------------------------------------------

    @property
    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, value: object, status: int = 200, kind: str = "application/json") -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        data = b"" if status in (204, 304) else data
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Api-Version", "1.52")
        self.send_header("Ostype", "windows")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def chunks(self, pieces: Iterable[bytes], kind: str = "application/json") -> None:
        """A stream: its status is said before it is known how it ends."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            for piece in pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

    def events(self, events: Iterable[dict[str, Any]]) -> None:
        self.chunks(json.dumps(event).encode() + b"\r\n" for event in events)

    def hijack(self) -> None:
        """From here on the connection is the program's input and output."""
        self.writing = threading.Lock()
        self.close_connection = True
        lines = ["HTTP/1.1 101 UPGRADED", "Content-Type: application/vnd.docker.multiplexed-stream"]
        lines += ["Connection: Upgrade", "Upgrade: tcp", "", ""]
        self.wfile.write("\r\n".join(lines).encode())

    def frame(self, number: int, data: bytes) -> None:
        with self.writing, contextlib.suppress(OSError):
            self.wfile.write(struct.pack(">BxxxI", number, len(data)) + data)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _create(handler: Handler) -> None:
    asked = json.loads(handler.body)
    handler.answer(handler.engine.create(handler.query.get("name", ""), asked), 201)


def _pull(handler: Handler) -> None:
    name, tag = handler.query["fromImage"], handler.query.get("tag", "")
    joint = "@" if tag.startswith("sha256:") else ":"
    events = handler.engine.pull(f"{name}{joint}{tag}" if tag else name)
    first = next(events)  # what is refused before the stream begins has a status of its own
    handler.events([first, *events])


def _build(handler: Handler) -> None:
    assert handler.body
    handler.events(handler.engine.building)


def _attach(handler: Handler, name: str) -> None:
    box = handler.engine.find(name)
    run = box.exits  # attached to this run of it: the input of the next is another
    said = box.follow()  # before the answer, after which it may be started
    handler.hijack()
    if handler.query.get("stdout"):
        threading.Thread(target=_output, args=(handler, said), daemon=True).start()
    with contextlib.suppress(OSError):
        while handler.rfile.read1(65536):
            pass  # nothing of ours is said to the one on the leash
    once = box.asked.get("StdinOnce") and handler.query.get("stdin")
    if once and box.process is not None and box.exits == run:
        box.process.end_input()  # attach.go: the input is closed with its one connection


def _output(handler: Handler, said: Iterator[tuple[int, bytes]]) -> None:
    for number, data in said:
        handler.frame(number, data)
    handler.hang_up()


def _logs(handler: Handler, name: str) -> None:
    box = handler.engine.find(name)
    framed = b"".join(struct.pack(">BxxxI", n, len(data)) + data for n, data in box.output)
    handler.answer(framed, kind="application/vnd.docker.multiplexed-stream")


def _wait(handler: Handler, name: str) -> None:
    box = handler.engine.find(name)
    condition = handler.query.get("condition", "not-running")
    until = box.until(condition)
    handler.chunks(json.dumps({"StatusCode": code, "Error": None}).encode() for code in until)


def _restart(handler: Handler, name: str) -> None:
    handler.engine.restart(name)
    handler.answer({}, 204)


def _remove(handler: Handler, name: str) -> None:
    handler.engine.remove(name)
    handler.answer({}, 204)


def _exec_start(handler: Handler, identity: str) -> None:
    _ = handler.body
    command = handler.engine.execs[identity]
    handler.hijack()
    process = command.run(handler.frame)
    if process is None:
        text = refusal("no_program", command.box.id).says
        handler.frame(1, f"{text}\r\n".encode())
        return

    def finish() -> None:
        command.ended()
        handler.hang_up()

    ending = threading.Thread(target=finish, daemon=True)
    ending.start()
    with contextlib.suppress(OSError):
        while command.asked.get("AttachStdin") and (piece := handler.rfile.read1(65536)):
            process.feed(piece)
    process.end_input()
    ending.join()  # what it still prints goes this way


def _extract(handler: Handler, name: str) -> None:
    handler.engine.extract(name, handler.query["path"], handler.body)
    handler.answer({})


def _list(handler: Handler) -> None:
    filters = json.loads(handler.query.get("filters", "{}"))
    handler.answer(handler.engine.listing(handler.query.get("all") in ("1", "True"), filters))


def _volume(handler: Handler) -> None:
    asked = json.loads(handler.body)
    made = {"Name": asked["Name"], "Driver": "local", "Labels": asked.get("Labels") or {}}
    handler.answer(handler.engine.volumes.setdefault(asked["Name"], made), 201)


def _volumes(handler: Handler) -> None:
    wanted = json.loads(handler.query.get("filters", "{}")).get("label", [])
    found = [
        one
        for one in handler.engine.volumes.values()
        if all(label in [f"{k}={v}" for k, v in one["Labels"].items()] for label in wanted)
    ]
    handler.answer({"Volumes": found, "Warnings": None})


def _exec_inspect(handler: Handler, identity: str) -> None:
    handler.answer(handler.engine.execs[identity].inspect())


ROUTES: list[tuple[re.Pattern[str], Callable[..., None]]] = [
    (re.compile(pattern), work)
    for pattern, work in (
        (r"(?:GET|HEAD) /_ping", lambda h: h.answer(b"OK", kind="text/plain")),
        (r"GET /version", lambda h: h.answer(h.engine.version())),
        (r"GET /info", lambda h: h.answer(h.engine.info())),
        (r"GET /images/json", lambda h: h.answer(list(h.engine.images.values()))),
        (r"POST /images/create", _pull),
        (r"POST /build", _build),
        (r"GET /images/(.+)/json", lambda h, name: h.answer(h.engine.find_image(name))),
        (r"POST /containers/create", _create),
        (r"GET /containers/json", _list),
        (r"GET /containers/([^/]+)/json", lambda h, name: h.answer(h.engine.find(name).inspect())),
        (r"POST /containers/([^/]+)/start", lambda h, name: h.answer({}, h.engine.start(name))),
        (r"POST /containers/([^/]+)/restart", _restart),
        (r"POST /containers/([^/]+)/wait", _wait),
        (r"POST /containers/([^/]+)/attach", _attach),
        (r"GET /containers/([^/]+)/logs", _logs),
        (r"PUT /containers/([^/]+)/archive", _extract),
        (r"DELETE /containers/([^/]+)", _remove),
        (
            r"POST /containers/([^/]+)/exec",
            lambda h, name: h.answer(
                {"Id": h.engine.exec_create(name, json.loads(h.body)).id}, 201
            ),
        ),
        (r"POST /exec/([^/]+)/start", _exec_start),
        (r"GET /exec/([^/]+)/json", _exec_inspect),
        (r"POST /volumes/create", _volume),
        (r"GET /volumes", _volumes),
    )
]


class Served:
    """An engine that listens: on a socket in a directory, or on a port, with keys or without."""

    def __init__(
        self,
        engine: WindowsEngine,
        *,
        socket_file: Path | None = None,
        keys: ssl.SSLContext | None = None,
    ) -> None:
        self.engine = engine
        self.instead: list[tuple[re.Pattern[str], Instead]] = []
        inside = {"engine": engine, "instead": self.instead, "keys": keys}
        handler = type("Bound", (Handler,), inside)
        self._server: socketserver.BaseServer
        if socket_file is not None:
            self._server = _Local(str(socket_file), handler)
            self.url = f"unix://{socket_file}"
        else:
            server = _Tcp(("127.0.0.1", 0), handler)
            self._server, self.url = server, f"tcp://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def replace(self, pattern: str, instead: Instead) -> None:
        """Let ``instead`` answer what ``METHOD /path`` is found by ``pattern``."""
        self.instead.insert(0, (re.compile(pattern), instead))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for box in list(self.engine.boxes.values()):
            box.stop()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
