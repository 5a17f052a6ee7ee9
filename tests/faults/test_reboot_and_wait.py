"""Restart and wait with the real client, against a WinRM service that goes down and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from simulated_windows import PASSWORD, SimulatedWindows
from tenacity.wait import wait_fixed

from pipelines.core.errors import AuthError, HostError
from pipelines.hosts.sandbox.wsman.auth import write_credentials
from pipelines.hosts.windows import reboot
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.remote import reboot as remote_reboot
from pipelines.remote import rpc
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs


class Lab:
    """A simulated host, and ``reboot_and_wait`` with its stand-ins for shutdown.exe and kernel."""

    def __init__(self, windows: SimulatedWindows) -> None:
        self.windows = windows
        self.sessions: list[Session] = []
        self.attempts = 0
        self.told: list[str] = []

    def asked(self) -> list[str]:
        """What shutdown.exe was called with."""
        return (self.windows.place / "shutdown-log").read_text().split()

    def connect(self) -> Session:
        self.attempts += 1
        session = over_winrs(self.windows.endpoint(), str(self.windows.python), "lab")
        self.sessions.append(session)
        return session

    def restart(self, session: Session, *, timeout: float = 120.0) -> Session:
        made = reboot_and_wait(
            self.connect,
            session,
            timeout=timeout,
            notice=0,
            command=["shutdown.exe", "/r"],
            identity=str(self.windows.place / "boot-id"),
            pauses=wait_fixed(0.2),
            progress=self.told.append,
        )
        assert made is self.sessions[-1]
        assert made is not session
        return made

    def down(self, seconds: float = 0.0, identity: str = "boot-2", *, knocks: int = 0) -> None:
        """Off, with every shell, and on again ``seconds`` and ``knocks`` attempts later."""
        self.windows.stop()
        self.windows.boot(identity)
        time.sleep(seconds)
        self.knocked(knocks)
        self.windows.start()

    def knocked(self, times: int) -> None:
        """Wait until somebody has tried so often to connect."""
        before = self.attempts
        until(lambda: self.attempts >= before + times)

    def shells(self) -> int:
        return len(self.windows.server.shells) if self.windows.server else 0


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    place = tmp_path / "windows"
    place.mkdir()
    lab = Lab(SimulatedWindows(place))
    yield lab
    for session in lab.sessions:
        session.close()
    lab.windows.stop()


@pytest.mark.parametrize(
    ("lingers", "off"),
    [
        pytest.param(0, 0, id="quickly"),
        pytest.param(0, 4, id="refuses connections for a while"),
        pytest.param(2, 2, id="answers for a while before it goes down"),
    ],
)
def test_restart(lab: Lab, lingers: int, off: int) -> None:
    """How long is counted in attempts to connect."""
    old = lab.connect()
    assert old.call(rpc.ping)

    def go() -> None:
        lab.knocked(lingers)
        lab.down(knocks=off)

    going = lab.windows.when_asked(go)
    new = lab.restart(old)
    going.join(60)
    assert (
        new.call(remote_reboot.boot_identity, path=str(lab.windows.place / "boot-id")) == "boot-2"
    )
    assert lab.asked() == ["/r"]
    with pytest.raises(HostError, match="session is closed"):
        old.call(rpc.ping)
    if off:
        assert lab.attempts >= 1 + lingers + off
        assert lab.told
    assert lab.shells() == 1, "only the returned session has one"


def test_goes_down_before_shutdown_has_answered(lab: Lab) -> None:
    slow = lab.windows.place / "bin/shutdown.exe.py"
    slow.write_text(slow.read_text() + "import time\ntime.sleep(600)\n")
    old = lab.connect()
    lab.windows.when_asked(lambda: lab.down(0.5))
    began = time.monotonic()
    assert lab.restart(old).call(rpc.ping)
    assert time.monotonic() - began < 240, "it waited for an answer that takes 600 s"


def test_restarts_once_more(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates do that: it is back, and goes down again before the second answer."""
    monkeypatch.setattr(reboot, "SETTLE", 60.0)
    old = lab.connect()
    connect = lab.connect
    again = threading.Timer(0.5, lab.down, (0.3, "boot-3"))

    def connect_and_lose() -> Session:
        session = connect()
        back = (lab.windows.place / "boot-id").read_text() == "boot-2\n"
        if back and not again.ident:
            again.start()
        elif again.ident and not back:
            monkeypatch.setattr(reboot, "SETTLE", 0.1)
        return session

    monkeypatch.setattr(lab, "connect", connect_and_lose)
    lab.windows.when_asked(lambda: lab.down(0))
    new = lab.restart(old)
    assert again.ident
    assert (
        new.call(remote_reboot.boot_identity, path=str(lab.windows.place / "boot-id")) == "boot-3"
    )


def users(lab: Lab, password: str) -> None:
    write_credentials(lab.windows.place / "users", "builder", password)


def down_with_password(lab: Lab, password: str) -> None:
    # Windows goes down two seconds after it was asked: the old session has left by then, and none
    # of its own sign-ins is among those that are refused.
    until(lambda: not lab.shells())
    lab.windows.stop()
    users(lab, password)
    lab.windows.boot("boot-2")
    lab.windows.start()


def test_sign_in_is_refused_at_first(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    old = lab.connect()
    refused: list[AuthError] = []
    connect = lab.connect

    def counting() -> Session:
        try:
            return connect()
        except AuthError as error:
            refused.append(error)
            users(lab, PASSWORD)  # the machine's account database is up now
            raise

    monkeypatch.setattr(lab, "connect", counting)
    lab.windows.when_asked(lambda: down_with_password(lab, "not yet"))
    assert lab.restart(old).call(rpc.ping)
    assert len(refused) == 1


def test_sign_in_stays_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboot, "REFUSED", 0.2)
    old = lab.connect()
    refused: list[AuthError] = []
    connect = lab.connect

    def counting() -> Session:
        try:
            return connect()
        except AuthError as error:
            refused.append(error)
            raise

    monkeypatch.setattr(lab, "connect", counting)
    going = lab.windows.when_asked(lambda: down_with_password(lab, "changed by somebody"))
    with pytest.raises(AuthError):
        lab.restart(old, timeout=10)
    going.join(60)
    assert 2 <= len(refused) <= 6
    assert sum("times in a row" in error.message for error in refused) >= len(refused) - 2
