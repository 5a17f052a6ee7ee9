"""Which wheels a Python takes, by their tags."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.tags import Tag, compatible_tags, cpython_tags

#: Of libraries that Python does not import.
EVERY_PYTHON = "py3-none"
#: Platform tags of what a Windows host takes.
WINDOWS = ("win_amd64",)


def wheel_tags(python: str, platforms: Sequence[str] = WINDOWS) -> dict[Tag, int]:
    """Every tag that a Python takes there, with its rank, the most special first."""
    major, minor = (int(part) for part in python.split("."))
    interpreter = f"cp{major}{minor}"
    tags = [
        *cpython_tags((major, minor), abis=[interpreter], platforms=platforms),
        *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}
