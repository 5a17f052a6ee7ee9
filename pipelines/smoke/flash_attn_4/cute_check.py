"""One case: the kernel, the exact answer and a plain one, forward and backward, compared.

Imported inside the tests only: this module needs torch and the package. How exact is in
:mod:`smoke_reference`. Each kind of call is compiled when it is made first, some seconds each.
"""

from __future__ import annotations

import torch
from flash_attn.cute import flash_attn_func
from smoke_batches import Record, limit_memory
from smoke_reference import (
    BACKWARD,
    BACKWARD_SMALL,
    FORWARD,
    FORWARD_SMALL,
    Rule,
    attention,
    share,
)

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}

torch.set_float32_matmul_precision("highest")  # the reference is fp32, not TF32
limit_memory()


def normal(
    dtype: str, rows: tuple[int, int], dim: int, heads: tuple[int, int], *, size: float = 1.0
) -> Triple:
    """Reproducible ``q, k, v`` of ``(batch, rows, heads, dim)`` on the GPU, wanting gradients."""
    source = torch.Generator(device="cuda").manual_seed(dim + sum(rows))
    shapes = ((rows[0], heads[0]), (rows[1], heads[1]), (rows[1], heads[1]))
    q, k, v = (
        torch.randn(2, n, h, dim, generator=source, device="cuda").to(DTYPES[dtype])
        for n, h in shapes
    )
    return (q * size).requires_grad_(), k.requires_grad_(), v.requires_grad_()


def called(inputs: Triple, rule: Rule) -> torch.Tensor:
    """The package's answer to what the rule says."""
    left, right = (None if size < 0 else size for size in rule.window)
    options: dict[str, object] = {"causal": rule.causal}
    if rule.window != (-1, -1):
        options["window_size"] = (left, right)
    if rule.softcap:
        options["softcap"] = rule.softcap
    if rule.scale is not None:
        options["softmax_scale"] = rule.scale
    out = flash_attn_func(*inputs, **options)
    return out[0] if isinstance(out, tuple) else out


def gradients(out: torch.Tensor, inputs: Triple) -> Triple:
    """Of the same random direction every time: ``dq, dk, dv``."""
    source = torch.Generator(device="cuda").manual_seed(1)
    direction = torch.randn(out.shape, generator=source, device="cuda").to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, inputs, direction)
    return dq, dk, dv


def check(inputs: Triple, rule: Rule, record: Record, *, backward: bool = True) -> None:
    """Run the kernel forward, and backward, and compare; every share is recorded."""
    out = called(inputs, rule)
    exact, plain = attention(*inputs, rule), attention(*inputs, rule, exact=False)
    errors = {"out": share(out, exact, plain, FORWARD, FORWARD_SMALL)}
    if backward:
        own, want, other = (gradients(one, inputs) for one in (out, exact, plain))
        for name, *three in zip(("dq", "dk", "dv"), own, want, other, strict=True):
            errors[name] = share(*three, BACKWARD, BACKWARD_SMALL)  # type: ignore[call-arg]
    for name, value in errors.items():
        record(f"error_of_tolerance.{name}", f"{value:.3f}")
    wrong = {name: round(value, 2) for name, value in errors.items() if not value <= 1}
    assert not wrong, f"error as a part of what is tolerated: {wrong}"
