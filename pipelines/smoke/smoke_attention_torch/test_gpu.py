"""The operators on a GPU, through torch. A torch without CUDA has no such half: its cases skip and
say so; the kernels are then called by pointer, see ``test_pointers.py``."""

from __future__ import annotations

import pytest
from smoke_batches import Record

pytestmark = pytest.mark.usefixtures("cuda")

DTYPES = ("float32", "float16")
SHAPES = ((1, 1), (17, 33), (128, 128), (200, 64), (64, 200))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "{}x{}".format(*shape))
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [32, 64, 96, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_torch(
    dtype: str, head_dim: int, causal: bool, shape: tuple[int, int], record_property: Record
) -> None:
    """Every value is near torch's answer in float64."""
    import attending
    import smoke_attention_torch

    tensors = [x.cuda() for x in attending.inputs(1, *shape, head_dim, dtype)]
    got = smoke_attention_torch.attention(*tensors, causal=causal)
    assert got.device == tensors[0].device
    want = attending.exact(tensors, causal=causal)
    share = attending.worst(got, want, dtype, attending.GPU_ERROR)
    record_property("error_of_tolerance", f"{share:.3f}")
    assert share <= 1


def test_strides_and_packed() -> None:
    """Tensors that are not contiguous; all three in one tensor."""
    import attending
    import smoke_attention_torch
    import torch

    q, k, v = (x.cuda() for x in attending.inputs(2, 30, 30, 64, "float16"))
    want = attending.exact((q, k, v), causal=True, scale=0.3)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    packed = torch.stack((q, k, v), dim=1)
    for got in (
        smoke_attention_torch.attention(*turned, True, 0.3),
        smoke_attention_torch.attention_packed(packed, True, 0.3),
    ):
        assert attending.worst(got, want, "float16", attending.GPU_ERROR) <= 1


def test_it_runs_on_the_current_stream() -> None:
    """Behind a long kernel on a stream of its own it waits for what that stream writes."""
    import attending
    import smoke_attention_torch
    import torch

    q, k, v = (x.cuda() for x in attending.inputs(3, 64, 64, 64, "float32"))
    want = attending.exact((q, k, v), causal=False)
    late, stream = torch.full_like(q, float("nan")), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # cycles: some 0.1 s
        late.copy_(q)
        got = smoke_attention_torch.attention(late, k, v)
    stream.synchronize()
    assert attending.worst(got, want, "float32", attending.GPU_ERROR) <= 1


@pytest.mark.parametrize(
    ("said", "shape", "device"),
    [
        ("head_dim must be 32, 64, 96 or 128 on a GPU, is 40", (1, 2, 3, 40), "cuda"),
        ("device", (1, 2, 3, 32), "cpu"),
    ],
)
def test_what_is_wrong_is_a_runtime_error(said: str, shape: tuple[int, ...], device: str) -> None:
    """An exception of C++ arrives as RuntimeError with its words, and the next call works."""
    import torch
    from smoke_attention_torch import attention

    q = torch.ones(*shape, device="cuda")
    with pytest.raises(RuntimeError, match=said):
        attention(q, q.to(device), q)
    one = torch.ones(1, 1, 1, 32, device="cuda")
    assert torch.equal(attention(one, one, one), one)


def test_torch_checks_the_operator() -> None:
    """Schema, fake tensors, dispatch under torch.compile: as torch itself checks operators."""
    import attending
    import torch

    tensors = [x.cuda() for x in attending.inputs(4, 5, 7, 32, "float32")]
    operator = torch.ops.smoke_attention_torch.attention.default
    checked = torch.library.opcheck(operator, (*tensors, True))
    assert set(checked.values()) == {"SUCCESS"}, checked
