r"""A page file of fixed size.

``PagingFiles`` has one line per file, "path initial maximum" in MB; zeros and "?:\pagefile.sys"
mean that Windows manages the size, and then it grows too slowly for many parallel compilers.
"""

from __future__ import annotations

from . import Applied, Check, Kind, registry

KEY = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management"
NAME = "PagingFiles"


class Spec(Kind):
    """The desired state."""

    path: str
    initial_mb: int
    maximum_mb: int


def setting(spec: Spec) -> str:
    """The desired line."""
    return f"{spec['path']} {spec['initial_mb']} {spec['maximum_mb']}"


def _lines() -> list[str]:
    value = registry.read(KEY, NAME)
    return [str(line) for line in value if line] if isinstance(value, list) else []


def _is_large_enough(path: str, sizes: str, spec: Spec) -> bool:
    """Whether a line gives that file at least the desired size."""
    numbers = [int(word) if word.isdigit() else 0 for word in sizes.split()]
    if path.lower() != spec["path"].lower() or len(numbers) != 2:  # noqa: PLR2004 - two bounds
        return False
    return numbers[0] >= spec["initial_mb"] and numbers[1] >= spec["maximum_mb"]


def check(spec: Spec) -> Check:
    """Compare with the setting; a larger page file is fine; values: path -> sizes in MB."""
    lines = _lines()
    values = {path: sizes for path, _, sizes in (line.partition(" ") for line in lines)}
    ok = any(_is_large_enough(path, sizes, spec) for path, sizes in values.items())
    return {"ok": ok, "found": ", ".join(lines) or "managed by Windows", "values": values}


def plan(spec: Spec) -> str:
    """The sizes."""
    return f"set {spec['path']} to {spec['initial_mb']} to {spec['maximum_mb']} MB, then restart"


def apply(spec: Spec) -> Applied:
    """Set it; page files on other drives stay."""
    drive = spec["path"][:2].lower()
    others = [line for line in _lines() if line[:2].lower() not in (drive, "?:")]
    registry.write(KEY, NAME, [setting(spec), *others])
    return {"reboot": "the page file was changed"}
