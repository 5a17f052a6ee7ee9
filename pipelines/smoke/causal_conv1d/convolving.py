"""One case: the kernel against the convolution from its definition, in float64.

Imported inside the tests only: this module needs torch.

**How exact must it be?** The kernels multiply and add in float32 and round once, to the input's
type: half a unit in its last place, and what some hundred or thousand float32 additions lose, which
is small next to the largest value. A wrong tap, a lost row or a state of another sequence costs
some thousand times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: Half a unit in the last place, relatively.
HALF_UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
#: Of the largest value: float32 sums, and the quick exponential of SiLU.
SUMS = 3e-5


@dataclass(frozen=True)
class Problem:
    """What is convolved: ``(batch, dim, rows)`` with ``width`` taps."""

    dtype: str
    width: int
    rows: int
    bias: bool = True
    batch: int = 2
    dim: int = 64
    channel_last: bool = False

    def inputs(self, seed: int = 0) -> list[torch.Tensor]:
        """Reproducible ``x``, ``weight`` and, if there is one, ``bias``: leaves on the GPU."""
        source = torch.Generator(device="cuda").manual_seed(1000 * seed + self.rows)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=source, device="cuda")

        x = normal(self.batch, self.rows, self.dim).to(DTYPES[self.dtype])
        x = x.transpose(1, 2) if self.channel_last else x.transpose(1, 2).contiguous()
        weight = normal(self.dim, self.width)
        others = [weight, normal(self.dim)] if self.bias else [weight]
        return [one.detach().requires_grad_() for one in (x, *others)]


def convolved(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    silu: bool = False,
    before: torch.Tensor | None = None,
    sequences: torch.Tensor | None = None,
) -> torch.Tensor:
    """In float64, tap by tap; ``before`` are the columns that come before the first.

    ``sequences`` has the sequence of each column: a tap in another one gives nothing, and a column
    of a negative one is 0.
    """
    rows, width = x.shape[2], weight.shape[1]
    if before is None:
        before = x.new_zeros(x.shape[0], x.shape[1], width - 1)
    padded = torch.cat([before, x], dim=2).double()
    out = torch.zeros_like(padded[:, :, :rows])
    for tap in range(width):
        part = padded[:, :, tap : tap + rows] * weight.double()[:, tap, None]
        if sequences is not None and tap < width - 1:
            distance = width - 1 - tap
            own = torch.zeros_like(sequences, dtype=torch.bool)
            own[:, distance:] = sequences[:, distance:] == sequences[:, :-distance]
            part = part * own[:, None]
        out = out + part
    if bias is not None:
        out = out + bias.double()[:, None]
    if silu:
        out = out * torch.sigmoid(out)
    if sequences is not None:
        out = out * (sequences >= 0)[:, None]
    return out


def wide(*inputs: torch.Tensor) -> list[torch.Tensor]:
    """The same numbers in float64, wanting gradients of their own.

    A gradient that goes back through an input of half precision is rounded to that, and the
    reference would be as inexact as what it is for.
    """
    return [one.detach().double().requires_grad_() for one in inputs]


def share(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest error as a part of what is tolerated: above 1 is wrong, NaN is inf."""
    assert got.shape == want.shape
    allowed = want.abs() * HALF_UNIT[got.dtype] + want.abs().max() * SUMS
    worst = ((got.double() - want).abs() / allowed).max().item()
    return worst if math.isfinite(worst) else math.inf


def shares(out: torch.Tensor, given: list[torch.Tensor], **rule: object) -> dict[str, float]:
    """Of the answer to ``given`` (x, weight, perhaps bias) and of the gradient of each.

    ``rule`` are the keyword arguments of :func:`convolved`.
    """
    leaves = wide(*given)
    exact = convolved(*leaves, **rule)  # type: ignore[arg-type]  # by name
    direction = torch.randn_like(out)
    got = torch.autograd.grad(out, given, direction)
    want = torch.autograd.grad(exact, leaves, direction.double())
    errors = {"out": share(out, exact)}
    names = ("dx", "dweight", "dbias")[: len(given)]
    for name, one, other in zip(names, got, want, strict=True):
        errors[name] = share(one, other)
    return errors


def verdict(errors: dict[str, float], record: object) -> None:
    """Record every share and fail if one is above 1."""
    for name, value in errors.items():
        record(f"error_of_tolerance.{name}", f"{value:.3f}")  # type: ignore[operator]
    wrong = {name: round(value, 2) for name, value in errors.items() if not value <= 1}
    assert not wrong, f"error as a part of what is tolerated: {wrong}"
