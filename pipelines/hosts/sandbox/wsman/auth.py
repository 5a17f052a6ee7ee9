"""Authentication of a connection: NTLM and Negotiate, and their message sealing.

MS-NLMP through ``spnego.server()``; the HTTP side is RFC 4559. A context belongs to one TCP
connection, as on Windows, and its cipher state advances with every message: one thread only.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import re
import struct
import threading
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import spnego
from spnego.exceptions import NegotiateOptions

from pipelines.core.errors import SetupError

from .soap import CONTENT_TYPE

SCHEMES = ("Negotiate", "NTLM")
_HEADER = re.compile(r"(Negotiate|NTLM)\s+([A-Za-z0-9+/=]+)", re.IGNORECASE)
_PRIVATE = 0o600
# spnego reads both from the environment of the process, hence one handshake step at a time.
_environment_lock = threading.Lock()
_USER_FILE = "NTLM_USER_FILE"
_LEVEL = "LM_COMPAT_LEVEL"
_NTLM_V2_ONLY = "5"


class Step(Enum):
    """The state of a connection after one request."""

    NEEDED = "needed"  # no credentials yet
    CHALLENGE = "challenge"  # one more round
    REFUSED = "refused"  # wrong user, password or token
    ACCEPTED = "accepted"


def write_credentials(path: Path, user: str, password: str) -> Path:
    """Write the file of accepted users: one, readable by its owner only."""
    if any(character in user + password for character in ":\r\n\0") or not user or not password:
        raise SetupError(
            "a user name and password of the sandbox must not be empty or contain ':' or line "
            "breaks",
            hint="choose others",
        )
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w") as file:
        file.write(f":{user}:{password}\n")
    return path


def check_credentials(path: Path) -> Path:
    """Refuse a file that others could read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise SetupError(
            f"the file of accepted users cannot be read: {error}",
            hint="create it with a line ':user:password' and mode 0600",
        ) from error
    if mode & 0o077:
        raise SetupError(
            f"others can read the passwords in {path} (mode {mode & 0o777:04o})",
            hint=f"type: chmod 600 {path}",
        )
    return path.resolve()


@contextlib.contextmanager
def _spnego_environment(user_file: Path) -> Iterator[None]:
    variables = {_USER_FILE: str(user_file), _LEVEL: _NTLM_V2_ONLY}
    with _environment_lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


class Acceptor:
    """The sign-in of one connection, and its sealing context afterwards."""

    def __init__(self, user_file: Path) -> None:
        self._user_file = user_file
        self._context: spnego.ContextProxy | None = None
        self.user = ""  # set after the sign-in

    def step(self, authorization: str | None) -> tuple[Step, str | None]:
        """Process an Authorization header; the outcome and a WWW-Authenticate header, if any."""
        if not authorization:
            return (Step.ACCEPTED if self.user else Step.NEEDED), None
        match = _HEADER.fullmatch(authorization.strip())
        if match is None:  # such as Basic, which is not offered
            self._forget()
            return Step.REFUSED, None
        scheme = next(known for known in SCHEMES if known.lower() == match.group(1).lower())
        try:
            with _spnego_environment(self._user_file):
                if self._context is None or self._context.complete:
                    self._forget()
                    self._context = _new_context(scheme)
                token = self._context.step(binascii.a2b_base64(match.group(2)))
        except Exception:  # a hostile token may make the parser raise anything
            self._forget()
            return Step.REFUSED, None
        reply = f"{scheme} {binascii.b2a_base64(token, newline=False).decode()}" if token else None
        if not self._context.complete:
            return Step.CHALLENGE, reply
        self.user = self._context.client_principal or ""
        return (Step.ACCEPTED, reply) if self.user else (Step.REFUSED, None)

    def _forget(self) -> None:
        self._context, self.user = None, ""

    def seal(self, message: bytes) -> tuple[bytes, bytes, int]:
        """Encrypt: signature, data and the length of padding (MS-WSMV 2.2.9.1)."""
        header, data, padding = self._signed_in().wrap_winrm(message)
        return header, data, padding

    def unseal(self, signature: bytes, data: bytes) -> bytes:
        """Decrypt and check the signature."""
        return self._signed_in().unwrap_winrm(signature, data)

    def _signed_in(self) -> spnego.ContextProxy:
        if self._context is None or not self.user:
            raise PermissionError("not signed in on this connection")
        return self._context


def _new_context(scheme: str) -> spnego.ContextProxy:
    # The pure-Python implementations on purpose: this machine's GSSAPI has its own users.
    if scheme == "NTLM":
        return spnego.server(protocol="ntlm", options=NegotiateOptions.use_ntlm)
    return spnego.server(protocol="negotiate", options=NegotiateOptions.use_negotiate)


SEALED = "multipart/encrypted"
_BOUNDARY = b"--Encrypted Boundary"
_HEAD = re.compile(
    rb"--\s?Encrypted Boundary\r\n"
    rb"\s*Content-Type: *(application/HTTP-(?:SPNEGO|NTLM)-session-encrypted)\r\n"
    rb"\s*OriginalContent: *type=[^;\r\n]+;\s*charset=UTF-8;\s*Length=(\d{1,9})\r\n"
    rb"--\s?Encrypted Boundary\r\n"
    rb"\s*Content-Type: *application/octet-stream\r\n",
    re.IGNORECASE,
)
_TAIL = re.compile(rb"--\s?Encrypted Boundary--(?:\r\n)?\Z")
_TAIL_ROOM = 32
_LENGTH = struct.Struct("<I")
_MAX_SIGNATURE = 256


class UnsealError(ValueError):
    """The frame or its seal is wrong: the connection cannot go on, its cipher state is lost."""


def unseal_message(body: bytes, acceptor: Acceptor) -> tuple[bytes, bytes]:
    """The message inside a sealed body (MS-WSMV 2.2.9.1.1), and the protocol name to answer with.

    It looks like MIME and is not: no blank line after the part headers, one fixed boundary, and a
    binary part which starts with the length of its signature.
    """
    head = _HEAD.match(body)
    # Searched only at the end, because sealed bytes may contain anything.
    tail = _TAIL.search(body, max(0, len(body) - _TAIL_ROOM))
    if head is None or tail is None or tail.start() < head.end() + _LENGTH.size:
        raise UnsealError("not a sealed message")
    (signature_length,) = _LENGTH.unpack_from(body, head.end())
    start = head.end() + _LENGTH.size
    if signature_length > min(_MAX_SIGNATURE, tail.start() - start):
        raise UnsealError("the signature does not fit in its message")
    middle = start + signature_length
    try:
        message = acceptor.unseal(body[start:middle], body[middle : tail.start()])
    except Exception as error:
        raise UnsealError(f"the seal is broken: {error}") from error
    if len(message) != int(head.group(2)):
        raise UnsealError("the message does not have its declared length")
    return message, head.group(1)


def seal_message(
    message: bytes, acceptor: Acceptor, protocol: bytes
) -> tuple[str, tuple[bytes, ...]]:
    """A sealed body in pieces, and its Content-Type."""
    signature, data, padding = acceptor.seal(message)
    head = (
        b"%s\r\n\tContent-Type: %s\r\n\tOriginalContent: type=%s;Length=%d\r\n"
        b"%s\r\n\tContent-Type: application/octet-stream\r\n"
    ) % (_BOUNDARY, protocol, CONTENT_TYPE.encode(), len(message) + padding, _BOUNDARY)
    content_type = f'{SEALED};protocol="{protocol.decode()}";boundary="Encrypted Boundary"'
    return content_type, (
        head,
        _LENGTH.pack(len(signature)),
        signature,
        data,
        _BOUNDARY + b"--\r\n",
    )
