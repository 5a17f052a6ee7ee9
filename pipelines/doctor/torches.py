"""Findings on what torch and MSVC need of a Windows that Wine is: C++ run-time, two variables.

Each names what it comes to: nothing of it says so by itself, or not in words that lead there.
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from pipelines.core.finding import Finding, Level
from pipelines.core.versions import known
from pipelines.doctor.model import Facts, Purpose, finding
from pipelines.remote.inspection.cxxruntime import LIBRARIES

AREA = "torch"
_RUNTIME = "C++ run-time"
_PROVISION = "invoke provision"
_WORST: tuple[Level, ...] = ("error", "unknown", "ok")
_UNSET = "take it out of what sets it there"
#: Levels of oneDNN that use AMX, see ONEDNN_MAX_CPU_ISA in its documentation; without the variable
#: the processor decides.
_AMX = ("DEFAULT", "ALL", "AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16", "AVX10_1_512_AMX",
        "AVX10_1_512_AMX_FP16", "AVX10_2_512_AMX_2")  # fmt: skip


def judge(facts: Facts, purpose: Purpose) -> Iterator[Finding]:
    """The run-time, for torch OpenMP and oneDNN; nothing where these come as on any Windows."""
    if not purpose.cxx_runtime:
        return
    told = facts.at("cxx_runtime")
    yield _runtime(told.at("libraries"), purpose.cxx_runtime)
    if not purpose.target.torch:
        return
    environment = told.at("environment")
    yield _variable(
        environment,
        "KMP_AFFINITY",
        "OpenMP",
        wrong=environment.text("KMP_AFFINITY") != "disabled",
        wanted="disabled",
        comes_to='import torch ends in "OMP: Error #179: GetNumaNodeProcessorMaskEx"',
    )
    level = environment.text("ONEDNN_MAX_CPU_ISA")
    yield _variable(
        environment,
        "ONEDNN_MAX_CPU_ISA",
        "oneDNN",
        wrong=level is None or level.upper() in _AMX,
        wanted="AVX512_CORE_FP16",
        comes_to="a product of bfloat16 ends in 0xC000001D on a processor with AMX",
    )


def _runtime(told: Facts, oldest: str) -> Finding:
    """Whether each library is there, Microsoft's, and new enough."""
    wanted = f"Microsoft's {oldest} or newer, beside python.exe"
    level: Level = "unknown"
    found = told.why
    if isinstance(told.tree, dict):
        judged = [_library(told.at(name), name, oldest) for name in LIBRARIES]
        level, found = min(judged, key=lambda one: _WORST.index(one[0]))
    return finding(AREA, _RUNTIME, level, found, wanted, _PROVISION if level == "error" else "")


def _library(told: Facts, name: str, oldest: str) -> tuple[Level, str]:
    """A library that torch, or what MSVC has built, imports."""
    path, version, own = told.text("path"), told.text("version"), told.flag("wine")
    if told.absent:
        return "error", f"{name}.dll is not there: what imports it ends in WinError 126"
    if own:
        return "error", f"{path} is Wine's own, with which torch crashed, hung or lost gradients"
    if own is None or version is None or not known(version):
        return "unknown", f"{name}.dll is not told of: {told.why}"
    # Python brings older ones of the others, and they will do: on Windows it is the same.
    if name == LIBRARIES[0] and Version(version) < Version(oldest):
        return "error", f"{path} is of {version}"
    return "ok", f"{path}, {version}"


def _variable(
    told: Facts, name: str, what: str, *, wrong: bool, wanted: str, comes_to: str
) -> Finding:
    if not isinstance(told.tree, dict):
        return finding(AREA, what, "unknown", told.why, f"{name}={wanted}")
    value = told.text(name)
    if not wrong:
        return finding(AREA, what, "ok", f"{name}={value}")
    found = f"{name}={value}: {comes_to}" if value is not None else f"no {name}: {comes_to}"
    hint = _UNSET if value is not None else "invoke host remove provision"
    return finding(AREA, what, "error", found, f"{name}={wanted}", hint)
