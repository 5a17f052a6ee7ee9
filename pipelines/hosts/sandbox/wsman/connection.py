"""One HTTP/1.1 connection of a client: framing, sign-in, sealing, and then the service."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from .auth import SCHEMES, SEALED, Acceptor, Step, UnsealError, seal_message, unseal_message
from .service import Caller, WsmanService
from .soap import CONTENT_TYPE, HEADER, UNAUTHENTICATED, MalformedRequestError, identify_response

_log = logging.getLogger(__name__)
PATH = "/wsman"
_SIGN_IN_TIMEOUT = 10.0  # seconds of silence before a client has signed in
# Above the envelope limit there must be room to read a request to its end: the fault has to be
# sealed, and the cipher state only follows when every byte was decrypted.
_READ_FACTOR = 4
_SIGN_IN = tuple(("WWW-Authenticate", scheme) for scheme in SCHEMES)
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Site:
    """What all connections of one listener share."""

    service: WsmanService
    user_file: Path
    secure: bool  # inside TLS: bodies need no seal
    idle_timeout: float


class Connection(BaseHTTPRequestHandler):
    """Serves requests until the client leaves, is idle for too long, or breaks the rules."""

    protocol_version = "HTTP/1.1"
    rbufsize = 1 << 16
    disable_nagle_algorithm = True
    connection: socket.socket

    def __init__(self, sock: socket.socket, address: object, site: Site) -> None:
        self._site = site
        self._acceptor = Acceptor(site.user_file)
        sock.settimeout(min(_SIGN_IN_TIMEOUT, site.idle_timeout))
        super().__init__(sock, address, site)  # type: ignore[arg-type]  # passed through, not used

    def version_string(self) -> str:
        """The value Windows sends; some clients check it."""
        return "Microsoft-HTTPAPI/2.0"

    def log_message(self, format: str, *args: object) -> None:
        """To logging, not to stderr."""
        _log.debug(format, *args)

    def _not_allowed(self) -> None:
        self.close_connection = True  # a body may follow, which is not read
        self._reply(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", "POST"),))

    do_GET = do_HEAD = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = _not_allowed  # noqa: N815

    def do_POST(self) -> None:
        """One request: sign-in step, message, or both (MS-WSMV 3.1.4)."""
        body = self._read_body()
        if body is None:
            return
        if self.headers.get(HEADER, "").strip().lower() == UNAUTHENTICATED:
            self._identify(body)
            return
        outcome, token = self._acceptor.step(self.headers.get("Authorization"))
        headers: Headers = (("WWW-Authenticate", token),) if token else ()
        if outcome is not Step.ACCEPTED:
            if outcome is Step.REFUSED:
                self.close_connection = True  # one guess per connection
            self._reply(HTTPStatus.UNAUTHORIZED, headers=headers or _SIGN_IN)
            return
        self.connection.settimeout(self._site.idle_timeout)
        if not body:
            self._reply(HTTPStatus.OK, headers=headers)  # the handshake's own, empty request
        else:
            try:
                self._answer(body, headers)
            except (UnsealError, MalformedRequestError) as error:
                _log.debug("bad request: %s", error)
                self._refuse(HTTPStatus.BAD_REQUEST)

    def _identify(self, body: bytes) -> None:
        """Identify the service, without a sign-in."""
        try:
            answer = identify_response(body)
        except MalformedRequestError as error:
            _log.debug("bad request: %s", error)
            self._refuse(HTTPStatus.BAD_REQUEST)
        else:
            self._reply(HTTPStatus.OK, answer)

    def _read_body(self) -> bytes | None:
        """The body, or None if the request was already refused."""
        length = self.headers.get("Content-Length", "")
        limit = self._site.service.limits.max_envelope * _READ_FACTOR
        if self.path.partition("?")[0].rstrip("/").lower() != PATH:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED)
        elif len(length) > len(str(limit)) or int(length) > limit:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                return body
            self.close_connection = True  # the client left in the middle
        return None

    def _answer(self, body: bytes, headers: Headers) -> None:
        sealed = (self.headers.get("Content-Type") or "").lower().startswith(SEALED)
        protocol = b""
        if sealed:
            body, protocol = unseal_message(body, self._acceptor)
        elif not self._site.secure:
            # AllowUnencrypted=false on Windows answers the same: 500 without a body.
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        caller = Caller(self._acceptor.user, self.connection.fileno())
        status, message = self._site.service.handle(body, caller)
        if sealed:
            content_type, pieces = seal_message(message, self._acceptor, protocol)
            self._reply(status, *pieces, content_type=content_type, headers=headers)
        else:
            self._reply(status, message, headers=headers)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer, after which the connection is unusable."""
        self.close_connection = True
        self._reply(status)

    def _reply(
        self, status: int, *pieces: bytes, content_type: str = CONTENT_TYPE, headers: Headers = ()
    ) -> None:
        """Headers and body in one write: two would wait for each other's acknowledgement."""
        lines = [
            f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}",
            f"Server: {self.version_string()}",
            f"Date: {self.date_time_string()}",
            *(f"{name}: {value}" for name, value in headers),
            f"Content-Length: {sum(map(len, pieces))}",
        ]
        if pieces:
            lines.append(f"Content-Type: {content_type}")
        if self.close_connection:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self.connection.sendall(b"".join((head, *pieces)))
