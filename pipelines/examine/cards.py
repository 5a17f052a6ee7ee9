"""What a wheel's device code does on real cards: runs, is compiled by the driver first, or fails.

The driver chooses for each unit (container) by itself, so a wheel is judged unit by unit: one
without code for a card fails when it is called, however many others run. The cards are those of
``architectures/gpus.yaml``, the drivers those of ``matrix/compat.yaml``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from packaging.version import Version

from pipelines.architectures.archs import capability, number, serves
from pipelines.architectures.gpus import load_gpus, read
from pipelines.errors import ConfigError
from pipelines.examine.findings import Card, Coverage, Gpus, Runs
from pipelines.matrix.compat import load_compat
from pipelines.wheels.fatbin import Container, arch_key
from pipelines.wheels.metadata import Binary, WheelFacts
from pipelines.wheels.toolkit import newest

#: Of these are no cards for a PC, and code for others of their major version is not for them.
_TEGRA = frozenset({"53", "62", "72", "87", "88", "101", "110"})
_SHOWN = 3


def named(text: str) -> tuple[str, str]:
    """A card as ``--gpu`` names it, and its architecture; :class:`ConfigError` with a near one."""
    found = read(text)
    if len(found.sass) != 1 or found.ptx:
        raise ConfigError(
            f"--gpu {text[:60]}: expected one GPU", advice="Such as --gpu 'RTX 4090'."
        )
    return text, str(number(found.sass[0]))


def gpus_of(facts: WheelFacts, asked: Sequence[tuple[str, str]] = ()) -> Gpus:
    """The device code of a wheel, and what becomes of it on each kind of card.

    ``asked`` are cards that are wanted, by name and architecture: they come first, one by one.
    """
    having = [one for one in facts.binaries if one.inventory.containers]
    units = [unit for one in having for unit in one.inventory.containers]
    unread = not all(one.inventory.complete for one in facts.binaries)
    return Gpus(
        sass=_sorted(chain.from_iterable(unit.sass for unit in units)),
        ptx=_sorted(chain.from_iterable(unit.ptx for unit in units)),
        cuda=tuple(sorted({each for one in having for each in _made(one)}, key=Version)),
        binaries=tuple(map(_coverage, having)),
        cards=tuple(
            _card(names, arch, having, unread=unread)
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


class _Fate:
    """What becomes of one binary's units on one card."""

    def __init__(self, binary: Binary, arch: str) -> None:
        self.binary = binary
        self.native, self.failing, self.lone = 0, 0, 0
        self.by_jit: list[Container] = []
        for unit in binary.inventory.containers:
            if any(_runs(code, arch) for code in unit.sass):
                self.native += 1
            elif any(serves(code, arch, ptx=True) for code in unit.ptx):
                self.by_jit.append(unit)
            else:
                self.failing += 1
                self.lone += not unit.ptx

    @property
    def badness(self) -> tuple[int, int, list[int]]:
        """The less, the better; of equals the one of the older CUDA, which runs on more drivers."""
        made = max(_made(self.binary), key=Version, default="0")
        return self.failing, len(self.by_jit), [*map(int, made.split("."))]


def _choices(having: Sequence[Binary]) -> list[list[Binary]]:
    """Binaries of which a package loads one: of each CUDA one (``lib_cuda118.dll``, ...)."""
    alike: dict[str, list[Binary]] = {}
    for one in having:
        alike.setdefault(re.sub(r"\d+", "#", one.name), []).append(one)
    found = []
    for group in alike.values():
        made = [frozenset(_made(one)) for one in group]
        choice = len(group) > 1 and all(made) and len({*made}) == len(group)
        found += [group] if choice else [[one] for one in group]
    return found


def _card(names: tuple[str, ...], arch: str, having: Sequence[Binary], *, unread: bool) -> Card:
    groups = _choices(having)
    several = {one.name for group in groups if len(group) > 1 for one in group}
    fates = [
        min((_Fate(one, arch) for one in group), key=lambda fate: fate.badness) for group in groups
    ]
    native, jit = sum(one.native for one in fates), sum(len(one.by_jit) for one in fates)
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
        driver=_driver(fates) if works else "",
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
    """Which units fail; a device link never holds PTX, and may then be done without."""
    failing = [one for one in fates if one.failing]
    if not failing:
        return ""
    where = ", ".join(f"{one.failing} in {one.binary.name}" for one in failing[:_SHOWN])
    more = f" and in {len(failing) - _SHOWN} more" if len(failing) > _SHOWN else ""
    lone = sum(one.lone for one in failing)
    hint = f"; {lone} of them without any PTX, as a device link has none" if lone else ""
    lack = sum(one.failing for one in failing)
    return f"{lack} of {total} units have nothing for it: {where}{more}{hint}"


def _driver(fates: Sequence[_Fate]) -> str:
    """Minor versions are compatible but for PTX: that needs the driver of the release it is of."""
    compat = load_compat()
    wanted = {compat.least_driver(cuda) for one in fates for cuda in _made(one.binary)}
    for release in {newest([unit]) for one in fates for unit in one.by_jit} - {""}:
        wanted.add(compat.toolkit_drivers.get(release, ""))
    return max(wanted - {""}, key=Version, default="")


def _made(binary: Binary) -> set[str]:
    """The releases of CUDA that a binary's units tell, or its run-time's DLL."""
    told = {newest([unit]) for unit in binary.inventory.containers} - {""}
    return told or ({newest((), binary.pe.cudarts)} if binary.pe else set()) - {""}


def _coverage(binary: Binary) -> Coverage:
    units = binary.inventory.containers
    return Coverage(
        binary=binary.name,
        units=len(units),
        sass=_counted(unit.sass for unit in units),
        ptx=_counted(unit.ptx for unit in units),
        other=tuple(sorted({name for unit in units for name in unit.other})),
        cuda=tuple(sorted(_made(binary), key=Version)),
        whole=binary.inventory.complete and all(unit.whole for unit in units),
    )


def _counted(archs: Iterable[Iterable[str]]) -> dict[str, int]:
    counts = Counter(arch for each in archs for arch in each)
    return {arch: counts[arch] for arch in _sorted(counts)}


def _sorted(archs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*archs}, key=arch_key))
