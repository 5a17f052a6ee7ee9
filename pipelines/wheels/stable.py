"""Whether a wheel uses only torch's stable C shim and Python's limited API, and which versions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from packaging.tags import parse_tag
from packaging.version import Version

from pipelines.core.architectures.serving import is_of_toolkit
from pipelines.core.extras import require_extra
from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model
from pipelines.core.units import join_first
from pipelines.wheels.checking import Result, level_if_wrong, wheel_check
from pipelines.wheels.imports import demangle_symbol
from pipelines.wheels.metadata import Depth, WheelFacts
from pipelines.wheels.packaging import wheel_requirements
from pipelines.wheels.petables import Need
from pipelines.wheels.pythonabi import tag_python_version

_TORCH = ("torch", "c10")  # how its DLLs begin
_SHIM = ("aoti_torch_", "torch_")  # how names of its C shim begin
_LIMITED = "python3.dll"
_BOUND = re.compile(r"python3(\d{1,2})(t?)\.dll", re.IGNORECASE)
_SHOWN = 20


class Stable(Model):
    """The ABIs that a wheel's Windows binaries use."""

    torch: Literal["none", "stable", "unstable", "unknown"]
    """``none``: nothing is imported from torch. ``stable``: only its C shim."""
    least_torch: str = ""
    """The oldest torch with all used functions of the shim, such as ``2.10.0``."""
    beyond_torch: tuple[str, ...] = ()
    """Symbols of torch outside the shim: the first few, demangled."""
    python: Literal["none", "limited", "bound", "unknown"]
    """``limited``: only python3.dll, works with later Pythons. ``bound``: to specific versions."""
    least_python: str = ""
    """The oldest Python whose limited API has everything used, such as ``3.9``."""
    bound_to: tuple[str, ...] = ()
    """Versions whose own DLL is imported, such as ``3.11``."""
    beyond_python: tuple[str, ...] = ()
    """Symbols that are not in python3.dll: the first few."""
    unread: tuple[str, ...] = ()
    """Binaries whose imports could not be read."""


def stable_of(facts: WheelFacts) -> Stable | None:
    """The result by the tables of torch-abi-audit and abi3info; ``None`` without Windows binaries.

    What the tables do not list is ``unknown``: a release may be newer than they are.
    """
    every = [binary for binary in facts.binaries if not binary.name.endswith(".so")]
    if not every:
        return None
    unread = [b.name for b in every if b.pe is None or b.pe.needs is None or b.pe.late is None]
    needs = {n for b in every if b.pe for n in (*(b.pe.needs or ()), *(b.pe.late or ()))}
    libraries = {name.lower() for b in every if b.pe for name in b.pe.imports}
    return Stable(
        **_classify_torch_symbols(
            {name for library, name in needs if library.startswith(_TORCH)}, unread
        ),
        **_classify_python_imports(needs, libraries | {library for library, _ in needs}, unread),
        unread=tuple(safe_line(name) for name in unread[:_SHOWN]),
    )


def is_stable(facts: WheelFacts) -> bool:
    """Whether it imports only the stable C shim from torch."""
    stable = stable_of(facts)
    return stable is not None and stable.torch == "stable"


def wants_toolkit(facts: WheelFacts) -> bool:
    """Whether a Windows binary imports a DLL of CUDA's toolkit, or its imports cannot be read."""
    images = [one.pe for one in facts.binaries if not one.name.endswith(".so")]
    if any(pe is None or pe.late is None for pe in images):
        return True
    late = (library for pe in images if pe for library, _ in pe.late or ())
    libraries = (*late, *(library for pe in images if pe for library in pe.imports))
    return any(map(is_of_toolkit, libraries))


def _classify_torch_symbols(names: set[str], unread: Collection[str]) -> dict[str, Any]:
    """Classify the symbols imported from torch's DLLs."""
    beyond = sorted(name for name in names if not name.startswith(_SHIM))
    shim = _shim() if names and not beyond else {}
    unlisted = sorted(name for name in names if name not in shim)
    state = "unstable" if beyond else "unknown" if unread or unlisted else "stable"
    return {
        "torch": state if names or unread else "none",
        "least_torch": _newest_dotted_version(shim[name] for name in names)
        if state == "stable" and names
        else "",
        "beyond_torch": tuple(demangle_symbol(name) for name in (beyond or unlisted)[:_SHOWN]),
    }


def _classify_python_imports(
    needs: set[Need], libraries: set[str], unread: Collection[str]
) -> dict[str, Any]:
    """Classify what is imported from python3.dll and from version-specific DLLs."""
    matches = [_BOUND.fullmatch(name) for name in libraries]
    bound = {f"3.{match[1]}{match[2]}" for match in matches if match}
    names = {name for library, name in needs if library == _LIMITED}
    added = _limited_api_versions() if names else {}
    beyond = sorted(name for name in names if name not in added)
    used = bound or _LIMITED in libraries
    state = "bound" if bound else "unknown" if unread or beyond else "limited"
    limited = state == "limited" and names
    return {
        "python": state if used or unread else "none",
        "least_python": _newest_dotted_version(added[name] for name in names) if limited else "",
        "bound_to": tuple(sorted(bound, key=lambda version: (len(version), version))),
        "beyond_python": tuple(safe_line(name) for name in beyond[:_SHOWN]),
    }


def _newest_dotted_version(versions: Iterable[tuple[int, ...]]) -> str:
    return ".".join(map(str, max(versions)))


def _shim() -> Mapping[str, tuple[int, ...]]:
    require_extra("abi")
    from torch_abi_audit.torch_versions import stable_shim_versions

    return stable_shim_versions()


def _limited_api_versions() -> dict[str, tuple[int, ...]]:
    """Symbols of the limited API -> the version that added them."""
    require_extra("abi")
    import abi3info

    every = (*abi3info.FUNCTIONS.values(), *abi3info.DATAS.values())
    return {entry.symbol.name: (entry.added.major, entry.added.minor) for entry in every}


@wheel_check("stable-abi", "stable ABI", Depth.TABLES)
def stable_abi(facts: WheelFacts) -> Iterator[Result]:
    """Whether the ABIs match its tags and METADATA."""
    stable = stable_of(facts)
    if stable is None:
        return
    tag, older = _false_abi3_claim(facts, stable), _older(facts, stable)
    torches = {
        "none": "torch not used",
        "stable": f"torch's stable ABI, {stable.least_torch} or later",
        "unstable": "torch's unstable ABI (one version only)",
        "unknown": "torch's not checked",
    }
    pythons = {
        "none": "Python not used",
        "limited": f"Python's limited API, {stable.least_python or '3.2'} or later",
        "bound": f"Python {', '.join(stable.bound_to)} only",
        "unknown": "Python's not checked",
    }
    unknown = "unknown" in (stable.torch, stable.python)
    beyond = (*stable.beyond_python, *stable.beyond_torch) if unknown else ()
    yield Result(
        "error" if tag else "warning" if older else level_if_wrong(unknown, "unknown"),
        f"{torches[stable.torch]}; {pythons[stable.python]}",
        hint="; ".join(filter(None, (tag, older))) or join_first(beyond, "; ", 3),
    )


def _false_abi3_claim(facts: WheelFacts, stable: Stable) -> str:
    """What an abi3 tag promises that is not true."""
    tags = [tag for text in facts.tags for tag in parse_tag(text)]
    stated = [
        Version(version)
        for tag in tags
        if tag.abi == "abi3" and (version := tag_python_version(tag))
    ]
    if {tag.abi for tag in tags} != {"abi3"} or not stated or not stable.least_python:
        return ""
    if Version(stable.least_python) <= min(stated):
        return ""
    return f"tagged for Python {min(stated)}, but needs {stable.least_python}"


def _older(facts: WheelFacts, stable: Stable) -> str:
    """Whether METADATA accepts a torch that is older than the shim needs.

    Plain ``torch`` is accepted: a bound would make pip replace a CUDA build by the index's.
    """
    if stable.torch != "stable":
        return ""
    minor = int(stable.least_torch.split(".")[1])
    for requirement in wheel_requirements(facts):
        old = [f"2.{n}.0" for n in range(minor) if requirement.specifier.contains(f"2.{n}.0")]
        if (
            requirement.name.lower() == "torch"
            and requirement.specifier
            and requirement.marker is None
            and old
        ):
            accepts = f"'{safe_line(requirement, 80)}' accepts torch {old[0]}"
            return f"{accepts}, but needs {stable.least_torch}"
    return ""
