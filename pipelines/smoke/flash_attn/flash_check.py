"""One case: the kernel, the exact answer and a plain one, forward and backward, compared.

Imported inside the tests only: this module needs torch and the package.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NoReturn

import flash_attn
import pytest
import smoke_batches
import torch
from smoke_reference import (
    BACKWARD,
    BACKWARD_SMALL,
    FORWARD,
    FORWARD_SMALL,
    LOOSER,
    Rule,
    attention,
    share,
    slopes_bias,
)

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
#: What a function takes only in releases that have the feature.
WORDS = {
    "window": "window_size",
    "softcap": "softcap",
    "alibi": "alibi_slopes",
    "deterministic": "deterministic",
    "paged": "block_table",
}

torch.set_float32_matmul_precision("highest")  # the reference is fp32, not TF32
smoke_batches.limit_memory()


def has(feature: str, function: str = "flash_attn_func") -> bool:
    """Whether this release's function takes the feature's argument."""
    called = getattr(flash_attn, function, None)
    return called is not None and WORDS[feature] in inspect.signature(called).parameters


def need(feature: str, function: str = "flash_attn_func") -> None:
    """Skip where the release has no such feature: it promises none."""
    if not has(feature, function):
        pytest.skip(f"absent: {function} of {flash_attn.__version__} has no {WORDS[feature]}")


def documented(error: RuntimeError) -> NoReturn:
    """Skip what the kernel itself declares not to be for this GPU; anything else is a failure.

    2.3.6 to 2.5 have no backward for head dimensions above 192 on 8.6 and 8.9.
    """
    if "requires A100" in str(error):
        pytest.skip(f"not on this GPU, the kernel says: {str(error).splitlines()[0]}")
    raise error


def normal(
    dtype: str,
    rows: tuple[int, int],
    dim: int,
    heads: tuple[int, int],
    batch: int,
    *,
    seed: int = 0,
) -> Triple:
    """Reproducible ``q, k, v`` of ``(batch, rows, heads, dim)`` on the GPU, wanting gradients."""
    source = torch.Generator(device="cuda").manual_seed(1000 * seed + dim)
    shapes = ((rows[0], heads[0]), (rows[1], heads[1]), (rows[1], heads[1]))
    q, k, v = (
        torch.randn(batch, n, h, dim, generator=source, device="cuda", dtype=torch.float32)
        .to(DTYPES[dtype])
        .requires_grad_()
        for n, h in shapes
    )
    return q, k, v


def slopes(heads: int, batch: int = 0) -> torch.Tensor:
    """ALiBi's slopes, for each head or for each head of each batch entry."""
    source = torch.Generator(device="cuda").manual_seed(7)
    shape = (batch, heads) if batch else (heads,)
    return torch.rand(*shape, generator=source, device="cuda") * 0.3


def arguments(rule: Rule, alibi: torch.Tensor | None = None) -> dict[str, object]:
    """The rule in FlashAttention's words; only what differs from its defaults."""
    options: dict[str, object] = {}
    if rule.causal:
        options["causal"] = True
    if rule.window != (-1, -1):
        options["window_size"] = rule.window
    if rule.softcap:
        options["softcap"] = rule.softcap
    if rule.scale is not None:
        options["softmax_scale"] = rule.scale
    if alibi is not None:
        options["alibi_slopes"] = alibi
    return options


def gradients(out: torch.Tensor, inputs: Triple, seed: int = 1) -> Triple:
    """Of the same random direction every time: ``dq, dk, dv``."""
    source = torch.Generator(device="cuda").manual_seed(seed)
    direction = torch.randn(out.shape, generator=source, device="cuda").to(out.dtype)
    dq, dk, dv = torch.autograd.grad(out, inputs, direction)
    return dq, dk, dv


def shares(
    got: tuple[torch.Tensor, Triple | None], inputs: Triple, rule: Rule, bias: torch.Tensor | None
) -> dict[str, float]:
    """Name -> error as a part of what is tolerated, of the answer and of each gradient."""
    loose = LOOSER if bias is not None else 1.0
    exact = attention(*inputs, rule, bias=bias)
    plain = attention(*inputs, rule, bias=bias, exact=False)
    errors = {"out": share(got[0], exact, plain, FORWARD * loose, FORWARD_SMALL)}
    if got[1] is not None:
        three = zip(got[1], gradients(exact, inputs), gradients(plain, inputs), strict=True)
        for name, (own, want, other) in zip(("dq", "dk", "dv"), three, strict=True):
            errors[name] = share(own, want, other, BACKWARD * loose, BACKWARD_SMALL)
    return errors


def verdict(errors: dict[str, float], record: smoke_batches.Record) -> None:
    """Record every share and fail if one is above 1."""
    for name, value in errors.items():
        record(f"error_of_tolerance.{name}", f"{value:.3f}")
    wrong = {name: round(value, 2) for name, value in errors.items() if not value <= 1}
    assert not wrong, f"error as a part of what is tolerated: {wrong}"


def check(
    make: Callable[[int], Triple],
    rule: Rule,
    record: smoke_batches.Record,
    *,
    batch: int = 2,
    alibi: Callable[[int], torch.Tensor] | None = None,
) -> None:
    """Run the kernel on ``make(batch)`` forward and backward and compare."""

    def run(batch: int) -> dict[str, float]:
        inputs = make(batch)
        rows, columns = inputs[0].shape[1], inputs[1].shape[1]
        tilt = alibi(batch) if alibi else None
        out = flash_attn.flash_attn_func(*inputs, **arguments(rule, tilt))
        grads = gradients(out, inputs)
        bias = slopes_bias(tilt, rows, columns) if tilt is not None else None
        return shares((out, grads), inputs, rule, bias)

    try:
        errors = smoke_batches.shrinking(batch, run, record, torch.cuda.empty_cache)
    except RuntimeError as error:
        documented(error)
    verdict(errors, record)
