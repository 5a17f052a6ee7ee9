"""What a wheel's device code does on real cards: runs, is compiled by the driver first, or fails.

The driver chooses for each unit (container) by itself, so a wheel is judged unit by unit: one
without code for a card fails when it is called, however many others run. The cards are those of
``architectures/gpus.yaml``, the drivers those of ``matrix/compat.yaml``.
"""

from __future__ import annotations

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


def _card(names: tuple[str, ...], arch: str, having: Sequence[Binary], *, unread: bool) -> Card:
    native, jit, failing, lone = 0, 0, Counter[str](), 0
    by_jit: list[Container] = []
    for binary in having:
        for unit in binary.inventory.containers:
            if any(_runs(code, arch) for code in unit.sass):
                native += 1
            elif any(serves(code, arch, ptx=True) for code in unit.ptx):
                jit += 1
                by_jit.append(unit)
            else:
                failing[binary.name] += 1
                lone += not unit.ptx
    total = native + jit + sum(failing.values())
    runs: Runs = "partly" if failing else "jit" if jit else "native"
    if unread or not total:
        runs = "unknown"
    elif not native and not jit:
        runs = "no"
    return Card(
        names=names,
        capability=capability(arch),
        runs=runs,
        native=native,
        jit=jit,
        units=total,
        driver=_driver(having, by_jit) if native or jit else "",
        why=_why(failing, lone, total) if native or jit else "",
    )


def _runs(code: str, arch: str) -> bool:
    """As :func:`serves`; between a PC's GPUs and Tegra's nothing is compatible."""
    tegra = {code.rstrip("af"), arch} & _TEGRA
    return serves(code, arch) and (not tegra or code.rstrip("af") == arch)


def _why(failing: Counter[str], lone: int, total: int) -> str:
    """Which units fail; a device link never holds PTX, and may then be done without."""
    if not failing:
        return ""
    where = ", ".join(f"{count} in {name}" for name, count in failing.most_common(3))
    more = f" and {len(failing) - 3} more binaries" if len(failing) > 3 else ""  # noqa: PLR2004
    hint = f"; {lone} of them without any PTX, as a device link has none" if lone else ""
    return f"{sum(failing.values())} of {total} units have nothing for it: {where}{more}{hint}"


def _driver(having: Sequence[Binary], by_jit: Sequence[Container]) -> str:
    """Minor versions are compatible but for PTX: that needs the driver of the release it is of.

    Binaries of several major versions are for a choice between them: the oldest one counts.
    """
    compat = load_compat()
    made = {each for one in having for each in _made(one)}
    least = min((each.partition(".")[0] for each in made), key=int, default="")
    wanted = {compat.least_driver(least)} if least else set()
    for release in {newest([unit]) for unit in by_jit} - {""}:
        if release.partition(".")[0] == least:
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
