"""The HTTP side of a WinRM connection: verifies the host before sending it anything.

pywinrm makes the requests and signs in. This module adds to its sessions a certificate pinned by
fingerprint, the system's certificates, no redirects, no ``.netrc``, no unsealed messages where
sealing is required, a limit on refused sign-ins, and limits on the size of responses.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import importlib
import os
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

import requests
import truststore
from requests.adapters import HTTPAdapter
from winrm.exceptions import InvalidCredentialsError, WinRMError
from winrm.protocol import Protocol
from winrm.transport import Transport

from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.signins import shared_account

_NTLM = b"NTLMSSP\0"
_AUTHENTICATE = 3  # MS-NLMP 2.2.1.3: the message the host checks the password with
_UNAUTHORIZED = 401
#: Ways to sign in -> the schemes of HTTP that each needs one of.
_SCHEMES = {
    "basic": ("basic",),
    "ntlm": ("negotiate", "ntlm"),
    "kerberos": ("negotiate", "kerberos"),
    "credssp": ("credssp",),
}
#: Limit for one response in bytes. Windows' own limit is 500 KiB; some raise it to 8 MiB.
ANSWER_LIMIT = 16 << 20


class NotOfferedError(InvalidCredentialsError):
    """The host does not offer the way to sign in; ``args`` are those that it offers."""


class UnfitAnswerError(WinRMError):
    """The host sent a response that WinRM never sends."""


def judges_password(header: str | bytes | None) -> bool:
    """Whether the response to this Authorization header accepts or refuses a password."""
    text = header.decode("latin-1") if isinstance(header, bytes) else header or ""
    scheme, _, token = text.partition(" ")
    if scheme.lower() == "basic":
        return True
    if scheme.lower() not in ("ntlm", "negotiate"):
        return False
    try:
        data = base64.b64decode(token)
    except binascii.Error:
        return False
    at = data.find(_NTLM)  # not at the start inside SPNEGO
    kind = data[at + len(_NTLM) : at + len(_NTLM) + 4]
    return at >= 0 and len(kind) == 4 and struct.unpack("<I", kind)[0] == _AUTHENTICATE  # noqa: PLR2004


class Adapter(HTTPAdapter):
    """Verifies the certificate while connecting, and counts refused sign-ins."""

    def __init__(self, endpoint: Endpoint, password: str) -> None:
        self._pin = endpoint.pin
        system = not (endpoint.pin or endpoint.ca or os.environ.get("REQUESTS_CA_BUNDLE"))
        self._system = system and endpoint.url.startswith("https")
        self._account = shared_account(endpoint.url, endpoint.username, password)
        self._accepted = False
        self._schemes = frozenset(_SCHEMES.get(endpoint.transport, ()))
        super().__init__()

    def init_poolmanager(
        self, connections: int, maxsize: int, block: bool = False, **keys: object
    ) -> None:
        """A pinned certificate is compared before the first byte of HTTP; it needs no CA."""
        if self._pin:
            keys["assert_fingerprint"] = self._pin
        elif self._system:
            context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # As urllib3's own: Windows 11 asks for a user's certificate when it has the request
            # (https://github.com/ansible/ansible/issues/81197).
            context.post_handshake_auth = True
            keys["ssl_context"] = context
        super().init_poolmanager(connections, maxsize, block, **keys)

    def close(self) -> None:
        """Close its connections now: the host counts them, and urllib3 waits for collection."""
        pools = self.poolmanager.pools
        for pool in map(pools.__getitem__, pools.keys()):
            pool.close()
        super().close()

    def send(self, request: requests.PreparedRequest, *args: Any, **keys: Any) -> requests.Response:
        """Send it, unless it contains a password that was refused too often."""
        header = request.headers.get("Authorization")
        # Basic repeats the password in every request; only an unknown result needs to wait.
        known = self._accepted and str(header)[:5].lower() == "basic"
        if known or not judges_password(header):
            response = super().send(request, *args, **keys)
            self._accepted = known and response.status_code != _UNAUTHORIZED
        else:
            with self._account.sign_in() as verdict:
                response = super().send(request, *args, **keys)
                verdict.judge(accepted=response.status_code != _UNAUTHORIZED)
                self._accepted = verdict.accepted
        offer = response.headers.get("WWW-Authenticate", "").lower().split(",")
        every = {word for words in _SCHEMES.values() for word in words}
        offered = sorted(every & {one.strip().partition(" ")[0] for one in offer})
        if response.status_code == _UNAUTHORIZED and offered and self._schemes.isdisjoint(offered):
            raise NotOfferedError(*offered)
        raw: Any = response.raw  # read later by requests
        raw.stream = _limit_response_size(raw)
        return response


def _close_quietly(raw: Any) -> None:
    """Garbage collection would flush a closed file and report it (Python 3.13)."""
    with contextlib.suppress(OSError, ValueError):
        raw.close()


def _limit_response_size(raw: Any) -> Callable[..., Iterator[bytes]]:
    stream: Callable[..., Iterator[bytes]] = raw.stream

    def bounded(*args: object, **keys: object) -> Iterator[bytes]:
        size = 0
        with contextlib.ExitStack() as broken:
            broken.callback(_close_quietly, raw)
            for piece in stream(*args, **keys):
                size += len(piece)
                if size > ANSWER_LIMIT:
                    raise UnfitAnswerError(f"the response is larger than {ANSWER_LIMIT >> 20} MiB")
                yield piece
            broken.pop_all()

    return bounded


class SafeTransport(Transport):
    """pywinrm's client with the sessions of this module; the password is read for each session."""

    def __init__(self, place: Endpoint) -> None:
        self._endpoint = place
        self._signed_in = False
        # Set explicitly: pywinrm then refuses to send anything that cannot be sealed.
        bare = place.message_encryption == "auto" and not place.url.startswith("https:")
        # None means the system's; pywinrm supports it, its annotation does not.
        ca: Any = str(place.ca) if place.ca else os.environ.get("REQUESTS_CA_BUNDLE")
        super().__init__(
            endpoint=place.url,
            auth_method=place.transport,
            username=place.username or None,
            password="",  # read for each session, see build_session
            service="HTTP",
            ca_trust_path=ca,
            cert_pem=str(place.certificate) if place.certificate else None,
            cert_key_pem=str(place.certificate_key) if place.certificate_key else None,
            read_timeout_sec=place.read_timeout,
            # A pin replaces the authority, and is compared by Adapter.
            server_cert_validation="ignore" if place.pin else "validate",
            kerberos_delegation=place.kerberos_delegation,
            kerberos_hostname_override=place.kerberos_hostname_override,
            message_encryption="always" if bare else place.message_encryption,
            proxy=None,
        )

    def build_session(self) -> requests.Session:
        """The current session, or a new one."""
        sealing = self.message_encryption == "always"
        if self.session is not None and sealing and self.encryption is None:
            self.close_session()  # its sign-in failed: the next message would go unsealed
        if self.session is None:
            self.encryption = None
            self._signed_in = False
            self.password = self._endpoint.secret()
        session: requests.Session = super().build_session()
        self._secure(session)
        return session

    def _secure(self, session: requests.Session) -> None:
        if any(isinstance(known, Adapter) for known in session.adapters.values()):
            return
        session.adapters.clear()  # no redirect to another scheme
        adapter = Adapter(self._endpoint, self.password or "")
        session.mount(self.endpoint.partition(":")[0].lower() + "://", adapter)
        session.max_redirects = 0
        session.trust_env = False  # otherwise a .netrc could sign in elsewhere

    def _send_message_request(
        self, session: requests.Session, prepared_request: requests.PreparedRequest
    ) -> requests.Response:
        self._secure(session)  # pywinrm signs in while building a session
        if self.auth_method == "credssp" and not self._signed_in:
            return self._by_credssp(lambda: self._send(session, prepared_request))
        return self._send(session, prepared_request)

    def _send(
        self, session: requests.Session, prepared_request: requests.PreparedRequest
    ) -> requests.Response:
        response: requests.Response = super()._send_message_request(session, prepared_request)
        return response

    def _get_message_response_text(self, response: requests.Response) -> bytes:
        """The SOAP envelope. pywinrm reads it with a parser that expands entities."""
        text: bytes = super()._get_message_response_text(response)
        if b"<!DOCTYPE" in text or b"\0" in text:  # UTF-16 would hide it
            raise UnfitAnswerError("the response has a document type")
        return text

    def _by_credssp(self, send: Callable[[], requests.Response]) -> requests.Response:
        """The password is inside CredSSP's own TLS: the whole exchange is one sign-in."""
        problems = importlib.import_module("requests_credssp.exceptions")  # an optional package
        wrong = (problems.AuthenticationException, problems.NTStatusException)
        endpoint = self._endpoint
        with shared_account(
            endpoint.url, endpoint.username, self.password or ""
        ).sign_in() as verdict:
            try:
                response = send()
            except (*wrong, InvalidCredentialsError) as error:
                verdict.judge(accepted=False)
                raise InvalidCredentialsError(str(error)) from None
            verdict.judge(accepted=True)
            self._signed_in = True
            return response


def create_winrm_client(endpoint: Endpoint) -> Protocol:
    """A new WinRM client for ``endpoint``; nothing is sent yet."""
    made = Protocol(
        endpoint.url,
        # Replaced below. Kerberos is the only method whose arguments are not checked.
        transport="kerberos",
        operation_timeout_sec=endpoint.operation_timeout,
        read_timeout_sec=endpoint.read_timeout,
    )
    made.transport = SafeTransport(endpoint)
    return made
