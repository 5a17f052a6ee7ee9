"""Findings on what is in a wheel's binaries: machine, device code, libraries, traces of a build."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.utils import canonicalize_name
from packaging.version import Version

from pipelines import units
from pipelines.examine.findings import Card, Finding, Gpus, Level
from pipelines.examine.packaging import MOST, of_check, requirements
from pipelines.hosttext import line
from pipelines.record import CheckResult
from pipelines.wheels.binary import Binary
from pipelines.wheels.fatbin import compact
from pipelines.wheels.libraries import absent, bringers, cure, is_torchs
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.pe import machine_name, machine_of
from pipelines.wheels.toolkit import Told, newest

_CU = re.compile(r"cu(\d{2,3})(?:\D|$)")
_CUDA_DLLS = re.compile(r"(?i)(cudart|nvcuda|c10_cuda|torch_cuda|cublas|nvrtc)")
#: A home directory, but for those of machines of CI and of nobody.
_PERSON = re.compile(
    r"(?i)[\\/](?:users|home)[\\/](?!runner|container|public|default|administrator|vsts|circleci"
    r"|jenkins|conda|build|ci\b|buildkite|gitlab|appveyor)[^\\/]+[\\/]"
)
_LEVELS: dict[str, Level] = {"native": "ok", "jit": "mind", "partly": "problem", "no": "problem"}
_RUNS = {
    "native": "runs as it is",
    "jit": "runs after the driver has compiled PTX",
    "partly": "some of it runs, some fails",
    "no": "does not run",
    "unknown": "not checked",
}


def binary_findings(facts: WheelFacts, gate: Mapping[str, CheckResult]) -> Iterator[Finding]:
    """Those that hold for every wheel; of one for Linux no more than its device code."""
    windows = [one for one in facts.binaries if not one.name.endswith(".so")]
    if windows:
        yield _machine(windows, machine_of(tag.rpartition("-")[2] for tag in facts.tags))
        yield _maker(gate["tool set"]) if "tool set" in gate else _unchecked("tool set")
        yield (
            of_check(gate["imported names"], "mind")
            if "imported names" in gate
            else _unchecked("imported names")
        )
        yield _libraries(facts)
    elif facts.binaries:
        for name in ("machine", "libraries", "build paths"):
            yield _unchecked(name, "its binaries are not of Windows")
    yield _cuda(facts)
    if "device code whole" in gate and (facts.binaries or facts.elsewhere):
        yield of_check(gate["device code whole"])
        yield of_check(gate["device code read"], "unknown")
    if windows:
        yield of_check(gate["host code"]) if "host code" in gate else _unchecked("host code")
        yield _whole(windows)
        yield _traces(windows)
        yield _signature(windows)


def gpu_findings(gpus: Gpus, elsewhere: Sequence[str], asked: int) -> Iterator[Finding]:
    """Whether code for a GPU is in every unit, and for each card that was asked for what it does.

    Those are the first ``asked`` of ``gpus.cards``. Nobody knows who loads the files ``elsewhere``.
    """
    if elsewhere:
        yield Finding(
            check="device code elsewhere",
            level="unknown",
            asked=asked > 0,
            found=f"not counted: {line(_list(elsewhere), 300)}",
            detail="files with device code that are no .dll, .pyd or .so by their names",
        )
    if gpus.binaries:
        yield _coverage(gpus)
    for card in gpus.cards[:asked]:
        yield Finding(
            check=f"GPU {line(card.names[0], 60)}",
            level=_LEVELS.get(card.runs, "unknown"),
            asked=True,
            found=f"{card.capability}: {_RUNS[card.runs]}" + _counts(card),
            detail=_about(card),
        )


def _counts(card: Card) -> str:
    if not card.units or card.runs == "unknown":
        return ""
    return f" ({card.native} native, {card.jit} by JIT, of {card.units})"


def _about(card: Card) -> str:
    driver = f"driver {card.driver} or newer" if card.driver else ""
    return "; ".join(filter(None, (driver, card.why)))


def _coverage(gpus: Gpus) -> Finding:
    """An architecture that some units of a binary lack: a crash when one of these is called."""
    uneven = []
    for one in gpus.binaries:
        lack = [f"{a} in {n}" for a, n in one.sass.items() if n < one.units]
        if lack:
            uneven.append(f"{one.binary}: of {one.units} units {', '.join(lack)}")
    lost = [card for card in gpus.cards if card.runs == "partly"]
    level: Level = "mind" if lost else "ok"
    found = f"SASS {compact(gpus.sass)}, PTX {compact(gpus.ptx)}"
    if lost:
        uneven.insert(0, "runs only in part on " + ", ".join(_of(card) for card in lost))
    values = tuple(f"sm_{a}" for a in gpus.sass) + tuple(f"compute_{a}" for a in gpus.ptx)
    return Finding(
        check="coverage", level=level, found=found, detail=line(_list(uneven), 900), values=values
    )


def _of(card: Card) -> str:
    return f"{card.capability} ({card.names[0]})"


def _unchecked(name: str, why: str = "it is for no one platform") -> Finding:
    return Finding(check=name, level="unknown", found=why)


def _maker(one: CheckResult) -> Finding:
    """Which compilers made it: nobody said which should have, but all of it must tell."""
    found = of_check(one)
    told = one.ok and one.values and "not read" not in one.found
    return found.model_copy(update={"level": "ok"}) if told else found


def _machine(binaries: list[Binary], machine: int) -> Finding:
    """A library for another machine may lie there for a program that is one; a module may not."""
    wanted = machine_name(machine)
    other = [one for one in binaries if one.pe is None or one.pe.machine != machine]
    bad = [one for one in other if one.module]
    broken = [f"{one.name}: {one.problem}" for one in other if one.pe is None]
    return Finding(
        check="machine",
        level="problem" if bad else "mind" if other else "ok",
        found=line(_list([one.name for one in other]), 300) or f"{wanted}, all {len(binaries)}",
        detail=line(_list(broken), 400) or (f"not {wanted}" if other else ""),
    )


def _whole(binaries: list[Binary]) -> Finding:
    """Whether their files end where their headers say."""
    cut = [one.name for one in binaries if one.traces and one.traces.cut]
    unread = [one.name for one in binaries if one.traces is None]
    level: Level = "problem" if cut else "unknown" if unread else "ok"
    found = f"cut off: {_list(cut)}" if cut else f"not read: {_list(unread)}" if unread else "whole"
    return Finding(check="binaries whole", level=level, found=line(found, 400))


def _libraries(facts: WheelFacts) -> Finding:
    """Each DLL that is not in it: whether it is known what brings that, and whether it is asked."""
    imported = {name for one in facts.binaries if one.pe for name in one.pe.imports}
    late = {lib for one in facts.binaries if one.pe for lib, _ in one.pe.late or ()}
    imported |= late - {name.lower() for name in imported}
    lacking = absent(imported, [one.name for one in facts.binaries])
    required = {canonicalize_name(one.name) for one in requirements(facts)}
    torch = [name for name in lacking if is_torchs(name)]
    cuda = [name for name in lacking if not is_torchs(name) and bringers(name)]
    strange = [name for name in lacking if not is_torchs(name) and not bringers(name)]
    said = []
    if torch and "torch" not in required:
        said.append(f"{_list(torch)} is torch's, which it does not require")
    alone = [
        name
        for name in cuda
        if not ({row.project for row in bringers(name)} | {"torch"}) & required
    ]
    if alone:
        said.append(f"it requires nothing that brings these: {cure(alone)}")
    if strange:
        said.append(f"nothing that is known brings {_list(strange)}")
    unread = [
        one.name
        for one in facts.binaries
        if one.pe is None or one.pe.needs is None or one.pe.late is None
    ]
    level: Level = "mind" if said else "unknown" if unread else "ok"
    if unread:
        said.append(f"not read: {_list(unread)}")
    parts = [f"torch: {_list(torch)}" if torch else "", f"CUDA: {_list(cuda)}" if cuda else ""]
    return Finding(
        check="libraries",
        level=level,
        found=line("; ".join(filter(None, parts)), 400) or "Windows' own, and those in it",
        detail=line("; ".join(said), 900),
        values=tuple(line(name, 100) for name in lacking[:MOST]),
    )


def _cuda(facts: WheelFacts) -> Finding:
    """Of which CUDA each binary is, by its device code and the run-time that it imports."""
    wrong: list[str] = []
    mixed: list[str] = []
    told: set[str] = set()
    for one in facts.binaries:
        containers = one.inventory.containers
        cudarts = one.pe.cudarts if one.pe else ()
        code, dll = newest(containers), newest((), cudarts)
        if code and dll and code.partition(".")[0] != dll:
            wrong.append(f"{one.name}: its device code is of CUDA {code}, it imports {cudarts[0]}")
        if own := code or dll:
            told.add(own)
            heard = Told(own)
            heard.hear(containers)
            if heard.wrong:  # NVIDIA's own libraries are of that kind
                mixed.append(f"{one.name}: code of CUDA {own} and {_list([*heard.wrong])}")
    named = _CU.search(Version(facts.version).local or "")
    if named and told and not any(_is(named[1], own) for own in told):
        wrong.append(f"its version says cu{named[1]}")
    found = ", ".join(f"CUDA {each}" for each in sorted(told, key=Version))
    level: Level = "problem" if wrong else "mind" if mixed else "ok"
    imports = {name for one in facts.binaries if one.pe for name in one.pe.imports}
    silent = any(one.inventory.containers for one in facts.binaries)
    if not found and (silent or named or any(_CUDA_DLLS.match(name) for name in imports)):
        level = "unknown" if silent else "mind"
        wrong.append(
            "its device code does not tell its CUDA"
            if silent
            else "no binary has device code, and something speaks of CUDA: a build without nvcc?"
        )
    return Finding(
        check="CUDA",
        level=level,
        found=found or ("not told" if silent else "no device code"),
        detail=line(_list(wrong + mixed), 600),
        values=tuple(sorted(told, key=Version)),
    )


def _is(said: str, release: str) -> bool:
    """Whether ``cu128`` or ``cu12`` may stand for a release such as ``12.8``."""
    return release.replace(".", "").startswith(said) or said.startswith(release.replace(".", ""))


def _traces(binaries: list[Binary]) -> Finding:
    """Paths of the machine that built it."""
    pdbs = [one.traces.pdb for one in binaries if one.traces and _absolute(one.traces.pdb)]
    paths = [path for one in binaries if one.traces for path in one.traces.paths]
    unread = [one.name for one in binaries if one.traces is None or not one.traces.complete]
    said = [f"PDB {pdb}" for pdb in pdbs] + paths
    found = []
    if pdbs:
        found.append(units.counted(len(pdbs), "PDB path"))
    if paths:
        found.append(units.counted(len(paths), "source path"))
    private = [text for text in said if _PERSON.search(text)]
    said = private + [text for text in said if text not in private]
    if private:
        found.append(f"{len(private)} of them with somebody's name")
    level: Level = "mind" if private else "unknown" if unread else "ok"
    return Finding(
        check="build paths",
        level=level,
        found=", ".join(found) or ("not read" if unread else "none outside of device code"),
        detail=line(_list(said) + (f"; not all read: {_list(unread)}" if unread else ""), 900),
        values=tuple(line(text, 260) for text in said[:50]),
    )


def _absolute(path: str) -> bool:
    return bool(re.match(r"[A-Za-z]:[\\/]|[\\/]", path))


def _signature(binaries: list[Binary]) -> Finding:
    signed = [one.name for one in binaries if one.traces and one.traces.signed]
    unread = [one.name for one in binaries if one.traces is None]
    if signed:
        found = f"{len(signed)} of {len(binaries)} have one, which nobody has verified here"
    else:
        found = "not read" if unread else "none"
    level: Level = "unknown" if signed or unread else "ok"
    return Finding(check="Authenticode", level=level, found=found, detail=_list(signed))


def _list(texts: Iterable[str]) -> str:
    return units.few(dict.fromkeys(texts))
