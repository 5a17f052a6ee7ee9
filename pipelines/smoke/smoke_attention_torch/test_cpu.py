"""The operators on the CPU, against torch's own attention in float64. No GPU is needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from smoke_batches import Record

THREADS, CALLS = 16, 25
DTYPES = ("float32", "float16")
SHAPES = ((1, 1), (17, 33), (128, 128), (200, 64), (64, 200))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "{}x{}".format(*shape))
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [32, 40, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_torch(
    dtype: str, head_dim: int, causal: bool, shape: tuple[int, int], record_property: Record
) -> None:
    """Every value is torch's answer in float64, rounded once."""
    import attending
    import smoke_attention_torch

    tensors = attending.inputs(1, *shape, head_dim, dtype)
    got = smoke_attention_torch.attention(*tensors, causal=causal)
    want = attending.exact(tensors, causal=causal)
    share = attending.worst(got, want, dtype, attending.CPU_ERROR)
    record_property("error_of_tolerance", f"{share:.3f}")
    assert share <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_strides_and_packed(dtype: str) -> None:
    """A scale of one's own; tensors that are not contiguous; all three in one tensor."""
    import attending
    import smoke_attention_torch
    import torch

    q, k, v = attending.inputs(2, 30, 30, 64, dtype)
    want = attending.exact((q, k, v), causal=True, scale=0.3)
    turned = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v)]
    packed = torch.stack((q, k, v), dim=1)
    for got in (
        smoke_attention_torch.attention(q, k, v, True, 0.3),
        smoke_attention_torch.attention(*turned, True, 0.3),
        smoke_attention_torch.attention_packed(packed, True, 0.3),
        torch.ops.smoke_attention_torch.attention(q, k, v, causal=True, scale=0.3),
    ):
        assert got.is_contiguous()
        assert attending.worst(got, want, dtype, attending.CPU_ERROR) <= 1


def test_large_logits_stay_finite() -> None:
    """Scores in the thousands give the right answer, no NaN."""
    import attending
    import smoke_attention_torch

    tensors = attending.inputs(3, 8, 160, 64, "float32", size=30.0)
    want = attending.exact(tensors, causal=False)
    got = smoke_attention_torch.attention(*tensors)
    assert attending.worst(got, want, "float32", 1e-9) <= 1


def _wrong() -> dict[str, object]:
    """Calls that must not be answered, by a part of what is said."""
    import torch
    from smoke_attention_torch import attention, attention_packed

    def ones(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
        return torch.ones(*shape, dtype=dtype, device=device)

    q = ones(1, 2, 3, 32)
    return {
        "q must be float32 or float16": lambda: attention(q.double(), q.double(), q.double()),
        "k must have the dtype of q": lambda: attention(q, q.half(), q),
        "q must be .*has 3 dimensions": lambda: attention(q[0], q, q),
        "v must be .*has 5 dimensions": lambda: attention(q, q, q[None]),
        "k has 3 at dimension 1, q has 2": lambda: attention(q, ones(1, 3, 3, 32), q),
        "v has 64 at dimension 3, q has 32": lambda: attention(q, q, ones(1, 2, 3, 64)),
        "same seqlen, have 3 and 4": lambda: attention(q, q, ones(1, 2, 4, 32)),
        "empty tensor": lambda: attention(q[:, :, :0], q, q),
        "scale must be finite": lambda: attention(q, q, q, scale=float("nan")),
        "device of q": lambda: attention(q, q, ones(1, 2, 3, 32, device="meta")),
        # Of these it is torch that finds out, and the library that passes its error on.
        r"qkv must be .*torch says": lambda: attention_packed(ones(1, 2, 2, 3, 32)),
        r"qkv must be .*torch says:": lambda: attention_packed(ones(3)),
        "qkv has 4 parts at dimension 1": lambda: attention_packed(ones(1, 4, 2, 3, 32)),
    }


@pytest.mark.parametrize("number", range(13))
def test_what_is_wrong_is_a_runtime_error(number: int, record_property: Record) -> None:
    """An exception of C++ arrives as RuntimeError with its words, and the next call works."""
    import smoke_attention_torch
    import torch

    wrong = _wrong()
    assert len(wrong) == 13
    said, call = [*wrong.items()][number]
    record_property("said", said)
    with pytest.raises(RuntimeError, match=said):
        call()  # type: ignore[operator]
    one = torch.ones(1, 1, 1, 32)
    assert torch.equal(smoke_attention_torch.attention(one, one, one), one)


def test_a_device_without_an_operator_says_so() -> None:
    """A sparse tensor is none that it knows: torch refuses it before anything is computed."""
    import torch
    from smoke_attention_torch import attention

    q = torch.ones(1, 2, 3, 32)
    with pytest.raises((RuntimeError, NotImplementedError)):
        attention(q.to_sparse(), q.to_sparse(), q.to_sparse())


@pytest.mark.parametrize("name", ["attention", "attention_packed"])
def test_torch_checks_the_operator(name: str) -> None:
    """Schema, fake tensors, dispatch under torch.compile: as torch itself checks operators."""
    import attending
    import torch

    q, k, v = attending.inputs(4, 5, 7, 32, "float32")
    arguments = (q, k, v, True) if name == "attention" else (torch.stack((k, k, v), 1), True, 0.5)
    operator = getattr(torch.ops.smoke_attention_torch, name).default
    checked = torch.library.opcheck(operator, arguments)
    assert set(checked.values()) == {"SUCCESS"}, checked
    assert "mutable" not in str(operator._schema)
    assert not operator._schema.is_mutable


def test_many_threads() -> None:
    """Threads of Python that call it at once, some of them wrongly, do not disturb each other."""
    import attending
    import smoke_attention_torch
    import torch

    tensors = attending.inputs(5, 40, 50, 32, "float32")
    want = smoke_attention_torch.attention(*tensors, causal=True)

    def call(number: int) -> bool:
        for _ in range(CALLS):
            if number % 4 == 0:
                with pytest.raises(RuntimeError, match="dtype of q"):
                    smoke_attention_torch.attention(tensors[0], tensors[1].half(), tensors[2])
            elif not torch.equal(smoke_attention_torch.attention(*tensors, causal=True), want):
                return False
        return True

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(call, range(THREADS)))
