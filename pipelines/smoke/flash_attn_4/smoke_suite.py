"""What the shared part must know of this suite."""

from __future__ import annotations

from importlib.metadata import version

import smoke_gpu

TORCH = True
MODULES = ("cutlass.cute", "flash_attn.cute")


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  other suites ask the GPU
    """Asked in a process of its own, after the import; more properties of the report."""
    names = ("nvidia-cutlass-dsl", "apache-tvm-ffi", "quack-kernels")
    return {name: version(name) for name in names}


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
