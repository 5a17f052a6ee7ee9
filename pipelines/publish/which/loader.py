"""Imports its arguments; run in a process of its own, and the only place that imports anything.

The arguments are modules, and paths of libraries that are not modules. Prints one line: a marker
and an object with what went wrong, each error with its kind.
"""

from __future__ import annotations

import sys

_HERE = [one for one in sys.path if not one]  # the current folder: its json.py is not Python's
sys.path[:] = [one for one in sys.path if one]

import contextlib  # noqa: E402
import ctypes  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402

_QUIET = 0x8003  # no box that waits for a click: a DLL that is none, a crash, a missing file
_LONGEST = 2000


def main() -> None:
    """Import, and tell."""
    if sys.platform == "win32":
        ctypes.windll.kernel32.SetErrorMode(_QUIET)
    sys.path[:0] = _HERE
    errors = {}
    for name in filter(None, sys.argv[1:]):
        try:
            if os.path.isabs(name):
                ctypes.CDLL(name)
            else:
                importlib.import_module(name)
        except BaseException as error:  # whatever it raises is the answer
            errors[name] = f"{type(error).__name__}: {error}"[:_LONGEST]
    print("\nwcw1 " + json.dumps({"errors": errors}), flush=True)
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(0)  # a thread or a hook of the package's could keep it


if __name__ == "__main__":
    main()
