"""Whether a wheel was built with what it says, and with what was asked for, as its modules tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from packaging.version import Version

from pipelines.core.units import few
from pipelines.core.versions import minor
from pipelines.record.toolsets import MSVC, STAND_IN, ToolSet, stamped
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Order, Result, check, unless
from pipelines.wheels.libraries import bringers
from pipelines.wheels.linked import RUN_TIMES
from pipelines.wheels.metadata import WheelFacts


@check("toolset", "tool set")
def toolset(facts: WheelFacts, order: Order | None = None) -> Iterator[Result]:
    """What tells of another tool set is wrong; all of it must tell.

    Without a tool set in the order only what the wheel's own name says is compared.
    """
    if not any(not binary.name.endswith(".so") for binary in facts.binaries):
        return
    asked = order.toolset if order else None
    named = stamped(Version(facts.version).local or "")
    wrong = []
    if asked is not None and named is not None and named.stamp != asked.stamp:
        own = f"'{asked.stamp}'" if asked.stamp else "no such stamp"
        wrong.append(f"its name says '{named.stamp}', wheels of this host have {own}")
    if asked is not None and asked.stamp and named is None:
        wrong.append(f"its name has no '{asked.stamp}', which {{local_version}} gives a build")
    told, unread = set(), []
    for binary in facts.binaries:
        if not binary.module and _brought(binary):
            continue
        linked = binary.pe.linked if binary.pe else None
        maker, why = linked.maker if linked else (None, binary.problem or "no Windows binary")
        if linked is None or maker is None:
            unread.append(f"{binary.name} ({why})")
        else:
            told.add(f"{maker.name} {linked.linker}")
        wrong += _against(binary, asked, named)
    found = ", ".join(sorted(told)) or "not read"
    if unread:
        names = few(unread, "; ")
        found += f"; not read: {names}" if told else f": {names}"
    wanted = asked or named
    yield Result(
        "error" if wrong else unless(unread or not told, "unknown"),
        found,
        wanted.label if wanted else "",
        few(wrong, "; "),
        values=sorted(told),
    )


def _against(binary: Binary, asked: ToolSet | None, named: ToolSet | None) -> Iterator[str]:
    """What a module tells that cannot be, if these are true."""
    linked = binary.pe.linked if binary.pe else None
    if linked is None:
        return
    maker, why = linked.maker
    if maker is None:
        if linked.contradicts and asked is not None:
            yield f"{binary.name}: {why}"
        return
    for one in filter(None, (asked, named)):
        if maker.name != one.name:
            yield f"{binary.name} was built with {maker.name}, not with {one.name} ({why})"
            return
        if maker is MSVC and one.version and minor(one.version) != linked.linker:
            yield f"{binary.name} was built with {maker.name} {linked.linker}, not {one.version}"


def _brought(binary: Binary) -> bool:
    """Whether it is a library of others: of C's run-time, or NVIDIA's, by its name.

    Of neither the stand-in has made one.
    """
    name = PurePosixPath(binary.name).name.lower()
    linked = binary.pe.linked if binary.pe else None
    own = linked is not None and linked.maker[0] is STAND_IN
    return not own and (name.startswith(RUN_TIMES) or bool(bringers(name)))
