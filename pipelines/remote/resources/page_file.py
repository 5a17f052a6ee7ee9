r"""A page file of fixed bounds: ``{path, initial_mb, maximum_mb}``.

``PagingFiles`` has a line a file, "path initial maximum" in MB; zeros and "?:\pagefile.sys" mean
that Windows manages the size, and then it grows too slowly for many compilers at once.
"""

from __future__ import annotations

from typing import Any

from . import registry

_KEY = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management"


def _lines() -> list[str]:
    found = registry.read(_KEY, "PagingFiles")
    return [str(line) for line in found] if isinstance(found, list) else []


def _enough(line: str, spec: dict[str, Any]) -> bool:
    """Whether a line gives that file at least the wanted bounds."""
    path, _, sizes = line.partition(" ")
    numbers = [int(word) if word.isdigit() else 0 for word in sizes.split()]
    if path.lower() != spec["path"].lower() or len(numbers) != 2:  # noqa: PLR2004 - two bounds
        return False
    return bool(numbers[0] >= spec["initial_mb"] and numbers[1] >= spec["maximum_mb"])


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare with the setting; a larger page file is as good."""
    lines = _lines()
    found = ", ".join(lines) or "managed by Windows"
    return {"ok": any(_enough(line, spec) for line in lines), "found": found}


def plan(spec: dict[str, Any]) -> str:
    """The bounds."""
    return f"set {spec['path']} to {spec['initial_mb']} to {spec['maximum_mb']} MB, then restart"


def apply(spec: dict[str, Any]) -> dict[str, Any]:
    """Set it; page files on other drives stay."""
    drive = spec["path"][:2].lower()
    others = [line for line in _lines() if line[:2].lower() not in (drive, "?:")]
    wanted = f"{spec['path']} {spec['initial_mb']} {spec['maximum_mb']}"
    registry.write(_KEY, "PagingFiles", [wanted, *others])
    return {"reboot": "the page file was changed"}
