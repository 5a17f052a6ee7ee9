"""What the shared part must know of this suite."""

from __future__ import annotations

import importlib.metadata

import smoke_gpu

TORCH = True
#: Of the build on torch's stable ABI: its library.
STABLE = ("flash_attn_2_cuda/_C.dll", "flash_attn_2_cuda/_C.so")


def _is_stable() -> bool:
    try:
        files = importlib.metadata.files("flash_attn") or ()
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(file.as_posix() in STABLE for file in files)


#: One wheel for every torch, with a CUDA runtime of its own: torch's CUDA may be another.
ANY_TORCH = _is_stable()


def __getattr__(name: str) -> tuple[str, ...]:
    """``MODULES``: such a build has none for a torch without CUDA, and says so."""
    if name != "MODULES":
        raise AttributeError(name)
    if ANY_TORCH:
        import torch

        if not torch.version.cuda:
            return ()
    return ("flash_attn_2_cuda", "flash_attn")


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  other suites ask the GPU
    """Asked in a process of its own, after the import; more properties of the report."""
    return {"flash_attn": importlib.metadata.version("flash_attn")}


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
