"""Restart and wait with the real client, against a WinRM service that goes down and comes back."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import pytest
from simulator import SimulatedHost
from tenacity.wait import wait_fixed
from timing import until
from winrm_programs import PASSWORD

from pipelines.core.errors import AuthError, HostError
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.remote import reboot as remote_reboot
from pipelines.remote import rpc
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs


class Lab:
    """A host, and ``reboot_and_wait`` with its stand-ins for shutdown.exe and kernel."""

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host
        self.attempts = 0
        self.told: list[str] = []
        self.refused: list[AuthError] = []
        self.asked, self.identity = host.place / "asked", host.place / "boot-id"
        self.identity.write_text("boot-1")

    def connect(self) -> Session:
        self.attempts += 1
        try:
            return over_winrs(self.host.endpoint(), sys.executable, "lab")
        except AuthError as error:
            self.refused.append(error)
            self.host.rotate_password(PASSWORD)  # the machine's account database is up now
            raise

    def restart(self, session: Session, then: Callable[[], None], seconds: float = 0.0) -> Session:
        """Restart it by a shutdown.exe that takes so long, and starts ``then``."""

        def go() -> None:
            until(self.asked.exists)
            then()

        going = threading.Thread(target=go, daemon=True)
        going.start()
        made = reboot_and_wait(
            self.connect,
            session,
            timeout=120.0,
            notice=0,
            command=["sh", "-c", f"echo asked >>{self.asked}; sleep {seconds}"],
            identity=str(self.identity),
            pauses=wait_fixed(0.2),
            progress=self.told.append,
        )
        going.join(60)
        assert self.asked.read_text() == "asked\n"
        return made

    def down(self, *, knocks: int = 0) -> None:
        """Off, with every shell, and on again so many attempts to connect later."""
        self.host.stop()
        self.identity.write_text("boot-2")
        self.knocked(knocks)
        self.host.start()

    def knocked(self, times: int) -> None:
        """Wait until somebody has tried so often to connect."""
        before = self.attempts
        until(lambda: self.attempts >= before + times)


@pytest.fixture
def lab(host: SimulatedHost) -> Lab:
    return Lab(host)


def test_answers_for_a_while_before_it_goes_down_and_then_refuses_connections(lab: Lab) -> None:
    """How long is counted in attempts to connect."""
    old = lab.connect()
    assert old.call(rpc.ping)

    def go() -> None:
        lab.knocked(2)
        lab.down(knocks=4)

    with lab.restart(old, go) as new:
        assert new.call(remote_reboot.boot_identity, path=str(lab.identity)) == "boot-2"
        with pytest.raises(HostError, match="session is closed"):
            old.call(rpc.ping)
        assert lab.attempts >= 1 + 2 + 4
        assert lab.told
        assert len(lab.host.shells()) == 1, "only the returned session has one"


def test_goes_down_before_shutdown_has_answered(lab: Lab) -> None:
    began = time.monotonic()
    with lab.restart(lab.connect(), lab.down, seconds=600) as new:
        assert new.call(rpc.ping)
    assert time.monotonic() - began < 240, "it waited for an answer that takes 600 s"


def test_sign_in_is_refused_at_first(lab: Lab) -> None:
    def go() -> None:
        # Windows goes down two seconds after it was asked: the old session has left by then, and
        # none of its own sign-ins is among those that are refused.
        until(lambda: not lab.host.shells())
        lab.host.rotate_password("not yet")
        lab.down()

    with lab.restart(lab.connect(), go) as new:
        assert new.call(rpc.ping)
    assert len(lab.refused) == 1
