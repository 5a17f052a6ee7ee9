"""Checks of a wheel's binaries: machine, Python, libraries, compilers, traces of a build."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name

from pipelines.core import units
from pipelines.core.finding import Level
from pipelines.core.units import few
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Installation, Order, Result, check, unless
from pipelines.wheels.imported import Exports, look_up, own_exports
from pipelines.wheels.libraries import absent, bringers, hint_for, is_torchs
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.packaging import requirements
from pipelines.wheels.pe import MACHINES, PeFacts, machine_name
from pipelines.wheels.pythonabi import misfit, python_of
from pipelines.wheels.toolkit import newest

_LONGEST = 120  # characters of a name
#: A home directory, but for those of machines of CI and of nobody.
_PERSON = re.compile(
    r"(?i)[\\/](?:users|home)[\\/](?!runner|container|public|default|administrator|vsts|circleci"
    r"|jenkins|conda|build|ci\b|buildkite|gitlab|appveyor)[^\\/]+[\\/]"
)


@check("extension-module", "extension module")
def extension_module(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """A build of one that makes none is green all the same."""
    if not order.pure and not order.library:
        yield _some(facts.extensions, "a .pyd or .so")


@check("library", "library")
def library(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """As :func:`extension_module`, of what no Python imports."""
    if order.library:
        yield _some(facts.binaries, "a .dll, .pyd or .so")


@check("no-compiled-code", "no compiled code")
def no_compiled_code(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """What is compiled would be for one platform, whatever the wheel's name says."""
    if order.pure:
        found = few(binary.name for binary in facts.binaries)
        yield Result(unless(found), found or "none", "no .dll, .pyd or .so")


@check("machine", "machine")
def machine(
    facts: WheelFacts, order: Order | None = None, installation: Installation | None = None
) -> Iterator[Result]:
    """A library for another machine may lie there for a program that is one; a module may not."""
    platforms = {tag.platform for tag in _meant(facts, order or installation)}
    machines = {MACHINES[one] for one in platforms if one in MACHINES}
    expected = " or ".join(sorted(map(machine_name, machines))) or "no machine of Windows"
    binaries = [one for one in _windows(facts) if machines or one.module]
    other = [one for one in binaries if one.pe is None or one.pe.machine not in machines]
    none_of = machines - {one.pe.machine for one in binaries if one.pe}
    split = none_of if len(machines) > 1 else ()  # for several machines, each has its own modules
    bad = split or any(one.module for one in other)
    level: Level = "error" if bad else unless(other, "warning")
    found = few(
        [
            *(
                f"{one.name} ({machine_name(one.pe.machine) if one.pe else one.problem})"
                for one in other
            ),
            *(f"nothing of {machine_name(one)}" for one in sorted(split)),
        ]
    )
    if binaries:
        yield Result(level, found or f"{expected}, all {len(binaries)}", expected)
    elif facts.binaries:
        yield Result("unknown", "its binaries are not of Windows")


@check("init", "PyInit")
def init(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """Modules that Python can initialise."""
    if order.pure or order.library or not order.platform.startswith("win"):
        return
    missing = [
        f"{binary.name} without {binary.init}"
        for binary in facts.extensions
        if binary.pe is None or binary.init not in binary.pe.inits
    ]
    yield Result(unless(missing), few(missing) or "exported", "exported by every module")


@check("python-abi", "Python's own ABI")
def python_abi(
    facts: WheelFacts, order: Order | None = None, installation: Installation | None = None
) -> Iterator[Result]:
    """Each module is for a Python that the wheel's tags are for; of all of those if for several.

    It is for the Python of the order, or of the installation, if there is one.
    """
    tags = _meant(facts, order or installation)
    several = {tag for tag in tags if tag.abi in ("abi3", "abi3t", "none")}
    known = {tag for tag in tags if python_of(tag)}  # nothing is known of other interpreters
    wrong = []
    for binary in facts.binaries:
        imports = {*binary.pe.imports, *_late(binary.pe)} if binary.pe else ()
        reasons = [misfit(tag, binary.name, imports) for tag in sorted(several or known, key=str)]
        if any(reasons) if several else reasons and all(reasons):
            wrong.append(f"{binary.name}: {next(filter(None, reasons))}")
    yield Result(unless(wrong), few(wrong) or "kept to", f"of {few(facts.tags)} alone")


@check("no-python", "no Python")
def no_python(facts: WheelFacts, order: Order) -> Iterator[Result]:
    """Nothing of Python in a library: it would be that of one Python, and another has it not."""
    if not order.library:
        return
    bound = [
        f"{binary.name}: {binary.problem or 'not looked at'}"
        if binary.of_python is None
        else f"{binary.name}: {few(binary.of_python)}"
        for binary in facts.binaries
        if binary.of_python != ()
    ]
    yield Result(
        unless(bound),
        few(bound) or "none",
        "nothing of Python imported or exported",
        "such a library is for one Python: tag it so" if bound else "",
    )


@check("imported-names", "imported names")
def imported_names(facts: WheelFacts) -> Iterator[Result]:
    """Whether the wheel's own DLLs export what its binaries import from them."""
    if _windows(facts):
        exports = own_exports(facts.binaries)
        yield _looked_up(facts, exports, "exported by the wheel's own DLLs", "warning")


@check("torch-names", "names of torch")
def torch_names(facts: WheelFacts, torches: dict[str, Exports | None]) -> Iterator[Result]:
    """Whether each torch has them; of a CPU build the DLLs of CUDA cannot be looked at."""
    for release, exports in torches.items():
        expected = f"exported by torch {release}"
        if exports is None:
            found = "not read: its wheel is not in the download cache"
            yield Result("unknown", found, expected, source=release)
        else:
            yield _looked_up(facts, exports, expected)._replace(source=release)


@check("libraries", "libraries")
def libraries(facts: WheelFacts, installation: Installation | None = None) -> Iterator[Result]:
    """Each DLL that is not in it: whether it is known what brings that, and whether it is asked."""
    if not _windows(facts):
        return
    read = [one.pe for one in facts.binaries if one.pe]
    imported = {name for pe in read for name in pe.imports}
    late = {library for pe in read for library in _late(pe)}
    imported |= late - {name.lower() for name in imported}
    here = [one.name for one in facts.binaries]
    missing = absent(imported, [*here, *(installation.files if installation else ())])
    required = {canonicalize_name(one.name) for one in requirements(facts)}
    torch = [name for name in missing if is_torchs(name)]
    cuda = [name for name in missing if not is_torchs(name) and bringers(name)]
    strange = [name for name in missing if name not in torch and name not in cuda]
    hints = []
    if torch and "torch" not in required:
        hints.append(f"{few(torch)} is torch's, which it does not require")
    alone = [
        name
        for name in cuda
        if not ({row.project for row in bringers(name)} | {"torch"}) & required
    ]
    if alone:
        brought = hint_for(alone, cuda=cuda_of(facts))
        hints.append(f"it requires nothing that brings these: {brought}")
    if strange:
        hints.append(f"nothing that is known brings {few(strange)}")
    unread = [
        one.name
        for one in facts.binaries
        if one.pe is None or one.pe.needs is None or one.pe.late is None
    ]
    level: Level = "warning" if hints else unless(unread, "unknown")
    if unread:
        hints.append(f"not read: {few(unread)}")
    parts = [f"torch: {few(torch)}" if torch else "", f"CUDA: {few(cuda)}" if cuda else ""]
    found = "; ".join(filter(None, parts)) or "Windows' own, and those in it"
    yield Result(level, found, hint="; ".join(hints), values=missing)


@check("host-code", "host code")
def host_code(facts: WheelFacts) -> Iterator[Result]:
    """Functions of x64 that run, and find their device code."""
    if _windows(facts):
        faults = [f"{binary.name}: {why}" for binary in facts.binaries for why in binary.faults]
        expected = "functions in place, and the device code found by them"
        yield Result(unless(faults), few(faults) or "in place", expected)


@check("binaries-complete", "binaries whole")
def complete(facts: WheelFacts) -> Iterator[Result]:
    """Whether their files end where their headers say."""
    if binaries := _windows(facts):
        cut = [one.name for one in binaries if one.traces and one.traces.cut]
        unread = [one.name for one in binaries if one.traces is None]
        level: Level = "error" if cut else unless(unread, "unknown")
        found = f"not read: {few(unread)}" if unread else "whole"
        yield Result(level, f"cut off: {few(cut)}" if cut else found)


@check("build-paths", "build paths")
def build_paths(facts: WheelFacts) -> Iterator[Result]:
    """Paths of the machine that built it."""
    binaries = _windows(facts)
    if not binaries:
        return
    pdbs = [one.traces.pdb for one in binaries if one.traces and _absolute(one.traces.pdb)]
    paths = [path for one in binaries if one.traces for path in one.traces.paths]
    unread = [one.name for one in binaries if one.traces is None or not one.traces.complete]
    texts = [f"PDB {pdb}" for pdb in pdbs] + paths
    private = [text for text in texts if _PERSON.search(text)]
    texts = private + [text for text in texts if text not in private]
    found = [
        *([units.counted(len(pdbs), "PDB path")] if pdbs else ()),
        *([units.counted(len(paths), "source path")] if paths else ()),
        *([f"{len(private)} of them with somebody's name"] if private else ()),
    ]
    yield Result(
        "warning" if private else unless(unread, "unknown"),
        ", ".join(found) or ("not read" if unread else "none outside of device code"),
        hint=few(texts, "; ") + (f"; not all read: {few(unread)}" if unread else ""),
        values=texts[:50],
    )


@check("signature", "Authenticode")
def signature(facts: WheelFacts) -> Iterator[Result]:
    """Whether there is one; it is not verified."""
    if binaries := _windows(facts):
        signed = [one.name for one in binaries if one.traces and one.traces.signed]
        unread = [one.name for one in binaries if one.traces is None]
        found = "not read" if unread else "none"
        if signed:
            found = f"{len(signed)} of {len(binaries)} have one, which nobody has verified here"
        yield Result(unless(signed or unread, "unknown"), found, hint=few(signed))


def cuda_of(facts: WheelFacts) -> str:
    """The newest release of CUDA that it tells, by its device code or run-time; empty: none."""
    return newest(
        (unit for binary in facts.binaries for unit in binary.inventory.containers),
        [name for binary in facts.binaries if binary.pe for name in binary.pe.cudarts],
    )


def _meant(facts: WheelFacts, asked: Order | Installation | None) -> set[Tag]:
    """Of its tags those that were asked for; all of them where none was, or it has none of those.

    What it has of others' is refused by checks of their own.
    """
    tags = {tag for text in facts.tags for tag in parse_tag(text)}
    return (tags.intersection(asked.takes) if asked else set()) or tags


def _late(pe: PeFacts) -> set[str]:
    return {library for library, _ in pe.late or ()}


def _some(binaries: tuple[Binary, ...], expected: str) -> Result:
    found = few(binary.name for binary in binaries)
    why = "" if found else "a pure Python wheel: the extension was skipped by the build"
    return Result(unless(not found), found or "none", expected, why)


def _windows(facts: WheelFacts) -> list[Binary]:
    return [one for one in facts.binaries if not one.name.endswith(".so")]


def _looked_up(
    facts: WheelFacts, exports: Exports, expected: str, wrong: Level = "error"
) -> Result:
    looked = look_up(facts.binaries, exports)
    missing = [
        f"{one.binary} wants {one.name[:_LONGEST]} of {one.library}"
        + (" when it is first called" if one.late else "")
        for one in looked.lacking
    ]
    if missing:
        return Result(wrong, few(missing, "; "), expected)
    found = f"{looked.there} exported" if looked.there else "none is imported"
    if looked.unread:
        some = f"{found}; " if looked.there else ""
        found = f"{some}not read: {few(looked.unread, '; ')}"
    return Result(unless(looked.unread, "unknown"), found, expected)


def _absolute(path: str) -> bool:
    return bool(re.match(r"[A-Za-z]:[\\/]|[\\/]", path))
