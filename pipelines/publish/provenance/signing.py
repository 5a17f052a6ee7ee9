"""A statement signed as a DSSE envelope, with a key of the user's; and its signatures checked.

Keys are ed25519 or ECDSA (P-256, P-384, P-521), as openssl and ssh-keygen write them. Which scheme
a signature has is decided by the key alone, never by what an envelope says of itself.

https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from pydantic import BaseModel, Field, StringConstraints, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import CryptoSigner, Signature, SSlibKey

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe_line
from pipelines.core.jsonfile import MOST, parse_json_object, read_bytes
from pipelines.core.model import first_problem

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_KEY_BYTES = 64 << 10
_LINES = 100  # of a bundle
_SSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_KINDS = frozenset({"ed25519", "ecdsa"})
_MAKE = "To create one: openssl genpkey -algorithm ed25519 -out key.pem"
_PUBLIC = "To get the public key: openssl pkey -in key.pem -pubout -out key.pub"


class _Signature(BaseModel):
    sig: Annotated[str, StringConstraints(max_length=20_000)]
    keyid: Annotated[str, StringConstraints(max_length=500)] = ""


class _Envelope(BaseModel):
    payload: Annotated[str, StringConstraints(max_length=2 * MOST)]
    payload_type: Annotated[str, Field(alias="payloadType", max_length=200)]
    signatures: Annotated[tuple[_Signature, ...], Field(min_length=1, max_length=20)]


class Sealed:
    """An envelope that was read: its payload, and signatures that were not checked."""

    def __init__(self, envelope: _Envelope) -> None:
        self.payload = _decoded(envelope.payload)
        self.payload_type = envelope.payload_type
        self.signatures = [(one.keyid, _decoded(one.sig)) for one in envelope.signatures]
        self._said = Envelope(self.payload, self.payload_type, {}).pae()

    def is_by(self, key: SSlibKey, number: int) -> bool:
        """Whether that signature is one of the key's over type and payload."""
        try:
            key.verify_signature(Signature(key.keyid, self.signatures[number][1].hex()), self._said)
        except UnverifiedSignatureError:
            return False
        return True


def parse_envelope(document: dict[str, Any]) -> Sealed:
    """The envelope, also one within a bundle of Sigstore's; ``ValueError`` if it is none."""
    inner = document.get("dsseEnvelope")
    try:
        return Sealed(_Envelope.model_validate(inner if isinstance(inner, dict) else document))
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def _decoded(text: str) -> bytes:
    """Of base64 in either alphabet; ``ValueError`` unless it is the one way to write the bytes."""
    plain = text.replace("-", "+").replace("_", "/")
    try:
        found = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found or base64.b64encode(found).decode() != plain:
        raise ValueError("part of it is not base64")
    return found


def sign_envelope(payload: bytes, signer: CryptoSigner, earlier: Sealed | None = None) -> bytes:
    """An envelope as a line of JSON; signatures of others over the same payload stay in it."""
    made = Envelope(payload, PAYLOAD_TYPE, {})
    if earlier and (earlier.payload, earlier.payload_type) == (payload, PAYLOAD_TYPE):
        for keyid, data in earlier.signatures:
            made.signatures[keyid] = Signature(keyid, data.hex())
    made.sign(signer)
    return json.dumps(made.to_dict()).encode() + b"\n"


def load_private(path: Path, passphrase: Callable[[], str]) -> CryptoSigner:
    """The key to sign with; ``passphrase`` is asked where the file is encrypted.

    :class:`ConfigError` for what is no such key, or another passphrase.
    """
    data = _key_bytes(path)
    load = (
        serialization.load_ssh_private_key
        if data.lstrip().startswith(_SSH)
        else serialization.load_pem_private_key
    )
    typed: str | None = None
    try:
        try:
            key = load(data, None)
        except TypeError:  # it is encrypted
            typed = passphrase()
            key = load(data, typed.encode())
    except UnsupportedAlgorithm as error:
        raise ConfigError(f"{path}: {safe_line(error)}", hint=_MAKE) from None
    except (ValueError, TypeError):
        raise ConfigError(
            f"{path} cannot be opened with that passphrase"
            if typed is not None
            else f"{path} is not a valid private key",
            hint="Type the passphrase it was created with." if typed is not None else _MAKE,
        ) from None
    try:
        signer = CryptoSigner(key)
    except ValueError as error:
        raise _other_kind(path, str(error)) from None
    if signer.public_key.keytype not in _KINDS:
        raise _other_kind(path, signer.public_key.keytype)
    return signer


def load_public(path: Path) -> SSlibKey:
    """A public key, PEM or of ssh-keygen; :class:`ConfigError` for anything else."""
    data = _key_bytes(path)
    if b"PRIVATE KEY" in data:
        raise ConfigError(f"{path} is a private key", hint=_PUBLIC)
    load = (
        serialization.load_pem_public_key
        if data.lstrip().startswith(b"-----BEGIN")
        else serialization.load_ssh_public_key
    )
    try:
        key = SSlibKey.from_crypto(load(data.strip()))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} is not a public key: {safe_line(error)}", hint=_PUBLIC) from None
    if key.keytype not in _KINDS:
        raise _other_kind(path, key.keytype)
    return key


def _key_bytes(path: Path) -> bytes:
    try:
        data = read_bytes(path)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}", hint="Name the file of a key.") from None
    if len(data) > _KEY_BYTES:
        raise ConfigError(f"{path} is not a key: it has {len(data)} bytes", hint=_MAKE)
    return data


def _other_kind(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"{path} is an unsupported kind of key ({safe_line(found, 100)}); expected ed25519 or "
        "ECDSA of "
        "P-256, P-384 or P-521",
        hint=_MAKE,
    )


def read_bundle(path: Path) -> list[dict[str, Any]]:
    """Every object of a bundle: JSON lines, or one object on several.

    ``ValueError`` for a file that cannot be read, is too large or has too many lines. Lines that
    are no object are left out, as in-toto's bundles want it.
    """
    data = read_bytes(path)
    try:
        return [parse_json_object(data)]
    except ValueError as whole:
        found, lines = [], data.splitlines()
        if len(lines) > _LINES:
            raise ValueError(f"{whole}; nor a bundle: it has {len(lines)} lines") from None
        for text in lines:
            try:
                found.append(parse_json_object(text))
            except ValueError:
                continue
        if not found:
            raise whole from None
        return found
