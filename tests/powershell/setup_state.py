"""What standins.ps1 keeps, and what answers as WinRM does."""

from __future__ import annotations

import datetime
import ipaddress
import json
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from windows import Result, Shell, call

_STANDINS = Path(__file__).with_name("standins.ps1")
SERVICE = r"HKLM:\SYSTEM\CurrentControlSet\Services\WinRM"
POLICIES = r"HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System"


class State:
    """The file of standins.ps1, and a registry without what the scripts write."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._file = shell.windows.path(rf"{shell.folder}\state.json")
        self.store = shell.windows.path(rf"{shell.folder}\store")
        shutil.rmtree(self.store, ignore_errors=True)
        self.kept = self.fresh()
        result = shell.run(
            f"$null = New-Item -Path '{SERVICE}', '{POLICIES}' -Force\n"
            f"Set-ItemProperty -Path '{SERVICE}' -Name Start -Value 3 -Type DWord"
        )
        assert result.error == ""

    @staticmethod
    def fresh() -> dict[str, Any]:
        """What standins.ps1 knows of a Windows whose WinRM has an HTTP listener alone."""
        return {
            "status": "Running",
            "listeners": {"Listener_1": _listener("HTTP", 5985)},
            "service": {
                "AllowUnencrypted": "false",
                "Auth\\Basic": "false",
                "Auth\\CredSSP": "false",
                "Auth\\Certificate": "false",
                "Auth\\Kerberos": "true",
                "Auth\\Negotiate": "true",
                "Auth\\CbtHardeningLevel": "Relaxed",
            },
            **{
                name: {}
                for name in ("networks", "firewall", "users", "tasks", "friendly", "made", "called")
            },
            "quotas": {
                "Shell\\MaxMemoryPerShellMB": "1024",
                "Plugin\\microsoft.powershell\\Quotas\\MaxMemoryPerShellMB": "2048",
            },
            "licence": {"LicenseStatus": 2, "GracePeriodRemaining": 14400},
            "fixed": [],
            "refused": [],
        }

    def run(self, script: str, **parameters: object) -> Result:
        """Run ``script`` there with the stand-ins before it."""
        return self.run_text(call(script, **parameters))

    def run_text(self, text: str) -> Result:
        """The same with the text of a script."""
        self._file.write_text(json.dumps(self.kept))
        standins = self.shell.put(_STANDINS)
        ended = threading.Event()
        maker = threading.Thread(target=self._make_certificates, args=(ended,), daemon=True)
        maker.start()
        result = self.shell.run(f". '{standins}'\n{text}")
        ended.set()
        maker.join()
        self.kept = json.loads(self._file.read_text("utf-8"))
        return result

    def _make_certificates(self, ended: threading.Event) -> None:
        """What New-SelfSignedCertificate is asked for, until the script has ended."""
        wanted = self.store.with_name("store.wanted")
        while not ended.wait(0.02):
            if wanted.exists():
                thumbprint, pem = _self_signed(json.loads(wanted.read_text("utf-8")))
                self.store.mkdir(exist_ok=True)
                (self.store / f"{thumbprint}.pem").write_bytes(pem)
                self.store.with_name("store.made").write_text(thumbprint)
                wanted.unlink()

    def transports(self) -> list[str]:
        return sorted(one["Transport"] for one in self.kept["listeners"].values())

    def shown(self) -> Path | None:
        """The certificate, with its key, that the HTTPS listener shows."""
        kept = json.loads(self._file.read_text("utf-8"))
        for one in kept["listeners"].values():
            if one["Transport"] == "HTTPS":
                return self.store / f"{one['CertificateThumbprint']}.pem"
        return None


def _self_signed(wanted: dict[str, Any]) -> tuple[str, bytes]:
    """Thumbprint, and certificate and key as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name.from_rfc4514_string(wanted["subject"])
    names: list[x509.GeneralName] = []
    (text,) = (t for t in wanted["extensions"] if t.startswith("2.5.29.17={text}"))
    for part in text.partition("}")[2].split("&"):
        kind, _, value = part.partition("=")
        if kind == "DNS":
            names.append(x509.DNSName(value))
        else:
            names.append(x509.IPAddress(ipaddress.ip_address(value)))
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=10))
        .not_valid_after(datetime.datetime.fromtimestamp(wanted["until"], datetime.UTC))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    if "2.5.29.19={critical}{text}ca=FALSE" in wanted["extensions"]:
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    signed = made.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    thumbprint = signed.fingerprint(hashes.SHA1()).hex().upper()  # noqa: S303
    return thumbprint, signed.public_bytes(serialization.Encoding.PEM) + private


def _listener(transport: str, port: int) -> dict[str, str]:
    told = {"Transport": transport, "Address": "*", "Port": str(port), "Enabled": "true"}
    return told | {"CertificateThumbprint": ""}


@contextmanager
def answering(state: State, status: str = "HTTP/1.1 401 ", port: int = 0) -> Iterator[int]:
    """The port of a server with the listener's certificate; it hangs up while there is none."""
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(20)
                if (pem := state.shown()) is None:
                    continue
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(pem)
                try:
                    with context.wrap_socket(client, server_side=True) as tls:
                        tls.recv(4096)
                        tls.sendall(f"{status}\r\nContent-Length: 0\r\n\r\n".encode())
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
