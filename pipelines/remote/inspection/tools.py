"""Compilers, GPUs and tools that a build needs: paths and versions."""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TypedDict

from .. import protected_dirs
from ..facts import gather
from ..process import capture
from ..resources.commands import find
from ..rpc import idempotent
from . import nvml

#: Seconds for a program to print its version; nvidia-smi is slow after a boot.
PATIENCE = 30.0
_CONNECTION = 5.0

#: Where provisioning installs it, and where a sandbox has it.
_OURS = r"C:\VS"
_NAMED = re.compile(r"\d+\.\d+(?:\.\d+)*")
_TOOLSET = re.compile(r"14\.\d+\.\d+")
_NVCC = re.compile(r"\bV(\d+\.\d+\.\d+)")
_GPU_FIELDS = ("name", "compute_cap", "driver_version", "driver_model.current", "memory.total")


class Program(TypedDict):
    """A program with its version."""

    path: str
    version: str | None


class Installation(TypedDict):
    """An installation of Visual Studio."""

    path: str | None
    name: str | None
    version: str | None
    complete: bool | None
    """Whether its installation is complete, if known."""
    product: str
    engine: str
    """Its version, such as 17.14.41, and the installer's program; empty if unknown."""
    toolsets: list[str]
    """MSVC versions, as their directories are named."""


def _program_files_dirs() -> list[str]:
    """The directories of installed programs."""
    names = ("ProgramFiles", "ProgramFiles(x86)", "ProgramW6432")
    return list(dict.fromkeys(filter(None, map(os.environ.get, names))))


def _find_program(name: str, places: list[str], ours: bool = False) -> str | None:
    """The path of a program, in ``places`` or on PATH; ``None`` if it is in neither.

    ``ours``: the places are the pipeline's, and one writable by other users is an error.
    """
    for place in places if ours else ():
        protected_dirs.inspect(place)
    return find(name, os.pathsep.join([*places, os.environ.get("PATH", "")]))


def _capture_or_raise(*command: str) -> str:
    code, text = capture(command, timeout=PATIENCE)
    if code:
        raise OSError(f"{command[0]} exited with {code}: {text.strip()[:200]}")
    return text


def _inspect_program(name: str, places: list[str], ours: bool) -> Program | None:
    path = _find_program(name, places, ours)
    if path is None:
        return None
    match = _NAMED.search(_capture_or_raise(path, "--version"))
    return {"path": path, "version": match[0] if match else None}


def _list_msvc_toolsets(installation: str) -> list[str]:
    root = pathlib.Path(installation, "VC", "Tools", "MSVC")
    if not root.is_dir():
        return []
    return sorted(p.name for p in root.iterdir() if _TOOLSET.fullmatch(p.name))


def _vswhere() -> list[Installation]:
    """The output of Microsoft's own locator, empty if it is not installed."""
    for base in _program_files_dirs():
        path = pathlib.Path(base, "Microsoft Visual Studio", "Installer", "vswhere.exe")
        if path.is_file():
            flags = ("-all", "-products", "*", "-format", "json", "-utf8", "-nologo")
            return [
                {
                    "path": row.get("installationPath"),
                    "name": row.get("displayName"),
                    "version": row.get("installationVersion"),
                    # It is also complete once Windows has been restarted.
                    "complete": row.get("isRebootRequired") or row.get("isComplete"),
                    "product": (row.get("catalog") or {}).get("productSemanticVersion") or "",
                    "engine": (row.get("properties") or {}).get("setupEngineFilePath") or "",
                    "toolsets": _list_msvc_toolsets(str(row.get("installationPath"))),
                }
                for row in json.loads(_capture_or_raise(str(path), *flags))
            ]
    return []


def _on_disk() -> Iterator[Installation]:
    """Installations in the usual places (year or version, edition), and the active one."""
    folders = [os.environ["VSINSTALLDIR"]] if os.environ.get("VSINSTALLDIR") else []
    folders += [_OURS] if pathlib.Path(_OURS, "VC").is_dir() else []
    for base in _program_files_dirs():
        root = pathlib.Path(base, "Microsoft Visual Studio")
        if root.is_dir():
            folders += [str(path) for path in root.glob("*/*") if (path / "VC").is_dir()]
    for folder in dict.fromkeys(folders):
        name = " ".join(pathlib.Path(folder).parts[-2:])
        yield {
            "path": folder,
            "name": name,
            "version": None,
            "complete": None,
            "product": "",
            "engine": "",
            "toolsets": _list_msvc_toolsets(folder),
        }


def visual_studio() -> list[Installation]:
    """All installations."""
    return _vswhere() or list(_on_disk())


def _inspect_nvcc(cuda: str, ours: bool) -> Program | None:
    """The CUDA compiler in ``cuda``, else in CUDA_PATH, else on PATH."""
    roots = [root for root in (cuda, os.environ.get("CUDA_PATH")) if root]
    path = _find_program("nvcc", [str(pathlib.Path(root, "bin")) for root in roots], ours)
    if path is None:
        return None
    match = _NVCC.search(_capture_or_raise(path, "--version"))
    return {"path": path, "version": match[1] if match else None}


@idempotent
def gpus() -> list[dict[str, str]] | None:
    """GPUs as reported by the driver, memory in MiB; ``None`` without a driver.

    If the driver has no nvidia-smi, as under Wine, its library is queried.
    """
    places = [
        str(pathlib.Path(base, "NVIDIA Corporation", "NVSMI")) for base in _program_files_dirs()
    ]
    smi = _find_program("nvidia-smi", places)
    if smi is None:
        return nvml.gpus()
    fields = ",".join(_GPU_FIELDS)
    text = _capture_or_raise(smi, f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    names = ("name", "capability", "driver", "model", "memory")
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [
        dict(zip(names, (cell.strip() for cell in row), strict=True))
        for row in rows
        if len(row) == len(names)
    ]


def _unreachable_servers(servers: Sequence[str]) -> list[str]:
    """Those that do not accept HTTPS connections."""
    missing = []
    for name in servers:
        try:
            socket.create_connection((name, 443), timeout=_CONNECTION).close()
        except OSError:
            missing.append(name)
    return missing


@idempotent
def tools(
    cuda: str, programs: dict[str, list[str]], *, ours: bool = False, servers: Sequence[str] = ()
) -> dict[str, object]:
    """Visual Studio, nvcc (in ``cuda`` first), GPUs, each of ``programs``, ``servers`` unreached.

    ``programs`` maps a name to the directories to search before PATH; ``ours``: the pipeline
    manages these. Anything not installed is ``None`` without a problem.
    """
    studio = cache(visual_studio)

    def unreached() -> list[str]:
        """Not checked if a toolset is installed."""
        return [] if any(row["toolsets"] for row in studio()) else _unreachable_servers(servers)

    sources: dict[str, Callable[[], object]] = {
        "visual_studio": studio,
        "nvcc": partial(_inspect_nvcc, cuda, ours),
        "gpus": gpus,
        **({"unreached": unreached} if servers else {}),
    }
    for name, places in programs.items():
        sources[name] = partial(_inspect_program, name, places, ours)
    return gather(sources)
