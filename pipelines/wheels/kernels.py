"""Checks of a wheel's device code.

They exist mainly for one failure: a successful build whose wheel has no device code, at all or for
one GPU. In the first case imports work and kernels do not; in the second the wheel crashes on that
GPU when the unit without code is called.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from packaging.version import Version

from pipelines.core.architectures.archs import ArchList
from pipelines.core.architectures.serving import runnable_code_kind
from pipelines.core.finding import Level
from pipelines.core.units import join_first
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Kernels, Result, level_if_wrong, wheel_check
from pipelines.wheels.fatbin import arch_key, format_archs
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.toolkit import CudaEvidence, cuda_in, may_be, newest_cuda_version

_NO_DEVICE_CODE = (
    "no device code at all: no extension module holds a fat binary, so no kernel can run on any "
    "GPU. The build can succeed all the same: the host compiler may drop the fat binary "
    "(clang without -fkeep-persistent-storage-variables does), or nvcc never ran "
    "(a CPU-only build because no CUDA was found). Look for nvcc lines in the build log."
)
_CUDA_DLLS = re.compile(r"(?i)(cudart|nvcuda|c10_cuda|torch_cuda|cublas|nvrtc)")

Binaries = tuple[Binary, ...]


@wheel_check("device-code", "device code")
def device_code_present(
    binaries: Binaries,
    kernels: Kernels,  # noqa: ARG001 - only with requested device code
) -> Iterator[Result]:
    """Whether there is any device code."""
    having = device_code_binaries(binaries)
    total = sum(len(binary.inventory.containers) for binary in having)
    yield Result(
        level_if_wrong(not total),
        f"{total} fat-binary containers in {len(having)} binaries",
        "at least one container",
        "" if total else _NO_DEVICE_CODE,
    )


@wheel_check("device-code-complete", "device code intact")
def intact_device_code(binaries: Binaries, elsewhere: Binaries) -> Iterator[Result]:
    """Whether all device code is intact, including files not checked for architectures."""
    if every := (*binaries, *elsewhere):
        damaged = [
            f"{binary.name} at {unit.offset:#x}"
            for binary in every
            for unit in binary.inventory.containers
            if not unit.intact
        ]
        damaged += [
            f"{binary.name} read only in part" for binary in every if not binary.inventory.complete
        ]
        damaged += [f"{binary.name}: {why}" for binary in every for why in binary.code.damaged]
        yield Result(level_if_wrong(damaged), join_first(damaged) or "intact", "intact")


@wheel_check("device-code-read", "device code read")
def readable_device_code(binaries: Binaries, elsewhere: Binaries) -> Iterator[Result]:
    """Whether every entry could be read."""
    if every := (*binaries, *elsewhere):
        unread = [f"{binary.name}: {why}" for binary in every for why in binary.code.unread]
        actual = join_first(unread) or f"{sum(binary.code.read for binary in every)} entries"
        yield Result(level_if_wrong(unread, "unknown"), actual, "every entry")


@wheel_check("cuda", "CUDA")
def device_code_cuda_version(
    binaries: Binaries, kernels: Kernels | None = None, facts: WheelFacts | None = None
) -> Iterator[Result]:
    """Whether one CUDA version made all of it: the requested one, if any."""
    agreed = _agreeing(binaries, facts.version if facts else "0")
    ordered = agreed
    if kernels:
        ordered = _ordered(device_code_binaries(binaries), kernels.cuda)._replace(
            values=agreed.values
        )
    yield ordered if ordered.level == "error" or agreed.level != "error" else agreed


def _ordered(having: list[Binary], release: str) -> Result:
    """No device code may be of another CUDA version, and some must state its version."""
    evidence = CudaEvidence(release)
    for binary in having:
        evidence.add(binary.inventory.containers, binary.pe.cudarts if binary.pe else ())
    if evidence.conflicting:
        counts, hint = evidence.conflicting, "built with a different CUDA toolkit: do not use it"
    elif evidence.stating:
        counts, hint = evidence.matching, ""
    else:
        counts, hint = Counter(), "see 'device code'"
        if evidence.total:
            hint = (
                "no container states it: the device code is compressed and has no PTX. Add PTX "
                "of one architecture (90+PTX), or build with -compress-mode=size or none"
            )
    words = (
        name if name.endswith(".dll") else f"{name} in {count}/{evidence.total}"
        for name, count in sorted(counts.items())
    )
    return Result(
        level_if_wrong(evidence.conflicting or not evidence.stating),
        join_first(words) or "unknown",
        f"{release}, as stated by the device code",
        hint,
    )


def _agreeing(binaries: Binaries, version: str) -> Result:
    """Whether each binary's device code, its CUDA runtime and the wheel's version agree."""
    wrong: list[str] = []
    mixed: list[str] = []
    stated: set[str] = set()
    for binary in binaries:
        containers = binary.inventory.containers
        cudarts = binary.pe.cudarts if binary.pe else ()
        code, dll = newest_cuda_version(containers), newest_cuda_version((), cudarts)
        if code and dll and code.partition(".")[0] != dll:
            wrong.append(
                f"{binary.name}: its device code is for CUDA {code}, but it imports {cudarts[0]}"
            )
        if own := code or dll:
            stated.add(own)
            evidence = CudaEvidence(own)
            evidence.add(containers)
            if evidence.conflicting:  # as in NVIDIA's own libraries
                mixed.append(
                    f"{binary.name}: code for CUDA {own} and {join_first(evidence.conflicting)}"
                )
    named = cuda_in(Version(version).local or "")
    if named and stated and not any(may_be(named, own) for own in stated):
        wrong.append(f"its version says cu{named}")
    actual = ", ".join(f"CUDA {each}" for each in sorted(stated, key=Version))
    level: Level = "error" if wrong else level_if_wrong(mixed, "warning")
    imports = {name for binary in binaries if binary.pe for name in binary.pe.imports}
    silent = any(binary.inventory.containers for binary in binaries)
    if not actual and (silent or named or any(_CUDA_DLLS.match(name) for name in imports)):
        level = "unknown" if silent else "warning"
        wrong.append(
            "its device code does not state its CUDA version"
            if silent
            else "no device code although it refers to CUDA: a build without nvcc?"
        )
    return Result(
        level,
        actual or ("not stated" if silent else "no device code"),
        hint=join_first(dict.fromkeys(wrong + mixed)),
        values=sorted(stated, key=Version),
    )


@wheel_check("sass", "SASS")
def sass_architectures(binaries: Binaries, kernels: Kernels | None = None) -> Iterator[Result]:
    """Whether every container has each requested architecture."""
    having = device_code_binaries(binaries)
    counts = Counter(
        a for binary in having for unit in binary.inventory.containers for a in unit.sass
    )
    values = sorted(counts, key=arch_key)
    if kernels is None or kernels.jit:
        yield Result("skipped", format_archs(counts), values=values)
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
        level_if_wrong(short),
        ", ".join(f"{a} in {have[a]}/{len(units[a])}" for a in short) or format_archs(counts),
        f"{format_archs(kernels.archs.sass)} in every container",
        _locate_missing_archs(due, short) if having else "see 'device code'",
        values=values,
    )


@wheel_check("ptx", "PTX")
def ptx_architectures(binaries: Binaries, kernels: Kernels | None = None) -> Iterator[Result]:
    """Like :func:`sass_architectures`; device links and containers without kernels have no PTX."""
    having = device_code_binaries(binaries)
    have = Counter(a for binary in having for unit in binary.inventory.containers for a in unit.ptx)
    values = sorted(have, key=arch_key)
    total = sum(len(binary.inventory.containers) for binary in having)
    actual = ", ".join(f"{arch} in {have[arch]}/{total}" for arch in values) or "none"
    if kernels is None or kernels.jit:
        yield Result("skipped", actual, values=values)
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
    hint = (
        f"without PTX for {format_archs(absent)} newer GPUs cannot run this wheel" if absent else ""
    )
    yield Result(
        level_if_wrong(absent), actual, format_archs(kernels.archs.ptx), hint, values=values
    )


@wheel_check("extra-sass", "extra architectures")
def extra_architectures(binaries: Binaries, kernels: Kernels) -> Iterator[Result]:
    """Architectures that were not requested, such as a recipe's own (90a), only cost size."""
    if kernels.jit:
        return
    archs = {
        a
        for binary in device_code_binaries(binaries)
        for u in binary.inventory.containers
        for a in u.sass
    }
    units = [u for binary in device_code_binaries(binaries) for u in binary.inventory.containers]
    more = format_archs(archs - {*kernels.archs.sass})
    ptx = format_archs({a for unit in units for a in unit.ptx} - {*kernels.archs.ptx})
    said = [f"{kind} {which}" for kind, which in (("SASS", more), ("PTX", ptx)) if which != "none"]
    hint = f"not requested: {', '.join(said)}; it only costs size" if said else ""
    yield Result("ok", ", ".join(said) or "none", "none, or more", hint)


@wheel_check("covered", "runs on requested GPUs")
def requested_gpu_coverage(binaries: Binaries, kernels: Kernels) -> Iterator[Result]:
    """Whether every container has machine code or PTX that runs on each requested GPU."""
    if kernels.jit:
        missing = ", ".join(unsupported_archs(device_code_binaries(binaries), kernels.archs))
        actual = f"no code for {missing}" if missing else "code for each"
        hint = f"a container has no code for {missing}" if missing else ""
        yield Result(level_if_wrong(missing), actual, str(kernels.archs), hint)


def device_code_binaries(binaries: Iterable[Binary]) -> list[Binary]:
    """Binaries judged for device code: extension modules, or DLLs when no module has any.

    A bundled library such as cuBLAS has its own architectures.
    """
    having = [binary for binary in binaries if binary.inventory.containers]
    return [binary for binary in having if binary.module] or having


def unsupported_archs(binaries: Iterable[Binary], archs: ArchList) -> list[str]:
    """The requested architectures that some container does not support.

    Machine code serves newer GPUs of its own major version (80 runs on 89), PTX every newer one.
    Architectures with PTX only are ignored: they stand for future GPUs.
    """
    units = [unit for binary in binaries for unit in binary.inventory.containers]
    return [
        arch
        for arch in archs.sass
        if not all(runnable_code_kind(unit.sass, unit.ptx, arch) for unit in units)
    ]


def _locate_missing_archs(due: dict[str, list[Binary]], short: list[str]) -> str:
    """For each missing architecture: binaries and offsets of containers without it."""
    lines = []
    for arch in short:
        for binary in due[arch]:
            without = [unit for unit in binary.inventory.containers if arch not in unit.sass]
            if without:
                offsets = join_first(f"{unit.offset:#x}" for unit in without)
                lines.append(f"{arch}: missing in {len(without)} of {binary.name}, at {offsets}")
    return "; ".join(lines)
