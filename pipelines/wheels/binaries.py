"""Checks of a wheel's binaries: machine, Python, libraries, compilers, traces of a build."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name

from pipelines.core import units
from pipelines.core.finding import Level
from pipelines.core.units import join_first
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Installation, Order, Result, level_if_wrong, wheel_check
from pipelines.wheels.imports import Exports, look_up, own_exports
from pipelines.wheels.libraries import (
    hint_for,
    is_library_provided,
    is_torch_dll,
    library_providers,
    missing_dlls,
)
from pipelines.wheels.metadata import Depth, WheelFacts
from pipelines.wheels.packaging import required_by, wheel_requirements
from pipelines.wheels.pe import MACHINES, PeFacts, machine_name
from pipelines.wheels.pythonabi import module_incompatibility, tag_python_version
from pipelines.wheels.toolkit import newest_cuda_version

_LONGEST = 120  # characters of a name
#: A personal home directory, not one of CI machines or shared accounts.
_PERSON = re.compile(
    r"(?i)[\\/](?:users|home)[\\/](?!runner|container|public|default|administrator|vsts|circleci"
    r"|jenkins|conda|build|ci\b|buildkite|gitlab|appveyor)[^\\/]+[\\/]"
)


@wheel_check("extension-module", "extension module")
def extension_module(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """A build that skips the extension succeeds all the same."""
    if not order.pure and not order.library:
        yield _some(facts.extensions, "a .pyd or .so")


@wheel_check("library", "library")
def library_binaries(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """Like :func:`extension_module`, for libraries that Python does not import."""
    if order.library:
        yield _some(facts.binaries, "a .dll, .pyd or .so")


@wheel_check("no-compiled-code", "no compiled code")
def no_compiled_code(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """Compiled code would tie the wheel to one platform, whatever its name says."""
    if order.pure:
        actual = join_first(binary.name for binary in facts.binaries)
        yield Result(level_if_wrong(actual), actual or "none", "no .dll, .pyd or .so")


@wheel_check("machine", "machine", Depth.TABLES)
def binary_machines(
    facts: WheelFacts, order: Order | None = None, installation: Installation | None = None
) -> Iterator[Result]:
    """A DLL for another machine may serve a program in the wheel; a module may not."""
    platforms = {tag.platform for tag in _meant(facts, order or installation)}
    machines = {MACHINES[platform] for platform in platforms if platform in MACHINES}
    expected = " or ".join(sorted(map(machine_name, machines))) or "no Windows machine"
    binaries = [binary for binary in _windows_binaries(facts) if machines or binary.module]
    other = [
        binary for binary in binaries if binary.pe is None or binary.pe.machine not in machines
    ]
    none_of = machines - {binary.pe.machine for binary in binaries if binary.pe}
    split = none_of if len(machines) > 1 else ()  # for several machines, each has its own modules
    bad = split or any(binary.module for binary in other)
    level: Level = "error" if bad else level_if_wrong(other, "warning")
    actual = join_first(
        [
            *(
                f"{each.name} ({machine_name(each.pe.machine) if each.pe else each.problem})"
                for each in other
            ),
            *(f"nothing for {machine_name(number)}" for number in sorted(split)),
        ]
    )
    if binaries:
        yield Result(level, actual or f"{expected}, all {len(binaries)}", expected)
    elif facts.binaries:
        yield Result("unknown", "its binaries are not for Windows")
    elif order is None:
        yield Result("ok", "no binary at all")


@wheel_check("init", "PyInit")
def exported_init_functions(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """Every module exports its init function."""
    if order.pure or order.library or not order.platform.startswith("win"):
        return
    missing = [
        f"{binary.name} without {binary.init}"
        for binary in facts.extensions
        if binary.pe is None or binary.init not in binary.pe.inits
    ]
    yield Result(
        level_if_wrong(missing), join_first(missing) or "exported", "exported by every module"
    )


@wheel_check("python-abi", "Python's own ABI", Depth.TABLES)
def python_abi(
    facts: WheelFacts, order: Order | None = None, installation: Installation | None = None
) -> Iterator[Result]:
    """Each module matches a Python of the tags, and all of them if the tags are for several.

    With an order or an installation, it must match that Python.
    """
    tags = _meant(facts, order or installation)
    several = {tag for tag in tags if tag.abi in ("abi3", "abi3t", "none")}
    known = {
        tag for tag in tags if tag_python_version(tag)
    }  # nothing is known of other interpreters
    wrong = []
    for binary in facts.binaries:
        imports = {*binary.pe.imports, *_delay_loaded_libraries(binary.pe)} if binary.pe else ()
        reasons = [
            module_incompatibility(tag, binary.name, imports)
            for tag in sorted(several or known, key=str)
        ]
        if any(reasons) if several else reasons and all(reasons):
            wrong.append(f"{binary.name}: {next(filter(None, reasons))}")
    yield Result(
        level_if_wrong(wrong), join_first(wrong) or "as tagged", f"{join_first(facts.tags)} only"
    )


@wheel_check("no-python", "no Python")
def no_python(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """A library must not use Python's ABI, which would tie it to one Python."""
    if not order.library:
        return
    bound = [
        f"{binary.name}: {binary.problem or 'not checked'}"
        if binary.of_python is None
        else f"{binary.name}: {join_first(binary.of_python)}"
        for binary in facts.binaries
        if binary.of_python != ()
    ]
    yield Result(
        level_if_wrong(bound),
        join_first(bound) or "none",
        "no Python symbols imported or exported",
        "such a library is for one Python: give it a specific tag" if bound else "",
    )


@wheel_check("imported-names", "imported symbols", Depth.NAMES)
def imported_names(facts: WheelFacts) -> Iterator[Result]:
    """Whether the wheel's own DLLs export what its binaries import from them."""
    if _windows_binaries(facts):
        exports = own_exports(facts.binaries)
        yield _looked_up(facts, exports, "exported by the wheel's own DLLs", "warning")


@wheel_check("torch-names", "torch symbols")
def torch_names(facts: WheelFacts, torches: dict[str, Exports | None]) -> Iterator[Result]:
    """Whether each torch exports them; a CPU build cannot be used to check CUDA's DLLs."""
    for release, exports in torches.items():
        expected = f"exported by torch {release}"
        if exports is None:
            actual = "not read: its wheel is not in the download cache"
            yield Result("unknown", actual, expected, subject=release)
        else:
            yield _looked_up(facts, exports, expected)._replace(subject=release)


@wheel_check("libraries", "libraries", Depth.NAMES)
def imported_dll_sources(
    facts: WheelFacts, installation: Installation | None = None
) -> Iterator[Result]:
    """Whether each imported DLL that is not in it comes from a requirement."""
    if not _windows_binaries(facts):
        return
    read = [binary.pe for binary in facts.binaries if binary.pe]
    imported = {name for pe in read for name in pe.imports}
    late = {library for pe in read for library in _delay_loaded_libraries(pe)}
    imported |= late - {name.lower() for name in imported}
    here = [binary.name for binary in facts.binaries]
    missing = missing_dlls(imported, [*here, *(installation.files if installation else ())])
    required = required_by(facts)
    elsewhere = {canonicalize_name(one.name) for one in wheel_requirements(facts)} - required
    torch = [name for name in missing if is_torch_dll(name)]
    cuda = [name for name in missing if not is_torch_dll(name) and library_providers(name)]
    others = [name for name in missing if is_library_provided(name, required)]
    strange = [name for name in missing if name not in (*torch, *cuda, *others)]
    hints = []
    able = {row.project for name in cuda for row in library_providers(name)} | {"torch"}
    if elsewhere & able:
        hints.append(f"required on other platforms only: {join_first(sorted(elsewhere & able))}")
    torch = [name for name in torch if name not in others]
    if torch and "torch" not in required:
        hints.append(f"it imports {join_first(torch)} but does not require torch")
    alone = [
        name
        for name in cuda
        if not ({row.project for row in library_providers(name)} | {"torch"}) & required
    ]
    if alone:
        hints.append(f"no requirement provides these: {hint_for(alone, cuda=cuda_of(facts))}")
    if strange:
        hints.append(f"unknown origin: {join_first(strange)}")
    unread = [
        binary.name
        for binary in facts.binaries
        if binary.pe is None or binary.pe.needs is None or binary.pe.late is None
    ]
    level: Level = "warning" if hints else level_if_wrong(unread, "unknown")
    if unread:
        hints.append(f"not read: {join_first(unread)}")
    parts = [
        f"torch: {join_first(torch)}" if torch else "",
        f"CUDA: {join_first(cuda)}" if cuda else "",
    ]
    parts += [f"requirements: {join_first(others)}"] if others else []
    parts += ["not all read"] if unread and not any(parts) else []
    actual = "; ".join(filter(None, parts)) or "only from Windows and the wheel itself"
    yield Result(level, actual, hint="; ".join(hints), values=missing)


@wheel_check("host-code", "host code")
def host_code(facts: WheelFacts) -> Iterator[Result]:
    """Whether its x64 functions are intact and find their device code."""
    if _windows_binaries(facts):
        faults = [f"{binary.name}: {why}" for binary in facts.binaries for why in binary.faults]
        expected = "functions intact and linked to their device code"
        yield Result(level_if_wrong(faults), join_first(faults) or "intact", expected)


@wheel_check("binaries-complete", "binaries intact")
def untruncated_binaries(facts: WheelFacts) -> Iterator[Result]:
    """Whether no file is truncated."""
    if binaries := _windows_binaries(facts):
        cut = [binary.name for binary in binaries if binary.traces and binary.traces.cut]
        unread = [binary.name for binary in binaries if binary.traces is None]
        level: Level = "error" if cut else level_if_wrong(unread, "unknown")
        actual = f"not read: {join_first(unread)}" if unread else "complete"
        yield Result(level, f"truncated: {join_first(cut)}" if cut else actual)


@wheel_check("build-paths", "build paths")
def build_paths(facts: WheelFacts) -> Iterator[Result]:
    """Paths of the build machine."""
    binaries = _windows_binaries(facts)
    if not binaries:
        return
    pdbs = [
        binary.traces.pdb for binary in binaries if binary.traces and _absolute(binary.traces.pdb)
    ]
    paths = [path for binary in binaries if binary.traces for path in binary.traces.paths]
    unread = [
        binary.name for binary in binaries if binary.traces is None or not binary.traces.complete
    ]
    texts = [f"PDB {pdb}" for pdb in pdbs] + paths
    private = [text for text in texts if _PERSON.search(text)]
    texts = private + [text for text in texts if text not in private]
    parts = [
        *([units.pluralize(len(pdbs), "PDB path")] if pdbs else ()),
        *([units.pluralize(len(paths), "source path")] if paths else ()),
        *([f"{len(private)} of them with a user name"] if private else ()),
    ]
    yield Result(
        "warning" if private else level_if_wrong(unread, "unknown"),
        ", ".join(parts) or ("not read" if unread else "none outside device code"),
        hint=join_first(texts, "; ") + (f"; not all read: {join_first(unread)}" if unread else ""),
        values=texts[:50],
    )


@wheel_check("signature", "Authenticode")
def binary_signatures(facts: WheelFacts) -> Iterator[Result]:
    """Whether binaries are signed; signatures are not verified."""
    if binaries := _windows_binaries(facts):
        signed = [binary.name for binary in binaries if binary.traces and binary.traces.signed]
        unread = [binary.name for binary in binaries if binary.traces is None]
        actual = "not read" if unread else "none"
        if signed:
            actual = f"{len(signed)} of {len(binaries)} signed, not verified"
        yield Result(level_if_wrong(signed or unread, "unknown"), actual, hint=join_first(signed))


def cuda_of(facts: WheelFacts) -> str:
    """The newest CUDA version by its device code or runtime; empty: none."""
    return newest_cuda_version(
        (unit for binary in facts.binaries for unit in binary.inventory.containers),
        [name for binary in facts.binaries if binary.pe for name in binary.pe.cudarts],
    )


def _meant(facts: WheelFacts, requested: Order | Installation | None) -> set[Tag]:
    """Its tags that match the order or installation; all if there is none or none match.

    Tags that do not match are refused by other checks.
    """
    tags = {tag for text in facts.tags for tag in parse_tag(text)}
    return (tags.intersection(requested.takes) if requested else set()) or tags


def _delay_loaded_libraries(pe: PeFacts) -> set[str]:
    return {library for library, _ in pe.late or ()}


def _some(binaries: tuple[Binary, ...], expected: str) -> Result:
    names = join_first(binary.name for binary in binaries)
    why = "" if names else "a pure Python wheel: the build skipped the extension"
    return Result(level_if_wrong(not names), names or "none", expected, why)


def _windows_binaries(facts: WheelFacts) -> list[Binary]:
    return [binary for binary in facts.binaries if not binary.name.endswith(".so")]


def _looked_up(
    facts: WheelFacts, exports: Exports, expected: str, wrong: Level = "error"
) -> Result:
    looked = look_up(facts.binaries, exports)
    missing = [
        f"{symbol.binary} imports {symbol.name[:_LONGEST]} from {symbol.library}"
        + (" when it is first called" if symbol.late else "")
        for symbol in looked.missing
    ]
    if missing:
        return Result(wrong, join_first(missing, "; "), expected)
    actual = f"{looked.present} found" if looked.present else "none imported"
    if looked.unread:
        some = f"{actual}; " if looked.present else ""
        actual = f"{some}not read: {join_first(looked.unread, '; ')}"
    return Result(level_if_wrong(looked.unread, "unknown"), actual, expected)


def _absolute(path: str) -> bool:
    return bool(re.match(r"[A-Za-z]:[\\/]|[\\/]", path))
