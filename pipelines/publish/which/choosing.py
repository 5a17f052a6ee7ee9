"""Which wheel of an index fits a machine, and what it would take where none does.

The index's page chooses by the same rules in the browser; its tests ask this for the answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.core.architectures.serving import BY_CODE, BY_PTX, runnable_code_kind
from pipelines.publish.which.listed import Row
from pipelines.publish.which.machine import Machine
from pipelines.publish.which.texts import (
    VersionKey,
    accepts_python,
    is_final_release,
    minor_of,
    version_key,
)

_FIRST_ABI3T = 15  # of Python 3


@dataclass(frozen=True)
class Judged:
    """A wheel held against a machine."""

    row: Row
    by: str
    """``machine code`` or ``PTX`` by which it runs on the GPUs; empty: by none."""
    missed: tuple[str, ...]
    """Each rule that it misses, in words with both values; empty: it fits."""

    @property
    def fits(self) -> bool:
        """Whether it misses none."""
        return not self.missed


def choose_wheel(rows: Iterable[Row], machine: Machine, package: str = "") -> Judged | None:
    """The best wheel for a machine, of ``package`` alone if it is named; else the nearest.

    ``None`` where the index has none.
    """
    judged = [judge_row(row, machine) for row in rows if package in ("", row.project)]
    return max(judged, key=lambda one: (-len(one.missed), *_candidate_sort_key(one)), default=None)


def _candidate_sort_key(
    one: Judged,
) -> tuple[bool, bool, bool, VersionKey, tuple[int, int], str, str]:
    row = one.row
    return (
        one.by == BY_CODE,
        row.tested,
        is_final_release(row.version),  # no installer takes another of itself
        version_key(row.version),
        minor_of(row.cuda),
        row.uploaded,
        row.file,  # so that the same one is named each time
    )


def judge_row(row: Row, machine: Machine) -> Judged:
    """One wheel by all rules."""
    by = _served(row, machine)
    rules = (
        _of_platform(row, machine),
        _python_mismatch(row, machine),
        _torch_mismatch(row, machine),
        _of_cuda(row, machine),
        _of_driver(row, machine, by),
        _of_gpus(row, machine, by),
    )
    return Judged(row, by, tuple(one for one in rules if one))


def _of_platform(row: Row, machine: Machine) -> str:
    has = {platform for *_, platform in row.tags}
    if has & {machine.platform, "any"}:
        return ""
    return f"it is for {' and '.join(sorted(has))}, but this Python is for {machine.platform}"


def _python_mismatch(row: Row, machine: Machine) -> str:
    if not any(runs_python(python, abi, machine.python) for python, abi, _ in row.tags):
        said = " and ".join(sorted({f"{python}-{abi}" for python, abi, _ in row.tags}))
        return f"it is for Python {said}, but this is Python {machine.python}"
    if not accepts_python(row.requires_python, machine.python):
        return f"it requires Python {row.requires_python}, but this is Python {machine.python}"
    return ""


def runs_python(python: str, abi: str, own: str) -> bool:
    """Whether a tag's Python and ABI are for the Python ``3.12``, or ``3.13t``."""
    if python == "py3" and abi == "none":
        return True
    found = re.fullmatch(r"(cp|py)3(\d{1,2})", python)
    if found is None:
        return False
    free = own.endswith("t")
    minor, has = int(found[2]), minor_of(own)[1]
    if abi in ("abi3", "abi3t"):  # https://peps.python.org/pep-0803/: of 3.15 and later
        alike = free == (abi == "abi3t") and (not free or has >= _FIRST_ABI3T)
        return alike and found[1] == "cp" and has >= minor
    if found[1] == "py":
        return abi == "none" and has >= minor
    return has == minor and abi in ("none", f"cp3{minor}{'t' * free}")


def _torch_mismatch(row: Row, machine: Machine) -> str:
    if not row.torch:
        return ""
    if not machine.torch:
        return f"it is for torch {row.torch}, but no torch is installed"
    own, wanted = minor_of(machine.torch), minor_of(row.torch)
    if own == wanted or (row.stable and own > wanted):
        return ""
    later = " and later" if row.stable else ""
    return f"it is for torch {row.torch}{later}, but this is torch {machine.torch}"


def _of_cuda(row: Row, machine: Machine) -> str:
    if not row.torch or not row.cuda or not machine.torch:
        return ""
    if not machine.cuda:
        return f"it is for CUDA {row.cuda}, but torch {machine.torch} is a build without CUDA"
    own, wanted = minor_of(machine.cuda), minor_of(row.cuda)
    if row.any_cuda or (own[0] == wanted[0] and wanted <= own):
        return ""
    return f"it is for CUDA {row.cuda}, but torch was built with CUDA {machine.cuda}"


def _of_driver(row: Row, machine: Machine, by: str) -> str:
    if not row.cuda:
        return ""
    if not machine.driver:
        return f"it is for CUDA {row.cuda}, but there is no NVIDIA driver"
    own, wanted = minor_of(machine.driver), minor_of(row.cuda)
    if own[0] < wanted[0] or (by == BY_PTX and own < wanted):
        how = "its PTX" if own[0] == wanted[0] else "it"
        return (
            f"{how} needs a driver for CUDA {row.cuda}, but this one is for CUDA {machine.driver}"
        )
    return ""


def _of_gpus(row: Row, machine: Machine, by: str) -> str:
    if by:
        return ""
    code = ", ".join([*row.sass, *(f"{one} as PTX" for one in row.ptx)]) or "no GPU"
    own = " and ".join(machine.gpus)
    return f"it has code for {code}, but " + (
        f"the GPU has compute capability {own}" if own else "there is no GPU"
    )


def _served(row: Row, machine: Machine) -> str:
    """By what it runs on every GPU of the machine; PTX if one of them has nothing better."""
    ways = [runnable_code_kind(row.sass, row.ptx, one.replace(".", "")) for one in machine.gpus]
    if not all(ways):
        return ""
    return BY_PTX if BY_PTX in ways else "".join(ways[:1])
