"""Whether a WinRM service responds, before any sign-in.

An open port proves nothing: an engine's proxy accepts connections before the container listens.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import requests
from requests.adapters import HTTPAdapter

REQUEST = (
    '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" '
    'xmlns:i="http://schemas.dmtf.org/wbem/wsman/identity/1/wsmanidentity.xsd">'
    "<s:Header/><s:Body><i:Identify/></s:Body></s:Envelope>"
)
HEADERS = {
    "Content-Type": "application/soap+xml;charset=UTF-8",
    "WSMANIDENTIFY": "unauthenticated",
}
_LONGEST = 65536


class _Pinned(HTTPAdapter):
    """Accepts only the certificate with the given sha256 fingerprint."""

    def __init__(self, pin: str) -> None:
        self._pin = pin
        super().__init__()

    def init_poolmanager(self, *args: Any, **keys: Any) -> None:
        """As the base class, but checks the fingerprint of every connection."""
        super().init_poolmanager(*args, **keys, assert_fingerprint=self._pin)


def is_winrm_listening(url: str, pin: str, *, timeout: float = 5) -> bool:
    """Whether WinRM listens at ``url`` (https) and presents the certificate with this fingerprint.

    Uses WS-Management Identify; a service that requires a sign-in for it answers with a
    challenge, which is enough. Also false if it presents another certificate.
    """
    with requests.Session() as session:
        session.trust_env = False
        session.mount("https://", _Pinned(pin))
        try:
            answer = session.post(
                url,
                data=REQUEST,
                timeout=timeout,
                verify=False,
                headers=HEADERS,
                stream=True,
            )
            body = answer.raw.read(_LONGEST, decode_content=True)
        except requests.exceptions.RequestException:
            return False
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        return "negotiate" in answer.headers.get("WWW-Authenticate", "").lower()
    return answer.ok and b"IdentifyResponse" in body
