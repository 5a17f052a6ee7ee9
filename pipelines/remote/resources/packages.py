"""Python packages of the Python that builds; nothing is fetched from anywhere."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import sys
import sysconfig

from ..process import capture
from . import Check, Kind, RefusedError

_TIMEOUT = 1800.0  # torch alone is 3.4 GB to unpack, past a virus scanner


class Spec(Kind):
    """What is wanted."""

    packages: dict[str, str]
    """Name -> version."""
    installer: str
    """uv on the host."""
    wheels: str
    """The directory of the pinned wheels."""
    python: str


def _site(python: str) -> str:
    """The directory in which that Python's packages are."""
    if os.path.normcase(python) == os.path.normcase(sys.executable):
        return sysconfig.get_path("purelib")
    return str(pathlib.Path(python).parent / "Lib" / "site-packages")


def _versions(spec: Spec) -> dict[str, str]:
    importlib.metadata.MetadataPathFinder.invalidate_caches()
    found = importlib.metadata.distributions(path=[_site(spec["python"])])
    return {str(one.metadata["Name"]).lower().replace("_", "-"): one.version for one in found}


def check(spec: Spec) -> Check:
    """Compare with the installed versions, which are the values."""
    installed = _versions(spec)
    found = {name: installed[name] for name in spec["packages"] if installed.get(name)}
    have = ", ".join(f"{name} {version}" for name, version in found.items())
    return {"ok": found == spec["packages"], "found": have or "none", "values": found}


def plan(spec: Spec) -> str:
    """What is installed."""
    return f"install {len(spec['packages'])} packages into {spec['python']}"


def apply(spec: Spec) -> None:
    """Install them from the wheels on the host."""
    wanted = [f"{name}=={version}" for name, version in spec["packages"].items()]
    command = [spec["installer"], "pip", "install", "--quiet", "--offline", "--no-index"]
    command += ["--no-cache", "--no-config", "--system", "--break-system-packages"]
    command += ["--find-links", spec["wheels"], "--python", spec["python"], *wanted]
    code, output = capture(command, timeout=_TIMEOUT)
    if code:
        raise RefusedError(f"uv pip install left with {code}: {output[-2000:]}")
