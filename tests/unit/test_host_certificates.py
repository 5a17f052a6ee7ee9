"""A host's certificate vouches for that host and for no other, though clients trust it by itself.

The clients are Python's ssl as the pipeline's are, with the checks that Python 3.13 turns on.
"""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pipelines.hosts.sandbox.wsman.certificate import create_certificate

_DAY = datetime.timedelta(days=1)


def _old(certificate: Path, key: Path) -> None:
    """As enable-winrm-https.ps1 made them until its certificates lost the CA bit."""
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    usage = x509.KeyUsage(
        True, False, True, False, False, True, False, False, False
    )  # signature, encipherment, signing of certificates
    identifier = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
    made = (
        _builder(name, name, own, "localhost")
        .add_extension(x509.BasicConstraints(True, 0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(own, hashes.SHA256())
    )
    _write(certificate, key, made, own)


def _leaf(certificate: Path, key: Path, of: tuple[Path, Path], name: str) -> None:
    """What whoever has the key of one host signs for the name of another."""
    issuer = x509.load_pem_x509_certificate(of[0].read_bytes())
    signer = serialization.load_pem_private_key(of[1].read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    own = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = (
        _builder(subject, issuer.subject, own, name)
        .add_extension(authority, critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write(certificate, key, made, own)


def _builder(
    subject: x509.Name, issuer: x509.Name, own: ec.EllipticCurvePrivateKey, name: str
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer, subject, own.public_key(), x509.random_serial_number(), now - _DAY, now + _DAY
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)


def _write(
    certificate: Path, key: Path, made: x509.Certificate, own: ec.EllipticCurvePrivateKey
) -> None:
    pem = serialization.Encoding.PEM
    certificate.write_bytes(made.public_bytes(pem))
    key.write_bytes(
        own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _handshake(shown: tuple[Path, Path], *, trusted: Path, name: str) -> None:
    """Both ends of a TLS connection, in memory; raises what the client raises."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*shown)
    client = ssl.create_default_context(cafile=str(trusted))
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "cert.pem", tmp_path / "key.pem"


def test_is_accepted_as_the_one_thing_to_trust(pair: tuple[Path, Path]) -> None:
    create_certificate(*pair)
    _handshake(pair, trusted=pair[0], name="localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(pair, trusted=pair[0], name="other.example.org")


def test_its_key_vouches_for_no_other_host(pair: tuple[Path, Path], tmp_path: Path) -> None:
    create_certificate(*pair)
    forged = tmp_path / "forged.pem", tmp_path / "forged.key"
    _leaf(*forged, pair, "other.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(forged, trusted=pair[0], name="other.example.org")


def test_the_key_of_an_old_one_vouched_for_every_name(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """Why the CA bit is gone, and that what refuses above is not the forgery's own fault."""
    _old(*pair)
    forged = tmp_path / "forged.pem", tmp_path / "forged.key"
    _leaf(*forged, pair, "other.example.org")
    _handshake(forged, trusted=pair[0], name="other.example.org")
