"""Which machine code and which PTX run on which GPU, and which libraries are of one CUDA release.

Standard library only: this file is also a part of ``which.py``, which an index serves.
"""

from __future__ import annotations

from collections.abc import Iterable

BY_CODE, BY_PTX = "machine code", "PTX"
_TOOLKIT = (
    *("cudart", "cublas", "cufft", "cupti", "curand", "cusolver", "cusparse", "cudnn", "npp"),
    *("nvjitlink", "nvjpeg", "nvrtc", "c10_cuda", "torch_cuda"),
)


def arch_number(arch: str) -> int:
    """``90a`` and its like as the number that GPUs report: 90."""
    return int(arch.rstrip("af"))


def code_runs_on(code: str, gpu: str, *, ptx: bool = False) -> bool:
    """Whether machine code for ``code`` runs on a GPU of ``gpu`` (``89``); with ``ptx`` its PTX.

    Machine code serves newer GPUs of its own major version, PTX every newer one; an ``a`` target
    that very one, an ``f`` target its family.
    """
    own, other = arch_number(code), arch_number(gpu)
    if own == other:
        return True
    near = own // 10 == other // 10
    return own < other and not code.endswith("a") and (near or (ptx and code.isdigit()))


def runnable_code_kind(sass: Iterable[str], ptx: Iterable[str], gpu: str) -> str:
    """By what code of one unit, or of a whole wheel, runs on a GPU; empty: by none."""
    if any(code_runs_on(code, gpu) for code in sass):
        return BY_CODE
    return BY_PTX if any(code_runs_on(code, gpu, ptx=True) for code in ptx) else ""


def is_of_toolkit(library: str) -> bool:
    """Whether a DLL belongs to a CUDA release, or is torch's for one; the driver's does not."""
    return library.lower().startswith(_TOOLKIT)
