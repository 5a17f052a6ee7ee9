"""What a wheel's device code does on real cards: runs, is compiled by the driver first, or fails.

The driver chooses for each unit (container) by itself, so a wheel is judged unit by unit: one
without code for a card fails when it is called, however many others run. Of units that were linked
(``-rdc=true``) it links anew where that has no code for a card:
https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#jit-linking-support. The cards are those of
``architectures/gpus.yaml``, the drivers those of ``matrix/compat.yaml``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from packaging.version import Version

from pipelines.audit.findings import Card, Coverage, Gpus, Runs
from pipelines.core.architectures.archs import KNOWN, capability
from pipelines.core.architectures.gpus import load_gpus, read
from pipelines.core.architectures.serving import number, serves
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding, Level
from pipelines.core.units import few
from pipelines.matrix.compat import load_compat
from pipelines.wheels.binary import Binary
from pipelines.wheels.fatbin import Container, arch_key, compact
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.toolkit import known, newest

#: Of these are no cards for a PC, and code for others of their major version is not for them.
_TEGRA = frozenset({"53", "62", "72", "87", "88", "101", "110"})
#: A release of CUDA in the name of a file.
_NAMED = re.compile(r"cu(?:da)?[_-]?(\d{2,3})(?!\d)")
_SHOWN = 3
_LEVELS: dict[str, Level] = {"native": "ok", "jit": "warning", "partly": "error", "no": "error"}
_RUNS = {
    "native": "runs as it is",
    "jit": "runs after the driver has compiled PTX",
    "partly": "some of it runs, some fails",
    "no": "does not run",
    "unknown": "not checked",
}


def named(text: str) -> tuple[str, str]:
    """A card as ``--gpu`` names it, and its architecture; :class:`ConfigError` with a near one."""
    found = read(text)
    if len(found.sass) != 1 or found.ptx:
        raise ConfigError(f"--gpu {text[:60]}: expected one GPU", hint="Such as --gpu 'RTX 4090'.")
    return text, str(number(found.sass[0]))


def gpus_of(facts: WheelFacts, asked: Sequence[tuple[str, str]] = ()) -> Gpus:
    """The device code of a wheel, and what becomes of it on each kind of card.

    ``asked`` are cards that are wanted, by name and architecture: they come first, one by one.
    """
    having = [_Code(one) for one in facts.binaries if one.inventory.containers]
    units = [unit for one in having for unit in one.inventory.containers]
    # Of damaged code nobody knows whether a card gets to it.
    unread = not all(one.inventory.complete and not one.code.damaged for one in facts.binaries)
    windows = not any("linux" in tag or "macosx" in tag for tag in facts.tags)
    return Gpus(
        sass=_sorted(chain.from_iterable(unit.sass for unit in units)),
        ptx=_sorted(chain.from_iterable(unit.ptx for unit in units)),
        cuda=tuple(sorted({each for one in having for each in one.made}, key=Version)),
        binaries=tuple(map(_coverage, having)),
        cards=tuple(
            _card(names, arch, having, unread=unread).model_copy(
                update={} if windows else {"driver": ""}  # which are known are those of Windows
            )
            for names, arch in (*(((name,), arch) for name, arch in asked), *_kinds())
        ),
    )


def _kinds() -> list[tuple[tuple[str, ...], str]]:
    """The names of the cards of each architecture, the newest first."""
    kinds: dict[str, list[str]] = {}
    for gpu in load_gpus():
        if gpu.arch not in _TEGRA:
            kinds.setdefault(gpu.arch, []).append(gpu.show)
    return [(tuple(kinds[arch]), arch) for arch in sorted(kinds, key=arch_key, reverse=True)]


class _Code:
    """The device code of one binary."""

    def __init__(self, binary: Binary) -> None:
        self.name, self.inventory = binary.name, binary.inventory
        start, end = binary.traces.relocatable if binary.traces else (0, 0)
        #: What units hold -> how many do: there are few kinds, however many units.
        self.kinds: Counter[Container] = Counter()
        #: What was linked of them, and has no PTX of its own.
        self.links: Counter[Container] = Counter()
        for unit in binary.inventory.containers:
            link = end and not unit.ptx and not start <= unit.offset < end
            (self.links if link else self.kinds)[replace(unit, offset=0)] += 1
        told = {newest([unit]) for unit in (*self.kinds, *self.links)}
        run_time = newest((), binary.pe.cudarts) if binary.pe else ""
        #: The releases of CUDA that its units tell, or its run-time's DLL.
        self.made = frozenset((told - {""}) or {run_time} - {""})


class _Fate:
    """What becomes of one binary's units on one card."""

    def __init__(self, binary: _Code, arch: str) -> None:
        self.binary = binary
        self.native, self.failing, self.lone = 0, 0, 0
        self.jit = 0
        #: The releases of CUDA that wrote the PTX; empty text for one that nobody knows.
        self.jitted = set[str]()
        for unit, count in binary.kinds.items():
            if any(_runs(code, arch) for code in unit.sass):
                self.native += count
            elif any(serves(code, arch, ptx=True) for code in unit.ptx):
                self.jit += count
                self.jitted.add(_writer(unit))
            else:
                self.failing += count
                self.lone += 0 if unit.ptx else count
        # The driver links anew, of the PTX of each part.
        parts = [any(serves(p, arch, ptx=True) for p in unit.ptx) for unit in binary.kinds]
        for unit, count in binary.links.items():
            if any(_runs(code, arch) for code in unit.sass):
                self.native += count
            elif parts and all(parts):
                self.jit += count
                self.jitted |= {_writer(part) for part in binary.kinds}
            else:
                self.failing += count

    @property
    def badness(self) -> tuple[int, int, list[int]]:
        """The less, the better; of equals the one of the older CUDA, which runs on more drivers."""
        made = max(self.binary.made, key=Version, default="0")
        return self.failing, self.jit, [*map(int, made.split("."))]


def _writer(unit: Container) -> str:
    """The release of CUDA that wrote a unit's PTX; empty where no table knows its version."""
    return newest([unit]) if known(unit.isas) else ""


def _choices(having: Sequence[_Code]) -> list[list[_Code]]:
    """Binaries of which a package loads one: of each CUDA one (``lib_cuda118.dll``, ...)."""
    alike: dict[str, list[_Code]] = {}
    for one in having:
        alike.setdefault(re.sub(r"\d+", "#", one.name), []).append(one)
    found = []
    for group in alike.values():
        made = [one.made for one in group]
        choice = len(group) > 1 and all(map(_names_cuda, group)) and len({*made}) == len(group)
        found += [group] if choice else [[one] for one in group]
    return found


def _names_cuda(one: _Code) -> bool:
    """Whether its name has the release of CUDA that it is of, as ``cuda128`` or ``cu12``."""
    said = {*_NAMED.findall(one.name)}
    return any(said & {made.replace(".", ""), made.partition(".")[0]} for made in one.made)


def _card(names: tuple[str, ...], arch: str, having: Sequence[_Code], *, unread: bool) -> Card:
    groups = _choices(having)
    several = {one.name for group in groups if len(group) > 1 for one in group}
    fates = [
        min((_Fate(one, arch) for one in group), key=lambda fate: fate.badness) for group in groups
    ]
    native, jit = sum(one.native for one in fates), sum(one.jit for one in fates)
    failing = sum(one.failing for one in fates)
    total = native + jit + failing
    runs: Runs = "partly" if failing else "jit" if jit else "native"
    if unread or not total:
        runs = "unknown"
    elif not native and not jit:
        runs = "no"
    spare = [one.binary.name for one in fates if one.binary.name in several]
    works = runs not in ("unknown", "no")
    return Card(
        names=names,
        capability=capability(arch),
        runs=runs,
        native=native,
        jit=jit,
        units=total,
        driver=_driver(fates, arch) if works else "",
        why="; ".join(filter(None, (_why(fates, total), _which(spare)))) if works else "",
    )


def _runs(code: str, arch: str) -> bool:
    """As :func:`serves`; between a PC's GPUs and Tegra's nothing is compatible."""
    tegra = {code.rstrip("af"), arch} & _TEGRA
    return serves(code, arch) and (not tegra or code.rstrip("af") == arch)


def _which(spare: Sequence[str]) -> str:
    """Of binaries of which one is loaded, the one that is meant."""
    return f"as far as {', '.join(spare[:_SHOWN])} is what is loaded" if spare else ""


def _why(fates: Sequence[_Fate], total: int) -> str:
    """Which units fail; one without any PTX may be a device link that is not told as one."""
    failing = [one for one in fates if one.failing]
    if not failing:
        return ""
    where = ", ".join(f"{one.failing} in {one.binary.name}" for one in failing[:_SHOWN])
    more = f" and in {len(failing) - _SHOWN} more" if len(failing) > _SHOWN else ""
    lone = sum(one.lone for one in failing)
    hint = f"; {lone} of them without any PTX, as a device link has none" if lone else ""
    lack = sum(one.failing for one in failing)
    return f"{lack} of {total} units have nothing for it: {where}{more}{hint}"


def _driver(fates: Sequence[_Fate], arch: str) -> str:
    """Minor versions are compatible but for PTX: that needs the driver of the release it is of.

    Where no table has its number it is said by the release; the least driver of a family is that of
    its first. And no driver knows a card that came before the first release which compiles for it.
    Empty where nobody can say which release wrote the PTX.
    """
    compat = load_compat()
    made = {cuda for one in fates for cuda in one.binary.made}
    wanted = {compat.least_driver(cuda) for cuda in made}
    jitted = {each for one in fates for each in one.jitted}
    if "" in jitted:
        return ""
    newest_jitted = max(jitted, key=Version, default="")
    if newest_jitted and not newest_jitted.endswith(".0"):
        later = any(Version(cuda).major > Version(newest_jitted).major for cuda in made)
        if newest_jitted not in compat.toolkit_drivers and not later:
            return f"of CUDA {newest_jitted}"
    wanted |= {compat.toolkit_drivers.get(release, "") for release in jitted}
    if wanted - {""}:
        first = ".".join(map(str, KNOWN[arch].first))
        wanted.add(compat.toolkit_drivers.get(first, compat.least_driver(first)))
    return max(wanted - {""}, key=Version, default="")


def _coverage(binary: _Code) -> Coverage:
    units = binary.inventory.containers
    return Coverage(
        binary=binary.name,
        units=len(units),
        sass=_counted(unit.sass for unit in units),
        ptx=_counted(unit.ptx for unit in units),
        other=tuple(sorted({name for unit in units for name in unit.other})),
        cuda=tuple(sorted(binary.made, key=Version)),
        whole=binary.inventory.complete and all(unit.whole for unit in units),
    )


def _counted(archs: Iterable[Iterable[str]]) -> dict[str, int]:
    counts = Counter(arch for each in archs for arch in each)
    return {arch: counts[arch] for arch in _sorted(counts)}


def _sorted(archs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*archs}, key=arch_key))


def gpu_findings(gpus: Gpus, elsewhere: Sequence[str], asked: int) -> Iterator[Finding]:
    """Whether code for a GPU is in every unit, and for each card that was asked for what it does.

    Those are the first ``asked`` of ``gpus.cards``. Nobody knows who loads the files ``elsewhere``.
    """
    if elsewhere:
        yield Finding(
            id="device-code-elsewhere",
            title="device code elsewhere",
            level="unknown",
            requested=asked > 0,
            actual=f"not counted: {few(elsewhere)}",
            hint="files with device code that are no .dll, .pyd or .so by their names",
        )
    if gpus.binaries:
        yield _uneven(gpus)
    for card in gpus.cards[:asked]:
        yield Finding(
            id="gpu",
            title="GPU",
            source=card.names[0],
            level=_LEVELS.get(card.runs, "unknown"),
            requested=True,
            actual=f"{card.capability}: {_RUNS[card.runs]}" + _counts(card),
            hint=_about(card),
        )


def _counts(card: Card) -> str:
    if not card.units or card.runs == "unknown":
        return ""
    return f" ({card.native} native, {card.jit} by JIT, of {card.units})"


def _about(card: Card) -> str:
    driver = f"driver {card.driver} or newer" if card.driver else ""
    return "; ".join(filter(None, (driver, card.why)))


def _uneven(gpus: Gpus) -> Finding:
    """An architecture that some units of a binary lack: a crash when one of these is called."""
    uneven = []
    for one in gpus.binaries:
        lack = [f"{a} in {n}" for a, n in one.sass.items() if n < one.units]
        if lack:
            uneven.append(f"{one.binary}: of {one.units} units {', '.join(lack)}")
    lost = [card for card in gpus.cards if card.runs == "partly"]
    found = f"SASS {compact(gpus.sass)}, PTX {compact(gpus.ptx)}"
    if lost:
        uneven.insert(0, "runs only in part on " + ", ".join(_of(card) for card in lost))
    values = tuple(f"sm_{a}" for a in gpus.sass) + tuple(f"compute_{a}" for a in gpus.ptx)
    return Finding(
        id="coverage",
        title="coverage",
        level="warning" if lost else "ok",
        actual=found,
        hint=few(dict.fromkeys(uneven)),
        values=values,
    )


def _of(card: Card) -> str:
    return f"{card.capability} ({card.names[0]})"
