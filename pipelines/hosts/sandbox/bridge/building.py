"""The bridge's DLLs, compiled from ``source/`` by the compiler of the sandbox's own Windows.

They are cached by the hash of their inputs, and renamed into place when sealed; damaged ones are
rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import HostError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.hosts.sandbox import health
from pipelines.hosts.sandbox.bridged import SYSTEM, UNIX, WINDOWS
from pipelines.hosts.sandbox.image import image_key
from pipelines.hosts.sandbox.making import (
    exclusive_lock,
    read_verified_seal,
    scratch_for,
    seal_directory,
)
from pipelines.hosts.sandbox.toolset import HEADERS, import_library_path
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile


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


def compile_bridge(
    prefix: Prefix, wheel: Path, exports: Mapping[str, list[str]], target: Path
) -> None:
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
    seal_directory(target)


def _compile_objects(
    prefix: Prefix, flags: Sequence[str], folder: Path, sources: Sequence[Path]
) -> list[str]:
    """The objects in ``folder``, from one call of the compiler."""
    folder.mkdir(exist_ok=True)
    paths = [f"../{path.parent.name}/{path.name}" for path in sources]
    prefix.run([_ZIG, *flags, *paths], cwd=folder)
    return [f"{path.stem}.o" for path in sources]


def _linux_half(prefix: Prefix, work: Path) -> Path:
    folder = work / "linux-half"
    objects = _compile_objects(prefix, _FOR_LINUX, folder, sorted((work / "linux").glob("*.c")))
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
    objects = _compile_objects(prefix, flags, folder, sources)
    made = folder / f"{dll}.dll"
    entry = ("/entry:DllMain", f"/out:{made.name}", import_library_path("kernel32"))
    prefix.run([_ZIG, *_LINK, *entry, *objects], cwd=folder)
    _write_builtin_signature(made)
    return made


def _write_builtin_signature(dll: Path) -> None:
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
    objects = _compile_objects(prefix, _FOR_WINDOWS, folder, [work / "windows/runtime.c"])
    static = "cudart_static.lib"
    with zipfile.ZipFile(wheel) as archive:
        member = next((n for n in archive.namelist() if n.endswith(f"/x64/{static}")), None)
        if member is None:
            raise HostError(f"{wheel.name} has no x64/{static}")
        (folder / static).write_bytes(archive.read(member))
    made = folder / f"{_HYBRID}.dll"
    imports = [
        import_library_path(n) for n in ("kernel32", "ucrt", "msvcrt", "vcruntime", "advapi32")
    ]
    flags = ("/export:__cudaGetProcAddress", f"/out:{made.name}")
    prefix.run([_ZIG, *_LINK, *flags, *objects, static, *imports], cwd=folder)
    return made


_KIND = "ET_DYN for EM_X86_64"


def exported_functions(path: Path) -> frozenset[str]:
    """Those in its table of dynamic symbols.

    Raises :class:`HostError` for anything but a shared library for x86-64 Linux.
    """
    from elftools.elf.elffile import ELFFile  # slow, and only needed with a driver

    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            kind = f"{elf['e_type']} for {elf['e_machine']}"
            functions = frozenset(_defined_elf_functions(elf)) if kind == _KIND else None
    except OSError as error:
        raise _no_library(path, error.strerror or str(error)) from None
    except Exception as error:  # the reader raises anything on a damaged file
        raise _no_library(path, f"not a readable ELF file: {error}") from None
    if functions is None:
        raise _no_library(path, f"an ELF file of kind {kind}")
    return functions


def _defined_elf_functions(elf: ELFFile) -> Iterator[str]:
    from elftools.elf.dynamic import DynamicSegment

    for segment in elf.iter_segments():
        if isinstance(segment, DynamicSegment):
            for symbol in segment.iter_symbols():
                is_function = symbol["st_info"]["type"] == "STT_FUNC"
                if is_function and symbol["st_shndx"] != "SHN_UNDEF":
                    yield str(symbol.name)


def _no_library(path: Path, actual: str) -> HostError:
    return HostError(
        f"{path}: {actual}; expected a shared library of NVIDIA's driver",
        hint="Install NVIDIA's driver for Linux, or repair it: nvidia-smi should list the GPU.",
    )


Step = Callable[[str], object]

#: The entry of the lock whose wheel has the runtime that Windows' display driver installs.
RUNTIME = "nvidia-cuda-runtime"
#: DLL -> its pinned names, the prefix of its functions, one that every driver has.
_DLLS = {
    "nvcuda": ("cuda-names.txt", "cu", "cuInit"),
    "nvml": ("nvml-names.txt", "nvml", "nvmlInit_v2"),
}


def bridge_exports(libraries: Sequence[Path]) -> dict[str, list[str]]:
    """DLL -> its exports: the pinned names, and those of this machine's driver.

    ``libraries``: the existing ones of its libcuda.so.1 and libnvidia-ml.so.1. Raises
    :class:`HostError` for one that is neither.
    """
    sources = {
        dll: {*(SOURCE / pinned).read_text("ascii").split()}
        for dll, (pinned, _, _) in _DLLS.items()
    }
    for path in libraries:
        functions = exported_functions(path)
        dll = next((d for d, (_, _, essential) in _DLLS.items() if essential in functions), None)
        if dll is None:
            expected = " or ".join(essential for _, _, essential in _DLLS.values())
            raise HostError(
                f"{path} has {len(functions)} functions, but not {expected}: it is not a library "
                "of NVIDIA's driver",
                hint="Install NVIDIA's driver for Linux: nvidia-smi should list the GPU.",
            )
        begin = _DLLS[dll][1]
        sources[dll] |= {
            name for name in functions if re.fullmatch(rf"{begin}\w{{1,200}}", name, re.A)
        }
    return {dll: sorted(exported) for dll, exported in sources.items()}


def ensure_bridge(prefix: Prefix, cache: Cache, libraries: Sequence[Path], step: Step) -> Path:
    """The directory of the bridge for this machine's driver, verified; built if missing.

    The compiler of ``prefix`` is used; nothing may run in it, since it is started and ended.
    ``step`` reports compiling. Raises :class:`HostError` for a library of no driver or a failing
    compiler, :class:`StorageError` on a full disk, and what :meth:`Cache.fetch` does.
    """
    exports = bridge_exports(libraries)
    health.check_files(prefix)
    target = cache.root / "bridges" / _bridge_cache_key(cache, health.image_of(prefix), exports)
    more = "set XDG_CACHE_HOME to a larger disk: the GPU bridge needs 20 MiB"
    with disk_errors(target.parent, more), exclusive_lock(target):
        if read_verified_seal(target) is None:
            step("compiling the GPU bridge")
            with scratch_for(target) as scratch:
                compile_bridge(prefix, cache.fetch(RUNTIME), exports, scratch)
                scratch.rename(target)
    return target


def current_bridge_key(cache: Cache, python: str, libraries: Sequence[Path]) -> str:
    """The name of the directory of :func:`ensure_bridge` for today's Windows with ``python``."""
    return _bridge_cache_key(cache, image_key(cache, python), bridge_exports(libraries))


def _bridge_cache_key(cache: Cache, image: str, exports: Mapping[str, Sequence[str]]) -> str:
    """The hash of all inputs: the image with the compiler, sources, names, runtime."""
    digest = hashlib.sha256(image.encode())
    digest.update(cache.lock.tool(RUNTIME).sha256.encode())
    digest.update(json.dumps(exports).encode())
    for source in (Path(__file__), *sorted(SOURCE.rglob("*"))):
        if source.is_file():
            digest.update(f"{source.name} {sha256_of(source)}".encode())
    return digest.hexdigest()[:16]
