"""Which wheels a Python takes, by their tags."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.tags import Tag, compatible_tags, cpython_tags

from pipelines.versions import python_release, python_tags

#: Of libraries that Python does not import.
EVERY_PYTHON = "py3-none"
#: Platform tags of what a Windows host takes.
WINDOWS = ("win_amd64",)


def wheel_tags(python: str, platforms: Sequence[str] = WINDOWS) -> dict[Tag, int]:
    """Every tag that a Python takes there, with its rank, the most special first."""
    major, minor = (int(part) for part in python_release(python).split("."))
    interpreter, abi = python_tags(python)
    tags = [
        *cpython_tags((major, minor), abis=[abi], platforms=platforms),
        *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}
