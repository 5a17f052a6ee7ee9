"""Where passwords come from: asked again, never shown, and never without a terminal."""

from __future__ import annotations

import getpass
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.core.errors import ConfigError, PipelineError, SetupError
from pipelines.core.extras import install_extra
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.winrm import credentials
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.hosts.winrm.credentials import credential_source
from pipelines.hosts.winrm.host import WindowsHost
from pipelines.toolchain.lock import Cache, load_lock

OPTIONS = OpenOptions("3.11", Cache(load_lock()))


def config(**keys: object) -> WinRMHost:
    base = {"kind": "winrm", "endpoint": "https://lab/wsman", "username": "u"}
    return WinRMHost.model_validate(base | keys)


def source(remembered: list[str] | None = None, **keys: object) -> credentials.Credential:
    def remember(value: str) -> str:
        if remembered is not None:
            remembered.append(value)
        return value

    made = credential_source("lab", config(**keys), remember)
    assert made is not None
    return made


def test_environment_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    found = source(told, password_env="LAB_PW")
    monkeypatch.setenv("LAB_PW", "first")
    assert [found.get_secret_value() for _ in range(2)] == ["first", "first"]
    monkeypatch.setenv("LAB_PW", "second")
    assert found.get_secret_value() == "second"
    assert told == ["first", "second"], "each value once: in CI each telling is a line"
    assert "second" not in repr(found)


@pytest.mark.parametrize("value", [None, ""])
def test_environment_without_it(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("LAB_PW", raising=False)
    if value is not None:
        monkeypatch.setenv("LAB_PW", value)
    with pytest.raises(ConfigError, match="'lab': the environment variable LAB_PW") as caught:
        source(password_env="LAB_PW").get_secret_value()
    assert "read -rs LAB_PW" in caught.value.hint


# -- keyring ---------------------------------------------------------------------------------------


class Ring(types.ModuleType):
    """As much of the package as is used."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.problem: Exception | None = None

    def get_password(self, service: str, username: str) -> str | None:
        if self.problem:
            raise self.problem
        return self.kept.get((service, username))


class KeyringError(Exception):
    pass


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    made = Ring()
    errors: Any = types.ModuleType("keyring.errors")
    errors.KeyringError = KeyringError
    monkeypatch.setitem(sys.modules, "keyring", made)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    return made


def test_keyring_is_read_each_time(ring: Ring) -> None:
    told: list[str] = []
    found = source(told, password_keyring="wcw")
    ring.kept["wcw", "u"] = "first"
    assert found.get_secret_value() == "first"
    ring.kept["wcw", "u"] = "second"
    assert found.get_secret_value() == "second"
    assert told == ["first", "second"]


def test_keyring_without_it(ring: Ring) -> None:
    with pytest.raises(ConfigError, match="'u' under 'wcw'") as caught:
        source(password_keyring="wcw").get_secret_value()
    assert "keyring set 'wcw' 'u'" in caught.value.hint


def test_keyring_that_is_locked(ring: Ring) -> None:
    ring.problem = KeyringError("locked")
    with pytest.raises(SetupError, match="cannot be read: KeyringError: locked") as caught:
        source(password_keyring="wcw").get_secret_value()
    assert "password_env" in caught.value.hint


def test_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(SetupError, match="needs the package keyring") as caught:
        source(password_keyring="wcw").get_secret_value()
    assert install_extra("keyring") in caught.value.hint


# -- prompt ----------------------------------------------------------------------------------------


class Person:
    """Types what is in ``answers``; an exception is what happens instead."""

    def __init__(self) -> None:
        self.answers: list[str | BaseException | type[Warning]] = []
        self.prompts: list[str] = []

    def getpass(self, prompt: str) -> str:
        self.prompts.append(prompt)
        answer = self.answers.pop(0)
        if isinstance(answer, type):
            warnings.warn("it would be shown", answer, stacklevel=1)
            return "shown"
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    made = Person()
    monkeypatch.setattr(getpass, "getpass", made.getpass)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    credentials._asked.clear()
    yield made
    credentials._asked.clear()


def test_prompt_asks_once_until_it_is_refused(person: Person) -> None:
    person.answers = ["wrong", "right"]
    told: list[str] = []
    found = source(told, password_prompt=True)
    assert [found.get_secret_value() for _ in range(2)] == ["wrong", "wrong"]
    assert source(told, password_prompt=True).get_secret_value() == "wrong", "once a process"
    found.forget()
    assert found.get_secret_value() == "right"
    assert person.prompts == ["Password of u on host 'lab': "] * 2
    assert set(told) == {"wrong", "right"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [("", "empty"), (EOFError(), "cancelled"), (getpass.GetPassWarning, "cancelled")],
)
def test_prompt_without_an_answer(
    person: Person, answer: str | BaseException | type[Warning], said: str
) -> None:
    person.answers = [answer]
    with pytest.raises(ConfigError, match=said):
        source(password_prompt=True).get_secret_value()


@pytest.mark.parametrize("variable", ["CI", "GITHUB_ACTIONS"])
def test_prompt_in_ci(person: Person, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(ConfigError, match="this is CI") as caught:
        source(password_prompt=True).get_secret_value()
    assert "password_env" in caught.value.hint
    assert not person.prompts


@pytest.mark.parametrize("stream", ["stdin", "stderr"])
def test_prompt_without_a_terminal(
    person: Person, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: False, raising=False)
    with pytest.raises(ConfigError, match="no terminal") as caught:
        source(password_prompt=True).get_secret_value()
    assert "password_env" in caught.value.hint
    assert not person.prompts


# -- what needs no password ------------------------------------------------------------------------


def test_ticket_and_certificate_need_none() -> None:
    assert credential_source("lab", config(transport="kerberos")) is None
    pair = {"certificate": "a.pem", "certificate_key": "a.key"}
    assert credential_source("lab", config(transport="certificate", **pair)) is None


@pytest.mark.parametrize(
    ("keys", "command"),
    [
        ({"transport": "kerberos"}, "libkrb5-dev"),
        (
            {"transport": "credssp", "password_env": "LAB_PW", "insecure": ["delegation"]},
            "credssp",
        ),
    ],
)
def test_package_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, keys: dict[str, object], command: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match="needs a package that is not installed") as caught:
        WindowsHost("lab", config(**keys), OPTIONS).endpoint()
    assert command in caught.value.hint
    assert install_extra(str(keys["transport"])) in caught.value.hint


def test_files_that_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("LAB_PW", "secret")
    for key in ("ca", "certificate", "certificate_key"):
        files = {name: tmp_path / name for name in ("certificate", "certificate_key", "ca")}
        for name, path in files.items():
            path.unlink(missing_ok=True)
            if name != key:
                path.touch()
        keys: dict[str, object] = {name: str(path) for name, path in files.items()}
        with pytest.raises(PipelineError, match=f"'lab': {key}: ") as caught:
            WindowsHost("lab", config(transport="certificate", **keys), OPTIONS).endpoint()
        assert caught.value.exit_code == 2
