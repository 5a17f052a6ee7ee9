"""Python packages of the building Python; nothing is downloaded."""

from __future__ import annotations

import base64
import csv
import importlib.metadata
import io
import os
import pathlib
import sys
import sysconfig
import zipfile

from .. import unpacked
from ..files import remove_tree, sha256
from ..process import capture
from . import Check, Kind, RefusedError

_TIMEOUT = 1800.0  # torch alone is 3.4 GB to unpack, past a virus scanner


class Spec(Kind):
    """The desired state."""

    packages: dict[str, str]
    """Name -> version."""
    files: list[str]
    """Their wheels."""
    installer: str
    """uv on the host."""
    python: str


def _site(python: str) -> str:
    """The directory of that Python's packages."""
    if os.path.normcase(python) == os.path.normcase(sys.executable):
        return sysconfig.get_path("purelib")
    return str(pathlib.Path(python).parent / "Lib" / "site-packages")


def _versions(spec: Spec) -> dict[str, str]:
    importlib.metadata.MetadataPathFinder().invalidate_caches()  # a method until 3.12
    distributions = importlib.metadata.distributions(path=[_site(spec["python"])])
    return {
        str(distribution.metadata["Name"]).lower().replace("_", "-"): distribution.version
        for distribution in distributions
    }


def check(spec: Spec) -> Check:
    """Compare with the installed versions, which are the values; a repair compares the files."""
    installed = _versions(spec)
    versions = {name: installed[name] for name in spec["packages"] if installed.get(name)}
    have = ", ".join(f"{name} {version}" for name, version in versions.items())
    ok = versions == spec["packages"]
    if ok and spec.get("thorough", False):
        wrong, more = _differing(spec)
        ok = not wrong and not more
        have += f"; {len(wrong)} files differ from the wheels, {len(more)} belong to no package"
        have += f": {', '.join([*wrong, *more][:3])}" if not ok else ""
    return {"ok": ok, "found": have or "none", "values": versions}


def _differing(spec: Spec) -> tuple[list[str], list[str]]:
    """Files that differ from the wheels, and those that no package lists, except our own.

    The wheels are compared with their pins by another resource. Files of other packages are not
    compared, nor are scripts, which the installer generates. If this Python itself builds, other
    files in its site-packages are its own.
    """
    site, wrong = _site(spec["python"]), []
    for wheel in spec["files"]:
        with zipfile.ZipFile(wheel) as archive:
            records = [n for n in archive.namelist() if n.endswith(".dist-info/RECORD")]
            record = min(records, key=lambda name: name.count("/"))  # the others are vendored
            rows = csv.reader(io.StringIO(archive.read(record).decode()))
        for name, recorded, *_ in rows:
            _, data, below = name.partition(".data/")
            kind, _, inner = below.partition("/")
            if name == record or (data and kind not in ("purelib", "platlib")):
                continue
            path = os.path.join(site, inner if data else name)  # noqa: PTH118
            digest = base64.urlsafe_b64decode(recorded.removeprefix("sha256=") + "=").hex()
            if not os.path.isfile(path) or sha256(path) != digest:  # noqa: PTH113
                wrong.append(inner if data else name)
    if os.path.normcase(spec["python"]) == os.path.normcase(sys.executable):
        return wrong, []
    distributions = importlib.metadata.distributions(path=[site])
    listed = [
        file.as_posix() for distribution in distributions for file in distribution.files or ()
    ]
    return wrong, unpacked.unknown_files(site, listed)


def plan(spec: Spec) -> str:
    """What is installed."""
    return f"install {len(spec['packages'])} packages into {spec['python']}"


def apply(spec: Spec) -> None:
    """Install them from the wheels on the host; a repair reinstalls, and removes unowned files."""
    command = [spec["installer"], "pip", "install", "--quiet", "--offline", "--no-index"]
    if spec.get("thorough", False):
        command += ["--reinstall"]
        for name in _differing(spec)[1]:
            remove_tree(os.path.join(_site(spec["python"]), name))  # noqa: PTH118
    command += ["--no-cache", "--no-config", "--system", "--break-system-packages"]
    command += ["--python", spec["python"], *spec["files"]]
    code, output = capture(command, timeout=_TIMEOUT)
    if code:
        raise RefusedError(f"uv pip install exited with {code}: {output[-2000:]}")
