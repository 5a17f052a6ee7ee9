"""Builds a wheel on the host: source in, log out, wheels in the job's directory.

A job has its own directory with ``src`` and ``out``. It is kept, so that an interrupted build
continues with its finished objects.
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
    fixed_paths,
    process,
    protected_dirs,
    repack,
    sharding,
    usage,
)
from .reboot import WINE_BOOT_ID, boot_identity
from .rpc import idempotent
from .safe_paths import unpack_member

_SCRIPT = r"VC\Auxiliary\Build\vcvarsall.bat"
#: Ours first, then those named by year, then the numbered ones, from 18 on: 2022 supports more
#: CUDA versions than 2026, which is 18. No wildcard in the folder below C:\, where every user may
#: create a "Program Filesz".
_VCVARS = (
    rf"C:\VS\{_SCRIPT}",
    *(
        rf"C:\Program Files{bits}\Microsoft Visual Studio\{version}\*\{_SCRIPT}"
        for version in ("20*", "[1-9][0-9]")
        for bits in ("", " (x86)")
    ),
)
#: What vcvarsall.bat selects if no version is requested.
_DEFAULT = "Microsoft.VCToolsVersion.default.txt"
_PYTHON = "WCW_PYTHON"
#: Without telemetry: its PowerShell keeps running and holds the pipe that the script is read from
#: (https://github.com/microsoft/vcpkg/issues/10468). The others tell setuptools not to run the
#: script again for the default toolset; it sets neither (setuptools' compilers/C/msvc.py).
_SETTINGS = ("VSCMD_SKIP_SENDTELEMETRY", "DISTUTILS_USE_SDK", "MSSdk")
_MARK = "--- environment follows ---"
_UNSETTLED = 300.0  # seconds of a build whose files a power loss may have damaged


class _Optional(TypedDict, total=False):
    toolset: str
    """An MSVC version such as 14.38; empty for the newest."""
    programs: Sequence[str]
    """Directories for PATH."""
    cache: compilecache.Spec | None
    fixed: str
    """Directory where the source is built; timestamps written by linkers are replaced."""
    bill: str
    """Input of :func:`.sboms.completed`; without it the wheel gets no SBOM."""
    local: str
    """A local version added to the wheel after the build."""


class Source(_Optional):
    """Parameters of every kind of build."""

    directory: str
    """The job's."""
    archive: str
    """The source, a .tar.gz."""
    environment: dict[str, str]
    timeout: float | None
    """In seconds."""


class _Divided(TypedDict, total=False):
    units: sharding.Units
    """One shard of the objects, or a link of objects compiled on other hosts; otherwise all."""


class Spec(Source, _Divided):
    """Parameters of a wheel build."""

    python: str


class OutputFile(TypedDict):
    """An output file of a build."""

    path: str
    size: int
    sha256: str


class Built(process.Ended, sharding.ShardReport):
    """How a build ended, and its outputs."""

    toolset: str
    """Whether it was requested: a build fixed in another way may reuse the wheel later."""

    timeline: usage.Timeline
    cache: compilecache.Figures
    wheels: list[OutputFile]
    leftovers: list[str]
    """Of a reproducible build: what was removed from the wheel, and what could not be."""


def find_vcvars() -> str:
    """vcvarsall.bat of the host's compiler; ``FileNotFoundError`` lists the places searched.

    Raises :class:`.protected_dirs.UnsafeError` for one that any user may have created.
    """
    for pattern in _VCVARS:
        if paths := sorted(glob.glob(pattern)):  # noqa: PTH207 - a pattern with a drive
            protected_dirs.inspect(pathlib.Path(paths[-1]).parent)
            return paths[-1]
    raise FileNotFoundError("no vcvarsall.bat in " + ", ".join(_VCVARS))


@idempotent
def toolsets() -> list[str]:
    """The MSVC versions that :func:`compiler_environment` supports, the default first.

    Empty without Visual Studio, or if it does not report its default.
    """
    try:
        auxiliary = pathlib.Path(find_vcvars()).parent
        default = (auxiliary / _DEFAULT).read_text("utf-8").strip()
        there = [path.name for path in (auxiliary.parents[1] / "Tools" / "MSVC").iterdir()]
    except (OSError, ValueError):
        return []
    return [default, *sorted((version for version in there if version != default), reverse=True)]


def compiler_environment(toolset: str = "") -> dict[str, str]:
    """The environment that vcvarsall.bat sets up, on top of this process' own.

    ``toolset``: an MSVC version such as 14.38, or empty for the newest. On other systems than
    Windows the compiler needs no setup: it is this process' own environment.
    """
    if sys.platform != "win32":
        return dict(os.environ)
    option = f" -vcvars_ver={toolset}" if toolset else ""
    # JSON in ASCII: the output of `set` is in a code page that depends on the host's language.
    tell = "import json, os; print(json.dumps(dict(os.environ)))"
    lines = [
        *(f"@set {name}=1" for name in _SETTINGS),
        f'@call "{find_vcvars()}" x64{option}',
        "@if errorlevel 1 exit /b 1",  # it would continue; in Wine, || catches every call
        f"@echo {_MARK}",
        f'@"%{_PYTHON}%" -I -c "{tell}"',
    ]
    with protected_dirs.private() as folder:  # a task's TEMP is one in which users may make files
        script = folder / "vcvars.bat"
        script.write_text("\r\n".join(lines) + "\r\n", "utf-8")
        try:
            # Passed in a variable: cmd reads the file in a code page that may not cover every path.
            os.environ[_PYTHON] = sys.executable
            code, output = process.capture(["cmd", "/c", str(script)], timeout=120)
        finally:
            os.environ.pop(_PYTHON, None)
    if code or _MARK not in output:
        raise RuntimeError(f"vcvarsall.bat exited with {code}: {output[-1000:]}")
    return {k: v for k, v in json.loads(output.partition(_MARK)[2]).items() if k != _PYTHON}


def search_path(environment: Mapping[str, str], python: str, programs: Sequence[str]) -> str:
    """PATH of a build: the directories next to its Python, then the directories ``programs``."""
    folder = os.path.dirname(python)  # noqa: PTH120 - not resolved: it may be a link
    places = [folder, os.path.join(folder, "Scripts"), *programs]  # noqa: PTH118
    return os.pathsep.join([*places, environment.get("PATH", "")])


def unpack_source(archive: str, target: str) -> None:
    """Unpack a .tar.gz over ``target``; members outside of it are refused.

    Files keep the archive's times, so that what was built from them stays newer.
    """
    root = pathlib.Path(target)
    protected_dirs.make(root)
    with tarfile.open(archive) as tar:
        for member in tar:
            unpack_member(tar, member, root, archive)


def drop_unflushed(mark: pathlib.Path, tree: pathlib.Path) -> bytes:
    """Remove the files written last below ``tree`` if the host was restarted since ``mark``.

    After a power loss NTFS has a file's name, size and date but perhaps zeros in it, and ninja
    relies on the date (https://github.com/rust-lang/rust/issues/70575). ninja's own logs stay: it
    validates their records. Returns a line for the build's log, or nothing.
    """
    try:  # Wine's files belong to a system that keeps running
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
    return f"the host was restarted: {len(late)} files are rebuilt\n".encode() if late else b""


def build(spec: Spec) -> Generator[bytes | Built, None, None]:
    """Run a build; yields log bytes, then its result."""
    units = sharding.requested_units(spec)
    job = pathlib.Path(spec["directory"])
    out = job / "out"
    files.remove_tree(str(out))
    protected_dirs.make(out)
    fixed, began = spec.get("fixed", ""), time.time()
    with contextlib.ExitStack() as stack:
        source, placed = job / "src", {}
        if fixed:
            source = stack.enter_context(fixed_paths.built_at(source, pathlib.Path(fixed)))
            packages = stack.enter_context(fixed_paths.linked(source.with_name("p") / "site"))
            placed = {buildwheel.FIXED: fixed, buildwheel.PACKAGES: str(packages)}
        cache = stack.enter_context(compilecache.running(spec.get("cache"), source))
        yield cache.line() + drop_unflushed(job / "boot", cache.source)
        unpack_source(spec["archive"], str(cache.source))
        environment = {**compiler_environment(spec.get("toolset", "")), **spec["environment"]}
        cache.join(environment)
        environment |= placed
        # Finds programs of the environment (ninja), activated or not.
        environment["PATH"] = search_path(environment, spec["python"], spec.get("programs", ()))
        if units is not None:
            environment[buildwheel.UNITS] = sharding.ordered(job, units)
        program = job / "buildwheel.py"
        program.write_text(inspect.getsource(buildwheel), "utf-8")
        command = [spec["python"], "-u", str(program), str(cache.source), str(out)]
        measured = usage.Gauge()
        for item in process.stream(command, env=environment, cwd=str(job), timeout=spec["timeout"]):
            if not isinstance(item, dict):
                yield item
                continue
            lines, bill, local = [], spec.get("bill", ""), spec.get("local", "")
            if (fixed or bill or local) and not item["exit"]:
                epoch = int(environment["SOURCE_DATE_EPOCH"])
                for wheel in sorted(out.glob("*.whl")):
                    lines += repack.repack(wheel, began if fixed else None, epoch, bill, local)
                yield b"".join(f"repacked: {line}\n".encode() for line in lines)
            none: sharding.ShardReport = {}
            divided = sharding.left(job) if units is not None and not item["exit"] else none
            yield {
                **item,
                **divided,
                "toolset": spec.get("toolset", ""),
                "leftovers": lines if fixed else [],
                "timeline": measured.finish(cache.source),
                "cache": cache.figures(),
                "wheels": [left(wheel) for wheel in sorted(out.glob("*.whl"))],
            }


def left(path: pathlib.Path) -> OutputFile:
    """The file at ``path``; ``OSError`` if it does not exist."""
    return {"path": str(path), "size": path.stat().st_size, "sha256": files.sha256(str(path))}


@idempotent
def intact_wheels(wheels: list[OutputFile]) -> bool:
    """Whether the wheels of a build still exist, unchanged."""
    with contextlib.suppress(OSError):
        return bool(wheels) and all(files.sha256(w["path"]) == w["sha256"] for w in wheels)
    return False
