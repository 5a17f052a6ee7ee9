"""Why Windows cannot load a package's DLLs: each that it wants, and each name of it, looked up."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence

from pipelines.publish.which.causes import Built, Finding, cause_finding
from pipelines.publish.which.data import CUDA_LIBRARIES, KNOWN, MUTEX, TORCH_LIBRARIES
from pipelines.publish.which.images import MACHINES, Loaded, file_version
from pipelines.publish.which.packages import other_python_dll
from pipelines.publish.which.searching import Shelf
from pipelines.publish.which.texts import ascii_line, minor_of

_RUNTIME = re.compile(r"(?:msvcp140|vcruntime140|concrt140|vcomp140)(?:_\w+)?\.dll", re.ASCII)
_MOST_DLLS = 400
_OF_PLATFORM = {"win_amd64": 0x8664, "win32": 0x14C, "win_arm64": 0xAA64}


def dll_findings(
    shelf: Shelf, paths: Sequence[str], built: Built, *, seen: set[str] | None = None
) -> Iterator[Finding]:
    """What stands in the way of loading ``paths`` and whatever these want, which goes to ``seen``.

    Of a package that adds folders to the search, what it brings itself (``numpy.libs``) or what
    lies in one of NVIDIA's packages counts as found.
    """
    left = list(paths)
    seen = set() if seen is None else seen
    reported: set[tuple[str, str]] = set()
    done: set[str] = set()
    while left and len(done) < _MOST_DLLS:
        path = left.pop(0)
        if path in done:
            continue
        done.add(path)
        seen.add(path)
        for one in _of_one(shelf, path, built):
            if isinstance(one, str):
                left.append(one)
                continue
            # A runtime is reported once, whatever uses it.
            key = one.level, one.hint if one.id == "old-runtime" else one.actual
            if key not in reported:
                reported.add(key)
                yield one
    if left:
        yield cause_finding("not-checked.dlls", count=_MOST_DLLS)


def _of_one(shelf: Shelf, path: str, built: Built) -> Iterator[Finding | str]:
    """What is wrong with one, and the DLLs that are to be looked at for it."""
    own, name = shelf.read(path), ascii_line(os.path.basename(path), 100)
    if isinstance(own, str):
        yield cause_finding("unreadable-dll", name=name, why=ascii_line(own, 150))
        return
    if not own.whole:
        yield cause_finding("truncated", name=name)
        return
    wanted = _OF_PLATFORM.get(shelf.place.platform, own.machine)
    if own.machine != wanted:
        yield cause_finding(
            "wrong-machine", name=name, machine=_for_machine(own), own=MACHINES[wanted]
        )
        return
    if other := other_python_dll(shelf.place, own.libraries):
        yield cause_finding("python-mismatch", name=name, built=other, python=shelf.place.python)
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
                yield _missing_dll_finding(shelf, name, library, late=bool(late))
                continue
            yield from _of_runtime(shelf, own, name, found)
            yield from _of_copies(shelf, path, found, symbols)
            yield from _iter_missing_symbols(shelf, path, found, symbols, built, late=bool(late))
            ours = not shelf.is_systems(found) and not shelf.is_torchs(found)
            if ours and not library.startswith("python3") and not _RUNTIME.fullmatch(library):
                yield found


def _missing_dll_finding(shelf: Shelf, name: str, library: str, *, late: bool) -> Finding | str:
    """A DLL that is nowhere, or where Windows does not look; else where it is."""
    there = shelf.brought.get(library) or shelf.elsewhere(library)
    if there and shelf.adds:
        return there
    there = there or shelf.aside(library)
    key, said = _known_dll_cause(shelf, library) or _of_cudas(shelf, library, there)
    when = ", when it is first called," if late else ""
    wants = f"{name}{when} imports {ascii_line(library, 100)}"
    return cause_finding(key, "warning" if late else "error", wants=wants, **said)


def _known_dll_cause(shelf: Shelf, library: str) -> tuple[str, dict[str, str]] | None:
    """The cause of one that a package of Windows', NVIDIA's or torch's brings."""
    if _RUNTIME.fullmatch(library):
        return "no-msvc-runtime", {}
    if library in KNOWN:
        return "missing-dll.known", {"hint": KNOWN[library][0]}
    if library in ("nvcuda.dll", "nvml.dll"):
        return "no-driver.dll", {}
    if not any(fnmatch.fnmatchcase(library, one) for one in TORCH_LIBRARIES):
        return None
    if shelf.torch is None:
        return "no-torch.dll", {}
    key = "missing-dll.torch" if shelf.torch.cuda else "cpu-torch.dll"
    return key, {"torch": shelf.torch.version}


def _of_cudas(shelf: Shelf, library: str, there: str) -> tuple[str, dict[str, str]]:
    """The same for a library of CUDA's, or of an unknown origin."""
    rows = [row for row in CUDA_LIBRARIES if any(fnmatch.fnmatchcase(library, n) for n in row[0])]
    majors = sorted({major for _, major, _ in rows})
    own = shelf.torch.cuda if shelf.torch and shelf.with_torch else ""
    if rows and own and own.partition(".")[0] not in majors:
        return "cuda-mismatch.dll", {"built": " or ".join(majors), "cuda": own}
    if rows and shelf.torch and shelf.with_torch and not own and not there:
        return "cpu-torch.cuda", {"built": " or ".join(majors), "torch": shelf.torch.version}
    first = "imports torch first" if shelf.is_torchs(there) else "adds that folder itself"
    but = f"; {ascii_line(there)} is only found by a program that {first}" if there else ""
    projects = " or ".join(dict.fromkeys(row[2] for row in rows))
    folder = r"%CUDA_PATH%\bin\x64" if majors[-1:] >= ["13"] else r"%CUDA_PATH%\bin"
    key = "missing-dll.cuda" if rows else "missing-dll"
    return key, {"but": but, "projects": projects, "folder": folder}


def _of_runtime(shelf: Shelf, own: Loaded, name: str, found: str) -> Iterator[Finding]:
    """An older C++ run-time than the toolset of the binary, or than Windows has.

    https://learn.microsoft.com/cpp/porting/binary-compat-2015-2017
    Every Python has its own vcruntime140.dll, which is not known to matter.
    """
    library = os.path.basename(found).lower()
    if not library.startswith("msvcp140"):
        return
    systems = os.path.join(shelf.place.system, library)
    version, other, msvc = file_version(found), file_version(systems), own.linker
    said = {"name": name, "found": ascii_line(found), "version": version or "no version"}
    has, silent = minor_of(version), "no version"
    key, do = "old-runtime", tuple[str, ...]()
    if found != systems and os.path.isfile(systems):
        key, do = "old-runtime.shadows", ("ren", found, f"{library}.off")
        said["systems"] = ascii_line(systems)
    if version and has < msvc and msvc[0] == has[0]:
        why = f" but was built with MSVC {msvc[0]}.{msvc[1]}, which needs at least that version"
        level = "error" if has < minor_of(MUTEX) <= msvc else "warning"
        yield cause_finding(key, level, do, why=why, **said)
        return
    older = not version or has < minor_of(other)
    if do and older and shelf.read(found) != shelf.read(systems):
        why = f" instead of the one in Windows ({other or silent})"
        yield cause_finding(key, "warning", do, why=why, **said)
        return
    for copy in shelf.copies(library) if msvc >= minor_of(MUTEX) else ():
        if (0, 0) < minor_of(brought := file_version(copy)) < minor_of(MUTEX):
            yield cause_finding(
                "other-copy.runtime", mutex=MUTEX, copy=ascii_line(copy), version=brought
            )
            return


def _of_copies(shelf: Shelf, path: str, found: str, symbols: list[str]) -> Iterator[Finding]:
    """Another package's DLL of that name, which is taken if it is loaded first, and has less."""
    library, name = (ascii_line(os.path.basename(one), 100) for one in (found, path))
    for other in (
        [] if shelf.with_torch and shelf.is_torchs(found) else shelf.copies(library.lower())
    ):
        image = shelf.read(other) if shelf.top(other) != shelf.top(path) else ""
        gone = [] if isinstance(image, str) else [s for s in symbols if s not in image.exports]
        if gone:
            said = {
                "symbol": ascii_line(gone[0], 160),
                "library": library,
                "copy": ascii_line(other),
            }
            yield cause_finding("other-copy", name=name, **said)
            return


def _iter_missing_symbols(
    shelf: Shelf, path: str, found: str, symbols: list[str], built: Built, *, late: bool
) -> Iterator[Finding]:
    """Names that a DLL does not export; of Windows' own those of the C++ run-time are looked up."""
    name, library = (ascii_line(os.path.basename(one), 100) for one in (path, found))
    runtime = bool(_RUNTIME.fullmatch(library.lower()))
    if shelf.is_systems(found) and not runtime:
        return
    own, other = shelf.read(path), shelf.read(found)
    said, level = {"name": name, "library": library}, "warning" if late else "error"
    if isinstance(other, str):
        yield cause_finding(
            "unreadable-dll.wanted",
            level,
            found=ascii_line(found),
            why=ascii_line(other, 150),
            **said,
        )
    elif not isinstance(own, str) and other.machine != own.machine:
        machine = _for_machine(other)
        yield cause_finding(
            "wrong-machine.wanted", level, found=ascii_line(found), machine=machine, **said
        )
    elif not other.whole:
        yield cause_finding("truncated", name=ascii_line(found))
    elif missing := [one for one in symbols if one not in other.exports]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        of = f" of torch {shelf.torch.version}" if shelf.torch and shelf.is_torchs(found) else ""
        said["built"] = f"; it was built for torch {built.torch}" if of and built.torch else ""
        key = "missing-export.runtime" if runtime else "missing-export"
        yield cause_finding(key, level, symbol=ascii_line(missing[0], 160) + more, of=of, **said)


def _for_machine(image: Loaded) -> str:
    return MACHINES.get(image.machine, f"machine {image.machine:#x}")
