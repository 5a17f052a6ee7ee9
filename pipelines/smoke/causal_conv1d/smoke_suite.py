"""What the shared part must know of this suite."""

from __future__ import annotations

import smoke_gpu

TORCH = True
MODULES = ("causal_conv1d_cuda", "causal_conv1d")


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  other suites ask the GPU
    """Asked in a process of its own, after the import; more properties of the report."""
    import causal_conv1d

    return {"causal_conv1d": causal_conv1d.__version__}


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
