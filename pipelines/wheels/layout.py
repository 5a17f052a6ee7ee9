"""Where a wheel's files are installed on Windows, and which of them conflict."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from pipelines.remote.safe_paths import tree_faults

#: Schemes of ``.data`` -> their directory in an environment.
#: https://packaging.python.org/specifications/binary-distribution-format/
PACKAGES = "Lib/site-packages"
_SCHEMES = {
    "purelib": PACKAGES,
    "platlib": PACKAGES,
    "scripts": "Scripts",
    "headers": "Include",
    "data": "",
}


def installed_path(name: str) -> str:
    """The path in an environment of a member of a wheel, with ``/``, as NFC."""
    name = unicodedata.normalize("NFC", name)
    top, _, inside = name.partition("/")
    scheme, _, rest = inside.partition("/")
    if top.lower().endswith(".data"):
        return f"{_SCHEMES.get(scheme, scheme)}/{rest}".lstrip("/")
    return f"{PACKAGES}/{name}"


def path_faults(names: Iterable[str]) -> dict[str, str]:
    """Members with paths that are invalid on Windows or overwrite each other, with the reason.

    ``.data`` schemes install into the same directories as other members: pip and uv install both,
    the later one wins.
    """
    places: dict[str, str] = {}
    faults: dict[str, str] = {}
    for name in names:
        if (other := places.setdefault(installed_path(name), name)) != name:
            faults[name] = f"is installed over {other}"
    conflicts = tree_faults(places)
    return faults | {places[path]: reason for path, reason in conflicts.items()}
