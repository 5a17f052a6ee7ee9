"""``kind: winrm`` of ``pipeline.yaml``: how one signs in, how the host is recognised."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, StringConstraints, model_validator

from pipelines.hosts.base import Host, HostConfig, Opening
from pipelines.hosts.gpus import DriverGpu
from pipelines.hosts.windows import FIRST_PYTHON


def _fingerprint(text: object) -> object:
    """A fingerprint as tools print it (``AA:BB``, ``sha256:``), as 64 lower-case digits."""
    if not isinstance(text, str):
        return text
    bare = re.sub(r"(?i)^\s*sha-?256( fingerprint)?\s*[:=]", "", text)
    digits = re.sub(r"[\s:]", "", bare).lower()
    if re.fullmatch(r"[0-9a-f]{40}", digits):
        raise ValueError(
            "that is a SHA-1 thumbprint, which can be forged; give the sha256 fingerprint: "
            "openssl x509 -noout -fingerprint -sha256 -in the-certificate.pem"
        )
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ValueError("expected a sha256 fingerprint: 64 hexadecimal digits")
    return digits


Insecure = Literal["basic", "delegation", "unencrypted"]
_PASSWORDS = ("password_env", "password_keyring", "password_prompt")
_PASSWORD_WORDS = {"password", "pass", "passwd", "passphrase", "secret", "token", "credentials"}
_VERIFY_WORDS = {"verify", "verify_ssl", "validate_certs", "server_cert_validation", "skip_verify"}


class WinRMHost(HostConfig):
    """A Windows machine with WinRM on."""

    kind: Literal["winrm"]
    """A Windows that is reached over WinRM."""
    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^/\s@]+/wsman$")]
    """``https://HOST:5986/wsman``."""
    transport: Literal["ntlm", "kerberos", "credssp", "certificate", "basic"] = "ntlm"
    """How the user signs in; ``credssp`` gives the host the user's password itself."""
    username: str = ""
    """Needed unless a certificate signs in."""
    password_env: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    """Name of the environment variable that holds the password; never the password."""
    password_keyring: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Service in the system's keyring under which the user's password is kept."""
    password_prompt: bool = False
    """Ask for it on the terminal, once for each command."""
    certificate: str | None = None
    """PEM file of the user's certificate, for ``transport: certificate``."""
    certificate_key: str | None = None
    """PEM file of its key."""
    kerberos_delegation: bool = False
    """Give the host the user's ticket: what it builds can act as the user towards others."""
    kerberos_hostname_override: str | None = None
    """The name in the host's service principal, when the address has another."""
    ca: str | None = None
    """PEM file that signs the host's certificate; default the system's store."""
    pin: Annotated[str, BeforeValidator(_fingerprint)] | None = None
    """Instead of ``ca``: sha256 fingerprint of the one certificate that the host may show."""
    message_encryption: Literal["auto", "always", "never"] = "auto"
    """WinRM's own, below HTTP; ``auto`` means always where there is no TLS."""
    insecure: tuple[Insecure, ...] = ()
    """Names, a second time, what the other keys ask for and nobody should use."""
    python: str = FIRST_PYTHON
    """The Python that runs the pipeline's own code there."""
    bootstrap: bool | None = None
    """Whether Python is put there when it is missing; default when ``python`` is not given."""
    gpu: DriverGpu = False
    """GPUs to test on: ``true`` or ``all``, or nvidia-smi's numbers: ``1``, ``[0, 2]``."""

    @model_validator(mode="before")
    @classmethod
    def _no_secrets(cls, keys: object) -> object:
        for key in keys if isinstance(keys, dict) else ():
            if str(key).casefold().replace("-", "_") in _PASSWORD_WORDS:
                raise ValueError(
                    f"{key}: passwords never stand in this file; name where it comes from: "
                    "'password_env: NAME' of an environment variable, 'password_keyring: SERVICE', "
                    "or 'password_prompt: true'. If it was a real one, change it"
                )
            if str(key).casefold().replace("-", "_") in _VERIFY_WORDS:
                raise ValueError(
                    f"{key}: certificates are always verified; for one that no authority signed "
                    "give its file as 'ca' or its sha256 fingerprint as 'pin'"
                )
        return keys

    @model_validator(mode="after")
    def _has_a_directory(self) -> Self:
        if self.bootstraps and not re.fullmatch(
            r"(?i)[a-z]:(\\[^\\/]+)+\\python\.exe", self.python
        ):
            raise ValueError(
                "bootstrap needs a 'python' in a directory of its own, "
                f"such as {FIRST_PYTHON}, found {self.python}"
            )
        return self

    @model_validator(mode="after")
    def _signs_in(self) -> Self:
        given = [name for name in _PASSWORDS if getattr(self, name)]
        if self.transport in ("kerberos", "certificate"):
            if given:
                source = "kinit's ticket" if self.transport == "kerberos" else "the certificate"
                raise ValueError(f"transport {self.transport} uses {source}: remove {given[0]}")
        elif len(given) != 1:
            raise ValueError(
                f"exactly one of {', '.join(_PASSWORDS)} is needed, found {len(given)}"
            )
        if not self.username and self.transport != "certificate":
            raise ValueError("username is missing")
        pair = (self.certificate, self.certificate_key)
        if self.transport == "certificate":
            if None in pair or not self.tls:
                raise ValueError(
                    "transport certificate needs certificate, certificate_key and an https endpoint"
                )
        elif pair != (None, None):
            raise ValueError("certificate and certificate_key are for transport: certificate")
        if self.transport != "kerberos" and (
            self.kerberos_delegation or self.kerberos_hostname_override
        ):
            raise ValueError("the kerberos keys are for transport: kerberos")
        return self

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if self.ca and self.pin:
            raise ValueError("give ca or pin, not both")
        if (self.ca or self.pin) and not self.tls:
            raise ValueError("ca and pin need an https endpoint")
        sealed = self.tls or (self.transport != "basic" and self.message_encryption != "never")
        if self.message_encryption == "always" and self.transport in ("basic", "certificate"):
            raise ValueError(f"transport {self.transport} has no message encryption")
        asked: set[Insecure] = {"basic"} if self.transport == "basic" else set()
        if self.transport == "credssp" or self.kerberos_delegation:
            asked.add("delegation")
        if not sealed:
            if self.message_encryption != "never":
                raise ValueError(
                    "Basic over http cannot be encrypted: use https, or another transport"
                )
            asked.add("unencrypted")
        if missing := sorted(asked - set(self.insecure)):
            why = (
                " (a build there can use the user's credentials)" if "delegation" in missing else ""
            )
            raise ValueError(
                f"{' and '.join(missing)} is not safe{why}: use transport ntlm and https, or name "
                f"it a second time, 'insecure: [{', '.join(sorted(asked))}]'"
            )
        if spare := sorted(set(self.insecure) - asked):
            raise ValueError(f"insecure names {spare[0]}, which nothing here asks for: remove it")
        return self

    @property
    def tls(self) -> bool:
        """Whether the endpoint is https."""
        return self.endpoint.startswith("https:")

    @property
    def bootstraps(self) -> bool:
        """Whether the pipeline is to put a Python there when there is none."""
        if self.bootstrap is None:
            return self.python.casefold() == FIRST_PYTHON.casefold()
        return self.bootstrap

    @property
    def place(self) -> str:
        """Its endpoint."""
        return self.endpoint

    def open(self, name: str, given: Opening) -> Host:
        """The machine; nothing is sent to it yet."""
        from pipelines.hosts.winrm.host import WindowsHost

        return WindowsHost(
            name, self, remember=given.remember, cache=given.cache, events=given.events
        )
