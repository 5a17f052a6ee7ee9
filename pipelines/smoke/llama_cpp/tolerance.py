"""How far a GPU's logits may be from those of float64, and what is measured of them.

Needs numpy alone. **How exact must it be?** Weights of F32 are multiplied in TF32 where there is
such a thing, half precision in itself. With rounded weights the other side is rounded as well, to
8 bits in blocks of 32 (``quantize_q8_1``): with that done to this model in float64 all logits
together are off by 1.4 to 3.1 % of their length.

Numbers of Q4_0 and Q4_K lie in 0..15. What centres them is multiplied by the *sum* of the other
side, which ggml-cuda takes before it rounds (``vecdotq.cuh``, ``quantize.cu``; not each of its
kernels). So their mean meets that rounding as their spread does, which then counts
sqrt(mean of squares / variance) = 2.3 times as much: 2.8 to 7.4 %, in the same way.

A wrong place, a lost head or another's scale costs half of the length and more. The size of all may
be off by 1 %: roundings cancel out, a wrong scale does not.
"""

from __future__ import annotations

import math

import numpy as np
from gguf_model import Array

#: Kind of weights -> error of all logits together, as a part of their length.
WHOLE = {
    **dict.fromkeys(("F32", "F16"), 0.01),
    "BF16": 0.02,
    **dict.fromkeys(("Q8_0", "Q6_K"), 0.05),
    **dict.fromkeys(("Q4_0", "Q4_K"), 0.12),
}
#: The worst of 200 tokens, of the whole.
TOKEN = 4
SIZE = 0.01


def shares(got: Array, want: Array, kind: str) -> dict[str, float]:
    """Errors as parts of what is tolerated: above 1 is wrong."""
    assert got.shape == want.shape
    if not np.isfinite(got).all():
        return {"finite": math.inf}
    whole = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    token = float((np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)).max())
    size = abs(float((got * want).sum() / (want * want).sum()) - 1)
    most = WHOLE[kind]
    return {"whole": whole / most, "worst_token": token / (TOKEN * most), "size": size / SIZE}


def verdict(errors: dict[str, float], record: object) -> None:
    """Record every share and fail if one is above 1."""
    for name, value in errors.items():
        record(f"error_of_tolerance.{name}", f"{value:.3f}")  # type: ignore[operator]
    wrong = {name: round(value, 2) for name, value in errors.items() if not value <= 1}
    assert not wrong, f"error as a part of what is tolerated: {wrong}"
