"""What torch is against what it was to be: its release, its kind, what the wheel promises."""

from __future__ import annotations

import re

import smoke_suite
from smoke_probe import Torch


def numbers(version: str) -> tuple[int, int]:
    """Major and minor release; zeros where it is none."""
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def other_torch(torch: Torch, asked: str | None) -> str:
    """Another torch than the one that was asked for is no answer to what was asked."""
    loaded = torch.get("version", "")
    if asked and loaded and numbers(loaded) != numbers(asked):
        return f"torch {asked} was asked for, and torch {loaded} was loaded"
    return ""


def cpu_torch(torch: Torch) -> str:
    """Why it is no build without CUDA that can be relied on, where such a one is to be here."""
    if torch["cuda"] or torch["hip"]:
        other = f"CUDA {torch['cuda']}" if torch["cuda"] else f"ROCm {torch['hip']}"
        return f"torch {torch['version']} has {other}, and a CPU build was to be here"
    if torch["wine_runtime"]:
        where = torch["wine_runtime"]
        return f"torch has Wine's own C++ run-time, {where}, with which it lost gradients before"
    return ""


def promise(version: str, torch: Torch, warnings: list[str]) -> str:
    """What a local version like ``+cu12torch2.8cxx11abiTRUE`` promises against what is here.

    A package for any torch has its own CUDA runtime, which may differ from torch's.
    """
    _, _, local = version.partition("+")
    if not torch or not local:
        return ""
    wrong = []
    if (found := re.search(r"torch(\d+)\.(\d+)", local)) is not None:
        wanted = f"{found[1]}.{found[2]}"
        if numbers(torch["version"]) != numbers(wanted):
            wrong.append(f"it is for torch {wanted}, here is {torch['version']}")
    if (found := re.search(r"cu(\d{2})\d*", local)) is not None and torch["cuda"]:  # noqa: SIM102
        if numbers(torch["cuda"])[0] != int(found[1]):
            differ = f"it is for CUDA {found[1]}, torch here has {torch['cuda']}"
            (warnings if getattr(smoke_suite, "ANY_TORCH", False) else wrong).append(differ)
    if (found := re.search(r"cxx11abi(true|false)", local, re.IGNORECASE)) is not None:  # noqa: SIM102
        if (found[1].lower() == "true") != torch["cxx11abi"]:
            wrong.append(f"its cxx11abi is {found[1].upper()}, torch's is {torch['cxx11abi']}")
    return f"version {version} says: {'; '.join(wrong)}" if wrong else ""
