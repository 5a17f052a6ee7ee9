"""What the shared part must know of this suite."""

from __future__ import annotations

import smoke_gpu

TORCH = True
#: One wheel for every torch, with a CUDA run-time of its own: torch's CUDA may be another.
ANY_TORCH = True
MODULES = ("smoke_attention_torch",)


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  the same with and without
    """Asked in a process of its own, after the import; more properties of the report."""
    import smoke_attention_torch

    built = smoke_attention_torch.build_info()
    return {"cuda_toolkit": str(built["cuda"]), "built_with_torch": str(built["torch"])}


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
