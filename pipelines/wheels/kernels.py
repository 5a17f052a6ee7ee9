"""Checks of a wheel's device code.

Made for one failure above all: a green build whose wheel lacks device code, wholly or for one
GPU only. The first is an import that works and kernels that do not; the second is a crash on
that GPU when the one unit without it is called.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from packaging.version import Version

from pipelines.core.architectures.archs import ArchList
from pipelines.core.architectures.serving import serves
from pipelines.core.finding import Level
from pipelines.core.units import few
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Kernels, Result, check, unless
from pipelines.wheels.fatbin import arch_key, compact
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.toolkit import Told, cuda_in, may_be, newest

_NO_DEVICE_CODE = (
    "no device code at all: no extension module holds a fat binary, so no kernel can run on any "
    "GPU. The build can be green all the same: the host compiler may drop the fat binary "
    "(clang without -fkeep-persistent-storage-variables does), or nvcc never ran "
    "(a CPU-only build because no CUDA was found). Look for nvcc lines in the build log."
)
_CUDA_DLLS = re.compile(r"(?i)(cudart|nvcuda|c10_cuda|torch_cuda|cublas|nvrtc)")

Binaries = tuple[Binary, ...]


@check("device-code", "device code")
def device_code(
    binaries: Binaries,
    kernels: Kernels,  # noqa: ARG001 - it applies where some were ordered
) -> Iterator[Result]:
    """Whether there is any."""
    having = carriers(binaries)
    total = sum(len(binary.inventory.containers) for binary in having)
    yield Result(
        unless(not total),
        f"{total} fat-binary containers in {len(having)} binaries",
        "at least one container",
        "" if total else _NO_DEVICE_CODE,
    )


@check("device-code-complete", "device code whole")
def complete(binaries: Binaries, elsewhere: Binaries) -> Iterator[Result]:
    """All of it, also what is not judged for its architectures."""
    if every := (*binaries, *elsewhere):
        damaged = [
            f"{one.name} at {unit.offset:#x}"
            for one in every
            for unit in one.inventory.containers
            if not unit.whole
        ]
        damaged += [f"{one.name} read in part" for one in every if not one.inventory.complete]
        damaged += [f"{one.name}: {why}" for one in every for why in one.code.damaged]
        yield Result(unless(damaged), few(damaged) or "whole", "whole")


@check("device-code-read", "device code read")
def read(binaries: Binaries, elsewhere: Binaries) -> Iterator[Result]:
    """Each entry is looked into."""
    if every := (*binaries, *elsewhere):
        unread = [f"{one.name}: {why}" for one in every for why in one.code.unread]
        found = few(unread) or f"{sum(one.code.read for one in every)} entries"
        yield Result(unless(unread, "unknown"), found, "every entry")


@check("cuda", "CUDA")
def cuda(
    binaries: Binaries, kernels: Kernels | None = None, facts: WheelFacts | None = None
) -> Iterator[Result]:
    """One release made all of it: that of the order, else the one that each binary tells."""
    told = _agreeing(binaries, facts.version if facts else "0")
    ordered = told
    if kernels:
        ordered = _ordered(carriers(binaries), kernels.cuda)._replace(values=told.values)
    yield ordered if ordered.level == "error" or told.level != "error" else told


def _ordered(having: list[Binary], release: str) -> Result:
    """Nothing may come of another release of CUDA, and something must tell of which it is."""
    told = Told(release)
    for binary in having:
        told.hear(binary.inventory.containers, binary.pe.cudarts if binary.pe else ())
    if told.wrong:
        found, hint = told.wrong, "another tool kit has made this: do not use it"
    elif told.seen:
        found, hint = told.right, ""
    else:
        found, hint = Counter(), "see 'device code'"
        if told.total:
            hint = (
                "no container tells it: its device code is compressed, and has no PTX. Ask for PTX "
                "of one architecture (90+PTX), or build with -compress-mode=size or none"
            )
    words = (
        name if name.endswith(".dll") else f"{name} in {count}/{told.total}"
        for name, count in sorted(found.items())
    )
    return Result(
        unless(told.wrong or not told.seen),
        few(words) or "not to be seen",
        f"{release}, told by the device code itself",
        hint,
    )


def _agreeing(binaries: Binaries, version: str) -> Result:
    """The device code of each binary, the run-time that it imports, and the wheel's version."""
    wrong: list[str] = []
    mixed: list[str] = []
    told: set[str] = set()
    for one in binaries:
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
                mixed.append(f"{one.name}: code of CUDA {own} and {few(heard.wrong)}")
    named = cuda_in(Version(version).local or "")
    if named and told and not any(may_be(named, own) for own in told):
        wrong.append(f"its version says cu{named}")
    found = ", ".join(f"CUDA {each}" for each in sorted(told, key=Version))
    level: Level = "error" if wrong else unless(mixed, "warning")
    imports = {name for one in binaries if one.pe for name in one.pe.imports}
    silent = any(one.inventory.containers for one in binaries)
    if not found and (silent or named or any(_CUDA_DLLS.match(name) for name in imports)):
        level = "unknown" if silent else "warning"
        wrong.append(
            "its device code does not tell its CUDA"
            if silent
            else "no binary has device code, and something speaks of CUDA: a build without nvcc?"
        )
    return Result(
        level,
        found or ("not told" if silent else "no device code"),
        hint=few(dict.fromkeys(wrong + mixed)),
        values=sorted(told, key=Version),
    )


@check("sass", "SASS")
def sass(binaries: Binaries, kernels: Kernels | None = None) -> Iterator[Result]:
    """Each architecture is due in every container of the binaries that can have it."""
    having = carriers(binaries)
    found = Counter(a for one in having for unit in one.inventory.containers for a in unit.sass)
    values = sorted(found, key=arch_key)
    if kernels is None or kernels.jit:
        yield Result("skipped", compact(found), values=values)
        return
    expects = kernels.expects or (lambda _: kernels.archs.sass)
    due = {arch: [b for b in having if arch in expects(b.name)] for arch in kernels.archs.sass}
    units = {
        arch: [unit.sass for binary in own for unit in binary.inventory.containers]
        for arch, own in due.items()
    }
    have = {arch: sum(arch in unit for unit in every) for arch, every in units.items()}
    short = [arch for arch, every in units.items() if not every or have[arch] < len(every)]
    yield Result(
        unless(short),
        ", ".join(f"{a} in {have[a]}/{len(units[a])}" for a in short) or compact(found),
        f"{compact(kernels.archs.sass)} in every container",
        _where(due, short) if having else "see 'device code'",
        values=values,
    )


@check("ptx", "PTX")
def ptx(binaries: Binaries, kernels: Kernels | None = None) -> Iterator[Result]:
    """As :func:`sass`; what was linked of other containers, or holds no kernel, has none."""
    having = carriers(binaries)
    have = Counter(a for one in having for unit in one.inventory.containers for a in unit.ptx)
    values = sorted(have, key=arch_key)
    total = sum(len(binary.inventory.containers) for binary in having)
    found = ", ".join(f"{arch} in {have[arch]}/{total}" for arch in values) or "none"
    if kernels is None or kernels.jit:
        yield Result("skipped", found, values=values)
        return
    units: dict[str, list[frozenset[str]]] = {arch: [] for arch in kernels.archs.ptx}
    for binary in having:
        own = kernels.archs.sass if kernels.expects is None else kernels.expects(binary.name)
        for arch in units if {*kernels.archs.sass} <= {*own} else {*units} & {*own}:
            units[arch] += [
                unit.ptx
                for unit in binary.inventory.containers
                if unit.ptx or unit.offset not in binary.code.links
            ]
    absent = [arch for arch, due in units.items() if not due or not all(arch in u for u in due)]
    hint = f"without PTX of {compact(absent)} newer GPUs cannot run this wheel" if absent else ""
    yield Result(unless(absent), found, compact(kernels.archs.ptx), hint, values=values)


@check("extra-sass", "nothing unasked for")
def extra(binaries: Binaries, kernels: Kernels) -> Iterator[Result]:
    """Recipes add some of their own (90a): that costs size, not correctness."""
    if kernels.jit:
        return
    found = {a for one in carriers(binaries) for u in one.inventory.containers for a in u.sass}
    more = compact(found - {*kernels.archs.sass})
    hint = f"SASS nobody asked for: {more}; it only costs size"
    yield Result("ok", more, "none, or more", hint if found - {*kernels.archs.sass} else "")


@check("covered", "runs on what was asked for")
def covered(binaries: Binaries, kernels: Kernels) -> Iterator[Result]:
    """Machine code for it, or for one that it runs as well, or PTX."""
    if kernels.jit:
        missing = ", ".join(uncovered(carriers(binaries), kernels.archs))
        found = f"no code for {missing}" if missing else "code for each"
        hint = f"a container has no code for {missing}" if missing else ""
        yield Result(unless(missing), found, str(kernels.archs), hint)


def carriers(binaries: Iterable[Binary]) -> list[Binary]:
    """Binaries judged for device code: extension modules, or DLLs when no module has any.

    A bundled library such as cuBLAS has architectures of its own, which are not ours to ask.
    """
    having = [binary for binary in binaries if binary.inventory.containers]
    return [binary for binary in having if binary.module] or having


def uncovered(binaries: Iterable[Binary], archs: ArchList) -> list[str]:
    """Of the architectures asked for, those that some container of device code cannot serve.

    Machine code serves newer GPUs of its own major version (80 runs on 89), PTX every newer one.
    Architectures with PTX alone are not asked about: they stand for GPUs of no name.
    """
    units = [unit for binary in binaries for unit in binary.inventory.containers]
    return [
        arch
        for arch in archs.sass
        if not all(
            any(serves(code, arch) for code in unit.sass)
            or any(serves(code, arch, ptx=True) for code in unit.ptx)
            for unit in units
        )
    ]


def _where(due: dict[str, list[Binary]], short: list[str]) -> str:
    """For each arch that is short: binaries with the offsets of containers that lack it."""
    lines = []
    for arch in short:
        for binary in due[arch]:
            lack = [unit for unit in binary.inventory.containers if arch not in unit.sass]
            if lack:
                offsets = few(f"{unit.offset:#x}" for unit in lack)
                lines.append(f"{arch}: {len(lack)} lack it in {binary.name}, at {offsets}")
    return "; ".join(lines)
