"""Certificates as an engine's owner makes them: an authority, an engine's key, a client's."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "encipher_only", "decipher_only"),
)


class Authority:
    """Signs keys; ``folder`` then holds what ``engine_tls`` or a server wants."""

    def __init__(self, name: str = "authority", *, identified: bool = True) -> None:
        self.identified = identified
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        ca = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._sign(self.name, self.key.public_key(), 2, ca=ca)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        days: int,
        ca: x509.BasicConstraints | None = None,
        address: str = "",
    ) -> x509.Certificate:
        today = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder(
            issuer_name=self.name,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=today - 10 * _DAY,
            not_valid_after=today + days * _DAY,
        )
        # What X509_V_FLAG_X509_STRICT wants, which Python sets since 3.13.
        own = self.key.public_key()
        keys = x509.AuthorityKeyIdentifier.from_issuer_public_key(own)
        if self.identified:  # some proxies leave it out
            made = made.add_extension(keys, critical=False)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        if ca is not None:
            made = made.add_extension(ca, critical=True)
            usage = dict.fromkeys(_USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
            made = made.add_extension(x509.KeyUsage(**usage), critical=True)
        if address:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            made = made.add_extension(names, critical=False)
        return made.sign(self.key, hashes.SHA256())

    def issue(
        self, folder: Path, *, days: int = 2, address: str = "", authority: Authority | None = None
    ) -> Path:
        """ca.pem (of ``authority``, if that is another), cert.pem, key.pem."""
        folder.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        certificate = self._sign(subject, key.public_key(), days, address=address)
        pem = serialization.Encoding.PEM
        (folder / "ca.pem").write_bytes((authority or self).certificate.public_bytes(pem))
        (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
        (folder / "key.pem").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return folder


def serving(folder: Path) -> ssl.SSLContext:
    """An engine that lets in whom its own authority has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context
