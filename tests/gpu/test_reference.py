"""The reference in PyTorch against the one in plain Python: two that share nothing.

Needs torch, no GPU.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest

SMOKE = Path(__file__).parents[2] / "pipelines" / "smoke"


@pytest.fixture(scope="module")
def references() -> Any:
    pytest.importorskip("torch")
    for name in ("common", "smoke_attention"):
        sys.path.append(str(SMOKE / name))
    return importlib.import_module("smoke_reference"), importlib.import_module("reference")


def by_hand(q: Any, k: Any, v: Any, rule: Any, slope: float) -> list[list[float]]:
    """One head, from the definition, key by key."""
    out = []
    for i, query in enumerate(q):
        place = i + len(k) - len(q)
        terms = []
        for j, key in enumerate(k):
            left, right = rule.window
            right = 0 if rule.causal else right
            if (left >= 0 and j < place - left) or (right >= 0 and j > place + right):
                continue
            score = math.fsum(x * y for x, y in zip(query, key, strict=True)) / math.sqrt(
                len(query)
            )
            if rule.softcap:
                score = rule.softcap * math.tanh(score / rule.softcap)
            terms.append((score - slope * abs(place - j), v[j]))
        highest = max((score for score, _ in terms), default=0.0)
        weights = [math.exp(score - highest) for score, _ in terms]
        total = math.fsum(weights)
        out.append(
            [
                math.fsum(w * row[c] for w, (_, row) in zip(weights, terms, strict=True)) / total
                if terms
                else 0.0
                for c in range(len(v[0]))
            ]
        )
    return out


@pytest.mark.parametrize("shape", [(7, 13), (13, 7), (9, 9)])
@pytest.mark.parametrize(
    "told",
    [
        {},
        {"causal": True},
        {"window": (2, 3)},
        {"window": (-1, 1)},
        {"causal": True, "window": (3, -1)},
        {"softcap": 1.5},
    ],
)
@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_both_agree(
    references: Any, told: dict[str, Any], shape: tuple[int, int], slope: float
) -> None:
    import torch  # type: ignore[import-not-found,unused-ignore]

    ours, plain = references
    source = random.Random(3)
    rows, columns = shape
    q, k, v = (
        [[source.gauss(0, 2) for _ in range(8)] for _ in range(n)] for n in (rows, columns, columns)
    )
    rule = ours.Rule(**told)
    tensors = [torch.tensor(each)[None, :, None, :] for each in (q, k, v)]
    bias = ours.slopes_bias(torch.tensor([slope]), rows, columns) if slope else None
    got = ours.attention(*tensors, rule, bias=bias)[0, :, 0]
    want = torch.tensor(by_hand(q, k, v, rule, slope))
    assert (got - want).abs().max().item() < 1e-5
    if not slope and set(told) <= {"causal"}:
        other = torch.tensor(plain.attention(q, k, v, causal=rule.causal))
        assert (got - other).abs().max().item() < 1e-5


def test_groups_and_gradients_reach_the_right_heads(references: Any) -> None:
    """Four heads of queries over two of keys: each pair as if it were alone."""
    import torch

    ours, _ = references
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 5, heads, 8, requires_grad=True) for heads in (4, 2, 2))
    out = ours.attention(q, k, v, ours.Rule(causal=True))
    for head in range(4):
        one = slice(head, head + 1)
        pair = slice(head // 2, head // 2 + 1)
        alone = ours.attention(q[:, :, one], k[:, :, pair], v[:, :, pair], ours.Rule(causal=True))
        assert torch.allclose(out[:, :, one], alone, atol=1e-6)
    (gradient,) = torch.autograd.grad(out[:, :, :2].sum(), (v,))
    assert gradient[:, :, 1].abs().max() == 0
    assert torch.allclose(gradient[:, :, 0].sum(0).sum(0), torch.full((8,), 10.0), atol=1e-5)


def test_a_tolerance_is_never_infinite(references: Any) -> None:
    """Where plain half precision overflows, nothing is allowed rather than everything."""
    import torch

    ours, _ = references
    good, bad = torch.ones(3), torch.tensor([1.0, math.inf, 1.0])
    assert ours.share(good, good, bad, 2.0, 1e-5) == math.inf
    assert ours.share(torch.full((3,), math.nan), good, good, 2.0, 1e-5) == math.inf
    assert ours.share(good, good, good, 2.0, 1e-5) == 0
