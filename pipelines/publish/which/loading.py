"""Why Windows cannot load a package's DLLs: each that it wants, and each name of it, looked up."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence

from pipelines.publish.which.causes import FIT, Built, Finding
from pipelines.publish.which.data import CUDA_LIBRARIES, KNOWN, MUTEX, TORCH_LIBRARIES
from pipelines.publish.which.images import MACHINES, Loaded, file_version
from pipelines.publish.which.packages import of_python_dll
from pipelines.publish.which.searching import Shelf
from pipelines.publish.which.texts import minor_of, shown

_RUNTIME = re.compile(r"(?:msvcp140|vcruntime140|concrt140|vcomp140)(?:_\w+)?\.dll", re.ASCII)
_MOST_DLLS = 400
_FIRST = "import this package first"
_REDIST = "Visual C++ Redistributable for x64 (vc_redist.x64.exe)"
_OF_PLATFORM = {"win_amd64": 0x8664, "win32": 0x14C, "win_arm64": 0xAA64}


def of_dlls(
    shelf: Shelf, paths: Sequence[str], built: Built, *, seen: set[str] | None = None
) -> Iterator[Finding]:
    """What stands in the way of loading ``paths`` and whatever these want, which goes to ``seen``.

    Of a package that adds folders to the search, what it brings itself (``numpy.libs``) or what
    lies in one of NVIDIA's packages counts as found.
    """
    left = list(paths)
    seen = set() if seen is None else seen
    told: set[tuple[str, str]] = set()
    done: set[str] = set()
    while left and len(done) < _MOST_DLLS:
        path = left.pop(0)
        if path in done:
            continue
        done.add(path)
        seen.add(path)
        for cause, further in _of_one(shelf, path, built):
            if further:
                left.append(further)
            # One run-time is told of once, whatever takes it.
            runtime = cause and cause.id == "old-runtime"
            if (
                cause
                and (key := (cause.level, cause.hint if runtime else cause.actual)) not in told
            ):
                told.add(key)
                yield cause
    if left:
        said = f"more than {_MOST_DLLS} DLLs: not all of them are checked"
        yield Finding("not-checked", said, "", level="unknown")


def _of_one(shelf: Shelf, path: str, built: Built) -> Iterator[tuple[Finding | None, str]]:
    own, name = shelf.read(path), shown(os.path.basename(path), 100)
    if isinstance(own, str):
        yield Finding("unreadable-dll", f"{name} cannot be loaded: {shown(own, 150)}", FIT), ""
        return
    if not own.whole:
        yield Finding("truncated", f"{name} is cut off: its end is missing", FIT), ""
        return
    wanted = _OF_PLATFORM.get(shelf.place.platform, own.machine)
    if own.machine != wanted:
        said = f"{name} is for {_for_machine(own)}, and this Python is for {MACHINES[wanted]}"
        yield Finding("wrong-machine", said, FIT), ""
        return
    if other := of_python_dll(shelf.place, own.libraries):
        said = f"{name} is for Python {other}, and this is Python {shelf.place.python}"
        yield Finding("python-mismatch", said, FIT), ""
        return
    for late, needs in enumerate((own.needs, own.late)):
        of: dict[str, list[str]] = {one: [] for one in (() if late else own.libraries)}
        for library, symbol in needs:
            of.setdefault(library, []).append(symbol)
        for library, symbols in of.items():
            found = "" if shelf.is_set(library) else shelf.find(library, os.path.dirname(path))
            if shelf.is_set(library):
                continue
            if not found:
                yield _absent(shelf, name, library, late=bool(late))
                continue
            yield _of_runtime(shelf, own, name, found), ""
            yield _of_copies(shelf, path, found, symbols), ""
            yield _lacking(shelf, path, found, symbols, built, late=bool(late)), ""
            ours = not shelf.is_systems(found) and not shelf.is_torchs(found)
            if ours and not library.startswith("python3") and not _RUNTIME.fullmatch(library):
                yield None, found


def _absent(shelf: Shelf, name: str, library: str, *, late: bool) -> tuple[Finding | None, str]:
    """A DLL that is nowhere, or where Windows does not look; else where it is."""
    there = shelf.brought.get(library) or shelf.elsewhere(library)
    if there and shelf.adds:
        return None, there
    there = there or shelf.aside(library)
    kind, said, hint = _known(shelf, library) or _of_cudas(shelf, library, there)
    when = " when it is first called" if late else ""
    said = f"{name} wants {shown(library, 100)}{when}, {said}"
    return Finding(kind, said, hint, "warning" if late else "error"), ""


def _known(shelf: Shelf, library: str) -> tuple[str, str, str] | None:
    """Kind, words and hint of one that a package of Windows', NVIDIA's or torch's brings."""
    if _RUNTIME.fullmatch(library):
        hint = "install Microsoft's " + _REDIST
        return "no-msvc-runtime", "of Microsoft's C++ run-time, which is not installed", hint
    if library in KNOWN:
        return "missing-dll", "which is nowhere that Windows looks", KNOWN[library][0]
    if library in ("nvcuda.dll", "nvml.dll"):
        said = "which NVIDIA's driver brings, and there is none"
        return "no-driver", said, "install NVIDIA's driver for the GPU"
    if not any(fnmatch.fnmatchcase(library, one) for one in TORCH_LIBRARIES):
        return None
    if shelf.torch is None:
        return "no-torch", "a part of torch, and no torch is installed", "install torch with CUDA"
    kind = "missing-dll" if shelf.torch.cuda else "cpu-torch"
    return kind, f"which torch {shelf.torch.version} does not have", FIT


def _of_cudas(shelf: Shelf, library: str, there: str) -> tuple[str, str, str]:
    """The same of a library of CUDA's, or of nobody that is known."""
    rows = [row for row in CUDA_LIBRARIES if any(fnmatch.fnmatchcase(library, n) for n in row[0])]
    majors = sorted({major for _, major, _ in rows})
    own = shelf.torch.cuda if shelf.torch and shelf.with_torch else ""
    if rows and own and own.partition(".")[0] not in majors:
        said = f"of CUDA {' or '.join(majors)}, and torch is built with CUDA {own}"
        return "cuda-mismatch", said, FIT
    if rows and shelf.torch and shelf.with_torch and not own and not there:
        said = f"of CUDA {' or '.join(majors)}, which torch {shelf.torch.version} does not have"
        return "cpu-torch", said, FIT
    said = "which is nowhere that Windows looks"
    if there:
        first = "imports torch first" if shelf.is_torchs(there) else "adds that folder itself"
        said += f"; {shown(there)} is found only by a program that {first}"
    projects = " or ".join(dict.fromkeys(row[2] for row in rows))
    where = r"%CUDA_PATH%\bin\x64" if majors[-1:] >= ["13"] else r"%CUDA_PATH%\bin"
    hint = f"it is CUDA's: {projects} has it, or the toolkit in {where}, for programs that name "
    hint += f"the folder to os.add_dll_directory; or {FIT}"
    return "missing-dll", said, hint if rows else FIT


def _of_runtime(shelf: Shelf, own: Loaded, name: str, found: str) -> Finding | None:
    """An older C++ run-time than the toolset of the binary, or than Windows has.

    https://learn.microsoft.com/cpp/porting/binary-compat-2015-2017
    Of vcruntime140.dll every Python brings its own, which nobody has found to matter.
    """
    library = os.path.basename(found).lower()
    if not library.startswith("msvcp140"):
        return None
    systems = os.path.join(shelf.place.system, library)
    version, other, msvc = file_version(found), file_version(systems), own.linker
    said, has = f"{name} takes {shown(found)} ({version or 'says no version'})", minor_of(version)
    hint, do = "install a newer " + _REDIST, tuple[str, ...]()
    if found != systems and os.path.isfile(systems):
        hint = f"compare it with {shown(systems)}: update it, or rename it so that this is taken"
        do = ("ren", found, f"{library}.off")
    if version and has < msvc and msvc[0] == has[0]:
        said += f" and was built with MSVC {msvc[0]}.{msvc[1]}, which needs one as new"
        level = "error" if has < minor_of(MUTEX) <= msvc else "warning"
        return Finding("old-runtime", said, hint, level, do)
    older = not version or has < minor_of(other)
    if do and older and shelf.read(found) != shelf.read(systems):
        said += f" before that of Windows ({other or 'says no version'})"
        return Finding("old-runtime", said, hint, "warning", do)
    for copy in shelf.copies(library) if msvc >= minor_of(MUTEX) else ():
        if (0, 0) < minor_of(brought := file_version(copy)) < minor_of(MUTEX):
            said = f"what MSVC {MUTEX} and newer built crashes where {shown(copy)} ({brought}) is "
            return Finding("other-copy", said + "loaded first", _FIRST, "warning")
    return None


def _of_copies(shelf: Shelf, path: str, found: str, symbols: list[str]) -> Finding | None:
    """Another package's DLL of that name, which is taken if it is loaded first, and has less."""
    library, name = (shown(os.path.basename(one), 100) for one in (found, path))
    for other in (
        [] if shelf.with_torch and shelf.is_torchs(found) else shelf.copies(library.lower())
    ):
        image = shelf.read(other) if shelf.top(other) != shelf.top(path) else ""
        gone = [] if isinstance(image, str) else [s for s in symbols if s not in image.exports]
        if gone:
            said = f"{name} wants {shown(gone[0], 160)} of {library}, and {shown(other)}, which is "
            return Finding(
                "other-copy", said + "taken if loaded first, has none", _FIRST, "warning"
            )
    return None


def _lacking(
    shelf: Shelf, path: str, found: str, symbols: list[str], built: Built, *, late: bool
) -> Finding | None:
    """Names that a DLL does not export; of Windows' own those of the C++ run-time are looked up."""
    name, library = (shown(os.path.basename(one), 100) for one in (path, found))
    runtime = bool(_RUNTIME.fullmatch(library.lower()))
    if shelf.is_systems(found) and not runtime:
        return None
    other = _usable(shelf, path, found, late=late)
    if isinstance(other, Finding):
        return other
    missing = [one for one in symbols if one not in other.exports]
    if not missing:
        return None
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    of = f" of torch {shelf.torch.version}" if shelf.torch and shelf.is_torchs(found) else ""
    said = f"{name} wants {shown(missing[0], 160)}{more} of {library}, and that{of} has none"
    if of and built.torch:
        said += f"; it was built for torch {built.torch}"
    hint = FIT
    if runtime:
        hint = "install a newer " + _REDIST
    return Finding("missing-export", said, hint, level="warning" if late else "error")


def _usable(shelf: Shelf, path: str, found: str, *, late: bool) -> Loaded | Finding:
    """A DLL that was found, if Windows would take it."""
    name, library = (shown(os.path.basename(one), 100) for one in (path, found))
    own, other = shelf.read(path), shelf.read(found)
    if isinstance(other, str):
        said = f"{name} wants {library}, and {shown(found)} cannot be loaded: {shown(other, 150)}"
        return Finding("unreadable-dll", said, FIT, level="warning" if late else "error")
    if not isinstance(own, str) and other.machine != own.machine:
        said = f"{name} wants {library}, and {shown(found)} is for {_for_machine(other)}"
        return Finding("wrong-machine", said, FIT, level="warning" if late else "error")
    if not other.whole:
        return Finding("truncated", f"{shown(found)} is cut off: its end is missing", FIT)
    return other


def _for_machine(image: Loaded) -> str:
    return MACHINES.get(image.machine, f"machine {image.machine:#x}")
