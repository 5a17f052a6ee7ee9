"""The life of a sandbox without a Wine: its states, what revives it, what remakes it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from test_image_inputs import Steps

from pipelines.core.errors import HostError, SetupError, StorageError
from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.sandbox import host as sandbox_host
from pipelines.hosts.sandbox import image, libcxx
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.host import RESTARTS, Sandbox
from pipelines.hosts.sandbox.state import (
    IN_USE,
    DamagedSandboxError,
    State,
    hold_service_lock,
    is_service_alive,
    publish_state,
    read_live_state,
    withdraw_state,
)
from pipelines.hosts.sandbox.wine import SEAL
from pipelines.session.base import DeadHostError
from pipelines.session.transports.endpoint import Endpoint
from pipelines.toolchain.lock import Cache, load_lock

TODAY = "image of today"
DAMAGED = DamagedSandboxError("damaged", hint="Type: invoke provision")


class Fake(Sandbox):
    """A sandbox whose service is a process that only sleeps; ``refusals`` keep it from starting."""

    def __init__(self, home: Path) -> None:
        self.told = Steps()
        settings = SandboxHost.model_validate({"kind": "sandbox", "home": str(home / "s")})
        super().__init__("s", settings, OpenOptions("3.11", Cache(load_lock(), home), self.told))
        self.refusals: list[HostError] = []
        self.made = self.starts = 0
        self.services: list[subprocess.Popen[bytes]] = []

    def _make(self) -> None:
        if self.status() == "absent":
            self.made += 1
            self.prefix.mkdir(parents=True)
            self.seal(TODAY)
            (self.prefix / f"made{self.made}").touch()

    def _start(self, *, tied: bool) -> State:
        self.starts += 1
        if self.refusals:
            raise self.refusals.pop(0)
        return self.serve()

    def seal(self, image: str) -> None:
        (self.prefix / SEAL).write_text(json.dumps({"python": "3.11", "image": image}))

    def serve(self) -> State:
        """As its service, whoever has started it."""
        self.run.mkdir(exist_ok=True)
        (self.run / "credentials").write_text("x:u:p")
        command = [sys.executable, "-c", "import time; time.sleep(60)", "sandbox.daemon"]
        self.services.append(subprocess.Popen([*command, str(self.home)]))
        pid = self.services[-1].pid
        publish_state(self.run, made := State(pid=pid, https="h", http="h", certificate_sha256=""))
        while read_live_state(self.run) is None:  # for a moment, a process that begins has no words
            time.sleep(0.001)
        return made

    def die(self) -> None:
        self.services[-1].kill()
        self.services[-1].wait()

    def moved(self) -> list[str]:
        return sorted(path.name for path in self.aside.iterdir()) if self.aside.exists() else []


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(sandbox_host, "Prefix", NoWine)
    monkeypatch.setattr(image, "image_key", lambda cache, python: TODAY)
    made = Fake(tmp_path)
    yield made
    for service in made.services:
        service.kill()
        service.wait()


class NoWine:
    """A prefix in which nothing runs."""

    halted: list[Path] = []  # noqa: RUF012 - of all of them

    def __init__(self, path: Path) -> None:
        self.path = path

    def halt(self) -> None:
        self.halted.append(self.path)


Reconnect = Callable[[], Endpoint]


def reach(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Reconnect:
    """Connect, as far as what a session would call when its connection is lost."""
    taken: list[Reconnect] = []

    def over(*_: object, again: Reconnect) -> Any:
        taken.append(again)

    monkeypatch.setattr("pipelines.session.channel.over_winrs", over)
    sandbox.connect()
    return taken[0]


# -- states ----------------------------------------------------------------------------------------


def test_states(sandbox: Fake) -> None:
    assert sandbox.status() == "absent"
    assert sandbox.missing_image(), "a dry run does not create it"
    sandbox._make()
    assert sandbox.status() == "stopped"
    assert not sandbox.missing_image()
    sandbox.start(ephemeral=False)
    assert sandbox.status() == "running"
    (sandbox.run / IN_USE).touch()
    sandbox.die()
    assert sandbox.status() == "crashed"
    with hold_service_lock(sandbox.run):
        assert sandbox.status() == "changing"
    (sandbox.prefix / SEAL).unlink()
    assert sandbox.status() == "broken"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EBADF, 0])
def test_a_home_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """There an exclusive lock wants a writable file (flock(2)), and some servers have no locks."""
    genuine = fcntl.flock

    def flock(file: int, kind: int) -> None:
        if number or (kind & fcntl.LOCK_EX and not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE):
            raise OSError(number or errno.EBADF, os.strerror(number or errno.EBADF))
        genuine(file, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    if number:
        with pytest.raises(SetupError, match="cannot be locked"), hold_service_lock(tmp_path):
            pass
        return
    with hold_service_lock(tmp_path):
        assert is_service_alive(tmp_path)
    assert not is_service_alive(tmp_path)


@pytest.mark.parametrize("refused", [False, True])
def test_a_file_system_without_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """As WSL's of a Windows drive: chmod changes nothing, or is refused to all but the owner."""

    def chmod(path: Path, mode: int) -> None:
        if refused:
            raise PermissionError(errno.EPERM, "", str(path))

    (tmp_path / "s-py3.11/run").mkdir(parents=True)
    (tmp_path / "s-py3.11/run").chmod(0o750)
    monkeypatch.setattr(Path, "chmod", chmod)
    settings = SandboxHost.model_validate({"kind": "sandbox", "home": str(tmp_path / "s")})
    opening = OpenOptions("3.11", Cache(load_lock(), tmp_path / "cache"), Silent())
    with pytest.raises(SetupError, match=r"s-py3\.11/run .*mode 0750") as caught:
        Sandbox("s", settings, opening)._make()
    assert "in WSL not below /mnt" in caught.value.hint
    assert not (tmp_path / "cache").exists(), "before anything is fetched"


def test_a_service_is_one_s_own_and_alive(sandbox: Fake, tmp_path: Path) -> None:
    state = sandbox.start(ephemeral=False)
    other = tmp_path / "other/run"
    other.mkdir(parents=True)
    publish_state(other, state)
    assert read_live_state(sandbox.run) == state
    assert read_live_state(other) is None, "its number is taken by another sandbox's service"
    sandbox.die()
    assert read_live_state(sandbox.run) is None


def test_one_service_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.hosts.sandbox.state._TURN", 0.1)
    assert not is_service_alive(tmp_path)
    with hold_service_lock(tmp_path):
        assert is_service_alive(tmp_path)
        with pytest.raises(HostError, match="cannot be stopped"), hold_service_lock(tmp_path):
            raise AssertionError
    assert not is_service_alive(tmp_path)
    with hold_service_lock(tmp_path):
        pass


# -- reading never remakes -------------------------------------------------------------------------


def test_a_crashed_one_is_started_on_the_same_files(
    sandbox: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(sandbox, monkeypatch)
    (sandbox.run / IN_USE).touch()
    sandbox.die()
    reach(sandbox, monkeypatch)
    assert (sandbox.made, sandbox.starts) == (1, 2)


def test_connecting_leaves_damaged_files_alone(
    sandbox: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox._make()
    sandbox.refusals = [DAMAGED]
    with pytest.raises(DamagedSandboxError) as caught:
        reach(sandbox, monkeypatch)
    assert "invoke provision" in caught.value.hint
    assert (sandbox.made, sandbox.moved()) == (1, [])
    assert (sandbox.prefix / "made1").exists()


def test_provisioning_moves_damaged_files_aside(sandbox: Fake) -> None:
    for number in (1, 2):
        sandbox._make()
        sandbox.refusals = [DAMAGED]
        sandbox.prepare()
        assert sandbox.moved() == sorted([f"made{number}", SEAL]), "there is one at most"
        assert (sandbox.prefix / f"made{number + 1}").exists()
        assert any(str(sandbox.aside) in text for text in sandbox.told.steps)
        assert NoWine.halted[-1] == sandbox.prefix
        sandbox.die()
    (kept,) = sandbox.cache_entries()
    assert (kept.path, kept.useful) == (sandbox.aside, False)
    sandbox.teardown()
    assert not sandbox.aside.exists()


def test_provisioning_remakes_nothing_for_another_reason(sandbox: Fake) -> None:
    sandbox.refusals = [DeadHostError("the port is taken")]
    with pytest.raises(DeadHostError, match="port"):
        sandbox.prepare()
    assert (sandbox.made, sandbox.moved()) == (1, [])
    sandbox.prepare()
    sandbox.prepare()
    assert (sandbox.made, sandbox.starts) == (1, 2), "one that runs is left alone"


# -- an image of another release -------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [{"python": "3.11"}, {"python": "3.11", "image": "older"}])
def test_one_of_another_image_builds_nothing_and_is_provisioned_anew(
    sandbox: Fake, monkeypatch: pytest.MonkeyPatch, sealed: dict[str, str]
) -> None:
    """As an update of the project leaves it: its compiler is no longer the one that is meant."""
    sandbox._make()
    (sandbox.prefix / SEAL).write_text(json.dumps(sealed))
    with pytest.raises(
        DamagedSandboxError, match=rf"{sealed.get('image', 'unknown')}.*current one is image"
    ):
        reach(sandbox, monkeypatch)
    assert (sandbox.starts, sandbox.moved()) == (0, []), "its builds are still there"
    sandbox.prepare()
    assert (sandbox.made, sandbox.starts) == (2, 1)
    assert json.loads((sandbox.aside / SEAL).read_text()) == sealed
    reach(sandbox, monkeypatch)


def test_what_it_is_made_of_has_libcxx_where_a_package_takes_that(
    sandbox: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no build is gone on with by other headers than it began with."""
    config = SandboxHost.model_validate({"kind": "sandbox", "home": str(tmp_path)})
    given = OpenOptions("3.11", sandbox.cache, api="stable")
    found = [sandbox.inputs, Sandbox("s", config, given).inputs]
    assert found == [TODAY, libcxx.libcxx_cache_key(sandbox.cache, "3.11")]
    monkeypatch.setattr(libcxx, "__file__", __file__)
    assert Sandbox("s", config, given).inputs not in found


def test_one_of_another_image_that_runs_is_left_running(
    sandbox: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(sandbox, monkeypatch)
    sandbox.seal("older")
    for use in (lambda: reach(sandbox, monkeypatch), sandbox.prepare):
        with pytest.raises(DeadHostError, match="it runs") as caught:
            use()
        assert not isinstance(caught.value, DamagedSandboxError), "nothing is moved from under it"
        assert "host stop provision" in caught.value.hint
    assert (sandbox.status(), sandbox.made) == ("running", 1)
    sandbox.inspect_only()  # as invoke jobs, and host stop, which asks what runs there
    reach(sandbox, monkeypatch)
    with pytest.raises(DeadHostError, match="it runs"):
        sandbox.prepare()


# -- death under a command -------------------------------------------------------------------------


def test_a_death_is_known_and_cured(sandbox: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    again = reach(sandbox, monkeypatch)
    assert sandbox.ended() == ""
    assert again().username == "u", "only the connection was lost"
    assert sandbox.starts == 1
    sandbox.die()
    assert sandbox.ended() == "the sandbox 's' has stopped"
    again()
    assert (sandbox.ended(), sandbox.starts, sandbox.made) == ("", 2, 1)


def test_a_service_that_is_ending_has_ended(sandbox: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    reach(sandbox, monkeypatch)
    withdraw_state(sandbox.run)
    assert sandbox.ended()


def test_one_that_another_command_has_started_is_found(
    sandbox: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = reach(sandbox, monkeypatch)
    sandbox.die()
    sandbox.serve()
    assert sandbox.ended(), "what ran in the first one has ended all the same"
    for _ in range(RESTARTS + 1):
        again()
        assert (sandbox.ended(), sandbox.starts) == ("", 1)
    sandbox.die()
    again()
    assert sandbox.starts == 2, "only one's own restarts are counted"


def test_it_is_started_again_a_few_times(sandbox: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    again = reach(sandbox, monkeypatch)
    for _ in range(RESTARTS):
        sandbox.die()
        again()
    again()
    assert sandbox.starts == 1 + RESTARTS, "a connection that is lost is no death"
    sandbox.die()
    with pytest.raises(DeadHostError, match=f"has stopped {RESTARTS + 1} times") as caught:
        again()
    assert "--jobs 1" in caught.value.hint
    assert sandbox.starts == 1 + RESTARTS


def test_one_that_was_removed_is_not_made_again(
    sandbox: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = reach(sandbox, monkeypatch)
    sandbox.die()
    sandbox.teardown()
    with pytest.raises(DeadHostError, match="has been removed"):
        again()
    assert sandbox.made == 1


def test_one_that_does_not_start_again_is_dead(
    sandbox: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = reach(sandbox, monkeypatch)
    sandbox.die()
    sandbox.refusals = [DAMAGED]
    with pytest.raises(DeadHostError, match="damaged"):
        again()
    assert sandbox.moved() == []


def test_one_that_ends_while_it_is_signed_in_to(
    sandbox: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = reach(sandbox, monkeypatch)
    (sandbox.run / "credentials").unlink()
    with pytest.raises(HostError, match="has just stopped"):
        again()


def test_stopping_one_that_crashed_ends_what_is_left(sandbox: Fake) -> None:
    sandbox.start(ephemeral=False)
    (sandbox.run / IN_USE).touch()
    sandbox.die()
    del NoWine.halted[:]
    assert sandbox.stop()
    assert NoWine.halted == [sandbox.prefix]
    (sandbox.run / IN_USE).unlink()
    assert not sandbox.stop()


def test_an_image_is_made_once_by_two_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two hosts are made ready: the second waits, and takes what the first has made."""
    made: list[Path] = []
    both = threading.Barrier(2, timeout=10)

    def make(cache: object, python: str, key: str, scratch: Path, step: object) -> None:
        made.append(scratch)
        time.sleep(0.2)
        (scratch / SEAL).write_text("{}")

    def key_of(*_: object) -> str:
        both.wait()  # none of them has seen the other's image
        return "abc"

    monkeypatch.setattr(image, "image_key", key_of)
    monkeypatch.setattr(image, "_build_sealed_prefix", make)
    cache = Cache(load_lock(), tmp_path)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: image.make_image(cache, "3.11", print), range(2)))
    assert found == [tmp_path / "images/abc-py3.11"] * 2
    assert len(made) == 1
    assert [one.name for one in found[0].parent.iterdir() if not one.name.endswith(".lock")] == [
        "abc-py3.11"
    ]
    assert (found[0].stat().st_mode & 0o777) == 0o755


def test_a_disk_that_is_full_while_the_image_is_copied_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "image"
    (made / "drive_c").mkdir(parents=True)
    for name in ("a.dll", "b.dll"):
        (made / "drive_c" / name).write_text("x", "utf-8")

    def full(_: str, target: str) -> str:
        raise OSError(errno.ENOSPC, "No space left on device", target)

    monkeypatch.setattr(image, "_copy_or_link", full)
    with pytest.raises(StorageError, match="No space left on device") as failed:
        image.copy_image(made, tmp_path / "prefix")
    assert failed.value.message.count("No space left") == 1
    assert "[(" not in failed.value.message
    assert [one.name for one in tmp_path.iterdir()] == ["image"]
