"""Errors of a WinRM connection: whether a request may be repeated, and messages for people."""

from __future__ import annotations

import re

from pipelines.core.errors import AuthError, HostError
from pipelines.session.transports.endpoint import Endpoint

_SHELL_NOT_FOUND = 2150858843
_IN_USE = 170
_BUSY = {_IN_USE, 2150859174}  # busy; too many operations of this user
_QUOTA = {2150859173: "too many shells", 2150859174: "too many operations"}
_ENVELOPE_TOO_LARGE = 2150858825
_OFFER = (
    "Set transport to one of these: negotiate is ntlm (local and domain accounts) or kerberos "
    "(a domain's alone, and all of it where NTLM is forbidden). Or enable the other: winrm get "
    "winrm/config/service/auth. Basic is off by default and takes local accounts alone."
)
#: urllib3's message for a certificate with another fingerprint than the pinned one.
_OTHER_PRINT = re.compile(r'Fingerprints did not match.*?got \\?"([0-9a-f]{64})', re.DOTALL)


def refused(error: Exception) -> bool:
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


def in_use(error: Exception) -> bool:
    """Whether the command is still processing the previous request."""
    from winrm.exceptions import WSManFaultError

    return isinstance(error, WSManFaultError) and error.wsman_fault_code == _IN_USE


def explain(error: Exception, endpoint: Endpoint) -> HostError:
    """``error`` as a message with a hint; never contains a password."""
    import requests
    from winrm.exceptions import (
        AuthenticationError,
        WinRMOperationTimeoutError,
        WinRMTransportError,
        WSManFaultError,
    )

    from pipelines.session.transports.signins import LIMIT, RefusedBeforeError
    from pipelines.session.transports.winrs_http import NotOfferedError

    url = endpoint.url
    text = endpoint.blank(" ".join(str(error).split()))[:400]
    hint = ""
    if isinstance(error, RefusedBeforeError):
        return AuthError(
            f"{url} has refused the sign-in of {endpoint.username!r} at least {LIMIT} times in a "
            "row; it is not tried again, to avoid locking the account",
            hint="Correct the password at its source, then run the same command again.",
        )
    # That of a file has a number.
    silent = isinstance(error, PermissionError) and error.errno is None
    if silent or isinstance(error, NotOfferedError):
        said = f"does not answer {endpoint.transport}: {text}"
        if isinstance(error, NotOfferedError):
            said = f"does not offer {endpoint.transport}; it offers {', '.join(error.args)}"
        return AuthError(f"{url} {said}", hint=_OFFER)
    if isinstance(error, AuthenticationError):
        why = f": {text}" if endpoint.transport == "credssp" else ""  # it alone gets a reason
        return AuthError(
            f"{url} refused the sign-in of {endpoint.username!r} by {endpoint.transport}{why}",
            hint=_sign_in_hint(endpoint),
        )
    if isinstance(error, requests.exceptions.SSLError):
        return _untrusted(str(error), text, endpoint)
    message = f"{url}: {type(error).__name__}: {text}"
    if isinstance(error, requests.exceptions.TooManyRedirects):
        message = f"{url} redirects to another address, which is not followed"
        hint = "Use the address of the WinRM service itself; there may be a proxy in between."
    elif isinstance(error, requests.exceptions.Timeout):
        message = f"{url} does not answer: {text}"
        hint = "Check that the host is up and that no firewall drops ports 5985 and 5986."
    elif isinstance(error, requests.exceptions.ConnectionError):
        message = f"no connection to {url}: {text}"
        hint = "Check that the host is up and that WinRM listens there: winrm enumerate listener."
    elif isinstance(error, WinRMOperationTimeoutError):
        message = f"{url} accepted the sign-in but did not start a command in time"
        hint = (
            "Run the same command again: the first sign-in of an account creates its profile. If "
            "it happens again, restart the WinRM service on the host, or check what keeps it busy."
        )
    elif isinstance(error, WSManFaultError):
        reason = endpoint.blank(" ".join(error.reason.split()))[:400]
        return _fault(url, error.wsman_fault_code, reason)
    elif isinstance(error, WinRMTransportError):
        message = f"{url} answered with HTTP status {error.code}"
        hint = "Check that this is a WinRM listener (…/wsman) that allows this sign-in method."
    elif endpoint.transport == "kerberos":
        hint = f"Check for a ticket. Type: kinit {endpoint.username}; klist"
    return HostError(message, hint=hint)


def _fault(url: str, code: int | None, reason: str) -> HostError:
    if code == _SHELL_NOT_FOUND:
        return HostError(f"{url}: the remote shell is gone; the host restarted or closed it")
    hint = ""
    if code == _IN_USE:
        return HostError(
            f"{url}: the program running there does not read its input",
            hint="The host may be overloaded, or a virus scanner may be blocking its programs.",
        )
    if code in _QUOTA:
        hint = f"There are {_QUOTA[code]}: raise the quota under WSMan:\\localhost\\Shell."
    elif code == _ENVELOPE_TOO_LARGE:
        hint = "Set MaxEnvelopeSizekb to 500 (the default) or more on the host."
    return HostError(f"{url} refused: {reason} (code {code})", hint=hint)


def _sign_in_hint(endpoint: Endpoint) -> str:
    if endpoint.transport == "certificate":
        return (
            "The host must map this certificate to a local account (WSMan:\\localhost\\"
            "ClientCertificate), trust its issuer, and enable Certificate under Service\\Auth."
        )
    if endpoint.transport == "kerberos":
        return f"Get a new ticket, type: kinit {endpoint.username}"
    return (
        "Windows does not give a reason. The user name (DOMAIN\\user, or user for a local "
        "account) or the password is wrong; or the password has expired (local ones do after 42 "
        "days by default) or must be changed first; or the account is locked or disabled: net "
        "user NAME on the host shows that. Local administrators need "
        "LocalAccountTokenFilterPolicy=1 there."
    )


def _untrusted(details: str, text: str, endpoint: Endpoint) -> HostError:
    url = endpoint.url
    if endpoint.pin and (match := _OTHER_PRINT.search(details)):
        return HostError(
            f"the identity of {url} changed: its certificate is sha256 {match[1]}, "
            f"pinned is {endpoint.pin}; nothing was sent to it",
            hint="Check on the host itself whether it has a new certificate "
            "(scripts/enable-winrm-https.ps1 makes one when the old one expires). Only if it has, "
            "set 'pin' in pipeline.yaml to the new fingerprint; otherwise this may be an attack.",
        )
    # requests uses this class for every failure before HTTP.
    if not re.search("verify failed|doesn't match|mismatch|Fingerprints", details):
        return HostError(
            f"no TLS with {url}: {text}",
            hint="Check that the port is a WinRM listener for HTTPS (5986). With transport "
            "certificate, the host may have rejected the user's certificate.",
        )
    if "expired" in text or "not yet valid" in text:
        return HostError(
            f"the certificate of {url} is not currently valid: {text}",
            hint="Compare the clock of this machine with the host's; if both are right, create a "
            "new certificate: scripts/enable-winrm-https.ps1 replaces an expired one.",
        )
    return HostError(
        f"the certificate of {url} is not trusted: {text}",
        hint="Set 'ca' to the host's certificate or its issuer's, or 'pin' to its sha256 "
        "fingerprint; with 'ca' the certificate must name the host in the address.",
    )
