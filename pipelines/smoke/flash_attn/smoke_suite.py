"""What the shared part must know of this suite."""

from __future__ import annotations

import importlib.metadata

import smoke_gpu

TORCH = True
#: Of the build on torch's stable ABI: its library.
STABLE = ("flash_attn_2_cuda/_C.dll", "flash_attn_2_cuda/_C.so")


def is_stable() -> bool:
    """Whether the installed wheel is one for several releases of torch."""
    files = importlib.metadata.files("flash_attn") or ()
    return any(file.as_posix() in STABLE for file in files)


def __getattr__(name: str) -> object:
    """``MODULES``, of which a stable build has none for a torch without CUDA, and says so;
    ``ANY_TORCH``: its CUDA runtime is its own, and torch's may be another.
    """
    if name == "ANY_TORCH":
        return is_stable()
    if name != "MODULES":
        raise AttributeError(name)
    import torch

    modules = ("flash_attn_2_cuda", "flash_attn")
    return () if is_stable() and not torch.version.cuda else modules


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  other suites ask the GPU
    """Asked in a process of its own, after the import; more properties of the report."""
    return {"flash_attn": importlib.metadata.version("flash_attn")}


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
