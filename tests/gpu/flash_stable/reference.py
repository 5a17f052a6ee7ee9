"""Compares what raw.py wrote with attention by its definition, in float64.

``python reference.py NUMBERS.json``; needs torch, a GPU or not. Cases with dropout are counted, not
compared: which scores are dropped is known to the kernels alone. Exits with 1 where one is wrong.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import raw
import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Of the largest number in an array; half precision keeps 11 bits, bfloat16 8.
MOST = {False: 4e-3, True: 2.5e-2}


def drawn(name: str, rows: int, heads: int, dim: int, bf16: bool) -> Tensor:
    """An input of raw.py."""
    data = bytearray(raw.halves(name, raw.BATCH * rows * heads * dim, bf16))
    kind = torch.bfloat16 if bf16 else torch.float16
    flat = torch.frombuffer(data, dtype=kind).to(DEVICE).double()
    return flat.reshape(raw.BATCH, rows, heads, dim)


def wanted(one: dict[str, Any]) -> dict[str, Tensor]:
    """The arrays of a case."""
    dim, bf16 = one["dim"] - 8 if one.get("narrow") else one["dim"], one["bf16"]
    q = drawn("q", raw.ROWS, raw.HEADS, dim, bf16).requires_grad_()
    groups = raw.HEADS // raw.HEADS_K
    k, v = (
        drawn(name, raw.KEYS, raw.HEADS_K, dim, bf16).repeat_interleave(groups, 2).requires_grad_()
        for name in "kv"
    )
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * dim**-0.5
    if cap := one.get("softcap"):
        scores = cap * torch.tanh(scores / cap)
    row = torch.arange(raw.ROWS, device=DEVICE)[:, None] + raw.KEYS - raw.ROWS
    column = torch.arange(raw.KEYS, device=DEVICE)[None]
    if one.get("alibi"):
        slopes = 0.5 ** torch.arange(1, raw.HEADS + 1, device=DEVICE).double()
        # Causal kernels leave out what is the same for a whole row.
        distance = column if one["causal"] else -(row - column).abs()
        scores = scores + slopes[:, None, None] * distance
    left, right = one.get("left", -1), 0 if one["causal"] else one.get("right", -1)
    hidden = torch.zeros(raw.ROWS, raw.KEYS, dtype=torch.bool, device=DEVICE)
    if right >= 0:
        hidden |= column > row + right
    if left >= 0:
        hidden |= column < row - left
    scores = scores.masked_fill(hidden, -math.inf)
    out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    arrays = {"o": out, "lse": scores.logsumexp(-1)}
    if not one.get("splits"):
        dout = drawn("do_", raw.ROWS, raw.HEADS, dim, bf16)
        arrays |= zip(("dq", "dk", "dv"), torch.autograd.grad(out, (q, k, v), dout), strict=True)
        room = -(-raw.ROWS // 128) * 128 - raw.ROWS
        d_sum = (out * dout).sum(-1).transpose(1, 2)
        arrays["d_sum"] = torch.nn.functional.pad(d_sum, (0, room))
    return arrays


def main() -> int:
    found = json.loads(Path(sys.argv[1]).read_text())
    dims = sorted({int(name.split()[0]) for name in found})
    compared, dropped, wrong, worst = 0, 0, [], {}
    for name, one in raw.cases(dims):
        if one.get("dropout"):
            dropped += 1
            continue
        for array, want in wanted(one).items():
            step = max(want.numel() // raw.SHOWN, 1)
            expected = want.detach().flatten()[::step].cpu()
            got = torch.tensor(
                found.get(name, {}).get(array, {}).get("some", []), dtype=torch.float64
            )
            error = math.inf
            if got.shape == expected.shape:
                error = float((got - expected).abs().max() / want.detach().abs().max())
            compared += 1
            key = f"{'bf16' if one['bf16'] else 'fp16'} {array}"
            worst[key] = max(worst.get(key, 0.0), error)
            if not error <= MOST[one["bf16"]]:
                wrong.append(f"{name}: {array}: {error:.2g}")
    summary = {"dims": dims, "compared": compared, "with dropout": dropped, "worst": worst}
    sys.stdout.write(json.dumps(summary | {"wrong": wrong}) + "\n")
    return bool(wrong or not compared)


if __name__ == "__main__":
    sys.exit(main())
