"""Whether a prefix is whole: what Wine needs of its files, and that a program answers.

Wine writes its registry to another file and renames that, so it is not torn by a crash; what was
set in the last half minute before it may be missing, and the next provision sets it again.
"""

from __future__ import annotations

import json

from pipelines.core.errors import HostError
from pipelines.hosts.sandbox.state import NotWholeError
from pipelines.hosts.sandbox.wine import SEAL, Prefix
from pipelines.session.base import DeadHostError

_REGISTRY = ("system.reg", "user.reg", "userdef.reg")
_BEGINS = b"WINE REGISTRY Version 2"
_HINT = "Type: invoke provision, which moves it aside and makes a new one."


def check_files(prefix: Prefix) -> str:
    """The Python of its seal, such as 3.11; :class:`NotWholeError` names the file that is amiss."""
    python = _seal(prefix).get("python")
    if not python:
        raise not_whole(prefix, f"its {SEAL} names no Python")
    for name in _REGISTRY:
        try:
            with (prefix.path / name).open("rb") as file:
                begins = file.read(len(_BEGINS))
        except OSError as error:
            raise not_whole(prefix, f"{name}: {error.strerror}") from None
        if begins != _BEGINS:
            raise not_whole(prefix, f"{name} is no registry")
    return str(python)


def check_image(prefix: Prefix, key: str, *, running: bool) -> None:
    """:class:`NotWholeError` unless it is a copy of the image that ``key`` stands for.

    What another one compiles would be filed, and taken up again, as if today's tool set had made
    it. One that is ``running`` is not to be remade: :class:`DeadHostError`.
    """
    if (made := made_of(prefix)) == key:
        return
    says = (
        f"the sandbox in {prefix.path} has the tool set of another release: it was made of image "
        f"{made or '(unknown)'}, today's is {key}"
    )
    if running:
        raise DeadHostError(f"{says}; it runs", hint="Type: invoke host stop provision")
    raise NotWholeError(says, hint=_HINT)


def made_of(prefix: Prefix) -> str:
    """The key of its image; empty where an older release has made it, which wrote none."""
    return str(_seal(prefix).get("image", ""))


def _seal(prefix: Prefix) -> dict[str, object]:
    try:
        told = json.loads((prefix.path / SEAL).read_text("utf-8"))
    except (OSError, ValueError):
        told = None
    if not isinstance(told, dict):
        raise not_whole(prefix, f"it has no {SEAL}")
    return told


def check_answers(prefix: Prefix, python: str) -> None:
    """Have its Python load what builds need of it; :class:`NotWholeError` when that fails."""
    program = rf"C:\Python{python.replace('.', '')}\python.exe"
    try:
        prefix.run([program, "-c", "import ctypes, sqlite3, ssl, zipfile"], timeout=30)
    except HostError as error:
        raise not_whole(prefix, error.message) from None


def not_whole(prefix: Prefix, why: str) -> NotWholeError:
    """What is raised of a prefix that is damaged."""
    return NotWholeError(f"the sandbox in {prefix.path} is damaged: {why}", hint=_HINT)
