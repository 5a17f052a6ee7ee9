"""What is in a Python: where it looks for modules, what is installed there, its torch.

Nothing of it is imported; files are read, with limits.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import importlib.machinery
import os
import re
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.publish.which.children import run_child
from pipelines.publish.which.data import PROBE
from pipelines.publish.which.texts import ascii_line, normalize_project

_TEXT_BYTES, _RECORD_BYTES = 1 << 20, 32 << 20
_MOST_ENTRIES = 1_000_000
_MOST_TOPS, _MOST_ROWS = 200, 200_000
_PROBE_SECONDS = 30.0
_MOST_GPUS = 64
_ABOUT = re.compile(
    r"(?P<name>[^-]+(?:-[^-]+)*?)(?:-(?P<version>[^-]+)(?:-py\d[^-]*(?:-.+)?)?)?"
    r"\.(?P<kind>dist-info|egg-info|egg)"
)
_SMI = re.compile(r"CUDA(?: \w+)? Version\s*:\s*(\d{1,3}\.\d{1,2})")


@dataclass(frozen=True)
class Place:
    """A Python, and where it looks."""

    executable: str
    python: str
    """``3.12``; ``3.13t`` without the global lock."""
    platform: str
    """As the tags of wheels have it."""
    paths: tuple[str, ...]
    """Where it looks for modules, in order; the current folder first where it does so."""
    suffixes: tuple[str, ...]
    """With which extension modules may end, such as ``.cp312-win_amd64.pyd``."""
    user: str = ""
    """The folder of packages that are this user's alone; empty: it is not used."""
    system: str = ""
    """Windows' own DLLs."""
    dll_folders: tuple[str, ...] = ()
    """Where Python's own DLLs are, and those that torch adds to the search besides its own."""
    cuda: str = ""
    """CUDA's toolkit, as ``CUDA_PATH`` names it."""

    @property
    def windows(self) -> bool:
        """Whether it is of Windows."""
        return self.platform.startswith("win")


@dataclass(frozen=True)
class Driver:
    """What NVIDIA's driver says."""

    release: str = ""
    """Of CUDA; empty: there is no driver."""
    gpus: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    native: str = ""
    """``ARM64`` where Windows is of that machine."""
    trouble: str = ""
    """Why it cannot be used, or not be asked."""
    missing: tuple[str, ...] = ()
    """Instructions that the processor does not have, of those that were asked for."""


@dataclass(frozen=True)
class Installed:
    """A package by its ``.dist-info``, or what was before that."""

    project: str
    version: str
    folder: str
    """That of ``sys.path`` in which it lies."""
    info: str
    requires: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    files: tuple[tuple[str, int | None], ...] | None = None
    """Paths below ``folder`` with their bytes, as RECORD says; ``None``: there is none."""
    linked: bool = False
    """Whether it is installed as a link to a folder of sources (``pip install -e``)."""
    legacy: bool = False
    """Whether it is of the kind without RECORD: ``.egg-info``, as conda and setup.py leave it."""

    @property
    def label(self) -> str:
        """Its name and version, for people."""
        return f"{self.project} {self.version}"

    @property
    def tops(self) -> tuple[str, ...]:
        """The modules that it has at the top."""
        found: dict[str, None] = {}
        for path, _ in self.files or ():
            top, _, rest = path.partition("/")
            name = top.partition(".")[0]
            module = rest.endswith(".py") or (not rest and top.endswith((".py", ".pyd", ".so")))
            if module and name.isidentifier() and not name.startswith("__editable__"):
                found[name] = None
        return tuple(found)[:_MOST_TOPS] or (self.project.replace("-", "_"),)

    @property
    def own(self) -> tuple[str, ...]:
        """Of them those that are surely its own: many have ``tests`` and the like besides."""
        main = self.project.replace("-", "_")
        binary = {
            path.partition(".")[0]
            for path, _ in self.files or ()
            if "/" not in path and path.endswith((".pyd", ".so"))
        }
        first = main if main in self.tops else self.tops[0]
        return (first, *(one for one in self.tops if one in binary and one != first))


@dataclass(frozen=True)
class Torch:
    """The torch that would be imported, as its files say."""

    version: str
    cuda: str
    """Empty: a build for the processor alone."""
    folder: str
    """Of the package itself."""


def this_place() -> Place:
    """The Python that runs this."""
    paths = [os.fspath(one) for one in sys.path if one]
    if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        with contextlib.suppress(OSError):  # it has been removed
            paths.insert(0, os.getcwd())
    # One folder by two names, by a link or in other letters' case, is not two installations.
    folders: dict[str, str] = {}
    for one in paths:
        folders.setdefault(os.path.normcase(os.path.realpath(one)), one)
    free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    windows = sys.platform == "win32"
    root = os.environ.get("SYSTEMROOT", r"C:\Windows") if windows else ""
    dlls = [os.path.dirname(os.path.abspath(sys.executable))] if windows else []
    for prefix in (sys.exec_prefix, sys.base_exec_prefix) if windows else ():
        dlls += [prefix, os.path.join(prefix, "DLLs"), os.path.join(prefix, "Library", "bin")]
    return Place(
        executable=sys.executable or "",
        python=f"{sys.version_info[0]}.{sys.version_info[1]}{free}",
        platform=re.sub(r"[.-]", "_", sysconfig.get_platform()),
        paths=tuple(folders.values()),
        suffixes=tuple(importlib.machinery.EXTENSION_SUFFIXES),
        user=site.getusersitepackages() if site.ENABLE_USER_SITE else "",
        system=os.path.join(root, "System32") if windows else "",
        dll_folders=tuple(dict.fromkeys(dlls)),
        cuda=os.environ.get("CUDA_PATH", "") if windows else "",
    )


def ask_driver(place: Place) -> Driver:
    """NVIDIA's driver, by itself and else by ``nvidia-smi``."""
    ended = run_child([place.executable, "-I", "-S", "-c", PROBE], _PROBE_SECONDS)
    data = ended.result
    if data.get("driver") and not data.get("error"):
        return _parse_driver_report(data)
    trouble = ascii_line(
        data.get("error") or ended.why or ("" if data else ended.output[-200:]), 200
    )
    # By itself shutil.which would take one that lies in the current folder of Windows.
    smi = os.path.join(place.system, "nvidia-smi.exe") if place.system else "nvidia-smi"
    if shutil.which(smi) is None:
        return _parse_driver_report(data, trouble)
    release = _SMI.search(run_child([smi], _PROBE_SECONDS).output)
    listed = run_child(
        [smi, "--query-gpu=compute_cap,name", "--format=csv,noheader"], _PROBE_SECONDS
    )
    rows = [row.partition(",")[::2] for row in listed.output.splitlines() if row.strip()]
    if release is None:
        return _parse_driver_report(data, trouble or "nvidia-smi does not reach it")
    if listed.code:
        rows, trouble = [], f"nvidia-smi does not list the GPUs: {listed.why or listed.output}"
    seen = {"driver": release[1], "gpus": [a for a, _ in rows], "names": [b for _, b in rows]}
    said = trouble or "nvidia-smi can load its library, but CUDA programs cannot"
    return _parse_driver_report({**data, **seen}, said)


def _parse_driver_report(data: dict[str, object], trouble: str = "") -> Driver:
    release, gpus, names = data.get("driver"), _listed_in(data, "gpus"), _listed_in(data, "names")
    own = [str(one) for one in gpus]
    odd = [one for one in own if not re.fullmatch(r"[1-9]\d?\.\d", one)]
    if odd or len(own) > _MOST_GPUS:  # a wheel for the others alone must not be said to fit
        trouble = (
            f"not every GPU was identified, of {len(own)}: {ascii_line(odd[:1] or own[-1:], 60)}"
        )
        own, names = [], []
    return Driver(
        release=str(release) if re.fullmatch(r"\d{1,3}\.\d{1,2}", str(release)) else "",
        gpus=tuple(own),
        names=tuple(ascii_line(one, 80) for one in names),
        native="ARM64" if data.get("native") == "ARM64" else "",
        trouble=ascii_line(trouble, 200),
        missing=("avx",) if data.get("avx") is False else (),
    )


def _listed_in(data: dict[str, object], key: str) -> list[object]:
    found = data.get(key)
    return found if isinstance(found, list) else []


def read_text(path: str | Path, most: int = _TEXT_BYTES) -> str | None:
    """Its start; ``None`` where it cannot be read."""
    try:
        if not os.path.isfile(path):  # of a pipe there may never be an end
            return None
        with open(path, "rb") as stream:
            return stream.read(most).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def names_in(folder: str) -> list[str]:
    """What a folder has; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for _, entry in zip(range(_MOST_ENTRIES), entries))  # noqa: B905 - Python 3.9
    except (OSError, ValueError):
        return []


def find_installed(place: Place, wanted: Iterable[str]) -> list[Installed]:
    """Every installation of these projects, those that are found first come first."""
    known = {normalize_project(one) for one in wanted}
    found = []
    for folder in place.paths:
        for name in names_in(folder):
            about = _ABOUT.fullmatch(name) if name.endswith("-info") else None
            if about and normalize_project(about["name"]) in known:
                found.append(_read_installed_package(folder, name, about))
        egg = _ABOUT.fullmatch(os.path.basename(folder))
        if egg and egg["kind"] == "egg" and normalize_project(egg["name"]) in known:
            found.append(_read_installed_package(folder, "EGG-INFO", egg))
    return found


def find_pip_leftovers(place: Place, wanted: str) -> list[str]:
    """What pip has put aside and not removed: ``~lash_attn``."""
    tail = wanted.replace("-", "_")[1:]
    return [
        os.path.join(folder, name)
        for folder in place.paths
        for name in names_in(folder)
        if name.startswith("~")
        and normalize_project(name.lstrip("~")).replace("-", "_").startswith(tail)
    ]


def _read_installed_package(folder: str, name: str, about: re.Match[str]) -> Installed:
    info = os.path.join(folder, name)
    legacy = about["kind"] != "dist-info"
    file = os.path.join(info, "PKG-INFO" if legacy else "METADATA")
    text = read_text(file if os.path.isdir(info) else info) or ""
    head = "\n".join(text.splitlines()).partition("\n\n")[0]
    says = re.search(r"(?im)^Version:\s*(\S{1,200})", head)
    wheel = read_text(os.path.join(info, "WHEEL")) or ""
    files = _read_record_rows(os.path.join(info, "RECORD"))
    origin = read_text(os.path.join(info, "direct_url.json")) or ""
    linked = any(path.startswith("__editable__") for path, _ in files or ())
    return Installed(
        project=normalize_project(about["name"]),
        version=ascii_line(says[1] if says else about["version"] or "", 100),
        folder=folder,
        info=info,
        requires=tuple(re.findall(r"(?im)^Requires-Dist:\s*(.{1,300}?)\s*$", head)),
        tags=tuple(re.findall(r"(?im)^Tag:\s*(\S{1,100})", wheel)),
        files=files,
        linked=linked or re.search(r'"editable"\s*:\s*true', origin) is not None,
        legacy=legacy,
    )


def _read_record_rows(path: str) -> tuple[tuple[str, int | None], ...] | None:
    text = read_text(path, _RECORD_BYTES)
    if text is None:
        return None
    rows: list[tuple[str, int | None]] = []
    try:
        for row in csv.reader(text.splitlines()):
            inside = row and not os.path.isabs(row[0]) and ".." not in row[0].split("/")
            if inside and not row[0].endswith(".pyc") and len(rows) < _MOST_ROWS:
                size = int(row[2]) if len(row) > 2 and row[2].isdecimal() else None  # noqa: PLR2004
                rows.append((row[0], size))
    except (csv.Error, ValueError):
        return None
    return tuple(rows)


def found_at(place: Place, module: str) -> str:
    """The file or folder that ``import`` takes for a module at the top; empty: none.

    A folder without ``__init__.py`` counts only where nothing else is called so.
    """
    bare = ""
    for folder in place.paths:
        path = os.path.join(folder, module)
        if os.path.isdir(path):
            if os.path.isfile(os.path.join(path, "__init__.py")):
                return path
            bare = bare or path
        for suffix in (*place.suffixes, ".py"):
            if os.path.isfile(path + suffix):
                return path + suffix
    return bare


def read_torch(place: Place) -> Torch | None:
    """The torch that would be imported; ``None`` where there is none that says what it is."""
    folder = found_at(place, "torch")
    text = read_text(os.path.join(folder, "version.py")) if folder else None
    assigned = dict(_assigned(text or ""))
    version, cuda = assigned.get("__version__"), assigned.get("cuda")
    if not isinstance(version, str) or not re.fullmatch(
        r"\d{1,4}\.\d{1,4}[\w.+-]{0,60}", version, re.ASCII
    ):
        return None
    release = re.match(r"\d{1,3}\.\d{1,2}", cuda, re.ASCII) if isinstance(cuda, str) else None
    return Torch(version, release[0] if release else "", folder)


def _assigned(text: str) -> Iterator[tuple[str, object]]:
    """The constants of a module, which is not run."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            yield target.id, value.value
