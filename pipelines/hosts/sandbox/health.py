"""Whether a prefix is intact: the files Wine needs, and a program that responds.

Wine writes its registry to another file and renames it, so a crash does not tear it; changes of
the last half minute before a crash may be missing, and the next provision makes them again.
"""

from __future__ import annotations

import json

from pipelines.core.errors import HostError
from pipelines.hosts.sandbox.state import DamagedSandboxError
from pipelines.hosts.sandbox.wine import SEAL, Prefix
from pipelines.session.base import DeadHostError

_REGISTRY = ("system.reg", "user.reg", "userdef.reg")
_BEGINS = b"WINE REGISTRY Version 2"
_HINT = "Type: invoke provision, which moves it aside and creates a new one."


def check_files(prefix: Prefix) -> str:
    """The Python of its seal, such as 3.11; :class:`DamagedSandboxError` names the damaged file."""
    python = _read_prefix_seal(prefix).get("python")
    if not python:
        raise damaged_prefix_error(prefix, f"its {SEAL} names no Python")
    for name in _REGISTRY:
        try:
            with (prefix.path / name).open("rb") as file:
                begins = file.read(len(_BEGINS))
        except OSError as error:
            raise damaged_prefix_error(prefix, f"{name}: {error.strerror}") from None
        if begins != _BEGINS:
            raise damaged_prefix_error(prefix, f"{name} is not a registry file")
    return str(python)


def check_image(prefix: Prefix, key: str, *, running: bool) -> None:
    """Raise :class:`DamagedSandboxError` unless it is a copy of the image with this ``key``.

    The output of another one's compilers would be cached as the current toolset's. One that is
    ``running`` is not replaced: :class:`DeadHostError`.
    """
    if (made := image_of(prefix)) == key:
        return
    says = (
        f"the sandbox in {prefix.path} has the toolset of another release: it was created from "
        f"image {made or '(unknown)'}, the current one is {key}"
    )
    if running:
        raise DeadHostError(f"{says}; it runs", hint="Type: invoke host stop provision")
    raise DamagedSandboxError(says, hint=_HINT)


def image_of(prefix: Prefix) -> str:
    """The key of its image; empty if an older version created it without one."""
    return str(_read_prefix_seal(prefix).get("image", ""))


def _read_prefix_seal(prefix: Prefix) -> dict[str, object]:
    try:
        data = json.loads((prefix.path / SEAL).read_text("utf-8"))
    except (OSError, ValueError):
        data = None
    if not isinstance(data, dict):
        raise damaged_prefix_error(prefix, f"it has no {SEAL}")
    return data


def check_answers(prefix: Prefix, python: str) -> None:
    """Have its Python load what builds need; :class:`DamagedSandboxError` if that fails."""
    program = rf"C:\Python{python.replace('.', '')}\python.exe"
    try:
        prefix.run([program, "-c", "import ctypes, sqlite3, ssl, zipfile"], timeout=30)
    except HostError as error:
        raise damaged_prefix_error(prefix, error.message) from None


def damaged_prefix_error(prefix: Prefix, why: str) -> DamagedSandboxError:
    """The error for a damaged prefix."""
    return DamagedSandboxError(f"the sandbox in {prefix.path} is damaged: {why}", hint=_HINT)
