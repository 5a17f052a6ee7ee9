"""Python packages of this very Python: ``{packages: {name: version}, installer, wheels}``.

``installer`` is uv.exe on the host, ``wheels`` a directory with the pinned wheels; nothing is
fetched from anywhere else.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import Any

from ..process import capture

_TIMEOUT = 300.0


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare with the installed versions."""
    importlib.invalidate_caches()
    found = {name: _version(name) for name in spec["packages"]}
    have = [f"{name} {version}" for name, version in found.items() if version]
    return {"ok": found == spec["packages"], "found": ", ".join(have) or "none"}


def apply(spec: dict[str, Any]) -> None:
    """Install them from the wheels on the host."""
    wanted = [f"{name}=={version}" for name, version in spec["packages"].items()]
    command = [spec["installer"], "pip", "install", "--quiet", "--offline", "--no-index"]
    command += ["--no-cache", "--no-config", "--system", "--break-system-packages"]
    command += ["--find-links", spec["wheels"], "--python", sys.executable, *wanted]
    code, output = capture(command, timeout=_TIMEOUT)
    if code:
        raise RuntimeError(f"uv pip install left with {code}: {output[-2000:]}")
