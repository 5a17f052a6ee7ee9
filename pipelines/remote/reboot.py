r"""Restarts the host, and determines whether it was restarted.

A restart is proved by the boot identity: text that stays the same as long as the kernel runs, and
differs afterwards. Functions that a restart may interrupt yield their results: a session reconnects
to repeat a call, which must not happen here.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from .jobs import store
from .limits import UNIX
from .resources import registry
from .rpc import idempotent

BOOT_ID = "/proc/sys/kernel/random/boot_id"
WINE_BOOT_ID = UNIX + BOOT_ID.replace("/", "\\")
_TIMEOUT = 60.0
_OUTPUT_LIMIT = 1000

_KEYS = (
    (
        "component servicing",
        r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending",
    ),
    (
        "Windows Update",
        r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired",
    ),
)
_SESSION_MANAGER = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager"
#: A volatile key, created by the sign-in screen, after the updates that a boot still configures.
#: https://github.com/ansible-collections/ansible.windows/blob/main/plugins/plugin_utils/_reboot.py
_SIGN_IN_SCREEN = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon\AutoLogonChecked"
_RENAMES = ("PendingFileRenameOperations", "PendingFileRenameOperations2")


class _TimeOfDay(ctypes.Structure):
    """SYSTEM_TIMEOFDAY_INFORMATION; times in units of 100 ns since 1601."""

    _fields_ = (
        ("boot_time", ctypes.c_int64),
        ("current_time", ctypes.c_int64),
        ("time_zone_bias", ctypes.c_int64),
        ("time_zone_id", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        # Declared unsigned, but negative after the clock was set back: KeSetSystemTime in
        # https://github.com/reactos/reactos/blob/master/ntoskrnl/ke/clock.c
        ("boot_time_bias", ctypes.c_int64),
        ("sleep_time_bias", ctypes.c_uint64),
    )


def _kernel_boot_time() -> int:
    """When the Windows kernel started, by the clock at that time.

    Setting the clock changes ``boot_time`` and ``boot_time_bias`` alike; their difference stays.
    """
    windll: Any = ctypes.windll  # type: ignore[attr-defined, unused-ignore]
    query = windll.ntdll.NtQuerySystemInformation
    query.restype = ctypes.c_int32
    query.argtypes = [ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p]
    information = _TimeOfDay()
    # SystemTimeOfDayInformation
    status = query(3, ctypes.byref(information), ctypes.sizeof(information), None)
    if status != 0 or not information.boot_time:
        raise OSError(f"NtQuerySystemInformation failed: 0x{status & 0xFFFFFFFF:08x}")
    return int(information.boot_time - information.boot_time_bias)


@idempotent
def boot_identity(path: str = "") -> str:
    """Text that changes when the host restarts, and only then.

    ``path`` is a file to read it from; by default the kernel's boot time on Windows and
    ``/proc/sys/kernel/random/boot_id`` elsewhere. Nothing else is used: the time of the last
    shutdown is written before the machine goes down, and the prefetcher's BootId a while after it
    came up. Raises ``OSError``.
    """
    if sys.platform == "win32" and not path:
        return f"windows {_kernel_boot_time()}"
    with open(path or BOOT_ID, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read(200).strip()
    if not text:
        raise OSError(f"{path or BOOT_ID} is empty")
    return text


@idempotent
def shows_sign_in() -> bool:
    """Whether Windows has reached its sign-in screen; containers and Wine have none."""
    return sys.platform == "win32" and registry.exists(_SIGN_IN_SCREEN)


def identities(path: str = "", pause: float = 0.5, *, screen: bool = False) -> Iterator[str]:
    """The boot identity twice, ``pause`` seconds apart: the host is up, and stays up.

    ``screen``: wait for its sign-in screen; ``RuntimeError`` before that.
    """
    yield boot_identity(path)
    time.sleep(pause)
    if screen and not shows_sign_in():
        raise RuntimeError("Windows shows no sign-in screen yet; it may be configuring updates")
    yield boot_identity(path)


class Answer(TypedDict):
    """Exit code of ``shutdown.exe``, and the end of its output."""

    code: int
    message: str


def _run_restart_command(command: Sequence[str]) -> Answer:
    done = subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT,
        check=False,
    )
    encoding = "oem" if sys.platform == "win32" else "utf-8"
    output = done.stdout[-_OUTPUT_LIMIT:].decode(encoding, "replace").strip()
    return {"code": done.returncode & 0xFFFFFFFF, "message": output}


def reboot(command: Sequence[str] = (), *, delay: int, reason: str = "restart") -> Iterator[Answer]:
    """Request a restart in ``delay`` seconds; yields one answer.

    0 is success, 1190 one is already scheduled, 1115 one is in progress, 5 not allowed. ``command``
    replaces it. Windows shows ``reason`` to signed-in users, at most 512 characters.
    """
    yield _run_restart_command(
        command or ["shutdown.exe", "/r", "/t", str(delay), "/c", reason[:512]]
    )


class _Session(ctypes.Structure):
    """WTS_SESSION_INFOW."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("station", ctypes.c_wchar_p),
        ("state", ctypes.c_int),
    )


def _signed_in_users() -> Iterator[str]:
    """Users with a session at the screen or by Remote Desktop, including disconnected ones.

    Their open documents are lost at a restart. Network sessions do not count. Raises ``OSError``.
    """
    wts: Any = ctypes.WinDLL("wtsapi32", use_last_error=True)  # type: ignore[attr-defined, unused-ignore]
    sessions, count = ctypes.POINTER(_Session)(), ctypes.c_uint32()
    if not wts.WTSEnumerateSessionsW(None, 0, 1, ctypes.byref(sessions), ctypes.byref(count)):
        error = ctypes.get_last_error()  # type: ignore[attr-defined, unused-ignore]
        raise OSError(None, "WTSEnumerateSessionsW failed", None, error)
    for number in range(count.value):
        name, size = ctypes.c_wchar_p(), ctypes.c_uint32()
        # 5 is WTSUserName
        query = (None, sessions[number].id, 5, ctypes.byref(name), ctypes.byref(size))
        if wts.WTSQuerySessionInformationW(*query) and name.value:
            yield name.value
            wts.WTSFreeMemory(name)
    wts.WTSFreeMemory(sessions)


@idempotent
def interrupts(root: str) -> list[str]:
    """What a restart would end: running jobs below ``root``, and users' sessions."""
    running = [job for job in store.listed(root) if job["state"] == "running"]
    users = sorted({*_signed_in_users()}) if sys.platform == "win32" else []
    return [
        *(f"job {job['id']} is running ({str(job.get('title'))[:100]})" for job in running),
        *(f"user {name} is signed in" for name in users),
    ]


def _pending() -> Iterator[str]:
    for what, key in _KEYS:
        if registry.exists(key):
            yield f"{what}: {key}"
    for name in _RENAMES:
        # Pairs: the file, and its new name, or nothing if it is to be deleted.
        files = registry.read(_SESSION_MANAGER, name)
        sources = [text for text in files[::2] if text] if isinstance(files, list) else []
        if sources:
            yield f"{len(sources)} files in use to be renamed or deleted, first {sources[0]}"


@idempotent
def pending_reboot() -> list[str]:
    """Why Windows needs a restart, one line per reason; empty if it does not."""
    if sys.platform != "win32":
        return []
    return [reason[:300] for reason in _pending()]
