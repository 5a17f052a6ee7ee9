"""Is this wheel what was asked for? Judges the facts of ``metadata.inspect``, check by check.

Made for one failure above all: a green build whose wheel lacks device code, wholly or for one
GPU only. The first is an import that works and kernels that do not; the second is a crash on
that GPU when the one unit without it is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from pipelines.architectures.archs import ArchList
from pipelines.record import CheckResult
from pipelines.toolsets import ToolSet
from pipelines.units import few
from pipelines.wheels.binary import Binary
from pipelines.wheels.devicecode import read_code
from pipelines.wheels.fatbin import Container, arch_key, compact, inventory
from pipelines.wheels.imported import judge_own_names
from pipelines.wheels.installed import path_faults
from pipelines.wheels.maker import judge_maker
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.pe import machine_name, machine_of
from pipelines.wheels.pythonabi import misfit
from pipelines.wheels.tags import EVERY_PYTHON, wheel_tags
from pipelines.wheels.toolkit import Told

_NO_DEVICE_CODE = (
    "no device code at all: no extension module holds a fat binary, so no kernel can run on any "
    "GPU. The build can be green all the same: the host compiler may drop the fat binary "
    "(clang without -fkeep-persistent-storage-variables does), or nvcc never ran "
    "(a CPU-only build because no CUDA was found). Look for nvcc lines in the build log."
)

#: Of a binary's name within the wheel: the architectures that it can have at all.
Expects = Callable[[str], Collection[str]]


def check(
    name: str, ok: bool, found: str, wanted: str, detail: str = "", *, values: Iterable[str] = ()
) -> CheckResult:
    """One judgement: ``found`` and ``wanted`` are short, ``detail`` says where and why."""
    return CheckResult(
        name=name, ok=ok, found=found, wanted=wanted, detail=detail, values=tuple(values)
    )


def gate(
    facts: WheelFacts,
    archs: ArchList,
    *,
    platform: str,
    python: str,
    cuda: str,
    tag: str | None = None,
    expects: Expects | None = None,
    toolset: ToolSet | None = None,
    pure: bool = False,
) -> list[CheckResult]:
    """All checks, the same ones in the same order for every wheel of a platform.

    ``platform`` is a wheel platform tag such as ``win_amd64``, ``python`` and ``cuda`` are the
    releases that were asked for, such as ``3.12`` and ``12.8`` (``12`` stands for every 12.x).
    ``tag`` is the recipe's ``wheel_tag``: of ``py3-none`` or ``py39-none`` nothing is for one.
    Architectures nobody asked for are only mentioned: recipes add some of their own (90a), and they
    cost size, not correctness. ``expects`` says of a binary's name which of ``archs`` it is to
    have, where that is not all of them. ``toolset`` is what should have built it, with the stamp
    that the wheels of that host have; without one it is told what has. ``pure``: it is to have no
    compiled code at all, and to be for every platform.
    """
    if pure:
        return [*_without_code(facts), *_packaged(facts, "any", python, EVERY_PYTHON)]
    return [
        *_packaging(facts, platform, python, tag),
        *(_windows(facts, platform, toolset) if platform.startswith("win") else ()),
        *(
            _without_python(facts)
            if (tag or "").endswith("-none")
            else _modules(facts, platform, python, tag)
        ),
        *_device(facts.binaries, archs, cuda, expects, facts.elsewhere),
    ]


def contents(facts: WheelFacts) -> list[CheckResult]:
    """Those of :func:`gate` for which nothing has to be asked: whether it is what it says it is."""
    read = (*facts.binaries, *facts.elsewhere)
    return [*_zip(facts), *_agreeing(facts), *_whole(read), *_host_code(facts)]


def _packaging(
    facts: WheelFacts, platform: str, python: str, tag: str | None
) -> Iterator[CheckResult]:
    library = (tag or "").endswith("-none")
    modules = facts.binaries if library else facts.extensions
    yield check(
        "library" if library else "extension module",
        bool(modules),
        few(binary.name for binary in modules) or "none",
        "a .dll, .pyd or .so" if library else "a .pyd or .so",
        "" if modules else "a pure Python wheel: the extension was skipped by the build",
    )
    yield from _packaged(facts, platform, python, tag)


def _without_code(facts: WheelFacts) -> Iterator[CheckResult]:
    """What is compiled would be for one platform, whatever the wheel's name says."""
    found = few(binary.name for binary in facts.binaries)
    yield check("no compiled code", not facts.binaries, found or "none", "no .dll, .pyd or .so")


def _zip(facts: WheelFacts) -> Iterator[CheckResult]:
    """One reading for every installer, and one file for each name."""
    extras = f"extra fields {few(facts.form.extras)}" if facts.form.extras else ""
    said = facts.form.fault or extras
    yield check("zip", not said, said or "one reading", "one reading, no extra fields")
    faults = [f"{name} ({why})" for name, why in path_faults(facts.members).items()]
    faults += [f"{name} (not a source of Python: it has a NUL)" for name in facts.broken]
    yield check("files", not faults, few(faults) or "each by itself", "what Windows can have")


def _packaged(
    facts: WheelFacts, platform: str, python: str, tag: str | None
) -> Iterator[CheckResult]:
    yield from _zip(facts)
    yield from _agreeing(facts)
    platforms = sorted({tag.rsplit("-", 1)[-1] for tag in facts.tags})
    yield check("platform", platforms == [platform], few(platforms), platform)
    own = [each.rpartition("-")[0] for each in facts.tags]
    takes = {f"{each.interpreter}-{each.abi}" for each in wheel_tags(python, [platform])}
    if tag:
        yield check("Python", own == [tag] and tag in takes, few(own), f"{tag} alone")
    else:
        yield check("Python", bool(takes.intersection(own)), few(own), f"one that {python} takes")


def _agreeing(facts: WheelFacts) -> Iterator[CheckResult]:
    """What it says of itself, in several places."""
    record = facts.record
    wrong = [
        f"{len(names)} {what}: {few(names)}"
        for what, names in (
            ("missing from the wheel", record.missing),
            ("not in RECORD", record.extra),
            ("with other bytes than recorded", record.wrong),
        )
        if names
    ]
    yield check("RECORD", record.true, "; ".join(wrong) or "true", "true for every file")
    yield check(
        "name and version",
        facts.names_agree,
        f"METADATA {facts.metadata_name} {facts.metadata_version}, {facts.dist_info}",
        f"{facts.name} {facts.version}",
        "" if facts.names_agree else "file name, METADATA and .dist-info must agree",
    )
    said = facts.wheel_tags
    yield check("tags", facts.tags_agree, few(said), few(facts.tags), values=said)


def _windows(facts: WheelFacts, platform: str, toolset: ToolSet | None) -> Iterator[CheckResult]:
    """Code of the platform's machine, of the tool set that should have made it.

    A .so has no place in a Windows wheel.
    """
    machine = machine_of([platform])
    called = machine_name(machine)
    bad = [
        f"{binary.name} ({_machine(binary)})"
        for binary in facts.binaries
        if binary.pe is None or binary.pe.machine != machine
    ]
    yield check("machine", not bad, few(bad) or called, called)
    yield from _host_code(facts)
    yield judge_maker(facts, toolset)
    yield judge_own_names(facts)


def _host_code(facts: WheelFacts) -> Iterator[CheckResult]:
    faults = [f"{binary.name}: {why}" for binary in facts.binaries for why in binary.faults]
    wanted = "functions in place, and the device code found by them"
    yield check("host code", not faults, few(faults) or "in place", wanted)


def _modules(
    facts: WheelFacts, platform: str, python: str, tag: str | None
) -> Iterator[CheckResult]:
    """Modules that Python can initialise."""
    if not platform.startswith("win"):
        return
    lacking = [
        f"{binary.name} without {binary.init}"
        for binary in facts.extensions
        if binary.pe is None or binary.init not in binary.pe.inits
    ]
    yield check("PyInit", not lacking, few(lacking) or "exported", "exported by every module")
    abi = tag.partition("-")[2] if tag else ""
    others = [
        f"{binary.name}: {why}"
        for binary in facts.binaries
        if binary.pe and (why := misfit(python, abi, binary.name, binary.pe.imports))
    ]
    wanted = f"{abi} alone" if abi else f"of Python {python} alone"
    yield check("Python's own ABI", not others, few(others) or "kept to", wanted)


def _without_python(facts: WheelFacts) -> Iterator[CheckResult]:
    """Nothing of Python in a library: it would be that of one Python, and another has it not."""
    bound = [
        f"{binary.name}: {binary.problem or 'not looked at'}"
        if binary.of_python is None
        else f"{binary.name}: {few(binary.of_python)}"
        for binary in facts.binaries
        if binary.of_python != ()
    ]
    yield check(
        "no Python",
        not bound,
        few(bound) or "none",
        "nothing of Python imported or exported",
        "such a library is for one Python: tag it so" if bound else "",
    )


def gate_library(name: str, data: bytes, archs: ArchList, *, cuda: str) -> list[CheckResult]:
    """The checks of a static library's device code."""
    code = inventory(data)
    return list(_device((Binary(name, code, code=read_code(data, code)),), archs, cuda))


def _whole(binaries: Iterable[Binary]) -> Iterator[CheckResult]:
    """All of it, also what is not judged for its architectures: each entry is looked into."""
    every = [*binaries]
    damaged = [f"{b.name} at {c.offset:#x}" for b in every for c in _damaged(b)]
    damaged += [f"{b.name} read in part" for b in every if not b.inventory.complete]
    damaged += [f"{b.name}: {why}" for b in every for why in b.code.damaged]
    yield check("device code whole", not damaged, few(damaged) or "whole", "whole")
    unread = [f"{b.name}: {why}" for b in every for why in b.code.unread]
    found = f"{sum(b.code.read for b in every)} entries"
    yield check("device code read", not unread, few(unread) or found, "every entry")


def _device(
    binaries: tuple[Binary, ...],
    archs: ArchList,
    cuda: str,
    expects: Expects | None = None,
    elsewhere: tuple[Binary, ...] = (),
) -> Iterator[CheckResult]:
    """Whether device code is there, whole, of that tool kit, and for each architecture."""
    carriers = _carriers(binaries)
    containers = [unit for binary in carriers for unit in binary.inventory.containers]
    total = len(containers)
    yield check(
        "device code",
        total > 0,
        f"{total} fat-binary containers in {len(carriers)} binaries",
        "at least one container",
        "" if total else _NO_DEVICE_CODE,
    )
    yield from _whole((*binaries, *elsewhere))
    yield _toolkit(carriers, cuda)
    sass = Counter(arch for unit in containers for arch in unit.sass)
    yield _sass(carriers, archs, sass, expects)
    yield _ptx(carriers, archs, expects)
    extra = set(sass) - set(archs.sass)
    detail = f"SASS nobody asked for: {compact(extra)}; it only costs size" if extra else ""
    yield check("nothing unasked for", True, compact(extra), "none, or more", detail)


def _toolkit(carriers: list[Binary], cuda: str) -> CheckResult:
    """Nothing may come of another release of CUDA, and something must tell of which it is."""
    told = Told(cuda)
    for binary in carriers:
        told.hear(binary.inventory.containers, binary.pe.cudarts if binary.pe else ())
    if told.wrong:
        found, detail = told.wrong, "another tool kit has made this: do not use it"
    elif told.seen:
        found, detail = told.right, ""
    else:
        found, detail = Counter(), "see 'device code'"
        if told.total:
            detail = (
                "no container tells it: its device code is compressed, and has no PTX. Ask for PTX "
                "of one architecture (90+PTX), or build with -compress-mode=size or none"
            )
    words = (
        name if name.endswith(".dll") else f"{name} in {count}/{told.total}"
        for name, count in sorted(found.items())
    )
    return check(
        "CUDA",
        not told.wrong and told.seen > 0,
        few(words) or "not to be seen",
        f"{cuda}, told by the device code itself",
        detail,
    )


def _sass(
    carriers: list[Binary], archs: ArchList, sass: Counter[str], expects: Expects | None
) -> CheckResult:
    """Each architecture is due in every container of the binaries that can have it."""
    due = {
        arch: [b for b in carriers if expects is None or arch in expects(b.name)]
        for arch in archs.sass
    }
    units = {
        arch: [unit.sass for binary in found for unit in binary.inventory.containers]
        for arch, found in due.items()
    }
    have = {arch: sum(arch in unit for unit in found) for arch, found in units.items()}
    short = [arch for arch in archs.sass if not units[arch] or have[arch] < len(units[arch])]
    return check(
        "SASS",
        not short,
        ", ".join(f"{a} in {have[a]}/{len(units[a])}" for a in short) or compact(sass),
        f"{compact(archs.sass)} in every container",
        _where(due, short) if carriers else "see 'device code'",
        values=sorted(sass, key=arch_key),
    )


def _ptx(carriers: list[Binary], archs: ArchList, expects: Expects | None) -> CheckResult:
    """As :func:`_sass`; what was linked of other containers, or holds no kernel, has none."""
    units: dict[str, list[frozenset[str]]] = {arch: [] for arch in archs.ptx}
    for binary in carriers:
        own = archs.sass if expects is None else expects(binary.name)
        for arch in archs.ptx if {*archs.sass} <= {*own} else {*archs.ptx} & {*own}:
            units[arch] += [
                unit.ptx
                for unit in binary.inventory.containers
                if unit.ptx or unit.offset not in binary.code.links
            ]
    have = Counter(arch for one in carriers for c in one.inventory.containers for arch in c.ptx)
    absent = [a for a, due in units.items() if not due or not all(a in unit for unit in due)]
    total = sum(len(binary.inventory.containers) for binary in carriers)
    return check(
        "PTX",
        not absent,
        ", ".join(f"{a} in {have[a]}/{total}" for a in sorted(have, key=arch_key)) or "none",
        compact(archs.ptx),
        f"without PTX of {compact(absent)} newer GPUs cannot run this wheel" if absent else "",
        values=sorted(have, key=arch_key),
    )


def _carriers(binaries: tuple[Binary, ...]) -> list[Binary]:
    """Binaries judged for device code: extension modules, or DLLs when no module has any.

    A bundled library such as cuBLAS has architectures of its own, which are not ours to ask.
    """
    having = [binary for binary in binaries if binary.inventory.containers]
    return [binary for binary in having if binary.module] or having


def _damaged(binary: Binary) -> list[Container]:
    return [unit for unit in binary.inventory.containers if not unit.whole]


def _where(due: dict[str, list[Binary]], short: list[str]) -> str:
    """For each arch that is short: binaries with the offsets of containers that lack it."""
    lines = []
    for arch in short:
        for binary in due[arch]:
            lack = [unit for unit in binary.inventory.containers if arch not in unit.sass]
            if lack:
                offsets = few(f"{unit.offset:#x}" for unit in lack)
                lines.append(f"{arch}: {len(lack)} lack it in {binary.name}, at {offsets}")
    return "\n".join(lines)


def _machine(binary: Binary) -> str:
    return binary.problem or (machine_name(binary.pe.machine) if binary.pe else "not a PE")
