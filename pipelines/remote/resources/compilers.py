"""The installed compilers and the versions they report: for information, never refused.

A host with an existing environment has its user's compilers, which determine the bytes of a wheel.
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
#: Set by users and by Python's own build: setuptools and torch use them.
_VARIABLES = ("CC", "CXX", "LDSHARED", "LDCXXSHARED", "NVCC_CCBIN", "CUDAHOSTCXX")


class Spec(Kind):
    """The programs to query."""

    names: list[str]
    """Programs on PATH."""


def user_compilers() -> list[str]:
    """The programs that variables substitute for the usual ones."""
    commands = [os.environ.get(name) or sysconfig.get_config_var(name) for name in _VARIABLES]
    names = []
    for text in commands:
        try:
            words = shlex.split(text or "")
        except ValueError:  # not valid shell syntax
            continue
        names += words[:1]
    return names


def check(spec: Spec) -> Check:
    """Query each for its version; values: its first line by the program's name, if any."""
    values = {}
    for name in dict.fromkeys([*spec["names"], *user_compilers()]):
        if path := shutil.which(name):
            try:
                _, output = capture([path, "--version"], timeout=_TIMEOUT)
            except (OSError, RuntimeError):  # also one that hangs
                continue
            first = next((text.strip() for text in output.splitlines() if text.strip()), "")
            values[os.path.basename(name)] = first[:_SHOWN]  # noqa: PTH119 - places differ
    texts = [text for name, text in values.items() if name in ("g++", "c++")] or [*values.values()]
    return {"ok": True, "found": texts[0] if texts else "none", "values": values}


def plan(spec: Spec) -> str:  # noqa: ARG001 - the signature of every kind
    """Does nothing: it is for information only."""
    return "nothing"


def apply(spec: Spec) -> None:
    """Does nothing: it is for information only."""
