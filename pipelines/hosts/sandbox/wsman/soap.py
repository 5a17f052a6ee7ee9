"""SOAP envelopes of WS-Management: requests in, responses and faults out (DSP0226, MS-WSMV 2.2).

Peers' data is always escaped in responses. The parser never accepts entities or document types.
"""

from __future__ import annotations

import binascii
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape as _escape

from defusedxml.ElementTree import fromstring

from .faults import WsmanFaultError, invalid_parameter_fault

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


CONTENT_TYPE = "application/soap+xml;charset=UTF-8"
SOAP = "http://www.w3.org/2003/05/soap-envelope"
ADDRESSING = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
TRANSFER = "http://schemas.xmlsoap.org/ws/2004/09/transfer"
WSMAN = "http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd"
SHELL = "http://schemas.microsoft.com/wbem/wsman/1/windows/shell"
FAULT_ACTION = "http://schemas.dmtf.org/wbem/wsman/1/wsman/fault"
ANONYMOUS = f"{ADDRESSING}/role/anonymous"
NAMESPACES = {"s": SOAP, "a": ADDRESSING, "x": TRANSFER, "w": WSMAN, "rsp": SHELL}

DEFAULT_TIMEOUT = 60.0  # MaxTimeoutms of Windows, used when a request names no OperationTimeout
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d*)?)S)?)?")
_STREAM = re.compile(rb"<(?:[\w.-]+:)?Stream\b[^<>]*>")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WORTH_CUTTING = 4096  # below this it is not faster
_OPENING = (
    "<s:Envelope"
    + "".join(f' xmlns:{prefix}="{uri}"' for prefix, uri in NAMESPACES.items())
    + ' xml:lang="en-US"><s:Header><a:Action>'
)


class MalformedRequestError(ValueError):
    """Not XML, not an envelope, or XML with a document type or entities: HTTP 400, no fault."""


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of an envelope that the service needs."""

    action: str
    message_id: str
    resource_uri: str
    selectors: dict[str, str]
    options: dict[str, str]
    operation_timeout: float
    body: Element
    stream_text: bytes | None  # base64 cut out of the only Stream element before parsing

    def stream_data(self, stream: Element) -> bytes:
        """The decoded bytes of a Stream element (MS-WSMV 2.2.4.37)."""
        text = self.stream_text
        if text is None:
            text = (stream.text or "").encode("ascii", "replace")
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error:
            pass  # xs:base64Binary may hold white space, which strict mode refuses
        try:
            return binascii.a2b_base64(b"".join(text.split()), strict_mode=True)
        except binascii.Error as error:
            raise invalid_parameter_fault(f"A Stream is not base64: {error}.") from None


def parse_soap_envelope(raw: bytes) -> Request:
    """Read one envelope; the caller has bounded its size."""
    small, stream_text = _cut_stream(raw)
    try:
        root: Element = fromstring(small, forbid_dtd=True)
    except (ValueError, LookupError, SyntaxError) as error:  # ParseError is a SyntaxError
        raise MalformedRequestError(f"not an acceptable XML document: {error}") from None
    header, body = root.find("s:Header", NAMESPACES), root.find("s:Body", NAMESPACES)
    if root.tag != f"{{{SOAP}}}Envelope" or header is None or body is None:
        raise MalformedRequestError("not a SOAP 1.2 envelope with Header and Body")
    # One pass over the children: a path lookup each would cost more than the parsing.
    fields = {child.tag: child for child in header}

    def text(name: str) -> str:
        field = fields.get(name)
        return "" if field is None else (field.text or "").strip()

    def named(name: str) -> dict[str, str]:
        return {item.get("Name", ""): item.text or "" for item in fields.get(name, ())}

    timeout = text(f"{{{WSMAN}}}OperationTimeout")
    return Request(
        action=text(f"{{{ADDRESSING}}}Action"),
        message_id=text(f"{{{ADDRESSING}}}MessageID"),
        resource_uri=text(f"{{{WSMAN}}}ResourceURI"),
        selectors=named(f"{{{WSMAN}}}SelectorSet"),
        options=named(f"{{{WSMAN}}}OptionSet"),
        operation_timeout=parse_duration(timeout) if timeout else DEFAULT_TIMEOUT,
        body=body,
        stream_text=stream_text,
    )


def _cut_stream(raw: bytes) -> tuple[bytes, bytes | None]:
    """Take the base64 out of a big Send, so that the XML parser never sees it.

    Only where it cannot change the meaning: one Stream start tag, plain text up to the next tag,
    and no comment, CDATA section or document type around it. Everything else is parsed whole.
    """
    if len(raw) < _WORTH_CUTTING:
        return raw, None
    tag = _STREAM.search(raw)
    if tag is None or tag.group().endswith(b"/>"):
        return raw, None
    end = raw.find(b"<", tag.end())
    if end < 0 or raw.find(b"&", tag.end(), end) >= 0:
        return raw, None
    # What is cut out holds no "<", so looking for markup in the rest is enough, and quick.
    rest = raw[: tag.end()] + raw[end:]
    if b"<!" in rest or _STREAM.search(rest, tag.end()) is not None:
        return raw, None
    return rest, raw[tag.end() : end]


def parse_duration(text: str) -> float:
    """An xs:duration without years and months, in seconds (``PT20S``, ``P1DT2H``)."""
    match = _DURATION.fullmatch(text)
    if match is None or match.lastindex is None:
        raise invalid_parameter_fault(f"'{text[:40]}' is not a duration such as PT20S.")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def escape_xml(text: str) -> str:
    """Text that is safe in content and in quoted attributes, without characters XML 1.0 forbids."""
    return _escape(_FORBIDDEN.sub("\ufffd", text), {'"': "&quot;", "'": "&apos;"})


def response_envelope(action: str, relates_to: str, *body: bytes) -> bytes:
    """A response. ``body`` is ready XML in pieces, so that big pieces are copied only once."""
    head = (
        f"{_OPENING}{escape_xml(action)}</a:Action><a:MessageID>uuid:{str(uuid.uuid4()).upper()}"
        f"</a:MessageID><a:To>{ANONYMOUS}</a:To><a:RelatesTo>{escape_xml(relates_to)}</a:RelatesTo>"
        "</s:Header><s:Body>"
    )
    return b"".join((head.encode(), *body, b"</s:Body></s:Envelope>"))


def fault_envelope(relates_to: str, fault: WsmanFaultError) -> bytes:
    """A fault as Windows lays it out: subcode, reason, WSManFault in Detail (MS-WSMV 2.2.4.43)."""
    reason = escape_xml(fault.reason)
    body = (
        f"<s:Fault><s:Code><s:Value>s:{'Sender' if fault.by_sender else 'Receiver'}</s:Value>"
        f"<s:Subcode><s:Value>w:{escape_xml(fault.subcode)}</s:Value></s:Subcode></s:Code>"
        f'<s:Reason><s:Text xml:lang="en-US">{reason}</s:Text></s:Reason><s:Detail>'
        '<f:WSManFault xmlns:f="http://schemas.microsoft.com/wbem/wsman/1/wsmanfault" '
        f'Code="{fault.code:d}" Machine="localhost"><f:Message>{reason}</f:Message>'
        "</f:WSManFault></s:Detail></s:Fault>"
    )
    return response_envelope(FAULT_ACTION, relates_to, body.encode())


#: The header that asks for it, and its value.
HEADER, UNAUTHENTICATED = "WSMANIDENTIFY", "unauthenticated"
_IDENTITY = "http://schemas.dmtf.org/wbem/wsman/identity/1/wsmanidentity.xsd"
_PROTOCOL = "http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd"
_VENDOR = "windows-cuda-wheels sandbox"


def identify_response(raw: bytes) -> bytes:
    """The answer to an Identify envelope (DSP0226, chapter 11), which needs no sign-in.

    Windows answers with only the protocol before a sign-in (MS-WSMV 3.1.4.1.33), and adds version
    and vendor after one. Raises :class:`MalformedRequestError` for anything else.
    """
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
