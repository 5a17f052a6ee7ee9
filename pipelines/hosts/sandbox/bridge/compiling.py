"""Compiles the bridge's DLLs from ``source/`` with the sandbox's own compiler."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.core.errors import HostError
from pipelines.hosts.sandbox.bridge.files import SYSTEM, UNIX, WINDOWS
from pipelines.hosts.sandbox.making import seal
from pipelines.hosts.sandbox.toolset import HEADERS, library
from pipelines.hosts.sandbox.wine import Prefix

SOURCE = Path(__file__).resolve().parent / "source"
_HYBRID = "nvcudart_hybrid64"
#: Wine loads the Linux half only for a DLL with Wine's signature at this offset.
_MARK, _MARK_AT = b"Wine builtin DLL\0", 0x40

_ZIG = r"C:\zig\zig.exe"
_WARNINGS = ("-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror")
_FOR_LINUX = (
    *("clang", "--target=x86_64-linux-gnu", "-c", "-O2", "-std=c11", *_WARNINGS, "-I.."),
    *("-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-fasynchronous-unwind-tables"),
)
_FOR_WINDOWS = (
    *("clang", "--target=x86_64-pc-windows-msvc", "-c", "-O2", "-std=gnu11", *_WARNINGS, "-I.."),
    *("-fno-builtin", *HEADERS),
)
_LINK = ("lld-link", "/nologo", "/machine:x64", "/Brepro", "/nodefaultlib", "/noimplib", "/dll")


def make(prefix: Prefix, wheel: Path, exports: Mapping[str, list[str]], target: Path) -> None:
    """Build everything in ``target``; ``exports``: DLL -> its functions, ``wheel``: the runtime's.

    Raises :class:`HostError` if a tool fails, and ``OSError``.
    """
    work = prefix.drive / "bridge-build"
    shutil.rmtree(work, ignore_errors=True)  # left by a killed build
    try:
        prefix.boot()
        shutil.copytree(SOURCE, work)
        with ThreadPoolExecutor(2) as pool:  # a small machine has two cores
            linux = pool.submit(_linux_half, prefix, work)
            dlls = [pool.submit(_windows_half, prefix, work, dll, exports[dll]) for dll in exports]
            hybrid = pool.submit(_hybrid_runtime, prefix, work, wheel)
            for folder in (WINDOWS, UNIX, SYSTEM):
                (target / folder).mkdir()
            for job in dlls:
                made = job.result()
                shutil.copy(made, target / WINDOWS)
                shutil.copy(made, target / SYSTEM)  # found here, loaded from WINEDLLPATH
                shutil.copy(linux.result(), target / UNIX / f"{made.stem}.so")
            shutil.copy(hybrid.result(), target / SYSTEM)
    finally:
        prefix.halt()
        shutil.rmtree(work, ignore_errors=True)
    seal(target)


def _compile(
    prefix: Prefix, flags: Sequence[str], folder: Path, sources: Sequence[Path]
) -> list[str]:
    """The objects in ``folder``, from one call of the compiler."""
    folder.mkdir(exist_ok=True)
    paths = [f"../{path.parent.name}/{path.name}" for path in sources]
    prefix.run([_ZIG, *flags, *paths], cwd=folder)
    return [f"{path.stem}.o" for path in sources]


def _linux_half(prefix: Prefix, work: Path) -> Path:
    folder = work / "linux-half"
    objects = _compile(prefix, _FOR_LINUX, folder, sorted((work / "linux").glob("*.c")))
    link = ("ld.lld", "-shared", "--build-id=none", "--eh-frame-hdr", "-z", "noexecstack")
    prefix.run([_ZIG, *link, *objects, "-o", "linux.so"], cwd=folder)
    return folder / "linux.so"


def _windows_half(prefix: Prefix, work: Path, dll: str, exports: Sequence[str]) -> Path:
    folder = work / dll
    folder.mkdir()
    (folder / f"{dll}.names").write_text("".join(f"X({name})\n" for name in exports), "ascii")
    sources = [path for path in sorted((work / "windows").glob("*.c")) if path.stem != "runtime"]
    if dll != "nvcuda":  # the others accompany NVIDIA's driver for Windows
        sources = [path for path in sources if path.stem == "exports"]
    flags = (*_FOR_WINDOWS, f"-D{dll.upper()}", "-I.")
    objects = _compile(prefix, flags, folder, sources)
    made = folder / f"{dll}.dll"
    entry = ("/entry:DllMain", f"/out:{made.name}", library("kernel32"))
    prefix.run([_ZIG, *_LINK, *entry, *objects], cwd=folder)
    _mark(made)
    return made


def _mark(dll: Path) -> None:
    with dll.open("r+b") as file:
        start = file.read(_MARK_AT)
        header = int.from_bytes(start[0x3C:0x40], "little")
        if header < _MARK_AT + len(_MARK):
            raise HostError(
                f"{dll.name} has no room for Wine's signature: its header is at {header}"
            )
        file.seek(_MARK_AT)
        file.write(_MARK)


def _hybrid_runtime(prefix: Prefix, work: Path, wheel: Path) -> Path:
    """CUDA 13's runtime as the DLL that Windows' display driver installs; see runtime.c."""
    folder = work / "hybrid"
    objects = _compile(prefix, _FOR_WINDOWS, folder, [work / "windows/runtime.c"])
    static = "cudart_static.lib"
    with zipfile.ZipFile(wheel) as archive:
        member = next((n for n in archive.namelist() if n.endswith(f"/x64/{static}")), None)
        if member is None:
            raise HostError(f"{wheel.name} has no x64/{static}")
        (folder / static).write_bytes(archive.read(member))
    made = folder / f"{_HYBRID}.dll"
    imports = [library(n) for n in ("kernel32", "ucrt", "msvcrt", "vcruntime", "advapi32")]
    flags = ("/export:__cudaGetProcAddress", f"/out:{made.name}")
    prefix.run([_ZIG, *_LINK, *flags, *objects, static, *imports], cwd=folder)
    return made
