"""What both halves need: inputs, torch's own attention in float64, and what may differ from it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

DTYPES = {"float32": torch.float32, "float16": torch.float16}
SHAPES = ((1, 1), (17, 33), (128, 128), (200, 64), (64, 200))

#: Of the answer, half a unit in its last place; and half the smallest subnormal.
ROUNDING = {"float32": (2.0**-24, 2.0**-150), "float16": (2.0**-11, 2.0**-25)}
#: The CPU sums in double: what is left is the rounding of the answer, some 1e-13 of it.
CPU_ERROR = 1e-12
#: The GPU sums in float32: see the suite of smoke-attention, whose kernels these are.
GPU_ERROR = 2e-5


def inputs(
    seed: int, queries: int, keys: int, head_dim: int, dtype: str, *, size: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Reproducible normal values on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    made = (
        torch.randn(2, 2, rows, head_dim, generator=generator) * size
        for rows in (queries, keys, keys)
    )
    q, k, v = (tensor.to(DTYPES[dtype]) for tensor in made)
    return q, k, v


def exact(
    tensors: Sequence[torch.Tensor], *, causal: bool, scale: float | None = None
) -> torch.Tensor:
    """torch's own attention in float64, on the CPU; a query that sees no key is 0."""
    q, k, v = (tensor.detach().cpu().double() for tensor in tensors)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if causal:
        mask = mask.tril(k.shape[2] - q.shape[2])
    seen = mask.any(-1)
    answer = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask | ~seen[:, None], scale=scale
    )
    return answer * seen[:, None]


def worst(got: torch.Tensor, want: torch.Tensor, dtype: str, error: float) -> float:
    """The largest error as a share of what is tolerated: above 1 is wrong, NaN is inf."""
    assert got.dtype == DTYPES[dtype]
    assert got.shape == want.shape
    relative, smallest = ROUNDING[dtype]
    allowed = error + (want.abs() * relative).clamp(min=smallest)
    share = ((got.cpu().double() - want).abs() / allowed).max().item()
    return share if math.isfinite(share) else math.inf
