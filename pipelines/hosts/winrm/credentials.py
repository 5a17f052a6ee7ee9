"""Sources of a host's password: the environment, the keyring or a prompt; never a file.

The source is read at each connection, so that a changed password is noticed. Every value is
passed to ``remember`` first, so that it is blanked in all output.
"""

from __future__ import annotations

import getpass
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Protocol

from pipelines.core.errors import ConfigError, SetupError
from pipelines.core.extras import install_extra
from pipelines.hosts.winrm.config import WinRMHost


class Credential(Protocol):
    """A password that is looked up when needed."""

    def get_secret_value(self) -> str:
        """The current password, or ``ConfigError``/``SetupError``."""

    def forget(self) -> None:
        """It was refused: the next look-up asks again."""


class _Remembered:
    """Passes every value to ``remember`` once: in CI each call writes a line."""

    def __init__(self, host: str, remember: Callable[[str], str]) -> None:
        self.host = host
        self._remember = remember
        self._known: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.host!r})"

    def _keep(self, value: str) -> str:
        if value not in self._known:
            self._known.add(value)
            self._remember(value)
        return value

    def forget(self) -> None:
        """Does nothing: no value is cached."""


class FromEnvironment(_Remembered):
    """The value of an environment variable."""

    def __init__(self, host: str, variable: str, remember: Callable[[str], str] = str) -> None:
        super().__init__(host, remember)
        self.variable = variable

    def get_secret_value(self) -> str:
        """Its current value; :class:`ConfigError` if it is not set."""
        if value := os.environ.get(self.variable):
            return self._keep(value)
        raise ConfigError(
            f"host '{self.host}': the environment variable {self.variable} "
            "with its password is not set",
            hint=f"Type: read -rs {self.variable}; export {self.variable}",
        )


class FromKeyring(_Remembered):
    """The password of a user under a service of the system's keyring."""

    def __init__(
        self, host: str, service: str, username: str, remember: Callable[[str], str] = str
    ) -> None:
        super().__init__(host, remember)
        self.service = service
        self.username = username

    def get_secret_value(self) -> str:
        """The keyring's current value; ``SetupError`` without a keyring."""
        try:
            keyring = importlib.import_module("keyring")  # an optional dependency
            problem = importlib.import_module("keyring.errors").KeyringError
        except ImportError:
            raise SetupError(
                f"host '{self.host}': password_keyring needs the package keyring",
                hint=f"Type: {install_extra('keyring')}",
            ) from None
        try:
            value = keyring.get_password(self.service, self.username)
        except problem as error:
            raise SetupError(
                f"host '{self.host}': the keyring cannot be read: {type(error).__name__}: "
                f"{str(error)[:300]}",
                hint="Unlock it, or use password_env; .venv/bin/python -m keyring diagnose "
                "shows which one is used.",
            ) from None
        if value:
            return self._keep(value)
        raise ConfigError(
            f"host '{self.host}': the keyring has no password for {self.username!r} under "
            f"{self.service!r}",
            hint=f"Type: .venv/bin/python -m keyring set '{self.service}' '{self.username}'",
        )


_asking = threading.Lock()
_asked: dict[tuple[str, str], str] = {}


class FromPrompt(_Remembered):
    """Prompted for on the terminal, once per process, host and user, until it is refused."""

    def __init__(self, host: str, username: str, remember: Callable[[str], str] = str) -> None:
        super().__init__(host, remember)
        self.username = username

    def get_secret_value(self) -> str:
        """The typed password; :class:`ConfigError` without a terminal."""
        place = (self.host, self.username)
        with _asking:
            if place not in _asked:
                _asked[place] = self._ask()
            return self._keep(_asked[place])

    def forget(self) -> None:
        """Ask again."""
        with _asking:
            _asked.pop((self.host, self.username), None)

    def _ask(self) -> str:
        automatic = os.environ.get("CI") or os.environ.get("GITHUB_ACTIONS")
        if automatic or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise self._no_password("there is no terminal" if not automatic else "this is CI")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", getpass.GetPassWarning)  # it would be echoed
                value = getpass.getpass(f"Password of {self.username} on host '{self.host}': ")
        except (EOFError, getpass.GetPassWarning):
            raise self._no_password("the prompt was cancelled") from None
        if not value:
            raise self._no_password("the input was empty")
        return value

    def _no_password(self, why: str) -> ConfigError:
        return ConfigError(
            f"host '{self.host}': its password must be typed, but {why}",
            hint="In pipeline.yaml replace 'password_prompt' by 'password_env: NAME', and "
            "set that environment variable (in CI from a secret).",
        )


def credential_source(
    name: str, config: WinRMHost, remember: Callable[[str], str] = str
) -> Credential | None:
    """The source that ``config`` names; ``None`` if no password is used."""
    if config.password_env:
        return FromEnvironment(name, config.password_env, remember)
    if config.password_keyring:
        return FromKeyring(name, config.password_keyring, config.username, remember)
    if config.password_prompt:
        return FromPrompt(name, config.username, remember)
    return None
