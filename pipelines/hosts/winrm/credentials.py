"""Where the password of a host comes from: the environment, the keyring or a prompt; never a file.

A source is asked for each connection, so that a password that was changed meanwhile is found. All
of them hand what they found to ``remember`` first, so that it is blanked wherever it might show.
"""

from __future__ import annotations

import getpass
import importlib
import os
import shlex
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Protocol

from pipelines.core.errors import ConfigError, SetupError
from pipelines.core.paths import CHECKOUT
from pipelines.hosts.winrm.config import WinRMHost

_PACKAGES = {"kerberos": "pywinrm[kerberos]", "credssp": "pywinrm[credssp]", "keyring": "keyring"}


def install_extra(name: str) -> str:
    """The command that installs an optional part: in a checkout the locked versions.

    Else by the part's own package: ours is on no index, and its name there would be anybody's.
    """
    if CHECKOUT is not None:
        return (
            ".venv/bin/uv pip install --system-certs --python .venv/bin/python -r pyproject.toml "
            f"--extra {name}"
        )
    return shlex.join([sys.executable, "-m", "pip", "install", _PACKAGES[name]])


class Credential(Protocol):
    """A password that is looked up when it is needed."""

    def get_secret_value(self) -> str:
        """The password as it is now, or ``ConfigError``/``SetupError``."""

    def forget(self) -> None:
        """It was refused: the next look-up asks anew."""


class _Remembered:
    """Tells ``remember`` of every value once: in CI each telling writes a line."""

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
        """Nothing is kept that would be used again."""


class FromEnvironment(_Remembered):
    """The value of an environment variable."""

    def __init__(self, host: str, variable: str, remember: Callable[[str], str] = str) -> None:
        super().__init__(host, remember)
        self.variable = variable

    def get_secret_value(self) -> str:
        """As it is set now; :class:`ConfigError` when it is not."""
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
        """As the keyring has it now; ``SetupError`` when there is no keyring."""
        try:
            keyring = importlib.import_module("keyring")  # an optional package
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
                "tells which one is used.",
            ) from None
        if value:
            return self._keep(value)
        raise ConfigError(
            f"host '{self.host}': the keyring has no password of {self.username!r} under "
            f"{self.service!r}",
            hint=f"Type: .venv/bin/python -m keyring set '{self.service}' '{self.username}'",
        )


_asking = threading.Lock()
_asked: dict[tuple[str, str], str] = {}


class FromPrompt(_Remembered):
    """Asked for on the terminal, once for each process, host and user, until it is refused."""

    def __init__(self, host: str, username: str, remember: Callable[[str], str] = str) -> None:
        super().__init__(host, remember)
        self.username = username

    def get_secret_value(self) -> str:
        """What was typed; :class:`ConfigError` where nobody can type."""
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
            raise self._nobody("there is no terminal to ask on" if not automatic else "this is CI")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", getpass.GetPassWarning)  # it would echo
                value = getpass.getpass(f"Password of {self.username} on host '{self.host}': ")
        except (EOFError, getpass.GetPassWarning):
            raise self._nobody("it could not be asked for") from None
        if not value:
            raise self._nobody("an empty one was typed")
        return value

    def _nobody(self, why: str) -> ConfigError:
        return ConfigError(
            f"host '{self.host}': its password is to be typed, but {why}",
            hint="In pipeline.yaml write 'password_env: NAME' instead of 'password_prompt', and "
            "set that environment variable (in CI from a secret).",
        )


def credential(
    name: str, config: WinRMHost, remember: Callable[[str], str] = str
) -> Credential | None:
    """The source that ``config`` names; ``None`` when no password signs in."""
    if config.password_env:
        return FromEnvironment(name, config.password_env, remember)
    if config.password_keyring:
        return FromKeyring(name, config.password_keyring, config.username, remember)
    if config.password_prompt:
        return FromPrompt(name, config.username, remember)
    return None
