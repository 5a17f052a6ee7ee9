"""Attention with 8 bit numbers against the exact one, in float64.

Imported inside the tests only: this module needs torch and the package.

**How exact must it be?** Queries and keys are rounded to 8 bit integers, values and weights to 8
bit floats: on normal values an emulation of just that, on the CPU, is off by 3 to 4 % of the
answer's length, and by 0.1 to 0.2 % in its size, for roundings cancel out. So three figures are
looked at. The error as a whole may be 7 %: a lost block, a wrong mask or another's head costs 30 %
and more. The size, by which a kernel scales, may be off by 1 %: that is where a wrong scale shows,
which a bound of 7 % would let pass. Values have a scale for each channel, and a wrong one is lost
among 64 others: so the size of each channel is looked at as well, where the emulation is off by up
to 4.3 %. It may be off by 10 %.
"""

from __future__ import annotations

import math

import torch

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
WHOLE, SIZE, CHANNEL = 0.07, 0.01, 0.10
#: Of the log of the sum of the weights, absolutely: their 8 bit errors, averaged.
LSE = 0.05

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def normal(
    dtype: str,
    dim: int,
    rows: tuple[int, int],
    heads: tuple[int, int] = (4, 4),
    *,
    layout: str = "HND",
    offset: float = 0.0,
) -> Triple:
    """Reproducible ``q, k, v`` on the GPU; ``offset`` is added to the keys, as models have it."""
    source = torch.Generator(device="cuda").manual_seed(dim + sum(rows))
    made = []
    for number, rows_heads in enumerate(((rows[0], heads[0]), (rows[1], heads[1]))):
        for which in range(number + 1):
            shape = (2, rows_heads[1], rows_heads[0], dim)
            tensor = torch.randn(*shape, generator=source, device="cuda")
            tensor += offset if number and not which else 0.0
            made.append(tensor.to(DTYPES[dtype]))
    if layout == "NHD":
        made = [tensor.transpose(1, 2).contiguous() for tensor in made]
    q, k, v = made
    return q, k, v


def exact(
    inputs: Triple, *, causal: bool = False, scale: float | None = None, layout: str = "HND"
) -> tuple[torch.Tensor, torch.Tensor]:
    """The answer in float64, and the logarithm of each row's sum of weights."""
    q, k, v = (one.double() for one in inputs)
    if layout == "NHD":
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = (one.repeat_interleave(groups, 1) for one in (k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    out = torch.softmax(scores, -1) @ v
    return out.transpose(1, 2) if layout == "NHD" else out, torch.logsumexp(scores, -1)


def shares(got: torch.Tensor, want: torch.Tensor, where: int = 1) -> dict[str, float]:
    """Errors as parts of what is tolerated, of the worst head: above 1 is wrong.

    ``where`` is the dimension of the heads.
    """
    assert got.shape == want.shape
    own, other = (one.double().movedim(where, 0).flatten(1) for one in (got, want))
    if not torch.isfinite(own).all():
        return {"finite": math.inf}
    square = (other * other).sum(1)
    whole = ((own - other).norm(dim=1) / square.sqrt()).max().item()
    size = ((own * other).sum(1) / square - 1).abs().max().item()
    own, other = (one.double().movedim(where, 0).flatten(1, 2) for one in (got, want))
    channel = ((own * other).sum(1) / (other * other).sum(1) - 1).abs().max().item()
    return {"whole": whole / WHOLE, "size": size / SIZE, "channel": channel / CHANNEL}


def verdict(errors: dict[str, float], record: object) -> None:
    """Record every share and fail if one is above 1."""
    for name, value in errors.items():
        record(f"error_of_tolerance.{name}", f"{value:.3f}")  # type: ignore[operator]
    wrong = {name: round(value, 2) for name, value in errors.items() if not value <= 1}
    assert not wrong, f"error as a part of what is tolerated: {wrong}"
