"""``kind: winrm`` of ``pipeline.yaml``: credentials and host verification."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, StringConstraints, model_validator

from pipelines.hosts.base import HostConfig
from pipelines.hosts.gpus import DriverGpu
from pipelines.hosts.windows import FIRST_PYTHON


def _fingerprint(text: object) -> object:
    """A fingerprint in any common format (``AA:BB``, ``sha256:``), as 64 lower-case digits."""
    if not isinstance(text, str):
        return text
    bare = re.sub(r"(?i)^\s*sha-?256( fingerprint)?\s*[:=]", "", text)
    digits = re.sub(r"[\s:]", "", bare).lower()
    if re.fullmatch(r"[0-9a-f]{40}", digits):
        raise ValueError(
            "that is a SHA-1 thumbprint, which can be forged; use the sha256 fingerprint: "
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
    """A Windows machine with WinRM enabled."""

    adapter: ClassVar = "pipelines.hosts.winrm.host:WindowsHost"
    kind: Literal["winrm"]
    """A Windows host reached over WinRM."""
    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[^/\s@]+/wsman$")]
    """``https://HOST:5986/wsman``."""
    transport: Literal["ntlm", "kerberos", "credssp", "certificate", "basic"] = "ntlm"
    """How to sign in; ``credssp`` gives the host the user's password itself."""
    username: str = ""
    """Required unless a certificate is used."""
    password_env: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    """Name of the environment variable with the password; never the password itself."""
    password_keyring: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Service in the system's keyring that holds the user's password."""
    password_prompt: bool = False
    """Prompt for it on the terminal, once per command."""
    certificate: str | None = None
    """PEM file with the user's certificate, for ``transport: certificate``."""
    certificate_key: str | None = None
    """PEM file with its key."""
    kerberos_delegation: bool = False
    """Delegate the user's ticket to the host: builds can then act as the user on other machines."""
    kerberos_hostname_override: str | None = None
    """The name in the host's service principal, if the address differs."""
    ca: str | None = None
    """PEM file of the CA of the host's certificate; default the system's store."""
    pin: Annotated[str, BeforeValidator(_fingerprint)] | None = None
    """Instead of ``ca``: sha256 fingerprint of the only certificate the host may present."""
    message_encryption: Literal["auto", "always", "never"] = "auto"
    """WinRM's own encryption, below HTTP; ``auto`` means always without TLS."""
    insecure: tuple[Insecure, ...] = ()
    """Repeats the insecure options that the other keys enable, to confirm them."""
    python: str = FIRST_PYTHON
    """The Python that runs the pipeline's own code there."""
    bootstrap: bool | None = None
    """Whether Python is installed there if missing; default when ``python`` is not set."""
    gpu: DriverGpu = False
    """GPUs to test on: ``true`` or ``all``, or nvidia-smi's numbers: ``1``, ``[0, 2]``."""

    @model_validator(mode="before")
    @classmethod
    def _no_secrets(cls, keys: object) -> object:
        for key in keys if isinstance(keys, dict) else ():
            if str(key).casefold().replace("-", "_") in _PASSWORD_WORDS:
                raise ValueError(
                    f"{key}: passwords are not allowed in this file; name their source: "
                    "'password_env: NAME' of an environment variable, 'password_keyring: SERVICE', "
                    "or 'password_prompt: true'. If it was a real one, change it"
                )
            if str(key).casefold().replace("-", "_") in _VERIFY_WORDS:
                raise ValueError(
                    f"{key}: certificates are always verified; for a self-signed one "
                    "set 'ca' to its file or 'pin' to its sha256 fingerprint"
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
        sources = [name for name in _PASSWORDS if getattr(self, name)]
        if self.transport in ("kerberos", "certificate"):
            if sources:
                source = "kinit's ticket" if self.transport == "kerberos" else "the certificate"
                raise ValueError(f"transport {self.transport} uses {source}: remove {sources[0]}")
        elif len(sources) != 1:
            raise ValueError(
                f"exactly one of {', '.join(_PASSWORDS)} is needed, found {len(sources)}"
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
            raise ValueError("certificate and certificate_key require transport: certificate")
        if self.transport != "kerberos" and (
            self.kerberos_delegation or self.kerberos_hostname_override
        ):
            raise ValueError("the kerberos keys require transport: kerberos")
        return self

    def notes(self, name: str) -> Iterable[str]:
        """Whether the password is still to be set."""
        if self.password_env and not os.environ.get(self.password_env):
            yield f"{name}: a build needs its password in {self.password_env}, which is not set"

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if self.ca and self.pin:
            raise ValueError("ca and pin are mutually exclusive")
        if (self.ca or self.pin) and not self.tls:
            raise ValueError("ca and pin require an https endpoint")
        sealed = self.tls or (self.transport != "basic" and self.message_encryption != "never")
        if self.message_encryption == "always" and self.transport in ("basic", "certificate"):
            raise ValueError(f"transport {self.transport} has no message encryption")
        enabled: set[Insecure] = {"basic"} if self.transport == "basic" else set()
        if self.transport == "credssp" or self.kerberos_delegation:
            enabled.add("delegation")
        if not sealed:
            if self.message_encryption != "never":
                raise ValueError(
                    "Basic over http cannot be encrypted: use https, or another transport"
                )
            enabled.add("unencrypted")
        if missing := sorted(enabled - set(self.insecure)):
            why = (
                " (a build there can use the user's credentials)" if "delegation" in missing else ""
            )
            raise ValueError(
                f"{' and '.join(missing)} is not safe{why}: use transport ntlm and https, or "
                f"confirm it with 'insecure: [{', '.join(sorted(enabled))}]'"
            )
        if spare := sorted(set(self.insecure) - enabled):
            raise ValueError(f"insecure names {spare[0]}, which no key here enables: remove it")
        return self

    @property
    def tls(self) -> bool:
        """Whether the endpoint is https."""
        return self.endpoint.startswith("https:")

    @property
    def bootstraps(self) -> bool:
        """Whether the pipeline installs Python there if it is missing."""
        if self.bootstrap is None:
            return self.python.casefold() == FIRST_PYTHON.casefold()
        return self.bootstrap

    @property
    def place(self) -> str:
        """Its endpoint."""
        return self.endpoint
