"""The compilers that are there, and what they say of themselves: looked at, never refused.

A host that is used as it is has whatever its user has. Which it was decides the bytes of a wheel.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig

from ..process import capture
from . import Check, Kind

_TIMEOUT = 60.0
_SHOWN = 160
#: Of a user's, and of the Python's own making: setuptools and torch go by them.
_VARIABLES = ("CC", "CXX", "LDSHARED", "LDCXXSHARED", "NVCC_CCBIN", "CUDAHOSTCXX")


class Spec(Kind):
    """What is looked at."""

    names: list[str]
    """Programs on PATH."""


def named() -> list[str]:
    """The programs that variables put in the place of the usual ones."""
    told = [os.environ.get(name) or sysconfig.get_config_var(name) for name in _VARIABLES]
    found = []
    for text in told:
        try:
            words = shlex.split(text or "")
        except ValueError:  # of no shell's
            continue
        found += words[:1]
    return found


def check(spec: Spec) -> Check:
    """Ask each for its version; values: its first line by the program's name, if it has one."""
    values = {}
    for name in dict.fromkeys([*spec["names"], *named()]):
        if path := shutil.which(name):
            try:
                _, output = capture([path, "--version"], timeout=_TIMEOUT)
            except (OSError, RuntimeError):  # also one that does not end
                continue
            first = next((text.strip() for text in output.splitlines() if text.strip()), "")
            values[os.path.basename(name)] = first[:_SHOWN]  # noqa: PTH119 - places differ
    said = [text for name, text in values.items() if name in ("g++", "c++")] or [*values.values()]
    return {"ok": True, "found": said[0] if said else "none", "values": values}


def plan(spec: Spec) -> str:  # noqa: ARG001 - as every kind has it
    """Nothing: it is only looked at."""
    return "nothing"


def apply(spec: Spec) -> None:
    """Nothing: it is only looked at."""
