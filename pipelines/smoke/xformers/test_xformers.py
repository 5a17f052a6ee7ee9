"""What xFormers says it has, and its attention against an exact answer."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import pytest
import xformers_info
from smoke_batches import Record
from smoke_facts import Facts
from smoke_isolation import FACTS
from smoke_suite import ROW

if TYPE_CHECKING:
    import torch
    from smoke_reference import Rule
    from xformers.ops import AttentionBias, AttentionOp

    Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

DTYPES = ("fp16", "bf16")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case for each row of the table that says whether something is there."""
    if "row" in metafunc.fixturenames:
        properties = metafunc.config.stash[FACTS]["properties"]
        names = [
            name.removeprefix(ROW)
            for name, status in properties.items()
            if name.startswith(ROW) and xformers_info.is_status(status)
        ]
        metafunc.parametrize("row", names)


def has_flash_attention() -> bool:
    """Whether there is a FlashAttention 2: torch's, the wheel's own, or a package."""
    import torch

    others = ("xformers._C_flashattention", "flash_attn")
    own = torch.backends.cuda.is_flash_attention_available()
    return own or any(importlib.util.find_spec(name) for name in others)


def test_info(row: str, facts: Facts) -> None:
    """What must be available is; what may be missing here skips and says why."""
    devices = facts["gpu"]["devices"]
    if not devices:
        pytest.skip(facts["gpu"]["skip"] or facts["gpu"]["broken"])
    windows = sys.platform == "win32"
    verdict, why = xformers_info.missing(
        row,
        facts["properties"][f"{ROW}{row}"],
        windows=windows and not (".fa2" in row and has_flash_attention()),
        arch=int(devices[0]["arch"]),
    )
    if verdict == "fail":
        pytest.fail(why, pytrace=False)
    if verdict == "skip":
        pytest.skip(why)


def operators(name: str) -> AttentionOp | None:
    """The pair of operators (``None``: xFormers chooses); skips where one is not available."""
    from xformers.ops import fmha

    if name == "default":
        return None
    module = getattr(fmha, name)
    pair = module.FwOp, module.BwOp
    for each in pair:
        if not each.is_available():
            pytest.skip(f"{each.NAME} is not available (see the rows of xformers.info)")
    return pair


def compare(
    inputs: Triple,
    rule: Rule,
    mask: torch.Tensor | AttentionBias | None,
    op: AttentionOp | None,
    record: Record,
    *,
    bias: torch.Tensor | None = None,
) -> None:
    """Forward and backward of memory_efficient_attention within the reference's tolerance."""
    import torch
    from smoke_reference import BACKWARD, BACKWARD_SMALL, FORWARD, FORWARD_SMALL, attention, share
    from xformers.ops import memory_efficient_attention

    try:
        got = memory_efficient_attention(*inputs, attn_bias=mask, op=op)
    except (NotImplementedError, ValueError) as error:
        flash = bias is None and (sys.platform != "win32" or has_flash_attention())
        if not xformers_info.unsupported(str(error), named=op is not None, flash=flash):
            raise
        pytest.skip(" ".join(str(error).split())[:300])
    exact = attention(*inputs, rule, bias=bias)
    plain = attention(*inputs, rule, bias=bias, exact=False)
    direction = torch.randn_like(got)
    grads = [torch.autograd.grad(out, inputs, direction) for out in (got, exact, plain)]
    errors = {"out": share(got, exact, plain, FORWARD, FORWARD_SMALL)}
    for name, *three in zip(("dq", "dk", "dv"), *grads, strict=True):
        errors[name] = share(*three, BACKWARD, BACKWARD_SMALL)
    for name, value in errors.items():
        record(f"error_of_tolerance.{name}", f"{value:.3f}")
    assert all(value <= 1 for value in errors.values()), errors


def normal(dtype: str, rows: int, columns: int, dim: int) -> Triple:
    """Reproducible ``q, k, v`` on the GPU, two batch entries of four heads."""
    import torch

    torch.set_float32_matmul_precision("highest")  # the reference is fp32, not TF32
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    source = torch.Generator(device="cuda").manual_seed(dim)
    q, k, v = (
        torch.randn(2, n, 4, dim, generator=source, device="cuda").to(kind).requires_grad_()
        for n in (rows, columns, columns)
    )
    return q, k, v


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dim", [32, 64, 128, 256])
@pytest.mark.parametrize("operator", ["default", "cutlass", "flash"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_efficient_attention(
    dtype: str, operator: str, dim: int, causal: bool, record_property: Record
) -> None:
    """Each operator that is there, and the one that xFormers chooses."""
    from smoke_reference import Rule
    from xformers.ops import LowerTriangularMask

    op = operators(operator)
    # The triangle is aligned to the top left; with as many queries as keys that is the same.
    inputs = normal(dtype, 384 if causal else 113, 384 if causal else 203, dim)
    mask = LowerTriangularMask() if causal else None
    compare(inputs, Rule(causal=causal), mask, op, record_property)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bias_of_one_s_own(dtype: str, dim: int, record_property: Record) -> None:
    """A tensor added to the scores: cutlass has it, and is chosen for it."""
    import torch
    from smoke_reference import Rule

    inputs = normal(dtype, 128, 256, dim)
    source = torch.Generator(device="cuda").manual_seed(5)
    bias = torch.randn(2, 4, 128, 256, generator=source, device="cuda").to(inputs[0].dtype)
    compare(inputs, Rule(), bias, None, record_property, bias=bias.float())
