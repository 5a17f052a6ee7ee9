"""The multipart/encrypted framing of sealed messages (MS-WSMV 2.2.9.1.1).

It looks like MIME and is not: no blank line after the part headers, one fixed boundary, and a
binary part which starts with the length of its signature.
"""

from __future__ import annotations

import re
import struct

from .auth import Acceptor
from .soap import CONTENT_TYPE

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


def unseal(body: bytes, acceptor: Acceptor) -> tuple[bytes, bytes]:
    """The message inside a sealed body, and the protocol name to answer with."""
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


def seal(message: bytes, acceptor: Acceptor, protocol: bytes) -> tuple[str, tuple[bytes, ...]]:
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
