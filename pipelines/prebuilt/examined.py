"""What can be said of a wheel of which nobody said what it should have: facts, and what is wrong.

The checks are those of our own wheels. What would compare with an order is told and not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.tags import parse_tag

from pipelines.architectures.archs import ArchList
from pipelines.errors import AuditError
from pipelines.prebuilt.given import misfit
from pipelines.record import AuditedFile, CheckResult
from pipelines.wheels.checks import check, gate
from pipelines.wheels.libraries import absent, bringers, cure
from pipelines.wheels.metadata import WheelFacts, inspect
from pipelines.wheels.pe import machine_name, machine_of
from pipelines.wheels.tags import WINDOWS
from pipelines.wheels.toolkit import newest

#: Checks of an order -> why they judge nothing here.
_TOLD = {
    "extension module": "a wheel may have none",
    "tags": "installers go by the file's name",
    "PyInit": "only an import shows which of them are modules",
    "imported names": "only an import shows which DLL is found",
    "device code": "a wheel may have none",
    "device code whole": "only its use shows it",
    "CUDA": "nobody said which",
    "SASS": "nobody said which",
    "PTX": "nobody said which",
    "nothing unasked for": "nobody said what",
}
_SHOWN = 8


def examine_given(
    path: Path, sha256: str, *, python: str, platforms: Sequence[str], beside: Iterable[str]
) -> AuditedFile:
    """The facts of the wheel at ``path``, with every check on them.

    ``sha256`` is that of the file which was taken, ``beside`` are the paths within the wheels that
    are installed with it. Raises :class:`AuditError` for a file that is no wheel, or another one.
    """
    facts = inspect(path)
    if facts.sha256 != sha256:
        raise AuditError(
            f"{path.name} has sha256 {facts.sha256}, what was taken had {sha256}",
            advice="Something changed it on this machine: type the same again.",
        )
    windows = [*platforms] == [*WINDOWS]
    cuda = newest(
        (unit for binary in facts.binaries for unit in binary.inventory.containers),
        [name for binary in facts.binaries if binary.pe for name in binary.pe.cudarts],
    )
    own = gate(facts, ArchList(()), platform=platforms[0], python=python, cuda=cuda or "12")
    checks = [check("sha256", True, sha256, "that of the file that was taken")]
    for one in own:
        if one.name == "Python":  # with the platform, below
            continue
        if one.name == "platform":
            checks.append(_fits(facts, python, platforms))
        elif one.name == "machine":
            checks.append(_machine(facts, platforms[0]))
        elif one.name == "CUDA":
            checks.append(_told(one, found=cuda or "not told"))
        elif one.name in _TOLD:
            checks.append(_told(one))
        else:
            checks.append(one)
    if windows:
        checks.append(_libraries(facts, beside, cuda))
    return AuditedFile(
        file=path.name, sha256=sha256, version=facts.version, cuda=cuda, checks=tuple(checks)
    )


def _told(one: CheckResult, **changes: str) -> CheckResult:
    wanted = f"not checked: {_TOLD[one.name]}"
    return one.model_copy(
        update={"ok": True, "judged": False, "wanted": wanted, "detail": "", **changes}
    )


def _fits(facts: WheelFacts, python: str, platforms: Sequence[str]) -> CheckResult:
    tags = [tag for text in facts.tags for tag in parse_tag(text)]
    why = misfit(tags, python, platforms)
    shown = ", ".join(facts.tags[:_SHOWN])
    wanted = f"one that Python {python} takes there"
    return check("platform and Python", not why, shown, wanted, why, values=facts.tags)


def _machine(facts: WheelFacts, platform: str) -> CheckResult:
    """Of the modules: a library for another machine may lie there for a program that is one."""
    machine = machine_of([platform])
    other = [b for b in facts.binaries if b.pe is None or b.pe.machine != machine]
    bad = [binary.name for binary in other if binary.module]
    wanted = machine_name(machine)
    found = ", ".join(binary.name for binary in other[:_SHOWN]) or wanted
    why = f"{len(bad)} modules are not {wanted}" if bad else ""
    return check("machine", not bad, found, f"modules of {wanted}", why)


def _libraries(facts: WheelFacts, beside: Iterable[str], cuda: str) -> CheckResult:
    """DLLs that its binaries import and no wheel here has; a module may do without some of them."""
    imported = {name for binary in facts.binaries if binary.pe for name in binary.pe.imports}
    here = [*beside, *(binary.name for binary in facts.binaries)]
    lacking = absent(imported, here)
    one = check(
        "libraries",
        True,
        f"not here: {', '.join(lacking[:_SHOWN])}" if lacking else "all of those imported are here",
        "not checked: only its use shows which are needed",
        cure(lacking, cuda=cuda),
        values=sorted(lacking, key=lambda name: (not bringers(name), name)),
    )
    return one.model_copy(update={"judged": False})
