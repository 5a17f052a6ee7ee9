"""A host's WinRM address and the credentials for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol


class SecretValue(Protocol):
    """Something that holds a secret, such as pydantic's ``SecretStr``."""

    def get_secret_value(self) -> str:
        """The secret itself."""


@dataclass(frozen=True)
class Secret:
    """A password that does not show in a repr."""

    _value: str

    def get_secret_value(self) -> str:
        """The password itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"


@dataclass(frozen=True)
class Endpoint:
    """A host's WinRM address, how it is verified, and the credentials for it.

    Certificate verification cannot be disabled: a certificate not signed by ``ca`` or a system
    authority must match the fingerprint ``pin``.
    """

    url: str
    username: str
    password: SecretValue | None = None
    """Called at each connection; none for Kerberos and certificates."""
    transport: Literal["ntlm", "kerberos", "credssp", "certificate", "basic"] = "ntlm"
    ca: Path | None = None
    pin: str | None = None
    """sha256 of the host's certificate, 64 hexadecimal digits."""
    message_encryption: Literal["auto", "always", "never"] = "auto"
    certificate: Path | None = None
    certificate_key: Path | None = None
    kerberos_delegation: bool = False
    kerberos_hostname_override: str | None = None
    refused: Callable[[], object] = field(default=lambda: None, repr=False)
    """Called when the sign-in is refused, so that the next one asks for another password."""
    operation_timeout: int = 20
    read_timeout: int = 40
    patience: float = 60.0
    """Seconds that Python may take to start there."""
    _seen: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, username={self.username!r})"

    def secret(self) -> str | None:
        """The current password; raises what its source raises."""
        if self.password is None:
            return None
        value = self.password.get_secret_value()
        self._seen.add(value)
        return value

    def blank(self, text: str) -> str:
        """``text`` with every password used here removed."""
        for value in sorted(filter(None, self._seen), key=len, reverse=True):
            text = text.replace(value, "***")
        return text
