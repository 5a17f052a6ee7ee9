"""Which wheels a Python accepts, by their tags."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from typing import NamedTuple

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import NormalizedName, parse_wheel_filename
from packaging.version import Version

from pipelines.core.versions import python_release, python_tags

#: For libraries that Python does not import.
EVERY_PYTHON = "py3-none"
#: Platform tags that a Windows host accepts.
WINDOWS = ("win_amd64",)
#: Unsupported platforms, or those of the other kind of host -> why.
_PLATFORMS = {
    "win32": "32-bit, but Python on the hosts and NVIDIA's driver are 64-bit",
    "win_arm64": "for Windows on ARM, but NVIDIA's Windows driver is for x64",
    "win_amd64": "for Windows",
    "*linux*": "for Linux",
    "macosx*": "for macOS",
}


class WheelName(NamedTuple):
    """What a wheel's file name says, without its build number."""

    project: NormalizedName
    version: Version
    tags: frozenset[Tag]

    def is_for(self, platform: str) -> bool:
        """Whether one of its tags has that platform."""
        return platform in {tag.platform for tag in self.tags}


def parsed_name(file: str) -> WheelName | None:
    """What a file name says; ``None`` if it is not that of a wheel."""
    try:
        project, version, _, tags = parse_wheel_filename(file)
    except ValueError:  # InvalidWheelFilename, InvalidTag
        return None
    return WheelName(project, version, tags)


def wheel_tags(python: str, platforms: Sequence[str] = WINDOWS) -> dict[Tag, int]:
    """Every tag that a Python accepts there, with its rank, the most specific first."""
    major, minor = (int(part) for part in python_release(python).split("."))
    interpreter, abi = python_tags(python)
    tags = [
        *cpython_tags((major, minor), abis=[abi], platforms=platforms),
        *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}


def tag_incompatibility(tags: Collection[Tag], python: str, platforms: Sequence[str]) -> str:
    """Why a Python there does not accept a wheel with these tags; empty if it does."""
    known = wheel_tags(python, platforms)
    if any(tag in known for tag in tags):
        return ""
    own = sorted({tag.platform for tag in tags})
    if not {*own}.intersection((*platforms, "any")):
        for pattern, why in _PLATFORMS.items():
            if fnmatch.filter(own, pattern):
                return f"{why} ({', '.join(own)[:200]})"
        return f"for platform {', '.join(own)[:200]}"
    pairs = sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags})
    return f"for {', '.join(pairs)[:200]}, not for Python {python}"
