"""Attention in plain PyTorch, from its definition: nothing is shared with the code under test.

**How exact must a kernel be?** The true error of an fp16 answer is not known in advance: it
depends on the head dimension, the length and the values. Upstream's own tests
(``tests/test_flash_attn.py`` of FlashAttention) therefore compare two errors: that of the kernel
and that of a plain PyTorch implementation in the same half precision, both against the same
inputs in fp32. The kernel keeps scores and sums in fp32, so it should be the better one; it may be
at most twice as far off forward and three times backward (upstream's factors for the general
case; with ALiBi, or keys appended to a cache, upstream allows more, see ``LOOSER``). A small
absolute part, upstream's as well, is for cases in which plain PyTorch happens to be exact. A
wrong mask, a lost tile or a wrong head costs some hundred times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

FORWARD, BACKWARD = 2.0, 3.0
FORWARD_SMALL, BACKWARD_SMALL = 1e-5, 2e-4
#: ALiBi: upstream's tests take 5 forward and 8 backward, where its bias dominates the scores.
LOOSER = 2.5


@dataclass(frozen=True)
class Rule:
    """What attention is to be computed; sizes are in keys, ``-1`` is no limit."""

    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    scale: float | None = None


def visible(rows: int, columns: int, rule: Rule, device: torch.device | str) -> torch.Tensor:
    """``(rows, columns)``, True where a query sees a key; aligned to the bottom-right corner."""
    query = torch.arange(rows, device=device)[:, None] + (columns - rows)
    key = torch.arange(columns, device=device)[None, :]
    seen = torch.ones(rows, columns, dtype=torch.bool, device=device)
    left, right = rule.window
    if rule.causal:
        right = 0
    if left >= 0:
        seen &= key >= query - left
    if right >= 0:
        seen &= key <= query + right
    return seen


def slopes_bias(slopes: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """ALiBi's bias ``-slope * |distance|``: ``(batch or 1, heads, rows, columns)``, fp32."""
    query = torch.arange(rows, device=slopes.device)[:, None] + (columns - rows)
    key = torch.arange(columns, device=slopes.device)[None, :]
    distance = (query - key).abs().float()
    slopes = slopes.float() if slopes.dim() > 1 else slopes.float()[None]
    return -slopes[:, :, None, None] * distance


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rule: Rule,
    *,
    bias: torch.Tensor | None = None,
    exact: bool = True,
) -> torch.Tensor:
    """``q`` and the answer are ``(batch, rows, heads, dim)``; ``k`` and ``v`` may have fewer heads.

    ``exact``: all in fp32. Else all in the inputs' precision, with the scale put on the keys: as
    good an implementation as any, and what its error is measured for. Rows that see no key are 0.
    """
    own = q.dtype
    if exact:
        q, k, v = q.float(), k.float(), v.float()
    groups = q.shape[2] // k.shape[2]
    k, v = (each.repeat_interleave(groups, dim=2) for each in (k, v))
    scale = rule.scale if rule.scale is not None else 1 / math.sqrt(q.shape[3])
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))  # (batch, heads, rows, dim)
    left, right = (q * scale, k) if exact else (q, k * scale)
    scores = left @ right.transpose(2, 3)
    if rule.softcap > 0:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    seen = visible(scores.shape[2], scores.shape[3], rule, scores.device)
    scores = scores.masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores, dim=-1).masked_fill(~seen.any(-1, keepdim=True), 0.0)
    return (weights @ v).transpose(1, 2).to(own)


def gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference; infinite if either has something that is no number."""
    worst = (one.float() - other.float()).abs().max().item()
    return worst if math.isfinite(worst) else math.inf


def share(
    got: torch.Tensor, exact: torch.Tensor, plain: torch.Tensor, factor: float, small: float
) -> float:
    """The error as a part of what is tolerated (see the module): above 1 is wrong."""
    usual = gap(plain, exact)
    if got.shape != exact.shape or math.isinf(usual):  # a tolerance of infinity would allow all
        return math.inf
    return gap(got, exact) / (factor * usual + small)
