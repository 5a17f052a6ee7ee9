"""What torch is to do in the sandbox, each against what it must give. Run by Windows' Python.

Prints one JSON object: the seconds of the import, and what was computed wrongly.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

BEGAN = time.perf_counter()
torch: Any = importlib.import_module("torch")
SECONDS = time.perf_counter() - BEGAN


def product(kind: Any) -> bool:
    """A matrix product of this type, whose result is exact in every type."""
    one = torch.ones(64, 64, dtype=kind)
    return bool(((one @ one).to(torch.float64) == 64).all())


def gradient() -> bool:
    """By autograd's own functions."""
    x = torch.arange(3.0, requires_grad=True)
    (x * x).sum().backward()
    return x.grad is not None and bool((x.grad == torch.tensor([0.0, 2.0, 4.0])).all())


class Square(torch.autograd.Function):  # type: ignore[misc]
    """Loses its grad_fn with Wine's own run-time."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def own_gradient() -> bool:
    """By a function of Python's."""
    x = torch.arange(3.0, requires_grad=True)
    y = Square.apply(x)
    y.sum().backward()
    return y.grad_fn is not None and bool((x.grad == torch.tensor([0.0, 2.0, 4.0])).all())


def svd() -> bool:
    """A decomposition gives its matrix back."""
    a = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    u, s, v = torch.linalg.svd(a, full_matrices=False)
    return bool(torch.allclose(u @ torch.diag(s) @ v, a, atol=1e-9))


def attention() -> bool:
    """Of equal keys the mean of the values."""
    q, v = torch.ones(1, 2, 8, 16), torch.arange(8.0)[None, None, :, None].expand(1, 2, 8, 16)
    out = torch.nn.functional.scaled_dot_product_attention(q, q, v)
    return bool(torch.allclose(out, torch.full_like(out, 3.5), atol=1e-5))


def convolution() -> bool:
    """A box filter over ones."""
    out = torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))
    return out.shape == (1, 4, 6, 6) and bool((out == 27).all())


def fourier() -> bool:
    """There and back."""
    x = torch.arange(8.0)
    return bool(torch.allclose(torch.fft.ifft(torch.fft.fft(x)).real, x, atol=1e-5))


def saved() -> bool:
    """Through a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "x.pt"))
        torch.save({"x": torch.arange(5)}, path)
        return bool((torch.load(path)["x"] == torch.arange(5)).all())


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


def main() -> None:
    """Do them all."""
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    checks = {f"product {kind}": partial(product, kind) for kind in kinds}
    others = (gradient, own_gradient, svd, attention, convolution, fourier, saved, error, threads)
    checks |= {check.__name__: check for check in others}  # type: ignore[misc]
    wrong = {}
    for name, check in checks.items():
        try:
            if not check():
                wrong[name] = "another result"
        except Exception as failed:
            wrong[name] = f"{type(failed).__name__}: {failed}"[:300]
    told = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "seconds": SECONDS}
    print(json.dumps({**told, "checks": len(checks), "wrong": wrong}))


if __name__ == "__main__":
    main()
