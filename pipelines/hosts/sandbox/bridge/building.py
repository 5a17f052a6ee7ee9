"""The bridge's DLLs, compiled from ``source/`` by the compiler of the sandbox's own Windows.

They are kept in the cache by the hash of what they are made of, and appear there under their final
name by rename. ``files.json`` has their sha256: it is compared at each use, and what is not whole
is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import HostError, StorageError
from pipelines.files import DISK_ERRNOS, sha256_of
from pipelines.hosts.sandbox import health
from pipelines.hosts.sandbox.bridge.elf import exported_functions
from pipelines.hosts.sandbox.bridge.files import FILES, SYSTEM, UNIX, WINDOWS, listed
from pipelines.hosts.sandbox.image import image_key
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.toolchain.lock import Cache

Step = Callable[[str], object]

SOURCE = Path(__file__).resolve().parent / "source"
#: The entry of the lock whose wheel has the run-time that Windows' display driver brings.
RUNTIME = "nvidia-cuda-runtime"
_HYBRID = "nvcudart_hybrid64"
#: DLL -> the names pinned for it, what its functions begin with, one without which it is no driver.
_DLLS = {
    "nvcuda": ("cuda-names.txt", "cu", "cuInit"),
    "nvml": ("nvml-names.txt", "nvml", "nvmlInit_v2"),
}
#: Wine looks for the Linux half only of a DLL that says at this place that it is Wine's own.
_MARK, _MARK_AT = b"Wine builtin DLL\0", 0x40

_ZIG = r"C:\zig\zig.exe"
_LIB = "C:\\sdk\\lib\\"
#: Those of Windows and its C library, as the compiler is told.
HEADERS = ("-isystem", "C:/sdk/ucrt", "-isystem", "C:/sdk/win32")
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


def names(libraries: Sequence[Path]) -> dict[str, list[str]]:
    """DLL -> what it exports: the pinned names, and those of this machine's driver.

    ``libraries``: its libcuda.so.1 and libnvidia-ml.so.1, as far as they are there. Raises
    :class:`HostError` for one that is neither.
    """
    found = {
        dll: {*(SOURCE / pinned).read_text("ascii").split()}
        for dll, (pinned, _, _) in _DLLS.items()
    }
    for path in libraries:
        functions = exported_functions(path)
        dll = next((d for d, (_, _, essential) in _DLLS.items() if essential in functions), None)
        if dll is None:
            expected = " or ".join(essential for _, _, essential in _DLLS.values())
            raise HostError(
                f"{path} has {len(functions)} functions, but not {expected}: it is no library of "
                "NVIDIA's driver",
                advice="Install NVIDIA's driver for Linux: nvidia-smi should list the GPU.",
            )
        begin = _DLLS[dll][1]
        found[dll] |= {name for name in functions if name.startswith(begin) and name.isidentifier()}
    return {dll: sorted(exported) for dll, exported in found.items()}


def built(prefix: Prefix, cache: Cache, libraries: Sequence[Path], step: Step) -> Path:
    """The directory of the bridge for this machine's driver, verified; made unless it is there.

    ``prefix`` lends its compiler; nothing may run in it, for it is started and ended. ``step`` is
    told when something is compiled. Raises :class:`HostError` for a library that is no driver's or
    a compiler that fails, :class:`StorageError` on a full disk, and what :meth:`Cache.fetch` does.
    """
    exports = names(libraries)
    python = health.check_files(prefix)
    target = cache.root / "bridges" / _key(cache, python, exports)
    with _storage_errors(target), _alone(target):
        if listed(target) is None:
            step("compiling the GPU bridge")
            shutil.rmtree(target, ignore_errors=True)
            scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            try:
                _make(prefix, cache.fetch(RUNTIME), exports, scratch)
                scratch.rename(target)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return target


def key(cache: Cache, python: str, libraries: Sequence[Path]) -> str:
    """The name of the directory of :func:`built` for a Windows with ``python``, such as 3.11."""
    return _key(cache, python, names(libraries))


def _key(cache: Cache, python: str, exports: Mapping[str, Sequence[str]]) -> str:
    """The hash of all inputs: sources and flags, names, run-time, compiler, headers, Wine."""
    digest = hashlib.sha256(image_key(cache, python).encode())
    digest.update(cache.lock.tool(RUNTIME).sha256.encode())
    digest.update(json.dumps(exports).encode())
    for source in (Path(__file__), *sorted(SOURCE.rglob("*"))):
        if source.is_file():
            digest.update(f"{source.name} {sha256_of(source)}".encode())
    return digest.hexdigest()[:16]


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Only one process at a time makes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _storage_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in DISK_ERRNOS:
            raise StorageError(
                f"cannot make the GPU bridge in {target.parent}: {error.strerror}",
                advice="It needs 20 MiB. Free some, or set XDG_CACHE_HOME to a larger disk.",
            ) from error
        raise


def _make(prefix: Prefix, wheel: Path, exports: Mapping[str, list[str]], scratch: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix="bridge-", dir=prefix.drive))
    try:
        prefix.boot()
        shutil.copytree(SOURCE, work, dirs_exist_ok=True)
        with ThreadPoolExecutor(2) as pool:  # two cores are what a small machine has
            linux = pool.submit(_linux_half, prefix, work)
            dlls = [pool.submit(_windows_half, prefix, work, dll, exports[dll]) for dll in _DLLS]
            hybrid = pool.submit(_hybrid_runtime, prefix, work, wheel)
            for folder in (WINDOWS, UNIX, SYSTEM):
                (scratch / folder).mkdir()
            for job in dlls:
                made = job.result()
                shutil.copy(made, scratch / WINDOWS)
                shutil.copy(made, scratch / SYSTEM)  # found there, loaded from WINEDLLPATH
                shutil.copy(linux.result(), scratch / UNIX / f"{made.stem}.so")
            shutil.copy(hybrid.result(), scratch / SYSTEM)
    finally:
        prefix.halt()
        shutil.rmtree(work, ignore_errors=True)
    write_list(scratch)


def write_list(folder: Path) -> None:
    """Say of each file that was made in ``folder`` what it is."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.*"))}
    hashes = {name: sha256_of(path) for name, path in files.items()}
    (folder / FILES).write_text(json.dumps(hashes, indent=1), "utf-8")


def _compile(
    prefix: Prefix, flags: Sequence[str], folder: Path, sources: Sequence[Path]
) -> list[str]:
    """Objects in ``folder``, by one start of the compiler."""
    folder.mkdir(exist_ok=True)
    given = [f"../{path.parent.name}/{path.name}" for path in sources]
    prefix.run([_ZIG, *flags, *given], cwd=folder)
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
    if dll != "nvcuda":  # the others are what NVIDIA's driver for Windows has beside its functions
        sources = [path for path in sources if path.stem == "exports"]
    flags = (*_FOR_WINDOWS, f"-D{dll.upper()}", "-I.")
    objects = _compile(prefix, flags, folder, sources)
    made = folder / f"{dll}.dll"
    entry = ("/entry:DllMain", f"/out:{made.name}", f"{_LIB}kernel32.lib")
    prefix.run([_ZIG, *_LINK, *entry, *objects], cwd=folder)
    _mark(made)
    return made


def _mark(dll: Path) -> None:
    with dll.open("r+b") as file:
        start = file.read(_MARK_AT)
        header = int.from_bytes(start[0x3C:0x40], "little")
        if header < _MARK_AT + len(_MARK):
            raise HostError(f"{dll.name} has no room for Wine's mark: its header is at {header}")
        file.seek(_MARK_AT)
        file.write(_MARK)


def _hybrid_runtime(prefix: Prefix, work: Path, wheel: Path) -> Path:
    """CUDA 13's run-time as the DLL that Windows' display driver brings; see runtime.c."""
    folder = work / "hybrid"
    objects = _compile(prefix, _FOR_WINDOWS, folder, [work / "windows/runtime.c"])
    library = "cudart_static.lib"
    with zipfile.ZipFile(wheel) as archive:
        member = next((n for n in archive.namelist() if n.endswith(f"/x64/{library}")), None)
        if member is None:
            raise HostError(f"{wheel.name} has no x64/{library}")
        (folder / library).write_bytes(archive.read(member))
    made = folder / f"{_HYBRID}.dll"
    imports = [f"{_LIB}{n}.lib" for n in ("kernel32", "ucrt", "msvcrt", "vcruntime", "advapi32")]
    flags = ("/export:__cudaGetProcAddress", f"/out:{made.name}")
    prefix.run([_ZIG, *_LINK, *flags, *objects, library, *imports], cwd=folder)
    return made
