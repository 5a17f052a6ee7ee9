"""Whether a wheel's modules were built with the toolset of its name and of the order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from packaging.version import Version

from pipelines.core.toolsets import MSVC, STUB, Toolset, local_version_toolset
from pipelines.core.units import join_first
from pipelines.core.versions import minor_release
from pipelines.wheels.binary import Binary
from pipelines.wheels.checking import Order, Result, level_if_wrong, wheel_check
from pipelines.wheels.libraries import library_providers
from pipelines.wheels.linker import RUN_TIMES
from pipelines.wheels.metadata import WheelFacts


@wheel_check("toolset", "toolset")
def stated_toolset(facts: WheelFacts, order: Order | None = None) -> Iterator[Result]:
    """Every binary must state its toolset, and none another one.

    Without a toolset in the order only the wheel's own name is compared.
    """
    if not any(not binary.name.endswith(".so") for binary in facts.binaries):
        return
    requested = order.toolset if order else None
    named = local_version_toolset(Version(facts.version).local or "")
    wrong = []
    if requested is not None and named is not None and named.stamp != requested.stamp:
        own = f"'{requested.stamp}'" if requested.stamp else "none"
        wrong.append(f"its name has '{named.stamp}', but wheels from this host have {own}")
    if requested is not None and requested.stamp and named is None:
        wrong.append(f"its name has no '{requested.stamp}', which {{local_version}} adds to builds")
    makers, unread = set(), []
    for binary in facts.binaries:
        if not binary.module and _is_third_party(binary):
            continue
        linked = binary.pe.linked if binary.pe else None
        maker, why = linked.maker if linked else (None, binary.problem or "not a Windows binary")
        if linked is None or maker is None:
            unread.append(f"{binary.name} ({why})")
        else:
            makers.add(f"{maker.name} {linked.linker}")
        wrong += _contradictions(binary, requested, named)
    actual = ", ".join(sorted(makers)) or "not read"
    if unread:
        names = join_first(unread, "; ")
        actual += f"; not read: {names}" if makers else f": {names}"
    expected = requested or named
    yield Result(
        "error" if wrong else level_if_wrong(unread or not makers, "unknown"),
        actual,
        expected.label if expected else "",
        join_first(wrong, "; "),
        values=sorted(makers),
    )


def _contradictions(
    binary: Binary, requested: Toolset | None, named: Toolset | None
) -> Iterator[str]:
    """How a module contradicts the requested and the named toolset."""
    linked = binary.pe.linked if binary.pe else None
    if linked is None:
        return
    maker, why = linked.maker
    if maker is None:
        if linked.contradicts and requested is not None:
            yield f"{binary.name}: {why}"
        return
    for stated in filter(None, (requested, named)):
        if maker.name != stated.name:
            yield f"{binary.name} was built with {maker.name}, not with {stated.name} ({why})"
            return
        if maker is MSVC and stated.version and minor_release(stated.version) != linked.linker:
            yield f"{binary.name} was built with {maker.name} {linked.linker}, not {stated.version}"


def _is_third_party(binary: Binary) -> bool:
    """Whether it is a library of others, the C runtime's or NVIDIA's, by its name.

    The stub toolchain never builds one of these.
    """
    name = PurePosixPath(binary.name).name.lower()
    linked = binary.pe.linked if binary.pe else None
    own = linked is not None and linked.maker[0] is STUB
    return not own and (name.startswith(RUN_TIMES) or bool(library_providers(name)))
