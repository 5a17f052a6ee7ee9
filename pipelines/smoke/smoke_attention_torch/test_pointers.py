"""The kernels by themselves: C functions of the CUDA library, called with plain device pointers.

They need a GPU, or a bridge to one, and no CUDA in torch. What torch's operators do with the GPU
is not shown by them: that is ``test_gpu.py``.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from smoke_batches import Record

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.usefixtures("gpu")

TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
INVALID_VALUE = 1  # cudaErrorInvalidValue
SHAPES = ((1, 1), (17, 33), (128, 128), (200, 64), (64, 200))


class Problem(ctypes.Structure):
    """``attention_problem`` of attention.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out")),
        *((name, ctypes.c_int) for name in ("batch_heads", "seqlen_q", "seqlen_k", "head_dim")),
        ("causal", ctypes.c_int),
        ("scale", ctypes.c_float),
        ("stream", ctypes.c_void_p),
    ]


@pytest.fixture(scope="module")
def kernels() -> ctypes.CDLL:
    """The library with the kernels."""
    import smoke_attention_torch

    library = ctypes.CDLL(str(smoke_attention_torch.CUDA_LIBRARY))
    library.smoke_attention_error.restype = ctypes.c_char_p
    return library


@pytest.fixture(scope="module")
def cudart(kernels: ctypes.CDLL) -> ctypes.CDLL:  # noqa: ARG001  it has brought it
    """CUDA's run-time, the one that the library has loaded."""
    import smoke_attention_torch

    major = smoke_attention_torch.build_info()["cuda"].partition(".")[0]
    windows = sys.platform == "win32"
    return ctypes.CDLL(f"cudart64_{major}.dll" if windows else f"libcudart.so.{major}")


@contextmanager
def on_device(cudart: ctypes.CDLL, tensors: list[torch.Tensor]) -> Iterator[list[Any]]:
    """The tensors' bytes on the GPU; pointers to them."""
    pointers: list[Any] = []
    try:
        for tensor in tensors:
            pointer, size = ctypes.c_void_p(), tensor.numel() * tensor.element_size()
            assert cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
            pointers.append(pointer)
            source = ctypes.c_void_p(tensor.data_ptr())
            assert cudart.cudaMemcpy(pointer, source, ctypes.c_size_t(size), TO_DEVICE) == 0
        yield pointers
    finally:
        for pointer in pointers:
            cudart.cudaFree(pointer)


def run(
    kernels: ctypes.CDLL, cudart: ctypes.CDLL, tensors: list[torch.Tensor], *, causal: bool
) -> torch.Tensor:
    """Attention of the tensors, which are on the CPU, by the kernels."""
    import torch

    q, k, _ = tensors
    out = torch.full_like(q, float("nan"))
    with on_device(cudart, [*tensors, out]) as pointers:
        problem = Problem(
            *(pointer.value for pointer in pointers),
            q.shape[0] * q.shape[1],
            q.shape[2],
            k.shape[2],
            q.shape[3],
            causal,
            q.shape[3] ** -0.5,
            None,
        )
        half = int(q.dtype == torch.float16)
        error = kernels.smoke_attention_launch(ctypes.byref(problem), half)
        assert error == 0, kernels.smoke_attention_error(error)
        assert cudart.cudaDeviceSynchronize() == 0
        size = ctypes.c_size_t(out.numel() * out.element_size())
        target = ctypes.c_void_p(out.data_ptr())
        assert cudart.cudaMemcpy(target, pointers[3], size, TO_HOST) == 0
    return out


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "{}x{}".format(*shape))
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [32, 64, 96, 128])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_matches_torch(
    kernels: ctypes.CDLL,
    cudart: ctypes.CDLL,
    *,
    dtype: str,
    head_dim: int,
    causal: bool,
    shape: tuple[int, int],
    record_property: Record,
) -> None:
    """Every value is near torch's answer in float64."""
    import attending

    tensors = [*attending.inputs(1, *shape, head_dim, dtype)]
    got = run(kernels, cudart, tensors, causal=causal)
    want = attending.exact(tensors, causal=causal)
    share = attending.worst(got, want, dtype, attending.GPU_ERROR)
    record_property("error_of_tolerance", f"{share:.3f}")
    assert share <= 1


def test_a_head_dimension_that_there_is_not(kernels: ctypes.CDLL) -> None:
    """CUDA's own error, in its words."""
    problem = Problem(None, None, None, None, 1, 1, 1, 40, 0, 1.0, None)
    error = kernels.smoke_attention_launch(ctypes.byref(problem), 0)
    assert error == INVALID_VALUE
    assert kernels.smoke_attention_error(error) == b"invalid argument"
