"""The C++ runtime that programs of this Windows get, and torch's settings for Wine."""

from __future__ import annotations

import json
import os
import sys
from typing import TypedDict

from ..facts import gather
from ..process import capture
from ..rpc import idempotent

#: The libraries torch imports; the last one from 2.15 on.
LIBRARIES = ("msvcp140", "vcruntime140", "vcruntime140_1", "vcruntime140_threads")
#: Variables that keep torch from using what Wine does not support.
VARIABLES = ("KMP_AFFINITY", "ONEDNN_MAX_CPU_ISA")
_PATIENCE = 60.0
#: In a separate process: a library loaded here could not be replaced.
_ASK = r"""
import ctypes, json, struct
kernel, version = ctypes.WinDLL("kernel32"), ctypes.WinDLL("version")
kernel.GetModuleFileNameW.argtypes = [ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint32]
found = {}
for name in %r:
    try:
        library = ctypes.WinDLL(name + ".dll")
    except OSError:
        found[name] = None
        continue
    path = ctypes.create_unicode_buffer(32768)
    kernel.GetModuleFileNameW(library._handle, path, len(path))
    with open(path.value, "rb") as file:
        head = file.read(128)  # where Wine signs its own, after the DOS header
    size = version.GetFileVersionInfoSizeW(path.value, None)
    data, at, told = ctypes.create_string_buffer(size), ctypes.c_void_p(), None
    if version.GetFileVersionInfoW(path.value, 0, size, data):
        if version.VerQueryValueW(data, "\\", ctypes.byref(at), ctypes.byref(ctypes.c_uint32())):
            high, low = struct.unpack("<8xII", ctypes.string_at(at, 16))
            told = "%%d.%%d.%%d" %% (high >> 16, high & 65535, low >> 16)
    wine = b"Wine builtin DLL" in head or b"Wine placeholder DLL" in head
    found[name] = {"path": path.value, "version": told, "wine": wine}
print(json.dumps(found))
"""


class Library(TypedDict):
    """A DLL as found by the loader."""

    path: str
    version: str | None
    wine: bool
    """Whether it is Wine's."""


def _libraries() -> dict[str, Library | None]:
    code, text = capture([sys.executable, "-I", "-c", _ASK % (LIBRARIES,)], timeout=_PATIENCE)
    if code:
        raise OSError(f"the loader could not be queried: {code}, {text.strip()[-200:]}")
    libraries: dict[str, Library | None] = json.loads(text)
    return libraries


@idempotent
def survey() -> dict[str, object]:
    """``libraries`` by name (``None``: not found), and the set variables of ``environment``.

    What could not be determined is in ``problems``.
    """
    return gather(
        {
            "libraries": _libraries,
            "environment": lambda: {n: os.environ[n] for n in VARIABLES if n in os.environ},
        }
    )
