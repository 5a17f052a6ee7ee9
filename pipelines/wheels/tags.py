"""Which wheels a Python takes, by their tags."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence

from packaging.tags import Tag, compatible_tags, cpython_tags

from pipelines.core.versions import python_release, python_tags

#: Of libraries that Python does not import.
EVERY_PYTHON = "py3-none"
#: Platform tags of what a Windows host takes.
WINDOWS = ("win_amd64",)
#: Platforms of wheels that no host takes, or none of the other kind -> why.
_PLATFORMS = {
    "win32": "it is 32-bit, and Python on the hosts and NVIDIA's driver are 64-bit",
    "win_arm64": "it is for Windows on ARM, and NVIDIA's driver for Windows is for x64",
    "win_amd64": "it is for Windows",
    "*linux*": "it is for Linux",
    "macosx*": "it is for macOS",
}


def wheel_tags(python: str, platforms: Sequence[str] = WINDOWS) -> dict[Tag, int]:
    """Every tag that a Python takes there, with its rank, the most special first."""
    major, minor = (int(part) for part in python_release(python).split("."))
    interpreter, abi = python_tags(python)
    tags = [
        *cpython_tags((major, minor), abis=[abi], platforms=platforms),
        *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}


def misfit(tags: Collection[Tag], python: str, platforms: Sequence[str]) -> str:
    """Why a Python there does not take a wheel with these tags; empty if it does."""
    known = wheel_tags(python, platforms)
    if any(tag in known for tag in tags):
        return ""
    own = sorted({tag.platform for tag in tags})
    if not {*own}.intersection((*platforms, "any")):
        for pattern, why in _PLATFORMS.items():
            if fnmatch.filter(own, pattern):
                return f"{why} ({', '.join(own)[:200]})"
        return f"its platform is {', '.join(own)[:200]}"
    said = sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags})
    return f"it is for {', '.join(said)[:200]}, not for Python {python}"
