"""Forward attention as an operator of torch, from libraries that know nothing of Python.

Tensors are ``(batch, heads, seqlen, head_dim)``, float32 or float16, on the CPU or a GPU.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import torch

__all__ = ["CUDA_LIBRARY", "__version__", "attention", "attention_packed", "build_info"]

_HERE = Path(__file__).resolve().parent
_SUFFIX = ".dll" if sys.platform == "win32" else ".so"
_CPU_LIBRARY = _HERE / f"_cpu{_SUFFIX}"
#: The kernels, and the operators on a GPU. Any program may load it for what ``launch.h`` has.
CUDA_LIBRARY = _HERE / f"_cuda{_SUFFIX}"
_DLL_DIRECTORIES: list[object] = []  # a directory stays registered while its handle lives

if sys.platform == "win32":
    # cudart64_13.dll comes with torch, from the nvidia-cuda-runtime wheel beside us, or a toolkit.
    _places = [_HERE.parent / "nvidia" / "cu13" / "bin" / "x86_64"]
    if os.environ.get("CUDA_PATH"):
        _toolkit = Path(os.environ["CUDA_PATH"])
        _places += [_toolkit / "bin" / "x86_64", _toolkit / "bin"]
    _DLL_DIRECTORIES += [os.add_dll_directory(str(p.resolve())) for p in _places if p.is_dir()]

torch.ops.load_library(str(_CPU_LIBRARY))
if torch.version.cuda:
    torch.ops.load_library(str(CUDA_LIBRARY))


def build_info() -> dict[str, Any]:
    """Return how this wheel was built: version, sass, ptx, CUDA release, torch, least torch."""
    return cast(
        "dict[str, Any]", json.loads((_HERE / "_build_info.json").read_text(encoding="utf-8"))
    )


__version__: str = build_info()["version"]


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return ``softmax(scale * q @ k.T) @ v``, contiguous, in the shape and dtype of ``q``.

    ``scale`` is ``1 / sqrt(head_dim)`` unless given. ``causal`` is aligned to the bottom-right
    corner: query ``i`` sees key ``j`` if ``j <= i + seqlen_k - seqlen_q``; a query that sees no key
    gives zeros. Raises ``RuntimeError`` for tensors that do not fit, and for what CUDA reports.
    """
    return torch.ops.smoke_attention_torch.attention(q, k, v, causal, scale)


def attention_packed(
    qkv: torch.Tensor, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Return the same of one tensor that is ``(batch, 3, heads, seqlen, head_dim)``."""
    return torch.ops.smoke_attention_torch.attention_packed(qkv, causal, scale)


@torch.library.register_fake("smoke_attention_torch::attention")
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,  # noqa: ARG001  the operator's
    scale: float | None = None,  # noqa: ARG001
) -> torch.Tensor:
    # Tensors of two devices, one of them "meta", come here as well: the answer would be no answer.
    torch._check(q.device == k.device == v.device, lambda: "k and v must be on the device of q")
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@torch.library.register_fake("smoke_attention_torch::attention_packed")
def _(
    qkv: torch.Tensor,
    causal: bool = False,  # noqa: ARG001  the operator's
    scale: float | None = None,  # noqa: ARG001
) -> torch.Tensor:
    return torch.empty_like(qkv[:, 0], memory_format=torch.contiguous_format)
