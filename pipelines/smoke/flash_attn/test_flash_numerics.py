"""Forward and backward against an exact answer; how exact is in :mod:`smoke_reference`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from smoke_batches import Record

if TYPE_CHECKING:
    from flash_check import Triple

pytestmark = pytest.mark.usefixtures("cuda")

DIMS = (32, 64, 96, 128, 192, 256)
#: No multiples of 32, so the kernels for the next one run with a part of it unused.
ODD_DIMS = (40, 59, 111, 160, 224)
SHAPES = ((113, 203), (384, 256), (1024, 1024))
HEADS = {"mha": (4, 4), "gqa": (6, 2), "mqa": (4, 1)}
WINDOWS = ((3, 0), (31, 0), (17, 40), (-1, 64), (200, -1))

dtypes = pytest.mark.parametrize("dtype", ["fp16", "bf16"])
causality = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "{}x{}".format(*shape))
@causality
@pytest.mark.parametrize("dim", DIMS)
@dtypes
def test_forward_and_backward(
    dtype: str, dim: int, causal: bool, shape: tuple[int, int], record_property: Record
) -> None:
    """Every head dimension; 384 queries over 256 keys have causal rows that see nothing."""
    import flash_check as fc

    rule = fc.Rule(causal=causal)
    fc.check(lambda n: fc.normal(dtype, shape, dim, (4, 4), n), rule, record_property)


@pytest.mark.parametrize("kind", ["gqa", "mqa"])
@causality
@pytest.mark.parametrize("dim", DIMS)
@dtypes
def test_grouped_heads(
    dtype: str, dim: int, causal: bool, kind: str, record_property: Record
) -> None:
    """Several heads of queries share one of keys and values; their gradients are summed."""
    import flash_check as fc

    rule = fc.Rule(causal=causal)
    fc.check(lambda n: fc.normal(dtype, (128, 217), dim, HEADS[kind], n), rule, record_property)


@causality
@pytest.mark.parametrize("dim", ODD_DIMS)
@dtypes
def test_odd_head_dimensions(dtype: str, dim: int, causal: bool, record_property: Record) -> None:
    """Wheels built without uneven head dimensions answer wrongly or refuse here."""
    import flash_check as fc

    rule = fc.Rule(causal=causal)
    fc.check(lambda n: fc.normal(dtype, (113, 203), dim, (4, 4), n), rule, record_property)


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: "{}to{}".format(*window))
@pytest.mark.parametrize("dim", [64, 128, 256])
@dtypes
def test_sliding_window(
    dtype: str, dim: int, window: tuple[int, int], record_property: Record
) -> None:
    """Only the keys from so many before to so many after the query's own place."""
    import flash_check as fc

    fc.need("window")
    rule = fc.Rule(window=window)
    fc.check(lambda n: fc.normal(dtype, (239, 512), dim, (4, 2), n), rule, record_property)


@causality
@pytest.mark.parametrize("dim", [64, 128, 192, 256])
@dtypes
def test_softcap(dtype: str, dim: int, causal: bool, record_property: Record) -> None:
    """Scores are bent to stay within 15; the queries are made long enough to get there."""
    import flash_check as fc

    fc.need("softcap")

    def make(batch: int) -> Triple:
        q, k, v = fc.normal(dtype, (256, 256), dim, (4, 4), batch)
        return (q.detach() * 8).requires_grad_(), k, v

    fc.check(make, fc.Rule(causal=causal, softcap=15.0), record_property)


@pytest.mark.parametrize("each", ["heads", "batch_and_heads"])
@causality
@pytest.mark.parametrize("dim", [64, 128, 256])
@dtypes
def test_alibi(dtype: str, dim: int, causal: bool, each: str, record_property: Record) -> None:
    """Scores fall with the distance, by a slope for each head, or of each batch entry too."""
    import flash_check as fc

    fc.need("alibi")
    fc.check(
        lambda n: fc.normal(dtype, (113, 203), dim, (4, 4), n),
        fc.Rule(causal=causal),
        record_property,
        alibi=lambda n: fc.slopes(4, n if each != "heads" else 0),
    )


@pytest.mark.parametrize("dim", [64, 128])
@dtypes
def test_all_at_once(dtype: str, dim: int, record_property: Record) -> None:
    """Causal, a window, ALiBi, grouped heads and a scale of one's own, together."""
    import flash_check as fc

    fc.need("alibi")
    fc.check(
        lambda n: fc.normal(dtype, (333, 491), dim, (6, 2), n),
        fc.Rule(causal=True, window=(100, 0), scale=0.07),
        record_property,
        alibi=lambda n: fc.slopes(6, n),
    )


@dtypes
def test_strided_inputs(dtype: str, record_property: Record) -> None:
    """q, k and v cut out of one packed tensor, as models do, give the same answer."""
    import flash_check as fc
    import torch

    def make(batch: int) -> Triple:
        q, k, v = fc.normal(dtype, (203, 203), 64, (4, 4), batch)
        packed = torch.stack([q.detach(), k.detach(), v.detach()], dim=2)
        q, k, v = (packed[:, :, i].requires_grad_() for i in range(3))
        return q, k, v

    fc.check(make, fc.Rule(causal=True), record_property)


@dtypes
def test_large_scores_stay_finite(dtype: str) -> None:
    """Scores of 512 and -512: the answer is the value of the one key that wins."""
    import flash_attn
    import flash_check as fc
    import torch

    q, k, v = fc.normal(dtype, (64, 300), 64, (2, 2), 1)
    winner = 217
    k = torch.full_like(k, -8.0)
    k[:, winner] = 8.0
    out = flash_attn.flash_attn_func(torch.full_like(q, 8.0), k, v)
    assert torch.isfinite(out).all()
    assert torch.equal(out, v[:, winner : winner + 1].expand_as(out))
