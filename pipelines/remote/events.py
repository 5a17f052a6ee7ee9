"""Recent events of Windows' System log; none where it cannot be read."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import xml.etree.ElementTree as ET
from typing import Any

_EVENT = "{http://schemas.microsoft.com/win/2004/08/events/event}"


def restart_announced(seconds: float) -> bool:
    """Whether a user or Windows Update has requested a restart: event 1074 of User32."""
    return any(number == "1074" for number, _ in _events("User32", seconds))


def driver_resets(seconds: float) -> list[str]:
    """Logged resets of the display driver: 4101 of Display, a TDR of nvlddmkm.

    Its other events are errors of programs: Xid 13 is an illegal access.
    https://learn.microsoft.com/windows-hardware/drivers/display/timeout-detection-and-recovery
    """
    events = [*_events("Display", seconds), *_events("nvlddmkm", seconds)]
    return [text for number, text in events if number == "4101" or "TDR" in text]


def _events(provider: str, seconds: float) -> list[tuple[str, str]]:
    """Number and data of the provider's events of the last ``seconds``, the newest 32 at most."""
    if sys.platform != "win32":
        return []
    api: Any = ctypes.WinDLL("wevtapi")
    api.EvtQuery.restype = ctypes.c_void_p
    since = f"TimeCreated[timediff(@SystemTime) <= {int(seconds * 1000)}]"
    query_text = f"*[System[Provider[@Name='{provider}'] and {since}]]"
    # EvtQueryChannelPath, EvtQueryReverseDirection
    query = ctypes.c_void_p(api.EvtQuery(None, "System", query_text, 0x201))
    events, count, times = (ctypes.c_void_p * 32)(), ctypes.c_uint32(), []
    if query and api.EvtNext(query, len(events), events, 2000, 0, ctypes.byref(count)):
        text = ctypes.create_unicode_buffer(1 << 15)
        for event in map(ctypes.c_void_p, events[: count.value]):
            size, used = ctypes.sizeof(text), ctypes.byref(ctypes.c_uint32())
            if api.EvtRender(None, event, 1, size, text, used, used):  # EvtRenderEventXml
                with contextlib.suppress(ET.ParseError):  # a program's text may be invalid XML
                    tree = ET.fromstring(text.value)  # noqa: S314 - Windows' own
                    data = " ".join(part.text or "" for part in tree.iter(f"{_EVENT}Data"))
                    times.append((tree.findtext(f"{_EVENT}System/{_EVENT}EventID", ""), data))
            api.EvtClose(event)
    api.EvtClose(query)
    return times
