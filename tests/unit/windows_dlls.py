"""kernel32, powrprof and wevtapi as far as they are used, as harsh as Windows says they are.

- A request to stay awake is its thread's, ends with it, and without ES_CONTINUOUS only begins the
  wait for sleep again (SetThreadExecutionState). Load alone does not keep the machine awake.
- time.monotonic goes on while the machine sleeps, QueryUnbiasedInterruptTime does not.
- A setting of another subgroup does not exist (ERROR_FILE_NOT_FOUND); a machine without a lid has
  an action for it all the same (the scheme's default).
- EvtQuery takes no XPath beyond its subset, and gives no handle to who may not read; EvtRender
  fails where the buffer is too small; every handle is to be closed (Using the Windows Event Log).
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

SLEEP, BUTTONS = "238c9fa8-0aad-41ed-83f4-97be242c8f20", "4f971e89-eebd-4455-a8de-5a59040e7347"
STANDBY, HIBERNATE = "29f6c1db-86da-48c5-9fdb-f2b67b1f44da", "9d7815a6-7ee4-497e-8888-515a05f02364"
LID = "5ca83367-6e45-459f-a27b-476b1d01c936"
_CONTINUOUS, _SYSTEM = 0x80000000, 1
_OF_JOB_OBJECTS = (
    "CreateJobObjectW",
    "SetInformationJobObject",
    "AssignProcessToJobObject",
    "TerminateJobObject",
    "SetPriorityClass",
    "GetCurrentProcess",
    "CloseHandle",
)
_QUERY = re.compile(
    r"\*\[System\[Provider\[@Name='(\w+)'\] and "
    r"TimeCreated\[timediff\(@SystemTime\) <= (\d+)\]\]\]"
)
_EVENT = (
    "<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System>"
    "<Provider Name='{}'/><EventID Qualifiers='0'>{}</EventID></System>"
    "<EventData>{}</EventData></Event>"
)


def _integer(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


class Windows:
    """A machine; :meth:`install` puts it in place of this one's."""

    def __init__(self) -> None:
        self.mode = 0
        self.requests: dict[threading.Thread, int] = {}
        self.asleep = 0.0
        self.handlers: list[Callable[[int], int]] = []
        self.settings = {(SLEEP, STANDBY): 1800, (SLEEP, HIBERNATE): 10800, (BUTTONS, LID): 1}
        self.can = {2: 1, 5: 1, 6: 1, 8: 1}
        #: Provider, number, data, seconds ago.
        self.events: list[tuple[str, int, list[str], float]] = []
        self.readable = True
        self.open: dict[int, list[str]] = {}
        self.opened = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = time.monotonic
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setattr(time, "monotonic", lambda: real() + self.asleep)
        self._running = real
        libraries = {"kernel32": _Kernel(self), "powrprof": _Power(self), "wevtapi": _Log(self)}
        monkeypatch.setattr(ctypes, "WinDLL", libraries.__getitem__, raising=False)
        monkeypatch.setattr(ctypes, "windll", _Loaded(libraries), raising=False)
        monkeypatch.setattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE, raising=False)

    def sleeps(self, hours: float) -> None:
        """Somebody has sent it to sleep, and has woken it."""
        self.asleep += hours * 3600

    @property
    def held(self) -> bool:
        """Whether it stays awake without input."""
        wanted = _CONTINUOUS | _SYSTEM
        return any(t.is_alive() and r & wanted == wanted for t, r in self.requests.items())


class _Loaded:
    def __init__(self, libraries: dict[str, Any]) -> None:
        self.__dict__.update(libraries)


class _Kernel:
    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_JOB_OBJECTS:
            raise AttributeError(name)
        return _Taken()

    def GetErrorMode(self) -> int:  # noqa: N802
        return self._windows.mode

    def SetErrorMode(self, mode: Any) -> int:  # noqa: N802
        before, self._windows.mode = self._windows.mode, _integer(mode)
        return before

    def SetThreadExecutionState(self, state: Any) -> int:  # noqa: N802
        if _integer(state) & _CONTINUOUS:
            self._windows.requests[threading.current_thread()] = _integer(state)
        return _CONTINUOUS

    def QueryUnbiasedInterruptTime(self, ticks: Any) -> int:  # noqa: N802
        ticks._obj.value = int(self._windows._running() * 1e7)
        return 1

    def SetConsoleCtrlHandler(self, handler: Any, add: int) -> int:  # noqa: N802
        assert add == 1
        self._windows.handlers.append(handler)
        return 1


class _Taken:
    """A function that is of no interest here."""

    def __call__(self, *_: object) -> int:
        return 1


class _Power:
    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def GetPwrCapabilities(self, found: Any) -> int:  # noqa: N802
        assert len(found) >= 76, "SYSTEM_POWER_CAPABILITIES would be written beyond its end"
        for place, value in self._windows.can.items():
            found[place] = value
        return 1

    def PowerGetActiveScheme(self, root: None, scheme: Any) -> int:  # noqa: N802
        assert root is None
        scheme._obj.value = 0x5C4E
        return 0

    def PowerReadACValueIndex(  # noqa: N802
        self, root: None, scheme: Any, group: bytes, setting: bytes, value: Any
    ) -> int:
        assert (root, _integer(scheme)) == (None, 0x5C4E)
        place = (str(uuid.UUID(bytes_le=group)), str(uuid.UUID(bytes_le=setting)))
        if place not in self._windows.settings:
            return 2
        value._obj.value = self._windows.settings[place]
        return 0


class _Log:
    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.EvtQuery = _Query(self)

    def new(self, texts: list[str]) -> int:
        self._windows.opened += 1
        handle = self._windows.opened << 33  # one that is cut to 32 bits is another
        self._windows.open[handle] = texts
        return handle

    def query(self, session: None, channel: str, asked: str, flags: int) -> int | None:
        assert (session, channel, flags) == (None, "System", 0x201)
        match = _QUERY.fullmatch(asked)
        assert match, f"ERROR_EVT_INVALID_QUERY: {asked}"
        if not self._windows.readable:
            return None
        provider, most = match[1], int(match[2]) / 1000
        return self.new(
            [
                _EVENT.format(name, number, "".join(f"<Data>{text}</Data>" for text in data))
                for name, number, data, ago in self._windows.events
                if name == provider and ago <= most
            ]
        )

    def EvtNext(  # noqa: N802, PLR0917
        self, query: Any, size: int, events: Any, timeout: int, flags: int, count: Any
    ) -> int:
        assert (timeout > 0, flags) == (True, 0)
        texts = self._windows.open[_integer(query)]
        taken, texts[:] = texts[:size], texts[size:]
        for place, text in enumerate(taken):
            events[place] = self.new([text])
        count._obj.value = len(taken)
        return int(bool(taken))  # else ERROR_NO_MORE_ITEMS

    def EvtRender(  # noqa: N802, PLR0917
        self, context: None, event: Any, form: int, size: int, text: Any, used: Any, number: Any
    ) -> int:
        assert (context, form) == (None, 1)
        assert used is not None
        assert number is not None
        (found,) = self._windows.open[_integer(event)]
        if ctypes.sizeof(ctypes.c_wchar) * (len(found) + 1) > size:
            return 0
        text.value = found
        return 1

    def EvtClose(self, handle: Any) -> int:  # noqa: N802
        return int(self._windows.open.pop(_integer(handle), None) is not None)


class _Query:
    """A function whose result is cut to 32 bits unless it is said to be a pointer."""

    restype: Any = ctypes.c_int

    def __init__(self, log: _Log) -> None:
        self._log = log

    def __call__(self, *arguments: Any) -> int | None:
        handle = self._log.query(*arguments)
        return handle if self.restype is ctypes.c_void_p or not handle else handle & 0xFFFFFFFF
