"""A self-signed certificate for the sandbox's own HTTPS listener."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(minutes=5)


def create_certificate(
    certificate: Path, key: Path, *, since: datetime.datetime | None = None
) -> str:
    """Write both as PEM, the key with mode 0600, and return the certificate's sha256 fingerprint.

    Clients can trust this very file and keep all of their checks (names, dates, usage, strict
    X.509); it does not make them trust certificates signed with the key. It is valid for a year
    from ``since``, or from now.
    """
    private = ec.generate_private_key(ec.SECP256R1())
    made = _signed(private, since or datetime.datetime.now(datetime.UTC))
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    key.unlink(missing_ok=True)  # an existing file would keep its mode
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return made.fingerprint(hashes.SHA256()).hex()


def _signed(private: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    public = private.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox host")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    local = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(local), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(private, hashes.SHA256())
    )


def _key_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
