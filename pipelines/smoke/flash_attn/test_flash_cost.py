"""Memory and time. The growth of memory is judged; speed is recorded and never judged."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from smoke_batches import Record

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.usefixtures("cuda")

BACKENDS = ("math", "mem_efficient", "flash")


def peak(batch: int, length: int) -> int:
    """Bytes at the highest point of a forward and backward, beyond the inputs."""
    import flash_attn
    import flash_check as fc
    import torch

    inputs = fc.normal("fp16", (length, length), 64, (8, 8), batch)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = flash_attn.flash_attn_func(*inputs, causal=True)
    torch.autograd.grad(out.sum(), inputs)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def test_memory_is_linear_in_the_sequence_length(record_suite: Record) -> None:
    """Twice the length takes about twice the memory; a matrix of scores would take four times.

    A megabyte or so is taken whatever the length, so the ratio stays a little below 2.
    """
    import smoke_batches
    import torch

    def run(batch: int) -> tuple[int, int]:
        return peak(batch, 4096), peak(batch, 8192)

    def said(name: str, value: object) -> None:
        record_suite(f"memory.{name}", value)

    short, long = smoke_batches.shrinking(4, run, said, torch.cuda.empty_cache)
    record_suite("memory.peak_mib_at_8192", f"{long / 2**20:.1f}")
    record_suite("memory.growth_4096_to_8192", f"{long / short:.2f}")
    assert 1.5 < long / short < 2.5


@contextlib.contextmanager
def sdpa(backend: str) -> Iterator[None]:
    """Let PyTorch use this back-end alone; the way to say it changed with 2.3."""
    import torch

    if hasattr(torch.nn, "attention") and hasattr(torch.nn.attention, "sdpa_kernel"):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        chosen = {
            "math": SDPBackend.MATH,
            "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
            "flash": SDPBackend.FLASH_ATTENTION,
        }[backend]
        with sdpa_kernel(chosen):
            yield
    else:
        only = {f"enable_{name}": name == backend for name in BACKENDS}
        with torch.backends.cuda.sdp_kernel(**only):
            yield


def milliseconds(run: Callable[[], object]) -> float:
    """The median of ten runs after three for warming up, by the GPU's own clock."""
    import torch

    for _ in range(3):
        run()
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", ["forward", "both"])
@pytest.mark.parametrize("dim", [64, 128])
def test_speed(
    dim: int, way: str, backend: str, record_property: Record, record_suite: Record
) -> None:
    """Time against PyTorch's own attention, 16 causal heads of 2048: a ratio above 1 is faster."""
    import flash_attn
    import flash_check as fc
    import smoke_batches
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    def timed(call: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> float:
        if way == "forward":
            with torch.no_grad():
                return milliseconds(lambda: call(*inputs))
        return milliseconds(lambda: torch.autograd.grad(call(*inputs).sum(), inputs))

    def run(batch: int) -> tuple[float, float, int]:
        inputs = fc.normal("fp16", (2048, 2048), dim, (16, 16), batch)
        own = timed(lambda q, k, v: flash_attn.flash_attn_func(q, k, v, causal=True), inputs)
        turned = tuple(x.detach().transpose(1, 2).contiguous().requires_grad_() for x in inputs)
        with sdpa(backend):
            theirs = timed(
                lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True), turned
            )
        return own, theirs, batch

    try:
        own, theirs, batch = smoke_batches.shrinking(
            4, run, record_property, torch.cuda.empty_cache
        )
    except RuntimeError as error:
        if "No available kernel" in str(error):
            pytest.skip(f"torch {torch.__version__} has no {backend} back-end here")
        raise
    operations = 4 * batch * 16 * 2048**2 * dim / 2 * (1 if way == "forward" else 3.5)
    record_property("shape", f"{way}.hdim{dim}")
    record_property("milliseconds", f"{own:.3f}")
    record_property("tflops", f"{operations / own / 1e9:.1f}")
    record_property(f"milliseconds_{backend}", f"{theirs:.3f}")
    record_suite(f"speed.{way}.hdim{dim}.over_{backend}", f"{theirs / own:.2f}")
    assert own > 0
    assert theirs > 0


def test_lazy_loading_is_honoured(record_suite: Record) -> None:
    """``CUDA_MODULE_LOADING=LAZY``: the driver, asked in this very process, says it is so."""
    import flash_attn  # noqa: F401  its modules are registered by now
    import smoke_gpu
    import torch

    wanted = os.environ.get("CUDA_MODULE_LOADING", "").lower()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    mode = smoke_gpu.module_loading()
    record_suite("module_loading", mode)
    if mode.startswith("not reported"):
        pytest.skip(mode)
    if wanted in ("lazy", "eager"):
        assert mode == wanted
    else:
        pytest.skip(f"CUDA_MODULE_LOADING is not set; the driver's own choice is {mode}")
