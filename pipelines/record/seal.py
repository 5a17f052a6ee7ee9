"""The seal of a run's record: who wrote its rows, and that none was changed since.

Each write appends an entry with the sha256 of the rows that it wrote. Entries are chained by hash,
as in a transparency log, and signed with the Ed25519 key of the controller that wrote them. So a
record that comes from another machine names that machine's key, and an edited one is refused.

The key is ``seal.pem`` in the user's configuration directory, made on first use and readable by its
owner alone. ``WCW_SEAL_KEY`` may hold a key as PEM instead, for jobs in CI that share a secret.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pipelines.core.errors import ConfigError
from pipelines.core.files import disk_errors
from pipelines.remote.files import patiently

VARIABLE = "WCW_SEAL_KEY"
_MAKE = "Make one: openssl genpkey -algorithm ed25519"


def key_file() -> Path:
    """``$XDG_CONFIG_HOME/windows-cuda-wheels/seal.pem``, or below ``~/.config``."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "windows-cuda-wheels" / "seal.pem"


@dataclass(frozen=True)
class Entry:
    """One write: the rows by ``table/key`` with their sha256, and who signed it (64 hex digits)."""

    rows: Mapping[str, str]
    sealer: str
    signature: str = ""

    def digest(self, previous: str) -> str:
        """Of the entry after one with the digest ``previous``."""
        return sha256(json.dumps([previous, dict(self.rows), self.sealer]).encode()).hexdigest()


class Sealer:
    """A controller's key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.identity = key.public_key().public_bytes_raw().hex()

    def entry(self, rows: Mapping[str, str], previous: str) -> Entry:
        """A signed entry after one with the digest ``previous``."""
        entry = Entry(rows, self.identity)
        return Entry(rows, self.identity, self.sign(entry.digest(previous)))

    def sign(self, text: str) -> str:
        """The signature of it, in hex."""
        return self._key.sign(text.encode()).hex()


def verify_seal_entries(entries: Iterable[Entry]) -> tuple[dict[str, tuple[str, str]], str]:
    """Each row's sha256 and who wrote it last, by ``table/key``; and the last entry's digest.

    ``ValueError`` unless each entry is signed and in its place.
    """
    rows: dict[str, tuple[str, str]] = {}
    head = ""
    for number, entry in enumerate(entries, 1):
        head = entry.digest(head)
        if not is_signed(entry.sealer, entry.signature, head):
            raise ValueError(f"entry {number} of its seal is not signed by the key that it names")
        rows |= {row: (digest, entry.sealer) for row, digest in entry.rows.items()}
    return rows, head


@lru_cache(maxsize=4096)
def is_signed(sealer: str, signature: str, text: str) -> bool:
    """Whether the key ``sealer`` has signed it."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(sealer))
        key.verify(bytes.fromhex(signature), text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def load_or_create_sealer() -> Sealer:
    """The key of this controller, made where there is none.

    Raises :class:`ConfigError` for a file or variable that holds no Ed25519 key.
    """
    if text := os.environ.get(VARIABLE):
        return _load_signing_key(text.encode(), VARIABLE)
    path = key_file()
    with disk_errors(path):
        if not path.is_file():
            _create_signing_key(path)
        # Windows reads no file while one of its names is being removed, and the other way around.
        return _load_signing_key(patiently(path.read_bytes), str(path))


@lru_cache(maxsize=8)
def _load_signing_key(data: bytes, where: str) -> Sealer:
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{where} is not an Ed25519 key without a passphrase", hint=_MAKE)
    return Sealer(key)


def _create_signing_key(path: Path) -> None:
    data = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # of each thread
    part = Path(name)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    try:
        os.link(part, path)  # never in place of one that another process has just made
    except FileExistsError:
        pass
    finally:
        patiently(part.unlink)
