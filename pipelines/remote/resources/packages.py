"""The environment that a build runs in; nothing is downloaded.

Each set of packages has one of its own, so that a build imports nothing that another one needed.
"""

from __future__ import annotations

import base64
import csv
import importlib.metadata
import io
import os
import pathlib
import zipfile

from .. import files, locks, protected_dirs, unpacked
from ..process import capture
from . import Check, Kind, RefusedError

_TIMEOUT = 1800.0  # torch alone is 3.4 GB to unpack, past a virus scanner
_UV = ("--quiet", "--offline", "--no-cache", "--no-config")
#: Written into site-packages by uv for each environment.
_OF_UV = ("_virtualenv.py", "_virtualenv.pth")


class Spec(Kind):
    """The desired state."""

    packages: dict[str, str]
    """Name -> version."""
    files: list[str]
    """Their wheels."""
    installer: str
    """uv on the host."""
    base: str
    """The Python that the environment is made with."""
    path: str
    """Directory of the environment, which nothing else uses."""
    python: str
    """Its Python."""


def _environment_site_packages(spec: Spec) -> str:
    """The directory of the environment's packages."""
    return os.path.join(spec["path"], "Lib", "site-packages")  # noqa: PTH118


def _versions(spec: Spec) -> dict[str, str]:
    importlib.metadata.MetadataPathFinder().invalidate_caches()  # a method until 3.12
    distributions = importlib.metadata.distributions(path=[_environment_site_packages(spec)])
    return {
        str(distribution.metadata["Name"]).lower().replace("_", "-"): distribution.version
        for distribution in distributions
    }


def check(spec: Spec) -> Check:
    """Compare with the installed versions, which are the values; a repair compares the files."""
    versions = _versions(spec)
    have = ", ".join(f"{name} {version}" for name, version in versions.items())
    ok = versions == spec["packages"] and os.path.isfile(spec["python"])  # noqa: PTH113
    if ok and spec.get("thorough", False):
        wrong, more = _differing(spec)
        ok = not wrong and not more
        have += f"; {len(wrong)} files differ from the wheels, {len(more)} belong to no package"
        have += f": {', '.join([*wrong, *more][:3])}" if not ok else ""
    return {"ok": ok, "found": have or "none", "values": versions}


def _differing(spec: Spec) -> tuple[list[str], list[str]]:
    """Files that differ from the wheels, and those that no package lists.

    The wheels are compared with their pins by another resource. Scripts are not compared: the
    installer generates them.
    """
    site, wrong = _environment_site_packages(spec), []
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
            if not os.path.isfile(path) or files.sha256(path) != digest:  # noqa: PTH113
                wrong.append(inner if data else name)
    distributions = importlib.metadata.distributions(path=[site])
    listed = [
        file.as_posix() for distribution in distributions for file in distribution.files or ()
    ]
    return wrong, unpacked.unknown_files(site, [*listed, *_OF_UV])


def plan(spec: Spec) -> str:
    """What is installed."""
    return f"install {len(spec['packages'])} packages into {spec['path']}"


def apply(spec: Spec) -> None:
    """Make the environment from the wheels on the host, from nothing."""
    protected_dirs.make(pathlib.Path(spec["path"]).parent)
    with locks.claim(pathlib.Path(f"{spec['path']}.lock"), _TIMEOUT) as mine:
        if not mine:
            raise RefusedError(f"{spec['path']} is being made by another command")
        if check(spec)["ok"]:  # by the one that held the lock
            return
        files.remove_tree(spec["path"])
        steps = [["venv", "--python", spec["base"], spec["path"]]]
        if spec["files"]:
            install = ["pip", "install", "--no-index", "--python", spec["python"]]
            steps.append([*install, *spec["files"]])
        for step in steps:
            code, output = capture([spec["installer"], *_UV, *step], timeout=_TIMEOUT)
            if code:
                raise RefusedError(f"uv {step[0]} exited with {code}: {output[-2000:]}")
