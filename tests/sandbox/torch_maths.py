"""What torch is to do in the sandbox, each against what it must give. Run by Windows' Python.

Prints one JSON object: the seconds of the import, what was computed wrongly, and the modules of the
C++ run-time that the process has loaded, with their version and whether they are Wine's own.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path

began = time.perf_counter()
import torch  # noqa: E402 - its time is measured

SECONDS = time.perf_counter() - began


def product(kind: torch.dtype) -> bool:
    """A matrix product of this type, with what is exact in every type."""
    one = torch.ones(64, 64, dtype=kind)
    return bool(((one @ one).to(torch.float64) == 64).all())


def gradient() -> bool:
    """By autograd's own functions."""
    x = torch.arange(3.0, requires_grad=True)
    (x * x).sum().backward()
    return x.grad is not None and x.grad.tolist() == [0.0, 2.0, 4.0]


class Square(torch.autograd.Function):
    """Loses its gradient with Wine's own run-time."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def own_gradient() -> bool:
    """By a function of Python's."""
    x = torch.arange(3.0, requires_grad=True)
    y = Square.apply(x)
    y.sum().backward()
    return y.grad_fn is not None and x.grad is not None and x.grad.tolist() == [0.0, 2.0, 4.0]


def svd() -> bool:
    """A decomposition gives its matrix back."""
    a = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    u, s, v = torch.linalg.svd(a, full_matrices=False)
    return torch.allclose(u @ torch.diag(s) @ v, a, atol=1e-9)


def attention() -> bool:
    """Of equal keys the mean of the values."""
    q, v = torch.ones(1, 2, 8, 16), torch.arange(8.0)[None, None, :, None].expand(1, 2, 8, 16)
    out = torch.nn.functional.scaled_dot_product_attention(q, q, v)
    return torch.allclose(out, torch.full_like(out, 3.5), atol=1e-5)


def convolution() -> bool:
    """A box filter over ones."""
    out = torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))
    return out.shape == (1, 4, 6, 6) and bool((out == 27).all())


def fourier() -> bool:
    """There and back."""
    x = torch.arange(8.0)
    return torch.allclose(torch.fft.ifft(torch.fft.fft(x)).real, x, atol=1e-5)


def saved() -> bool:
    """Through a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "x.pt"))
        torch.save({"x": torch.arange(5)}, path)
        return torch.load(path)["x"].tolist() == [0, 1, 2, 3, 4]  # type: ignore[no-any-return]


def error() -> bool:
    """C++'s exception becomes Python's."""
    try:
        torch.ones(2) + torch.ones(3)
    except RuntimeError as told:
        return "must match" in str(told)
    return False


def threads() -> bool:
    """A product that several threads share."""
    torch.set_num_threads(2)
    one = torch.ones(512, 512)
    return bool(((one @ one) == 512).all())


CHECKS = {
    **{f"product {kind}": (lambda kind=kind: product(kind)) for kind in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16)},
    **{check.__name__: check for check in (
        gradient, own_gradient, svd, attention, convolution, fourier, saved, error, threads)},
}  # fmt: skip
wrong = {}
for name, check in CHECKS.items():
    try:
        if not check():
            wrong[name] = "another result"
    except Exception as failed:  # noqa: BLE001 - each is told
        wrong[name] = f"{type(failed).__name__}: {failed}"[:300]
print(json.dumps({"torch": str(torch.__version__), "cuda": torch.version.cuda, "import": SECONDS,
                  "checks": len(CHECKS), "wrong": wrong}))  # fmt: skip
