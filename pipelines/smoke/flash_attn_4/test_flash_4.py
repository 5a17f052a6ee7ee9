"""Compiled here, run here, compared with attention from its definition."""

from __future__ import annotations

import pytest
from smoke_batches import Record

pytestmark = pytest.mark.usefixtures("gpu")

causality = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


@pytest.mark.parametrize("rows", [(113, 203), (1024, 1024)], ids=["odd", "even"])
@causality
@pytest.mark.parametrize("dim", [64, 128])
def test_forward_and_backward(
    dim: int, causal: bool, rows: tuple[int, int], record_property: Record
) -> None:
    """Lengths that fill its tiles and that do not."""
    import cute_check as cc

    cc.check(cc.normal("bf16", rows, dim, (4, 4)), cc.Rule(causal=causal), record_property)


@causality
def test_half_precision(causal: bool, record_property: Record) -> None:
    """The other type is another kernel."""
    import cute_check as cc

    cc.check(cc.normal("fp16", (300, 300), 128, (2, 2)), cc.Rule(causal=causal), record_property)


@pytest.mark.parametrize("heads", [(6, 2), (4, 1)], ids=["gqa", "mqa"])
def test_grouped_heads(heads: tuple[int, int], record_property: Record) -> None:
    """Several heads of queries share one of keys and values; their gradients are summed."""
    import cute_check as cc

    cc.check(cc.normal("bf16", (128, 217), 128, heads), cc.Rule(causal=True), record_property)


@pytest.mark.parametrize("window", [(31, 0), (17, 40)], ids=lambda window: "{}to{}".format(*window))
def test_sliding_window(window: tuple[int, int], record_property: Record) -> None:
    """Only the keys from so many before to so many after the query's own place."""
    import cute_check as cc

    inputs = cc.normal("bf16", (239, 512), 64, (4, 2))
    cc.check(inputs, cc.Rule(window=window), record_property, backward=False)


def test_softcap(record_property: Record) -> None:
    """Scores are bent to stay within 15; the queries are made long enough to get there."""
    import cute_check as cc

    inputs = cc.normal("bf16", (256, 256), 64, (4, 4), size=8.0)
    cc.check(inputs, cc.Rule(softcap=15.0), record_property, backward=False)


def test_a_scale_of_ones_own(record_property: Record) -> None:
    """Not that of the dimension."""
    import cute_check as cc

    inputs = cc.normal("bf16", (200, 200), 64, (2, 2))
    cc.check(inputs, cc.Rule(scale=0.3), record_property, backward=False)


@causality
def test_sequences_in_one_tensor(causal: bool, record_property: Record) -> None:
    """Of unequal lengths, one behind the other: none sees another."""
    import cute_check as cc
    import torch
    from flash_attn.cute import flash_attn_varlen_func
    from smoke_reference import FORWARD, FORWARD_SMALL, attention, share

    lengths = (70, 1, 200, 129)
    ends = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
    q, k, v = (one.detach()[0] for one in cc.normal("bf16", (400, 400), 64, (4, 2)))
    got = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q=ends,
        cu_seqlens_k=ends,
        max_seqlen_q=200,
        max_seqlen_k=200,
        causal=causal,
    )
    got = got[0] if isinstance(got, tuple) else got
    rule = cc.Rule(causal=causal)
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        part = tuple(one[None, begin:end] for one in (q, k, v))
        exact, plain = attention(*part, rule), attention(*part, rule, exact=False)
        error = share(got[None, begin:end], exact, plain, FORWARD, FORWARD_SMALL)
        record_property(f"error_of_tolerance.{begin}", f"{error:.3f}")
        assert error <= 1, (begin, end)


def test_large_scores_stay_finite() -> None:
    """Scores of 512 and -512: the answer is the value of the one key that wins."""
    import cute_check as cc
    import torch

    q, k, v = (one.detach() for one in cc.normal("fp16", (64, 300), 64, (2, 2)))
    winner = 217
    k = torch.full_like(k, -8.0)
    k[:, winner] = 8.0
    out = cc.called((torch.full_like(q, 8.0), k, v), cc.Rule())
    assert torch.isfinite(out).all()
    assert torch.equal(out, v[:, winner : winner + 1].expand_as(out))
