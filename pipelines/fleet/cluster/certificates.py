"""The one file that makes a cluster: a certificate that is its own authority, and its key.

Scheduler, members and askers have the same one, trust no other, and each proves to the others that
it has the key. Dask does not hold names against addresses: whoever has the file can stand for any.
"""

from __future__ import annotations

import datetime
import os
import re
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pipelines.errors import ConfigError, HostError
from pipelines.files import disk_errors
from pipelines.fleetsettings import FleetSettings
from pipelines.hosttext import line
from pipelines.paths import home

PORT = 8786
_PORTS = range(1, 1 << 16)
_SAME = "All of a cluster have the same file: copy it from where invoke fleet serve runs."
_FILE = "windows-cuda-wheels/fleet.pem"
_VALID = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(minutes=5)
_ADDRESS = re.compile(r"tls://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_ANEW = "Where invoke fleet serve runs, remove it: the next one makes another. Copy that to all."
#: Seconds in which a scheduler that accepts us has said its first word.
_PATIENCE = 10.0


@dataclass(frozen=True)
class Address:
    """Where a scheduler listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tls://{host}:{self.port}"


def read_address(text: str, flag: str) -> Address:
    """``tls://HOST:PORT``; :class:`ConfigError` for anything else, also for what is not TLS."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) not in _PORTS:
        plain = "tcp is for everybody who can reach it: " if text.startswith("tcp://") else ""
        raise ConfigError(
            f"{flag} {line(text, 100)}: {plain}expected tls://HOST:PORT",
            advice="invoke fleet serve says where it listens.",
        )
    return Address(found[1].strip("[]"), int(found[2]))


def place(settings: FleetSettings) -> Path:
    """Where the file is: ``fleet.certificate``, else ``$XDG_CONFIG_HOME`` or ``~/.config``."""
    if settings.certificate:
        return home() / Path(settings.certificate).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / _FILE


def make(path: Path, since: datetime.datetime | None = None) -> None:
    """Write a new one, with mode 0600, valid for a year; ``FileExistsError`` if one is there."""
    own = ec.generate_private_key(ec.SECP256R1())
    key = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made = _signed(own, since or datetime.datetime.now(datetime.UTC))
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may make one at this moment: of two files one would be trusted by nobody.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key + made.public_bytes(serialization.Encoding.PEM))


def _signed(own: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windows-cuda-wheels fleet")])
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .sign(own, hashes.SHA256())
    )


def check(path: Path) -> datetime.datetime:
    """Until when the file is good; :class:`ConfigError` for one that is not, with the next step."""
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {path}",
            advice="Copy it, by a way that you trust, from where invoke fleet serve made it; "
            "fleet.certificate in pipeline.yaml may name another place.",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", advice="It must be yours alone."
        ) from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ConfigError(
            f"{path} can be read by others (mode {stat.S_IMODE(mode):04o}), and whoever has it "
            "may run programs on every member",
            advice=f"Type: chmod 600 {path}. If somebody may have read it: {_ANEW}",
        )
    try:
        context(path, server=False)
        leaf = x509.load_pem_x509_certificates(data)[0]
    except (ssl.SSLError, ValueError, OSError) as error:
        raise ConfigError(
            f"{path} is no certificate with its key: {line(error, 200)}",
            advice=f"Copy it anew. Or {_ANEW[0].lower()}{_ANEW[1:]}",
        ) from None
    now = datetime.datetime.now(datetime.UTC)
    if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
        since, until = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        raise ConfigError(
            f"{path} has expired, or this machine's clock is wrong: it is good from "
            f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M}",
            advice=_ANEW,
        )
    return leaf.not_valid_after_utc


def context(path: Path, *, server: bool) -> ssl.SSLContext:
    """TLS at which both ends show a certificate of that authority; names are not looked at."""
    purpose = ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH
    made = ssl.create_default_context(purpose, cafile=str(path))
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(path)
    return made


def knock(address: Address, path: Path) -> None:
    """Have the scheduler accept us, or say why not.

    Dask tries again until its time is over and then tells of nothing but that. Raises
    :class:`ConfigError` for certificates that do not go together, :class:`HostError` for a
    scheduler that cannot be reached.
    """
    check(path)
    try:
        with (
            socket.create_connection((address.host, address.port), _PATIENCE) as plain,
            context(path, server=False).wrap_socket(plain) as secure,
        ):
            # What it thinks of our certificate it says after the handshake, instead of a greeting.
            if not secure.recv(1):
                raise HostError(
                    f"{address} hung up without a word",
                    advice="Is it invoke fleet serve that listens there, of this release?",
                )
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{address} has a certificate that {path} does not vouch for: {error.verify_message}",
            advice=_SAME,
        ) from None
    except ssl.SSLError as error:
        said = line(error.reason or error, 200).replace("_", " ").lower()
        alert = "alert" in said
        raise ConfigError(
            f"{address} {'refuses the certificate' if alert else 'does not speak TLS'}: {said}",
            advice=_SAME if alert else "invoke fleet serve says where it listens.",
        ) from None
    except OSError as error:
        raise HostError(
            f"{address} cannot be reached: {line(error.strerror or error, 200)}",
            advice="Does invoke fleet serve run there, and does a firewall let that port through?",
        ) from None
