"""Restart and wait: hosts that come back late, by degrees, or not at all. Nothing sleeps."""

from __future__ import annotations

import ctypes
import inspect
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import fake_winreg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_base, wait_fixed, wait_none

from pipelines.core.errors import AuthError, HostError, RemoteError
from pipelines.core.yamlfile import read_yaml
from pipelines.hosts.windows import reboot
from pipelines.hosts.windows.reboot import NOTICE, PAUSES, reboot_and_wait
from pipelines.remote import locks, rpc
from pipelines.remote import reboot as power
from pipelines.remote.jobs import store
from pipelines.remote.resources import registry
from pipelines.session.base import Session

ROOT = Path(__file__).parents[2]

ASKED = ["reboot.boot_identity", "reboot.shows_sign_in", "reboot.reboot"]
OK = {"code": 0, "message": ""}
GONE = HostError("connection lost during power.boot_identity: reset")
REFUSED = HostError("no connection: refused")
DENIED = AuthError("refused the sign-in of 'builder'")

Answer = str | bool | dict[str, Any] | BaseException


class FakeSession:
    """Gives its configured answers, in order; using it closed, or beyond that, is an error."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.closed = False

    def call(self, asked: Callable[..., object], /, **arguments: Any) -> Any:
        function = rpc.name_of(asked)
        assert not self.closed, f"{function} on a closed session"
        assert self.answers, f"{function} was not expected"
        self.calls.append((function, arguments))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stream(self, function: Callable[..., object], /, **arguments: Any) -> Iterator[Any]:
        for _ in range(2 if function is power.identities else 1):
            yield self.call(function, **arguments)

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not for here")


class Restart:
    """``reboot_and_wait`` with a host that answers connects with sessions and errors, in order."""

    def __init__(self, *connects: FakeSession | Exception) -> None:
        self.connects = list(connects)
        self.attempts = 0
        self.told: list[str] = []

    def connect(self) -> Any:
        assert self.connects, "one connection too many"
        self.attempts += 1
        made = self.connects.pop(0)
        if isinstance(made, Exception):
            raise made
        return made

    def __call__(
        self, session: FakeSession, *, pauses: wait_base | None = None, timeout: float = 600.0
    ) -> FakeSession:
        found = reboot_and_wait(
            self.connect,
            cast("Session", session),
            pauses=pauses or wait_none(),
            timeout=timeout,
            progress=self.told.append,
        )
        assert isinstance(found, FakeSession)
        return found


def before(*answers: Answer) -> FakeSession:
    """The session that the restart begins with."""
    return FakeSession("boot 1", False, *(answers or (OK,)))


def after(identity: str = "boot 2") -> FakeSession:
    return FakeSession(identity, identity)


def test_restart() -> None:
    old, new = before(), after()
    host = Restart(new)
    assert host(old) is new
    assert old.closed
    assert not new.closed
    assert [name for name, _ in old.calls] == ASKED
    reason = "restart requested by the build pipeline"
    assert old.calls[2][1] == {"command": [], "delay": 120, "reason": reason}
    settled = {"path": "", "pause": reboot.SETTLE, "screen": False}
    assert new.calls == [("reboot.identities", settled)] * 2
    assert host.told == []


def test_goes_on_answering_for_a_while_and_then_refuses() -> None:
    same = [FakeSession("boot 1") for _ in range(3)]
    new = after()
    host = Restart(*same, FakeSession(GONE), REFUSED, REFUSED, HostError("HTTP status 503"), new)
    assert host(before()) is new
    assert all(session.closed and not session.answers for session in same)
    assert host.attempts == 8
    assert len(host.told) == 7, "three times the same, one loss, three refusals"
    assert all(line.startswith("rebooting, ") and line.endswith(" s") for line in host.told)


@pytest.mark.parametrize(
    "answers",
    [
        ("boot 2", GONE),
        ("boot 2", "boot 3"),
        (RemoteError("OSError: NtQuerySystemInformation failed", kind="OSError"),),
    ],
    ids=["connection breaks between the two", "restarts twice", "Python is not ready"],
)
def test_what_does_not_answer_alike_twice_is_not_used_again(answers: tuple[Any, ...]) -> None:
    early, new = FakeSession(*answers), after("boot 3")
    assert Restart(early, new)(before()) is new
    assert early.closed


def test_sign_ins_that_are_refused_are_repeated_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten within ten minutes lock an account of Windows 11; a domain's host needs minutes."""
    slept: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", slept.append)
    new = after()
    assert Restart(DENIED, REFUSED, DENIED, FakeSession("boot 1"), DENIED, new)(before()) is new
    assert [pause for pause in slept if pause] == [15, 30, 60]
    slept.clear()
    with pytest.raises(AuthError) as caught:
        Restart(*[DENIED] * 8)(before(), timeout=sum(15 * 2**n for n in range(7)) - NOTICE)
    assert caught.value is DENIED
    assert [pause for pause in slept if pause] == [15 * 2**n for n in range(7)]


def test_updates_that_are_configured_while_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sign-in screen comes after them, and maybe after another restart."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(power, "boot_identity", lambda _: "boot 2")
    shown: list[bool] = [False, True]
    monkeypatch.setattr(registry, "exists", lambda key: shown.pop(0))
    with pytest.raises(RuntimeError, match="sign-in screen"):
        list(power.identities("", 0, screen=True))
    assert list(power.identities("", 0, screen=True)) == ["boot 2"] * 2
    assert list(power.identities("", 0)) == ["boot 2"] * 2
    early = FakeSession("boot 2", RemoteError("RuntimeError: no screen", kind="RuntimeError"))
    new = after()
    assert Restart(early, new)(FakeSession("boot 1", True, OK)) is new
    assert new.calls[0][1]["screen"] is True


# -- asking ----------------------------------------------------------------------------------------


def code(number: int, said: str = "") -> dict[str, Any]:
    return {"code": number, "message": said}


def test_somebody_has_scheduled_one() -> None:
    """It is not called off: it will do, or the wait ends with a word on it."""
    old = before(code(1190))
    assert Restart(after())(old).calls
    assert [name for name, _ in old.calls] == ASKED
    with pytest.raises(HostError, match="has not restarted") as caught:
        Restart(FakeSession("boot 1"))(before(code(1190)), pauses=LONG, timeout=-100)
    assert "shutdown /a" in caught.value.hint


def test_under_way_already() -> None:
    assert Restart(after())(before(code(1115)))


def test_connection_breaks_while_asking() -> None:
    assert Restart(after())(before(HostError("connection lost during reboot.reboot: reset")))


@pytest.mark.parametrize(
    ("answers", "message", "hint"),
    [
        (
            [code(5, "Access is denied.(5)")],
            r"refused to restart: exit code 5: Access",
            "right to shut down",
        ),
        ([code(21)], "exit code 21: no message", "by hand"),
        ([code(1, "\x1b[31mx\x07" + "y" * 900)], r"exit code 1: [^\x1b\x07]{,320}$", "by hand"),
        ([RemoteError("FileNotFoundError: shutdown.exe")], "cannot be restarted: FileNot", "hand"),
        ([AuthError("refused the sign-in")], "refused the sign-in", ""),
    ],
)
def test_host_that_refuses(answers: list[Answer], message: str, hint: str) -> None:
    host, old = Restart(), before(*answers)
    with pytest.raises(HostError, match=message) as caught:
        host(old)
    assert hint in caught.value.hint
    assert host.attempts == 0, "there is nothing to wait for"
    assert old.closed


def test_identity_that_cannot_be_told() -> None:
    old = FakeSession(RemoteError("OSError: /proc/sys/kernel/random/boot_id is empty"))
    with pytest.raises(RemoteError):
        Restart()(old)
    assert old.closed


# -- giving up -------------------------------------------------------------------------------------

LONG = wait_fixed(100)


def test_host_that_does_not_go_down() -> None:
    same = FakeSession("boot 1")
    with pytest.raises(HostError, match="has not restarted within 50 s") as caught:
        Restart(same)(before(), pauses=LONG, timeout=50 - NOTICE)
    assert "by hand" in caught.value.hint
    assert same.closed


@pytest.mark.parametrize("last", [REFUSED, RemoteError("OSError: x")])
def test_host_that_does_not_come_back(last: Exception) -> None:
    host = Restart(last)
    with pytest.raises(HostError, match="did not come back within 50 s; last attempt") as caught:
        host(before(), pauses=LONG, timeout=50 - NOTICE)
    assert str(last) in caught.value.message
    assert "console" in caught.value.hint
    assert host.attempts == 1, "the next attempt would begin too late"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug of ours")])
def test_whatever_else_happens_ends_the_wait(error: BaseException) -> None:
    session = FakeSession(error)
    with pytest.raises(type(error)):
        Restart(session)(before())
    assert session.closed


@given(st.integers(1, 60))
def test_pauses(attempt: int) -> None:
    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = attempt
    least = min(2 ** (attempt - 1), 12)
    pauses = {PAUSES(state) for _ in range(5)}
    assert all(least <= pause <= least + 1 for pause in pauses)
    assert len(pauses) > 1, "many controllers would knock at the same moment"


# -- on the host -----------------------------------------------------------------------------------


def test_boot_identity(tmp_path: Path) -> None:
    if sys.platform == "linux":
        assert (
            power.boot_identity()
            == power.boot_identity()
            == Path(power.BOOT_ID).read_text().strip()
        )
    (tmp_path / "id").write_text("boot 1\n")
    assert power.boot_identity(path=str(tmp_path / "id")) == "boot 1"
    (tmp_path / "id").write_text(" \n")
    with pytest.raises(OSError, match="is empty"):
        power.boot_identity(path=str(tmp_path / "id"))


class TimeOfDay:
    """NtQuerySystemInformation(SystemTimeOfDayInformation), the clock moved by ``moved``."""

    def __init__(self, moved: int) -> None:
        self.moved = moved

    def __call__(self, kind: int, found: Any, *_: Any) -> int:
        assert kind == 3
        numbers = (BOOTED + self.moved, 0, 0, 0, 0, self.moved % 2**64, 0)
        ctypes.memmove(found, struct.pack("<qqqIIQQ", *numbers), 48)
        return 0


BOOTED = 133_000_000_000_000_000


@pytest.mark.parametrize("hours", [0, 8, -8])
def test_the_clock_is_no_part_of_the_identity(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock runs in UTC, in a zone east or west of that, and its first NTP."""
    monkeypatch.setattr(sys, "platform", "win32")
    query = TimeOfDay(hours * 3600 * 10_000_000)
    ntdll = SimpleNamespace(NtQuerySystemInformation=query)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(ntdll=ntdll), raising=False)
    assert power.boot_identity() == f"windows {BOOTED}"


def test_nothing_that_a_restart_interrupts_is_asked_twice() -> None:
    for function in (power.reboot, power.identities):
        assert inspect.isgeneratorfunction(function)
        assert not hasattr(function, "idempotent")


def test_identities_are_told_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("pipelines.remote.reboot.time.sleep", slept.append)
    path = tmp_path / "id"
    path.write_text("boot 1")
    answers = power.identities(str(path), 0.5)
    assert next(answers) == "boot 1"
    assert slept == []
    path.write_text("boot 2")
    assert list(answers) == ["boot 2"]
    assert slept == [0.5]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        assert options["stdin"] == subprocess.DEVNULL
        assert options["timeout"] <= 60
        commands.append(command)
        return subprocess.CompletedProcess(command, -1 & 0xFFFFFFFF, b"x" * 5000 + b" \x81 end\r\n")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_what_is_asked_of_windows(ran: list[list[str]]) -> None:
    (told,) = power.reboot(delay=120, reason="r" * 600)
    assert told["code"] == 0xFFFFFFFF
    assert told["message"].endswith("\ufffd end")
    assert len(told["message"]) <= 1000
    assert ran == [["shutdown.exe", "/r", "/t", "120", "/c", "r" * 512]]


def test_the_playbook_gives_as_much_notice() -> None:
    tasks = [
        task["ansible.windows.win_reboot"]
        for path in (ROOT / "ansible/roles").rglob("*.yml")
        if "win_reboot" in path.read_text()
        for listed in read_yaml(path)
        for task in (listed, *listed.get("block", ()))
        if "ansible.windows.win_reboot" in task
    ]
    assert [int(task["pre_reboot_delay"]) for task in tasks] == [NOTICE] * 4


def test_codes_of_real_programs() -> None:
    (done,) = power.reboot([sys.executable, "-c", "print('no'); raise SystemExit(5)"], delay=0)
    assert done == {"code": 5, "message": "no"}


class Sessions:
    """wtsapi32.dll: the services' session, which has no user, and those of users."""

    def __init__(self, *users: str, error: int = 0) -> None:
        self.users, self.error, self.freed = ("", *users), error, 0
        self.rows = (power._Session * len(self.users))(
            *(power._Session(number, "x", 0) for number in range(len(self.users)))
        )

    def WTSEnumerateSessionsW(self, *asked: Any) -> int:  # noqa: N802 - its name
        found, count = asked[3]._obj, asked[4]._obj
        found.contents, count.value = self.rows[0], len(self.users)
        return int(not self.error)

    def WTSQuerySessionInformationW(self, *asked: Any) -> int:  # noqa: N802
        assert asked[2] == 5
        asked[3]._obj.value = self.users[asked[1]]
        return 1

    def WTSFreeMemory(self, _: object) -> None:  # noqa: N802
        self.freed += 1


def on_windows(monkeypatch: pytest.MonkeyPatch, wts: Sessions) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "WinDLL", lambda *_, **__: wts, raising=False)
    monkeypatch.setattr(ctypes, "get_last_error", lambda: wts.error, raising=False)


def test_users_who_are_signed_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_windows(monkeypatch, wts := Sessions("anna", "bert", "anna"))
    assert power.interrupts(str(tmp_path)) == ["user anna is signed in", "user bert is signed in"]
    assert wts.freed == 4
    on_windows(monkeypatch, Sessions())
    assert power.interrupts(str(tmp_path)) == []


def test_sessions_that_cannot_be_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_windows(monkeypatch, Sessions("anna", error=5))
    with pytest.raises(OSError, match="WTSEnumerateSessionsW"):
        power.interrupts(str(tmp_path))


def test_jobs_that_run(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        spec = {"title": f"build {name}", "function": "f", "arguments": {}}
        store.write(tmp_path / name / store.SPEC, spec)
    assert power.interrupts(str(tmp_path)) == []
    with locks.claim(tmp_path / "2" / store.ALIVE):
        assert power.interrupts(str(tmp_path)) == ["job 2 is running (build 2)"]
        for file, damaged in ((store.STATE, '{"attempt": "x"}'), (store.SPEC, "")):
            (tmp_path / "2" / file).write_text(damaged)
            said = power.interrupts(str(tmp_path))
            assert said == ["job 2 is running (unknown: its records are damaged)"]


COMPONENTS = r"software\microsoft\windows\currentversion\component based servicing\rebootpending"
UPDATES = r"software\microsoft\windows\currentversion\windowsupdate\auto update\rebootrequired"
MANAGER = r"system\currentcontrolset\control\session manager"


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    keys: dict[Any, Any] = {}
    monkeypatch.setattr(fake_winreg, "keys", keys)
    monkeypatch.setitem(sys.modules, "winreg", fake_winreg)
    monkeypatch.setattr(sys, "platform", "win32")
    return keys


def test_nothing_pending(windows: dict[Any, Any]) -> None:
    assert power.pending_reboot() == []
    windows["HKLM", MANAGER] = {}
    assert power.pending_reboot() == []


def test_pending(windows: dict[Any, Any]) -> None:
    windows["HKLM", COMPONENTS] = {}
    assert power.pending_reboot() == [
        "component servicing: HKLM\\SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\Component Based "
        "Servicing\\RebootPending"
    ]
    windows["HKLM", UPDATES] = {}
    assert [line.partition(":")[0] for line in power.pending_reboot()] == [
        "component servicing",
        "Windows Update",
    ]


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([r"\??\C:\a", "", r"\??\C:\b", r"\??\C:\c"], "2 files in use"),
        ([r"\??\C:\a", ""], r"1 files in use to be renamed or deleted, first \??\C:\a"),
        (["", ""], None),
        ([], None),
        (None, None),
        ([r"\??\C:\\" + "x" * 900, ""], "1 files"),
    ],
)
def test_files_in_use(windows: dict[Any, Any], files: list[str] | None, wanted: str | None) -> None:
    windows["HKLM", MANAGER] = {"pendingfilerenameoperations": (files, fake_winreg.REG_MULTI_SZ)}
    found = power.pending_reboot()
    assert len(found) == (wanted is not None)
    if wanted:
        assert found[0].startswith(wanted)
        assert len(found[0]) <= 300
    windows["HKLM", MANAGER]["pendingfilerenameoperations2"] = (
        [r"\??\C:\a", ""],
        fake_winreg.REG_MULTI_SZ,
    )
    assert len(power.pending_reboot()) == len(found) + 1


def test_pending_is_a_matter_of_windows() -> None:
    assert sys.platform == "win32" or power.pending_reboot() == []
