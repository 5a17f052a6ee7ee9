"""Python packages of the Python that builds: ``{packages, installer, wheels, python}``.

``packages`` maps names to versions, ``installer`` is uv.exe on the host, ``wheels`` a directory
with the pinned wheels; nothing is fetched from anywhere else.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import sys
import sysconfig
from typing import Any

from ..process import capture
from . import RefusedError

_TIMEOUT = 1800.0  # torch alone is 3.4 GB to unpack, past a virus scanner


def _site(python: str) -> str:
    """The directory in which that Python's packages are."""
    if os.path.normcase(python) == os.path.normcase(sys.executable):
        return sysconfig.get_path("purelib")
    return str(pathlib.Path(python).parent / "Lib" / "site-packages")


def _versions(spec: dict[str, Any]) -> dict[str, str]:
    importlib.metadata.MetadataPathFinder.invalidate_caches()
    found = importlib.metadata.distributions(path=[_site(spec["python"])])
    return {str(one.metadata["Name"]).lower().replace("_", "-"): one.version for one in found}


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare with the installed versions."""
    installed = _versions(spec)
    found = {name: installed.get(name, "") for name in spec["packages"]}
    have = [f"{name} {version}" for name, version in found.items() if version]
    return {"ok": found == spec["packages"], "found": ", ".join(have) or "none"}


def plan(spec: dict[str, Any]) -> str:
    """What is installed."""
    return f"install {len(spec['packages'])} packages into {spec['python']}"


def apply(spec: dict[str, Any]) -> None:
    """Install them from the wheels on the host."""
    wanted = [f"{name}=={version}" for name, version in spec["packages"].items()]
    command = [spec["installer"], "pip", "install", "--quiet", "--offline", "--no-index"]
    command += ["--no-cache", "--no-config", "--system", "--break-system-packages"]
    command += ["--find-links", spec["wheels"], "--python", spec["python"], *wanted]
    code, output = capture(command, timeout=_TIMEOUT)
    if code:
        raise RefusedError(f"uv pip install left with {code}: {output[-2000:]}")
