"""Errors of a WinRM connection: whether a request may be repeated, and messages for people."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.core.errors import PipelineError
from pipelines.core.refusals import load_refusals, refusal_error
from pipelines.session.transports.endpoint import Endpoint

_FILE = Path(__file__).with_name("winrs_errors.yaml")
_IN_USE = 170
_BUSY = {_IN_USE, 2150859174}  # busy; too many operations of this user
#: urllib3's message for a certificate with another fingerprint than the pinned one.
_OTHER_PRINT = re.compile(r'Fingerprints did not match.*?got \\?"([0-9a-f]{64})', re.DOTALL)


def is_safe_to_repeat(error: Exception) -> bool:
    """Whether the request certainly was not carried out, so that repeating it is safe."""
    import requests
    from urllib3.exceptions import NewConnectionError
    from winrm.exceptions import AuthenticationError, WinRMTransportError, WSManFaultError

    if isinstance(error, WSManFaultError):
        return error.wsman_fault_code in _BUSY
    if isinstance(error, WinRMTransportError):
        # No SOAP fault, so no WS-Man operation: 400 answers a message whose sealing context the
        # server has dropped, 503 comes from HTTP.sys in front of the service.
        return error.code in (400, 401, 503)
    if isinstance(error, AuthenticationError | requests.exceptions.ConnectTimeout):
        return True
    if isinstance(error, requests.exceptions.ConnectionError):
        reason = getattr(error.args[0] if error.args else None, "reason", None)
        return isinstance(reason, NewConnectionError)
    return False


def is_command_busy(error: Exception) -> bool:
    """Whether the command is still processing the previous request."""
    from winrm.exceptions import WSManFaultError

    return isinstance(error, WSManFaultError) and error.wsman_fault_code == _IN_USE


def explain_winrm_error(error: Exception, endpoint: Endpoint) -> PipelineError:
    """``error`` as a message with a hint; never contains a password."""
    from pipelines.session.transports.signins import LIMIT

    said: dict[str, object] = {
        "url": endpoint.url,
        "user": endpoint.username,
        "transport": endpoint.transport,
        "kind": type(error).__name__,
        "text": endpoint.blank(_reason(error))[:400],
        "limit": LIMIT,
    }
    key, more = _classify_error(error, endpoint)
    own = f"{key}-{endpoint.transport}"
    return refusal_error(_FILE, own if own in load_refusals(_FILE) else key, **{**said, **more})


def _reason(error: Exception) -> str:
    """Its words; of a connection that urllib3 could not make only the cause, at their end."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    words = " ".join(str(reason or error).split())
    return words.rpartition(": ")[2] if reason else words


def _classify_error(error: Exception, endpoint: Endpoint) -> tuple[str, dict[str, object]]:
    """Which row it is, and what else is said in it."""
    import requests
    from winrm.exceptions import (
        AuthenticationError,
        WinRMOperationTimeoutError,
        WinRMTransportError,
        WSManFaultError,
    )

    from pipelines.session.transports.signins import RefusedBeforeError
    from pipelines.session.transports.winrs_http import NotOfferedError

    kinds: tuple[tuple[type[Exception], str], ...] = (
        (RefusedBeforeError, "refused-before"),
        (NotOfferedError, "not-offered"),
        (AuthenticationError, "sign-in"),
        (requests.exceptions.SSLError, "tls"),
        (requests.exceptions.TooManyRedirects, "redirected"),
        (requests.exceptions.Timeout, "silent"),
        (requests.exceptions.ConnectionError, "no-connection"),
        (WinRMOperationTimeoutError, "not-started"),
        (WSManFaultError, "fault"),
        (WinRMTransportError, "http"),
    )
    key = next((key for kind, key in kinds if isinstance(error, kind)), "other")
    if isinstance(error, PermissionError) and error.errno is None:  # that of a file has a number
        return "not-answered", {}
    if isinstance(error, NotOfferedError):
        return key, {"offers": ", ".join(error.args)}
    if key == "sign-in":  # credssp alone gets a reason
        text = endpoint.blank(" ".join(str(error).split()))[:400]
        return key, {"why": f": {text}" if endpoint.transport == "credssp" else ""}
    if key == "tls":
        return _untrusted(str(error), endpoint)
    if isinstance(error, WSManFaultError):
        reason = endpoint.blank(" ".join(error.reason.split()))[:400]
        own = f"fault-{error.wsman_fault_code}"
        said: dict[str, object] = {"reason": reason, "code": error.wsman_fault_code}
        return own if own in load_refusals(_FILE) else key, said
    return key, {"code": error.code} if isinstance(error, WinRMTransportError) else {}


def _untrusted(details: str, endpoint: Endpoint) -> tuple[str, dict[str, object]]:
    if endpoint.pin and (match := _OTHER_PRINT.search(details)):
        return "other-identity", {"found": match[1], "pin": endpoint.pin}
    # requests uses this class for every failure before HTTP.
    if not re.search("verify failed|doesn't match|mismatch|Fingerprints", details):
        return "no-tls", {}
    return "expired" if "expired" in details or "not yet valid" in details else "untrusted", {}
