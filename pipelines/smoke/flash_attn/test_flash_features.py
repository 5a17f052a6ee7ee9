"""Dropout, packed sequences of different lengths, the cache of keys and values, determinism."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from smoke_batches import Record

if TYPE_CHECKING:
    import torch
    from flash_check import Triple

pytestmark = pytest.mark.usefixtures("cuda")

dtypes = pytest.mark.parametrize("dtype", ["fp16", "bf16"])
causality = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


@pytest.mark.parametrize("dim", [64, 128])
@dtypes
def test_dropout_drops_what_it_says(dtype: str, dim: int, record_property: Record) -> None:
    """The kernel's own mask, made visible: its rate, its scaling, and its use in the backward.

    With the identity for values the answer is the matrix of weights after dropout. The same seed
    gives the same mask for other values, so ``dv`` must be that matrix, transposed, times ``dout``.
    """
    import flash_attn
    import flash_check as fc
    import torch
    from smoke_reference import gap

    p, batch, heads, rows = 0.17, 2, 4, 512
    q, k, v = fc.normal(dtype, (rows, dim), dim, (heads, heads), batch)
    identity = torch.eye(dim, device="cuda").to(q.dtype)[None, :, None, :]

    def run(values: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(11)
        return flash_attn.flash_attn_func(q, k, values, dropout_p=p)  # type: ignore[no-any-return]

    dropped = run(identity.expand_as(v).contiguous()).detach()  # (batch, rows, heads, keys)
    scores = torch.einsum("bqhd,bkhd->bqhk", q.float(), k.float()) / math.sqrt(dim)
    kept = torch.softmax(scores, dim=-1) / (1 - p)
    mask = dropped != 0
    ulp = 2.0 ** (-10 if dtype == "fp16" else -7)
    large = kept > 1e-4  # below, half precision may round a weight to zero by itself
    assert ((dropped.float() - kept).abs() <= kept * 2 * ulp + 1e-6)[mask].all()
    rate = 1 - mask[large].float().mean().item()
    record_property("dropout_rate", f"{rate:.4f} of {p}")
    # The kernel compares with a random byte, so its rate is a multiple of 1/256.
    assert abs(rate - p) < 1 / 256 + 5 * math.sqrt(p * (1 - p) / int(large.sum()))

    out = run(v)
    direction = torch.randn_like(out)
    (dv,) = torch.autograd.grad(out, (v,), direction)
    want = torch.einsum("bqhk,bqhd->bkhd", torch.where(mask, kept, 0.0), direction.float())
    answer = torch.einsum("bqhk,bkhd->bqhd", torch.where(mask, kept, 0.0), v.float())
    # Sums over 512 rows of weights that were rounded: a few units of the last place of the sum.
    assert gap(out, answer) <= 4 * ulp * answer.abs().max().item()
    assert gap(dv, want) <= 4 * ulp * want.abs().max().item()


@pytest.mark.parametrize("dim", [32, 64, 128, 256])
@dtypes
def test_dropout_follows_the_seed(dtype: str, dim: int) -> None:
    """The same seed gives the same bits, another one others, and no dropout is no dropout."""
    import flash_attn
    import flash_check as fc
    import torch

    inputs = fc.normal(dtype, (217, 217), dim, (4, 2), 2)

    def run(seed: int, p: float) -> torch.Tensor:
        torch.manual_seed(seed)
        return flash_attn.flash_attn_func(*inputs, dropout_p=p, causal=True).detach()

    assert torch.equal(run(1, 0.3), run(1, 0.3))
    assert not torch.equal(run(1, 0.3), run(2, 0.3))
    assert torch.equal(run(1, 0.0), run(2, 0.0))


@pytest.mark.parametrize("dim", [32, 64, 128, 256])
@dtypes
def test_forward_is_deterministic(dtype: str, dim: int) -> None:
    """The same input twice gives the same bits."""
    import flash_attn
    import flash_check as fc
    import torch

    inputs = fc.normal(dtype, (1024, 1024), dim, (4, 4), 2)
    first, second = (flash_attn.flash_attn_func(*inputs, causal=True) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("dim", [64, 128, 256])
@dtypes
def test_backward_is_deterministic_where_asked(dtype: str, dim: int) -> None:
    """With ``deterministic=True`` the gradients are the same bits every time."""
    import flash_attn
    import flash_check as fc
    import torch

    fc.need("deterministic")
    inputs = fc.normal(dtype, (777, 777), dim, (4, 2), 2)

    def run() -> Triple:
        out = flash_attn.flash_attn_func(*inputs, causal=True, deterministic=True)
        return fc.gradients(out, inputs)

    try:
        runs = [run() for _ in range(3)]
    except RuntimeError as error:
        fc.documented(error)
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


@causality
@pytest.mark.parametrize("dim", [32, 64, 128, 256])
@dtypes
def test_packed_sequences(dtype: str, dim: int, causal: bool, record_property: Record) -> None:
    """Sequences of different lengths, one of one token, in one call: each as if it were alone."""
    import flash_attn
    import flash_check as fc
    import torch

    lengths_q, lengths_k = (113, 1, 256, 40), (203, 17, 256, 512)
    parts = [
        fc.normal(dtype, pair, dim, (4, 2), 1, seed=seed)
        for seed, pair in enumerate(zip(lengths_q, lengths_k, strict=True))
    ]
    packed = tuple(
        torch.cat([part[i][0].detach() for part in parts]).requires_grad_() for i in range(3)
    )

    def starts(lengths: tuple[int, ...]) -> torch.Tensor:
        ends = torch.tensor((0, *lengths)).cumsum(0)
        return ends.to(dtype=torch.int32, device="cuda")

    bounds = starts(lengths_q), starts(lengths_k)
    out = flash_attn.flash_attn_varlen_func(
        *packed, *bounds, max(lengths_q), max(lengths_k), causal=causal
    )
    # Each part's own direction, as the comparison uses it.
    directions = []
    for part in parts:
        source = torch.Generator(device="cuda").manual_seed(1)
        shape = part[0].shape
        directions.append(torch.randn(shape, generator=source, device="cuda").to(out.dtype)[0])
    try:
        grads = torch.autograd.grad(out, packed, torch.cat(directions))
    except RuntimeError as error:
        fc.documented(error)
    rule = fc.Rule(causal=causal)
    for number, part in enumerate(parts):
        a, b = (slice(int(each[number]), int(each[number + 1])) for each in bounds)
        own = (grads[0][a][None], grads[1][b][None], grads[2][b][None])
        errors = fc.shares((out[a][None], own), part, rule, None)
        fc.verdict({f"{name}.{number}": value for name, value in errors.items()}, record_property)


def cached(kind: str, dtype: str, dim: int, causal: bool) -> dict[str, float]:
    """Decode with a cache of keys and values, and compare; ``kind`` is how the cache is used."""
    import flash_attn
    import flash_check as fc
    import torch
    from smoke_reference import FORWARD, FORWARD_SMALL, attention, share

    batch, size, new, heads = 3, 512, 5, (4, 2)
    q, k_cache, v_cache = (t.detach() for t in fc.normal(dtype, (new, size), dim, heads, batch))
    _, k_new, v_new = (t.detach() for t in fc.normal(dtype, (new, new), dim, heads, batch, seed=9))
    used = torch.tensor((100, 507, 7), dtype=torch.int32, device="cuda")
    options: dict[str, object] = {"causal": causal}
    k_all, v_all = k_cache.clone(), v_cache.clone()
    if kind == "append":
        options |= {"k": k_new, "v": v_new}
        for i, n in enumerate(used.tolist()):
            k_all[i, n : n + new], v_all[i, n : n + new] = k_new[i], v_new[i]
        ends = [n + new for n in used.tolist()]
    else:
        ends = used.tolist()
    if kind == "paged":
        page = 256
        order = torch.randperm(batch * size // page, generator=torch.Generator().manual_seed(3))
        table = order.reshape(batch, size // page).to(dtype=torch.int32, device="cuda")
        options["block_table"] = table
        pages = table.flatten().long()
        for name, cache in (("k", k_cache), ("v", v_cache)):
            blocks = torch.empty_like(cache).reshape(-1, page, heads[1], dim)
            blocks[pages] = cache.reshape(-1, page, heads[1], dim)
            if name == "k":
                k_cache = blocks
            else:
                v_cache = blocks
    out = flash_attn.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=used, **options)
    if kind == "append":
        assert torch.equal(k_cache, k_all)
        assert torch.equal(v_cache, v_all)
    rule = fc.Rule(causal=causal)
    shares = {}
    for i, end in enumerate(ends):
        inputs = q[i : i + 1], k_all[i : i + 1, :end], v_all[i : i + 1, :end]
        exact, plain = (attention(*inputs, rule, exact=each) for each in (True, False))
        # Upstream's factor for the cache is 3: partial answers are joined once more.
        shares[f"out.{i}"] = share(out[i : i + 1], exact, plain, 1.5 * FORWARD, FORWARD_SMALL)
    return shares


@pytest.mark.parametrize("kind", ["plain", "append", "paged"])
@causality
@pytest.mark.parametrize("dim", [64, 128, 256])
@dtypes
def test_cache_of_keys_and_values(
    dtype: str, dim: int, causal: bool, kind: str, record_property: Record
) -> None:
    """Decoding reads what the cache holds so far, appends in place, and follows a page table."""
    import flash_check as fc

    if kind == "paged":
        fc.need("paged", "flash_attn_with_kvcache")
    fc.verdict(cached(kind, dtype, dim, causal), record_property)
