"""A build on torch's stable ABI with a GPU that torch reaches; other builds skip all of it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

KIB = 1024
pytest_plugins = "flash_stable"
pytestmark = pytest.mark.usefixtures("cuda", "library")


@pytest.fixture
def module() -> Any:
    """The extension's module."""
    return importlib.import_module("flash_attn_2_cuda")


def test_generators_of_the_callers_are_refused(module: Any) -> None:
    """They cannot be asked through the stable ABI."""
    import flash_check as fc
    import torch

    q, k, v = (x.detach() for x in fc.normal("fp16", (8, 8), 64, (2, 2), 1))
    with pytest.raises(TypeError, match="default generator"):
        module.fwd(
            *(q, k, v, None, None, 0.1, 0.1, False, -1, -1, 0.0, False),
            torch.Generator(device="cuda"),
        )


def test_out_is_filled_and_returned(module: Any) -> None:
    """Of the caller's own tensor."""
    import flash_check as fc
    import torch

    q, k, v = (x.detach() for x in fc.normal("bf16", (100, 130), 64, (4, 2), 2))
    out = torch.full_like(q, 7)
    rest = (None, 0.0, 0.125, True, -1, -1, 0.0, False, None)
    got = module.fwd(q, k, v, out, *rest)[0]
    assert got.data_ptr() == out.data_ptr()
    assert torch.equal(out, module.fwd(q, k, v, None, *rest)[0])


def test_a_captured_graph_draws_new_numbers() -> None:
    """Dropout differs at each replay, and follows the seed."""
    import flash_attn
    import flash_check as fc
    import torch

    q, k, v = (x.detach() for x in fc.normal("fp16", (256, 256), 64, (2, 2), 1))
    flash_attn.flash_attn_func(q, k, v, dropout_p=0.5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = flash_attn.flash_attn_func(q, k, v, dropout_p=0.5)

    def replays(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        seen = []
        for _ in range(3):
            graph.replay()
            torch.cuda.synchronize()
            seen.append(captured.clone())
        return seen

    first, again = replays(3), replays(3)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])


def test_kernels_run_on_the_current_stream() -> None:
    """Behind what that stream still has to do."""
    import flash_attn
    import flash_check as fc
    import torch

    q, k, v = (x.detach() for x in fc.normal("fp16", (256, 256), 64, (2, 2), 1))
    want = flash_attn.flash_attn_func(q, k, v)
    late = torch.zeros_like(q)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        late.copy_(q)
        got = flash_attn.flash_attn_func(late, k, v)
    side.synchronize()
    assert torch.equal(got, want)


def test_pages_of_sequences_without_keys(module: Any) -> None:
    """Their softmax_lse is written where it belongs.

    https://github.com/vllm-project/flash-attention/issues/139
    """
    import flash_check as fc
    import torch

    rows, used = (3, 200, 1, 70), (0, 300, 0, 512)
    starts = torch.tensor((0, *rows)).cumsum(0).to(dtype=torch.int32, device="cuda")
    lengths = torch.tensor(used, dtype=torch.int32, device="cuda")
    q, k, v = (x.detach() for x in fc.normal("fp16", (sum(rows), 8 * 256), 64, (4, 2), 1))
    pages_k, pages_v = (x.reshape(8, 256, 2, 64) for x in (k, v))
    table = torch.arange(8, dtype=torch.int32, device="cuda").reshape(4, 2)
    room = 4 * sum(rows)
    # The next allocation of its size takes the place of this one: what is not written shows.
    torch.full((4, sum(rows)), -123.0, device="cuda")
    out, lse, _, _ = module.varlen_fwd(
        *(q[0], pages_k, pages_v, None, starts, starts, lengths, None, table, None),
        *(max(rows), 512, 0.0, 0.125, False, False, -1, -1, 0.0, False, None),
    )
    assert lse.numel() == room
    for i, (count, keys) in enumerate(zip(rows, used, strict=True)):
        at = slice(int(starts[i]), int(starts[i]) + count)
        if not keys:
            assert torch.isinf(lse[:, at]).all()
            assert not out[at].any()
            continue
        own_k, own_v = (
            x[2 * i : 2 * i + 2].reshape(1, 512, 2, 64)[:, :keys].repeat_interleave(2, 2)
            for x in (pages_k, pages_v)
        )
        scores = torch.einsum("bqhd,bkhd->bhqk", q[:, at].float(), own_k.float()) * 0.125
        want = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), own_v.float())
        assert (lse[:, at] - scores.logsumexp(-1)[0]).abs().max() < 1e-3
        assert (out[at].float() - want[0]).abs().max() < 4e-3


@pytest.mark.parametrize("name", ["fwd", "bwd", "varlen_fwd", "varlen_bwd", "fwd_kvcache"])
def test_torch_checks_the_operator(name: str, ops: Any) -> None:
    """Schema and fake tensors, as torch itself checks operators."""
    import flash_check as fc
    import torch

    q, k, v = (x.detach() for x in fc.normal("fp16", (128, 128), 64, (4, 2), 2))
    flat = [x.reshape(256, x.shape[2], 64) for x in (q, k, v)]
    starts = torch.tensor((0, 100, 256), dtype=torch.int32, device="cuda")
    kind = (0.0, 0.125, True, -1, -1, 0.0)
    arguments: dict[str, tuple[Any, ...]] = {
        "fwd": (q, k, v, None, *kind, False),
        "varlen_fwd": (
            *(*flat, starts, starts, None, None, None, None, 156, 156, 0.0, 0.125, False, True),
            *(-1, -1, 0.0, False),
        ),
        "fwd_kvcache": (
            *(q[:, :1], k, v, k[:, :1], v[:, :1], starts[1:] - 60, None, None, None, None, None),
            *(None, 0.125, True, -1, -1, 0.0, True, 0),
        ),
    }
    if name == "bwd":
        out, lse, _, _ = ops.fwd(*arguments["fwd"])
        grads = [torch.zeros_like(x) for x in (q, k, v)]
        arguments["bwd"] = (out, q, k, v, out, lse, *grads, None, *kind, True, None)
    elif name == "varlen_bwd":
        out, lse, _, _ = ops.varlen_fwd(*arguments["varlen_fwd"])
        grads = [torch.zeros_like(x) for x in flat]
        arguments["varlen_bwd"] = (
            *(out, *flat, out, lse, *grads, starts, starts, None, 156, 156, 0.0, 0.125, False),
            *(True, -1, -1, 0.0, True, None),
        )
    torch.library.opcheck(
        getattr(ops, name).default, arguments[name], test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.parametrize("dim", [64, 256])
def test_compiled_as_it_is(dim: int) -> None:
    """torch.compile gives the same numbers, in one graph, forward and backward."""
    import flash_attn
    import flash_check as fc
    import torch

    inputs = fc.normal("bf16", (200, 200), dim, (4, 2), 2)

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flash_attn.flash_attn_func(q, k, v, causal=True).float().mul(2)

    compiled = torch.compile(run, fullgraph=True)
    want, got = run(*inputs), compiled(*inputs)
    assert torch.equal(want, got)
    for a, b in zip(fc.gradients(want, inputs), fc.gradients(got, inputs), strict=True):
        assert (a - b).abs().max() <= 2**-6 * a.abs().max()


def test_dropout_in_wide_heads_is_in_the_gradient() -> None:
    """Head dimensions above 192: their gradient is the one of the same mask, where there is one."""
    import flash_attn
    import flash_check as fc
    import torch

    inputs = fc.normal("fp16", (64, 64), 256, (2, 2), 1)

    def run() -> torch.Tensor:
        torch.manual_seed(5)
        return flash_attn.flash_attn_func(*inputs, dropout_p=0.3)  # type: ignore[no-any-return]

    out = run()
    shared = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    if shared < 144 * KIB:
        with pytest.raises(RuntimeError, match="shared memory"):
            fc.gradients(out, inputs)
        return
    _, _, dv = fc.gradients(out, inputs)
    # out is linear in v: the same mask applied to v's own direction is what dv must agree with.
    q, k, _ = (x.detach() for x in inputs)
    source = torch.Generator(device="cuda").manual_seed(1)
    direction = torch.randn(out.shape, generator=source, device="cuda").to(out.dtype)
    torch.manual_seed(5)
    moved = flash_attn.flash_attn_func(q, k, direction, dropout_p=0.3)
    mine, theirs = (x.float() * direction.float() for x in (dv, moved))
    assert (mine.sum() - theirs.sum()).abs() <= 2e-2 * theirs.abs().sum()


def test_numbers_repeat_without_a_state(module: Any) -> None:
    """A backward that is not given rng_state draws its own: upstream reads a null pointer."""
    import flash_check as fc
    import torch

    q, k, v = (x.detach() for x in fc.normal("fp16", (64, 64), 64, (2, 2), 1))
    kind = (0.5, 0.125, False, -1, -1, 0.0)
    out, lse, _, _ = module.fwd(q, k, v, None, None, *kind, False, None)
    grads = module.bwd(out, q, k, v, out, lse, None, None, None, None, *kind, False, None, None)
    assert all(torch.isfinite(x).all() for x in grads[:3])
