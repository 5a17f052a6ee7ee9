"""The kernel on a GPU, against plain Python. Every test here skips, and says why, without one."""

from __future__ import annotations

import math

import pytest
import reference
from reference import Rows, normal, pack, unpack
from smoke_batches import Record
from smoke_gpu import Device

pytestmark = pytest.mark.usefixtures("gpu")

DTYPES = ("float32", "float16")
HEAD_DIMS = (32, 64, 96, 128)
SHAPES = ((1, 1), (17, 33), (128, 128), (200, 64), (64, 200))

# float32: a score is a dot product of up to 128 terms near 1, scaled down to about 1. Its rounding
# error is some 1e-6, becomes a relative error of the weights, and sums over 200 keys add as much
# again. 2e-5 is ten times that; a wrong mask or a lost key costs 1e-2.
FLOAT32_ERROR = 2e-5
# float16: the inputs are exact and sums are float32, so only rounding the result comes on top: half
# a unit in the last of 11 bits, or half the smallest subnormal.
FLOAT16_RELATIVE, FLOAT16_SMALLEST = 2.0**-11, 2.0**-25


def run(q: Rows, k: Rows, v: Rows, dtype: str, *, causal: bool, heads: int = 1) -> Rows:
    """Run the kernel on rows (of all heads, one head after the other)."""
    import smoke_attention

    out = smoke_attention.attention(
        pack(q, dtype),
        pack(k, dtype),
        pack(v, dtype),
        batch=1,
        heads=heads,
        head_dim=len(q[0]),
        seqlen_q=len(q) // heads,
        seqlen_k=len(k) // heads,
        dtype=dtype,
        causal=causal,
    )
    return unpack(out, len(q[0]), dtype)


def worst(got: Rows, want: Rows, dtype: str, error: float = FLOAT32_ERROR) -> float:
    """Return the largest error as a share of what is tolerated: above 1 is wrong, NaN is inf."""
    assert len(got) == len(want)
    share = 0.0
    for got_row, want_row in zip(got, want, strict=True):
        for x, y in zip(got_row, want_row, strict=True):
            allowed = error
            if dtype == "float16":
                allowed += max(FLOAT16_RELATIVE * abs(y), FLOAT16_SMALLEST)
            share = max(share, abs(x - y) / allowed if math.isfinite(x) else math.inf)
    return share


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "{}x{}".format(*shape))
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_plain_python(
    dtype: str, head_dim: int, causal: bool, shape: tuple[int, int], record_property: Record
) -> None:
    """Every value agrees with an exact two-pass softmax in double precision."""
    seqlen_q, seqlen_k = shape
    q = normal("q", seqlen_q, head_dim, dtype)
    k = normal("k", seqlen_k, head_dim, dtype)
    v = normal("v", seqlen_k, head_dim, dtype)
    want = reference.attention(q, k, v, causal=causal)
    share = worst(run(q, k, v, dtype, causal=causal), want, dtype)
    record_property("error_of_tolerance", f"{share:.3f}")
    assert share <= 1


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_do_not_mix(dtype: str, causal: bool) -> None:
    """Five heads in one call give what each gives alone, bit for bit."""
    heads, seqlen_q, seqlen_k, head_dim = 5, 37, 41, 64
    q = normal("q", heads * seqlen_q, head_dim, dtype)
    k = normal("k", heads * seqlen_k, head_dim, dtype)
    v = normal("v", heads * seqlen_k, head_dim, dtype)
    alone: Rows = []
    for h in range(heads):
        keys = slice(h * seqlen_k, (h + 1) * seqlen_k)
        queries = slice(h * seqlen_q, (h + 1) * seqlen_q)
        alone += run(q[queries], k[keys], v[keys], dtype, causal=causal)
    assert run(q, k, v, dtype, causal=causal, heads=heads) == alone


@pytest.mark.parametrize("order", ["rising", "falling", "random"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_logits_stay_finite(dtype: str, order: str) -> None:
    """Scores in the thousands, highest last, first or anywhere, give the right answer, no NaN."""
    head_dim, seqlen = 64, 160
    q = normal("q", 8, head_dim, dtype, 30)
    k = normal("k", seqlen, head_dim, dtype, 30)
    if (
        order != "random"
    ):  # along q[0]: every tile of keys raises the maximum, or none after the first
        k.sort(key=lambda key: sum(map(lambda x, y: x * y, q[0], key)), reverse=order == "falling")
    v = normal("v", seqlen, head_dim, dtype)
    # Scores near 3000 carry an error near 1e-4 in float32, and so do the weights.
    want = reference.attention(q, k, v, causal=False)
    assert worst(run(q, k, v, dtype, causal=False), want, dtype, error=5e-3) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_huge_logits_give_the_mean(dtype: str) -> None:
    """With all scores the same, however large, the answer is the plain mean of the values."""
    head_dim, seqlen = 96, 100
    q, k = [[3e4] * head_dim], [[3e4] * head_dim] * seqlen
    v = normal("v", seqlen, head_dim, dtype)
    mean = [math.fsum(column) / seqlen for column in zip(*v, strict=True)]
    got = run(reference.rounded(q, dtype), reference.rounded(k, dtype), v, dtype, causal=False)
    assert worst(got, [mean], dtype) <= 1


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_causal_rows_without_a_visible_key_are_zero(dtype: str, head_dim: int) -> None:
    """64 queries over 17 keys: the first 47 see none, and their output is exactly zero."""
    from smoke_attention import _core

    queries, keys = 64, 17
    q, k, v = (
        pack(normal(name, rows, head_dim, dtype), dtype)
        for name, rows in (("q", queries), ("k", keys), ("v", keys))
    )
    out = bytearray(b"\xff" * len(q))  # NaN everywhere: a row left out would stay NaN
    _core.forward(q, k, v, out, 1, 1, queries, keys, head_dim, dtype, True, 0.1)
    rows = unpack(bytes(out), head_dim, dtype)
    assert all(x == 0 for row in rows[: queries - keys] for x in row)
    assert all(math.isfinite(x) and x != 0 for row in rows[queries - keys :] for x in row)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_runs_are_bit_identical(dtype: str) -> None:
    """The same input twice gives the same bytes."""
    import smoke_attention

    seqlen, head_dim = 500, 128
    q, k, v = (pack(normal(name, seqlen, head_dim, dtype), dtype) for name in "qkv")
    arguments = {"batch": 1, "heads": 1, "seqlen_q": seqlen, "seqlen_k": seqlen}
    first, second = (
        smoke_attention.attention(q, k, v, head_dim=head_dim, dtype=dtype, **arguments)
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_sequence(dtype: str) -> None:
    """4096 causal queries over 4096 keys: sampled rows agree with plain Python."""
    seqlen, head_dim = 4096, 64
    q, k, v = (normal(name, seqlen, head_dim, dtype) for name in "qkv")
    got = run(q, k, v, dtype, causal=True)
    columns = [list(column) for column in zip(*v, strict=True)]
    for row in (0, 1, 31, 32, 2047, 2048, 4094, 4095):
        want = reference.attention_row(q[row], k[: row + 1], columns, 1 / math.sqrt(head_dim))
        assert worst([got[row]], [want], dtype) <= 1, f"row {row}"


def test_cuda_errors_name_the_cause_and_pass() -> None:
    """An error of CUDA's raises RuntimeError in CUDA's own words, and the next call works again."""
    from smoke_attention import _core

    with pytest.raises(RuntimeError, match=r"invalid device ordinal \(CUDA error 101\)"):
        _core.device_info(9999)
    one = [[1.0] * 32]
    assert run(one, one, one, "float32", causal=False) == one


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_throughput(dtype: str, head_dim: int, gpu: Device, record_property: Record) -> None:
    """Time 32 heads of 2048 x 2048, recorded as properties and never judged."""
    import smoke_attention

    heads, seqlen = 32, 2048
    milliseconds = smoke_attention.time_attention(
        batch=1, heads=heads, head_dim=head_dim, seqlen=seqlen, dtype=dtype
    )
    teraflops = 4 * heads * seqlen**2 * head_dim / milliseconds / 1e9
    record_property("gpu", gpu["name"])
    record_property("milliseconds", f"{milliseconds:.3f}")
    record_property("tflops", f"{teraflops:.2f}")
    assert milliseconds > 0
