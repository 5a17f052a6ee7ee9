"""Where the files of a wheel are put on Windows, and which of them would be one another's."""

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


def installed(name: str) -> str:
    """The path in an environment of a member of a wheel, with ``/``, as NFC."""
    name = unicodedata.normalize("NFC", name)
    top, _, inside = name.partition("/")
    scheme, _, rest = inside.partition("/")
    if top.lower().endswith(".data"):
        return f"{_SCHEMES.get(scheme, scheme)}/{rest}".lstrip("/")
    return f"{PACKAGES}/{name}"


def path_faults(names: Iterable[str]) -> dict[str, str]:
    """Members that Windows cannot have, or that would overwrite each other, each with the reason.

    The schemes of ``.data`` lead into the same directories as what lies beside them: pip and uv
    install both, the later one wins.
    """
    places: dict[str, str] = {}
    faults: dict[str, str] = {}
    for name in names:
        if (other := places.setdefault(installed(name), name)) != name:
            faults[name] = f"is installed over {other}"
    found = tree_faults(places)
    return faults | {places[path]: reason for path, reason in found.items()}
