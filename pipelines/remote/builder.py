"""Builds a wheel on the host: source in, log out, wheels left in the job's directory.

A job has a directory of its own, with ``src`` and ``out`` in it. It is kept, so that a build that
was interrupted goes on with the units that are done.
"""

from __future__ import annotations

import contextlib
import glob
import inspect
import json
import os
import pathlib
import sys
import tarfile
import time
from collections.abc import Generator, Mapping, Sequence
from typing import TypedDict

from . import (
    buildwheel,
    compilecache,
    files,
    fixedplace,
    process,
    protected_dirs,
    repack,
    sharing,
    usage,
)
from .reboot import WINE_BOOT_ID, boot_identity
from .rpc import idempotent
from .safe_paths import unpack_member

_SCRIPT = r"VC\Auxiliary\Build\vcvarsall.bat"
#: Ours, then those of a year, then those that are numbered, from 18 on: 2022 goes with more
#: releases of CUDA than 2026 does, which is 18. No wildcard in the folder below C:\, where every
#: user may make a "Program Filesz".
_VCVARS = (
    rf"C:\VS\{_SCRIPT}",
    *(
        rf"C:\Program Files{bits}\Microsoft Visual Studio\{version}\*\{_SCRIPT}"
        for version in ("20*", "[1-9][0-9]")
        for bits in ("", " (x86)")
    ),
)
#: What vcvarsall.bat takes where no version is asked for.
_DEFAULT = "Microsoft.VCToolsVersion.default.txt"
_PYTHON = "WCW_PYTHON"
#: Without telemetry: its PowerShell goes on and holds the pipe that the script is read from
#: (https://github.com/microsoft/vcpkg/issues/10468). The others tell setuptools not to run the
#: script again, for the default toolset; it sets neither (setuptools' compilers/C/msvc.py).
_SETTINGS = ("VSCMD_SKIP_SENDTELEMETRY", "DISTUTILS_USE_SDK", "MSSdk")
_MARK = "--- environment follows ---"
_UNSETTLED = 300.0  # seconds before the last sign of a build whose files power may have taken


class _Optional(TypedDict, total=False):
    toolset: str
    """A version of MSVC such as 14.38; empty for the newest."""
    programs: Sequence[str]
    """Directories for PATH."""
    cache: compilecache.Spec | None
    fixed: str
    """A directory where the source stands meanwhile; what linkers write of times is replaced."""
    bill: str
    """What :func:`.sboms.completed` takes; without one the wheel gets none."""
    local: str
    """A local version that is put into the wheel, whose own build takes none."""


class Source(_Optional):
    """What every kind of build is given."""

    directory: str
    """The job's."""
    archive: str
    """The source, a .tar.gz."""
    environment: dict[str, str]
    timeout: float | None
    """In seconds."""


class _Divided(TypedDict, total=False):
    units: sharing.Units
    """One share of the compile units, or a link of what other hosts have compiled; else all."""


class Spec(Source, _Divided):
    """What is given to the build of a wheel."""

    python: str


class Left(TypedDict):
    """A file that a build left."""

    path: str
    size: int
    sha256: str


class Built(process.Ended, sharing.Told):
    """How a build ended, and what it left."""

    toolset: str
    """That it was asked for: another one may have cured a build whose wheel is taken later."""

    timeline: usage.Timeline
    cache: compilecache.Figures
    wheels: list[Left]
    leftovers: list[str]
    """Of a reproducible build: what was taken out of the wheel, and what could not be."""


def find_vcvars() -> str:
    """vcvarsall.bat of the host's compiler; ``FileNotFoundError`` names the places looked at.

    Raises :class:`.protected_dirs.UnsafeError` for one that any user may have put there.
    """
    for pattern in _VCVARS:
        if found := sorted(glob.glob(pattern)):  # noqa: PTH207 - a pattern with a drive
            protected_dirs.inspect(pathlib.Path(found[-1]).parent)
            return found[-1]
    raise FileNotFoundError("no vcvarsall.bat: looked at " + ", ".join(_VCVARS))


@idempotent
def toolsets() -> list[str]:
    """The versions of MSVC that :func:`compiler_environment` can have, its default first.

    None where there is no Visual Studio, or it does not say which is its default.
    """
    try:
        auxiliary = pathlib.Path(find_vcvars()).parent
        default = (auxiliary / _DEFAULT).read_text("utf-8").strip()
        there = [path.name for path in (auxiliary.parents[1] / "Tools" / "MSVC").iterdir()]
    except (OSError, ValueError):
        return []
    return [default, *sorted((one for one in there if one != default), reverse=True)]


def compiler_environment(toolset: str = "") -> dict[str, str]:
    """The environment that vcvarsall.bat leaves, on top of this process' own.

    ``toolset``: a version of MSVC such as 14.38, or nothing for the newest. Elsewhere than on
    Windows the compiler needs none: it is this process' own.
    """
    if sys.platform != "win32":
        return dict(os.environ)
    asked = f" -vcvars_ver={toolset}" if toolset else ""
    # JSON in ASCII: what `set` prints is in a code page that depends on the host's language.
    tell = "import json, os; print(json.dumps(dict(os.environ)))"
    lines = [
        *(f"@set {name}=1" for name in _SETTINGS),
        f'@call "{find_vcvars()}" x64{asked}',
        "@if errorlevel 1 exit /b 1",  # it would go on; Wine takes every call for one before ||
        f"@echo {_MARK}",
        f'@"%{_PYTHON}%" -I -c "{tell}"',
    ]
    with protected_dirs.private() as folder:  # a task's TEMP is one in which users may make files
        script = folder / "vcvars.bat"
        script.write_text("\r\n".join(lines) + "\r\n", "utf-8")
        try:
            # In a variable: cmd reads the file in a code page that need not know every path.
            os.environ[_PYTHON] = sys.executable
            code, output = process.capture(["cmd", "/c", str(script)], timeout=120)
        finally:
            os.environ.pop(_PYTHON, None)
    if code or _MARK not in output:
        raise RuntimeError(f"vcvarsall.bat left with {code}: {output[-1000:]}")
    return {k: v for k, v in json.loads(output.partition(_MARK)[2]).items() if k != _PYTHON}


def search_path(environment: Mapping[str, str], python: str, programs: Sequence[str]) -> str:
    """PATH of a build: first what is beside its Python, then the directories ``programs``."""
    beside = os.path.dirname(python)  # noqa: PTH120 - not resolved: it may be a link
    places = [beside, os.path.join(beside, "Scripts"), *programs]  # noqa: PTH118
    return os.pathsep.join([*places, environment.get("PATH", "")])


def unpack_source(archive: str, target: str) -> None:
    """Write the tree in a .tar.gz over ``target``; members that would leave it are refused.

    Files keep the times of the archive, so that what was built from them stays newer.
    """
    root = pathlib.Path(target)
    protected_dirs.make(root)
    with tarfile.open(archive) as tar:
        for member in tar:
            unpack_member(tar, member, root, archive)


def drop_unsettled(mark: pathlib.Path, tree: pathlib.Path) -> bytes:
    """Remove what was written last below ``tree`` if the host was restarted since ``mark``.

    After a loss of power NTFS has a file's name, size and date but perhaps zeros in it, and ninja
    goes by the date (https://github.com/rust-lang/rust/issues/70575). ninja's own logs stay: it
    checks their records. Returns a line for the build's log, or nothing.
    """
    try:  # Wine's files are those of a system that outlives it
        identity = boot_identity(WINE_BOOT_ID).encode()
    except OSError:
        identity = boot_identity().encode()
    written = {}
    if mark.is_file() and mark.read_bytes() == identity:
        return b""
    for folder, _, names in os.walk(tree):
        for path in (pathlib.Path(folder, n) for n in names if not n.startswith(".ninja_")):
            written[path] = path.lstat().st_mtime
    last = max((at for at in written.values() if at <= time.time()), default=0.0)
    late = [path for path, at in written.items() if at > last - _UNSETTLED]
    for path in late:
        files.remove_tree(str(path))
    mark.write_bytes(identity)
    return f"the host was restarted: {len(late)} files are built again\n".encode() if late else b""


def build(spec: Spec) -> Generator[bytes | Built, None, None]:
    """Run a build; yields log bytes, then its result."""
    units = sharing.asked(spec)
    job = pathlib.Path(spec["directory"])
    out = job / "out"
    files.remove_tree(str(out))
    protected_dirs.make(out)
    fixed, began = spec.get("fixed", ""), time.time()
    with contextlib.ExitStack() as stack:
        source, placed = job / "src", {}
        if fixed:
            source = stack.enter_context(fixedplace.standing(source, pathlib.Path(fixed)))
            packages = stack.enter_context(fixedplace.linked(source.with_name("p") / "site"))
            placed = {buildwheel.FIXED: fixed, buildwheel.PACKAGES: str(packages)}
        cache = stack.enter_context(compilecache.running(spec.get("cache"), source))
        yield cache.line() + drop_unsettled(job / "boot", cache.source)
        unpack_source(spec["archive"], str(cache.source))
        environment = {**compiler_environment(spec.get("toolset", "")), **spec["environment"]}
        cache.join(environment)
        environment |= placed
        # Programs of the environment (ninja) are found, activated or not.
        environment["PATH"] = search_path(environment, spec["python"], spec.get("programs", ()))
        if units is not None:
            environment[buildwheel.UNITS] = sharing.ordered(job, units)
        program = job / "buildwheel.py"
        program.write_text(inspect.getsource(buildwheel), "utf-8")
        command = [spec["python"], "-u", str(program), str(cache.source), str(out)]
        measured = usage.Gauge()
        for item in process.stream(command, env=environment, cwd=str(job), timeout=spec["timeout"]):
            if not isinstance(item, dict):
                yield item
                continue
            told, bill, local = [], spec.get("bill", ""), spec.get("local", "")
            if (fixed or bill or local) and not item["exit"]:
                epoch = int(environment["SOURCE_DATE_EPOCH"])
                for wheel in sorted(out.glob("*.whl")):
                    told += repack.repack(wheel, began if fixed else None, epoch, bill, local)
                yield b"".join(f"packed anew: {line}\n".encode() for line in told)
            none: sharing.Told = {}
            divided = sharing.left(job) if units is not None and not item["exit"] else none
            yield {
                **item,
                **divided,
                "toolset": spec.get("toolset", ""),
                "leftovers": told if fixed else [],
                "timeline": measured.finish(cache.source),
                "cache": cache.figures(),
                "wheels": [left(wheel) for wheel in sorted(out.glob("*.whl"))],
            }


def left(path: pathlib.Path) -> Left:
    """The file at ``path``; ``OSError`` when there is none."""
    return {"path": str(path), "size": path.stat().st_size, "sha256": files.sha256(str(path))}


@idempotent
def whole(wheels: list[Left]) -> bool:
    """Whether the wheels that a build left are still there, and still what it left."""
    with contextlib.suppress(OSError):
        return bool(wheels) and all(files.sha256(w["path"]) == w["sha256"] for w in wheels)
    return False
