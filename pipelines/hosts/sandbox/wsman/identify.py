"""WS-Management Identify (DSP0226, chapter 11): describes a service without a sign-in.

Windows answers it with only the protocol before a sign-in (MS-WSMV 3.1.4.1.33), and adds version
and vendor after one.
"""

from __future__ import annotations

from defusedxml.ElementTree import fromstring

from .soap import SOAP, MalformedRequestError

#: The header that asks for it, and its value.
HEADER, UNAUTHENTICATED = "WSMANIDENTIFY", "unauthenticated"
_IDENTITY = "http://schemas.dmtf.org/wbem/wsman/identity/1/wsmanidentity.xsd"
_PROTOCOL = "http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd"
_VENDOR = "windows-cuda-wheels sandbox"


def identified(raw: bytes) -> bytes:
    """The answer to an Identify envelope; :class:`MalformedRequestError` for anything else."""
    try:
        root = fromstring(raw, forbid_dtd=True)
    except (ValueError, LookupError, SyntaxError) as error:  # ParseError is a SyntaxError
        raise MalformedRequestError(f"not an acceptable XML document: {error}") from None
    if (
        root.tag != f"{{{SOAP}}}Envelope"
        or root.find(f"{{{SOAP}}}Body/{{{_IDENTITY}}}Identify") is None
    ):
        raise MalformedRequestError("not an Identify envelope")
    return (
        f'<s:Envelope xmlns:s="{SOAP}" xmlns:i="{_IDENTITY}"><s:Header/><s:Body>'
        f"<i:IdentifyResponse><i:ProtocolVersion>{_PROTOCOL}</i:ProtocolVersion>"
        f"<i:ProductVendor>{_VENDOR}</i:ProductVendor>"
        "</i:IdentifyResponse></s:Body></s:Envelope>"
    ).encode()
