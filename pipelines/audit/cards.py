"""How a wheel's device code runs on real GPUs: natively, compiled by the driver first, or not.

The driver chooses code for each unit (container) separately, so a wheel is judged unit by unit: a
unit without code for a card fails when it is called, however many others run. Units linked with
``-rdc=true`` are linked again by the driver if the result has no code for a card:
https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#jit-linking-support. The cards are those of
``architectures/gpus.yaml``, the drivers those of ``plan/matrix/compat.yaml``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from packaging.version import Version

from pipelines.audit.findings import Card, Coverage, Gpus, Runs
from pipelines.core.architectures.archs import KNOWN, compute_capability
from pipelines.core.architectures.gpus import load_gpu_table, parse_gpu_archs
from pipelines.core.architectures.serving import arch_number, code_runs_on
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding, Level
from pipelines.core.units import join_first
from pipelines.plan.matrix.compat import load_compat
from pipelines.wheels.binary import Binary
from pipelines.wheels.fatbin import Container, arch_key, format_archs
from pipelines.wheels.libraries import has_device_compiler, library_providers
from pipelines.wheels.metadata import Depth, WheelFacts
from pipelines.wheels.packaging import required_by
from pipelines.wheels.toolkit import are_ptx_versions_known, newest_cuda_version

#: Not on cards for PCs; code for others of their major version does not run on them.
_TEGRA = frozenset({"53", "62", "72", "87", "88", "101", "110"})
#: A CUDA version in a file name.
_NAMED = re.compile(r"cu(?:da)?[_-]?(\d{2,3})(?!\d)")
_KERNELS = (".cu", ".cuh", ".ptx", ".cubin", ".fatbin")
_SHOWN = 3
_BUILD = "build it with the CUDA toolkit, often with FORCE_CUDA=1; is it the right project at all?"
_LEVELS: dict[str, Level] = {"native": "ok", "jit": "warning", "partly": "error", "no": "error"}
_RUNS = {
    "native": "runs natively",
    "jit": "runs after the driver has compiled its PTX",
    "partly": "runs only in part",
    "no": "does not run",
    "unknown": "not checked",
}


def parse_gpu_option(text: str) -> tuple[str, str]:
    """A card as in ``--gpu`` and its architecture; :class:`ConfigError` suggests a similar one."""
    archs = parse_gpu_archs(text)
    if len(archs.sass) != 1 or archs.ptx:
        raise ConfigError(f"--gpu {text[:60]}: expected one GPU", hint="Such as --gpu 'RTX 4090'.")
    return text, str(arch_number(archs.sass[0]))


def wheel_gpu_support(facts: WheelFacts, requested: Sequence[tuple[str, str]] = ()) -> Gpus:
    """The device code of a wheel, and how it runs on each kind of card.

    ``requested`` are cards by name and architecture; they come first, each on its own.
    """
    windows = not any("linux" in tag or "macosx" in tag for tag in facts.tags)
    own = [binary for binary in facts.binaries if binary.name.endswith(".so") != windows]
    having = [_Code(binary) for binary in own if binary.inventory.containers]
    units = [unit for code in having for unit in code.inventory.containers]
    # Whether a card reaches damaged code is unknown.
    unread = not all(binary.inventory.complete and not binary.code.damaged for binary in own)
    whole = facts.depth is Depth.ALL  # of a part, architectures would look like all of them
    return Gpus(
        sass=_sorted(chain.from_iterable(unit.sass for unit in units)) if whole else (),
        ptx=_sorted(chain.from_iterable(unit.ptx for unit in units)) if whole else (),
        cuda=tuple(sorted({each for code in having for each in code.made}, key=Version)),
        binaries=tuple(map(_coverage, having)) if whole else (),
        cards=tuple(
            _assess_card(names, arch, having, unread=unread).model_copy(
                update={} if windows else {"driver": ""}  # which are known are those of Windows
            )
            for names, arch in (
                *(((name,), arch) for name, arch in requested),
                *_cards_by_architecture(),
            )
        ),
    )


def _cards_by_architecture() -> list[tuple[tuple[str, ...], str]]:
    """The names of the cards of each architecture, the newest first."""
    kinds: dict[str, list[str]] = {}
    for gpu in load_gpu_table().gpus:
        if gpu.arch not in _TEGRA:
            kinds.setdefault(gpu.arch, []).append(gpu.show)
    return [(tuple(kinds[arch]), arch) for arch in sorted(kinds, key=arch_key, reverse=True)]


class _Code:
    """The device code of one binary."""

    def __init__(self, binary: Binary) -> None:
        self.name, self.inventory = binary.name, binary.inventory
        start, end = binary.traces.relocatable if binary.traces else (0, 0)
        #: What units contain -> how many do; there are few kinds, however many units.
        self.kinds: Counter[Container] = Counter()
        #: Device links of them, which have no PTX of their own.
        self.links: Counter[Container] = Counter()
        for unit in binary.inventory.containers:
            link = end and not unit.ptx and not start <= unit.offset < end
            (self.links if link else self.kinds)[replace(unit, offset=0)] += 1
        stated = {newest_cuda_version([unit]) for unit in (*self.kinds, *self.links)}
        run_time = newest_cuda_version((), binary.pe.cudarts) if binary.pe else ""
        #: CUDA versions stated by its units, or by the name of its runtime DLL.
        self.made = frozenset((stated - {""}) or {run_time} - {""})


class _Outcome:
    """How one binary's units run on one card."""

    def __init__(self, binary: _Code, arch: str) -> None:
        self.binary = binary
        self.native, self.failing, self.lone = 0, 0, 0
        self.jit = 0
        #: CUDA versions that wrote the PTX; "" for an unknown one.
        self.jitted = set[str]()
        for unit, count in binary.kinds.items():
            if any(_can_run_natively(code, arch) for code in unit.sass):
                self.native += count
            elif any(code_runs_on(code, arch, ptx=True) for code in unit.ptx):
                self.jit += count
                self.jitted.add(_writer(unit))
            else:
                self.failing += count
                self.lone += 0 if unit.ptx else count
        # The driver links again, from the PTX of each part.
        parts = [any(code_runs_on(p, arch, ptx=True) for p in unit.ptx) for unit in binary.kinds]
        for unit, count in binary.links.items():
            if any(_can_run_natively(code, arch) for code in unit.sass):
                self.native += count
            elif parts and all(parts):
                self.jit += count
                self.jitted |= {_writer(part) for part in binary.kinds}
            else:
                self.failing += count

    @property
    def badness(self) -> tuple[int, int, list[int]]:
        """Lower is better; of equals the older CUDA wins, as it runs on more drivers."""
        made = max(self.binary.made, key=Version, default="0")
        return self.failing, self.jit, [*map(int, made.split("."))]


def _writer(unit: Container) -> str:
    """The CUDA version that wrote a unit's PTX; empty if no table has its version."""
    return newest_cuda_version([unit]) if are_ptx_versions_known(unit.isas) else ""


def _choices(having: Sequence[_Code]) -> list[list[_Code]]:
    """Groups of binaries from which a package loads one, such as ``lib_cuda118.dll``, ..."""
    alike: dict[str, list[_Code]] = {}
    for code in having:
        alike.setdefault(re.sub(r"\d+", "#", code.name), []).append(code)
    groups = []
    for group in alike.values():
        made = [code.made for code in group]
        choice = len(group) > 1 and all(map(_names_cuda, group)) and len({*made}) == len(group)
        groups += [group] if choice else [[code] for code in group]
    return groups


def _names_cuda(code: _Code) -> bool:
    """Whether its name has its CUDA version, as ``cuda128`` or ``cu12``."""
    named = {*_NAMED.findall(code.name)}
    return any(named & {made.replace(".", ""), made.partition(".")[0]} for made in code.made)


def _assess_card(
    names: tuple[str, ...], arch: str, having: Sequence[_Code], *, unread: bool
) -> Card:
    groups = _choices(having)
    several = {code.name for group in groups if len(group) > 1 for code in group}
    fates = [
        min((_Outcome(code, arch) for code in group), key=lambda fate: fate.badness)
        for group in groups
    ]
    native, jit = sum(fate.native for fate in fates), sum(fate.jit for fate in fates)
    failing = sum(fate.failing for fate in fates)
    total = native + jit + failing
    runs: Runs = "partly" if failing else "jit" if jit else "native"
    if unread or not total:
        runs = "unknown"
    elif not native and not jit:
        runs = "no"
    spare = [fate.binary.name for fate in fates if fate.binary.name in several]
    works = runs not in ("unknown", "no")
    return Card(
        names=names,
        capability=compute_capability(arch),
        runs=runs,
        native=native,
        jit=jit,
        units=total,
        driver=_oldest_usable_driver(fates, arch) if works else "",
        why="; ".join(filter(None, (_explain_failing_units(fates, total), _which(spare))))
        if works
        else "",
    )


def _can_run_natively(code: str, arch: str) -> bool:
    """Like :func:`code_runs_on`, but nothing is compatible between PC and Tegra GPUs."""
    tegra = {code.rstrip("af"), arch} & _TEGRA
    return code_runs_on(code, arch) and (not tegra or code.rstrip("af") == arch)


def _which(spare: Sequence[str]) -> str:
    """Which of several alternative binaries the result is for."""
    return f"if {', '.join(spare[:_SHOWN])} is loaded" if spare else ""


def _explain_failing_units(fates: Sequence[_Outcome], total: int) -> str:
    """Which units fail; one without PTX may be an unrecognised device link."""
    failing = [fate for fate in fates if fate.failing]
    if not failing:
        return ""
    where = ", ".join(f"{fate.failing} in {fate.binary.name}" for fate in failing[:_SHOWN])
    more = f" and in {len(failing) - _SHOWN} more" if len(failing) > _SHOWN else ""
    lone = sum(fate.lone for fate in failing)
    hint = f"; {lone} of them have no PTX, like a device link" if lone else ""
    missing = sum(fate.failing for fate in failing)
    return f"{missing} of {total} units have no code for it: {where}{more}{hint}"


def _oldest_usable_driver(fates: Sequence[_Outcome], arch: str) -> str:
    """The oldest driver. CUDA minor versions are compatible except for PTX, which needs its own.

    If no table has that driver's number, the CUDA version is named instead; the oldest driver of a
    family is that of its first version. No driver older than the first CUDA version that compiles
    for a card knows the card. Empty if the version that wrote the PTX is unknown.
    """
    compat = load_compat()
    made = {cuda for fate in fates for cuda in fate.binary.made}
    drivers = {compat.least_driver(cuda) for cuda in made}
    jitted = {each for fate in fates for each in fate.jitted}
    if "" in jitted:
        return ""
    newest_jitted = max(jitted, key=Version, default="")
    if newest_jitted and not newest_jitted.endswith(".0"):
        later = any(Version(cuda).major > Version(newest_jitted).major for cuda in made)
        if newest_jitted not in compat.toolkit_drivers and not later:
            return f"of CUDA {newest_jitted}"
    drivers |= {compat.toolkit_drivers.get(release, "") for release in jitted}
    if drivers - {""}:
        first = ".".join(map(str, KNOWN[arch].first))
        drivers.add(compat.toolkit_drivers.get(first, compat.least_driver(first)))
    return max(drivers - {""}, key=Version, default="")


def _coverage(binary: _Code) -> Coverage:
    units = binary.inventory.containers
    return Coverage(
        binary=binary.name,
        units=len(units),
        sass=_count_units_by_arch(unit.sass for unit in units),
        ptx=_count_units_by_arch(unit.ptx for unit in units),
        other=tuple(sorted({name for unit in units for name in unit.other})),
        cuda=tuple(sorted(binary.made, key=Version)),
        whole=binary.inventory.complete and all(unit.intact for unit in units),
    )


def _count_units_by_arch(archs: Iterable[Iterable[str]]) -> dict[str, int]:
    counts = Counter(arch for each in archs for arch in each)
    return {arch: counts[arch] for arch in _sorted(counts)}


def _sorted(archs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*archs}, key=arch_key))


def has_no_code(facts: WheelFacts) -> str:
    """Why nothing in it is for a GPU; empty if something may be, such as what compiles later."""
    own = [binary for binary in facts.binaries if not binary.name.endswith(".so")]
    pes = [one.pe for one in own if one.pe]
    names = {
        name for pe in pes for name in (*pe.imports, *(library for library, _ in pe.late or ()))
    }
    if (
        any(library_providers(one) or "cuda" in one.lower() for one in names)
        or any(not one.pe or one.inventory.containers or not one.inventory.complete for one in own)
        or any(name.endswith(_KERNELS) for name in facts.members)
        or facts.elsewhere
    ):
        return ""
    if own:
        return "no device code and no imports from CUDA: it was built without CUDA"
    if facts.binaries or has_device_compiler(required_by(facts)):
        return ""
    return "no binaries, no kernel sources, and no requirement that compiles any"


def gpu_findings(
    gpus: Gpus, elsewhere: Sequence[str], requested: int, without: str = ""
) -> Iterator[Finding]:
    """Whether every unit has code for each architecture, and a finding for each requested card.

    Those are the first ``requested`` of ``gpus.cards``. Nothing is known of files ``elsewhere``;
    ``without``: why there is no device code, if there can be none.
    """
    if elsewhere:
        yield Finding(
            id="device-code-elsewhere",
            title="device code elsewhere",
            level="unknown",
            requested=requested > 0,
            actual=f"not counted: {join_first(elsewhere)}",
            hint="files with device code whose names do not end with .dll, .pyd or .so",
        )
    if gpus.binaries:
        yield _uneven(gpus)
    for card in gpus.cards[:requested]:
        yield Finding(
            id="gpu",
            title="GPU",
            subject=card.names[0],
            level="error" if without else _LEVELS.get(card.runs, "unknown"),
            requested=True,
            actual=f"{card.capability}: {without or _RUNS[card.runs] + _counts(card)}",
            hint=_BUILD if without else _about(card),
        )


def _counts(card: Card) -> str:
    if not card.units or card.runs == "unknown":
        return ""
    return f" ({card.native} native, {card.jit} by JIT, of {card.units})"


def _about(card: Card) -> str:
    driver = f"driver {card.driver} or newer" if card.driver else ""
    return "; ".join(filter(None, (driver, card.why)))


def _uneven(gpus: Gpus) -> Finding:
    """Architectures missing in some units of a binary: calling one of these units crashes."""
    uneven = []
    for coverage in gpus.binaries:
        missing = [f"{a} in {n}" for a, n in coverage.sass.items() if n < coverage.units]
        if missing:
            uneven.append(f"{coverage.binary}: {', '.join(missing)} of {coverage.units} units")
    lost = [card for card in gpus.cards if card.runs == "partly"]
    actual = f"SASS {format_archs(gpus.sass)}, PTX {format_archs(gpus.ptx)}"
    if lost:
        uneven.insert(0, "runs only in part on " + ", ".join(_card_label(card) for card in lost))
    values = tuple(f"sm_{a}" for a in gpus.sass) + tuple(f"compute_{a}" for a in gpus.ptx)
    return Finding(
        id="coverage",
        title="coverage",
        level="warning" if lost else "ok",
        actual=actual,
        hint=join_first(dict.fromkeys(uneven)),
        values=values,
    )


def _card_label(card: Card) -> str:
    return f"{card.capability} ({card.names[0]})"
