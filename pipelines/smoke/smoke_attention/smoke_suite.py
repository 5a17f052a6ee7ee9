"""What the shared part must know of this suite."""

from __future__ import annotations

import smoke_gpu

TORCH = False
MODULES = ("smoke_attention",)


def facts(*, gpu: bool) -> dict[str, str]:
    """Asked in a process of its own, after the import; more properties of the report."""
    import smoke_attention

    properties = {"cuda_toolkit": str(smoke_attention.build_info().get("cuda", ""))}
    devices = smoke_attention.devices() if gpu else []  # none as well where the driver is too old
    if devices:
        number = devices[0]["runtime_version"]
        properties["cuda_runtime"] = f"{number // 1000}.{number % 1000 // 10}"
    return properties


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
