"""What this wheel really has, tried one by one and written into the report's properties.

A wheel can be built without its backward, without dropout, without some head dimensions, and
still import. ``yes`` is what ran here, ``absent`` what this release never had; anything else is
the kernel's refusal, and a failure.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from smoke_batches import Record

pytestmark = pytest.mark.usefixtures("cuda")

DIMS = (32, 64, 96, 128, 160, 192, 224, 256)


def attempt(run: Callable[[], object]) -> str:
    """``yes``, or the first line of what the kernel said."""
    import torch

    try:
        run()
        torch.cuda.synchronize()
    except RuntimeError as error:
        return f"no: {str(error).strip().splitlines()[0]}"
    return "yes"


@pytest.mark.parametrize("dim", DIMS)
def test_head_dimension(dim: int, record_suite: Record) -> None:
    """Forward and backward of one head dimension, in fp16 and bf16."""
    import flash_attn
    import flash_check as fc
    import torch

    has: dict[str, dict[str, str]] = {"forward": {}, "backward": {}}
    for dtype in fc.DTYPES:
        inputs = fc.normal(dtype, (128, 128), dim, (2, 2), 1)
        has["forward"][dtype] = attempt(lambda inputs=inputs: flash_attn.flash_attn_func(*inputs))
        if has["forward"][dtype] != "yes":
            has["backward"][dtype] = "no: its forward fails"
            continue
        out = flash_attn.flash_attn_func(*inputs)
        has["backward"][dtype] = attempt(
            lambda out=out, inputs=inputs: torch.autograd.grad(out.sum(), inputs)
        )
    refused = []
    for way, by_dtype in has.items():
        answers = set(by_dtype.values())
        text = answers.pop() if len(answers) == 1 else str(by_dtype)
        record_suite(f"has.{way}.hdim{dim}", text)
        if text != "yes" and "requires A100" not in text:
            refused.append(f"{way} of head dimension {dim}: {text}")
    assert not refused, "; ".join(refused)


def features() -> dict[str, Callable[[], object]]:
    """Feature -> a call that needs it, for what the signatures of this release promise."""
    import flash_attn
    import flash_check as fc
    import torch

    inputs = fc.normal("fp16", (128, 128), 64, (2, 2), 1)
    q, k, v = (each.detach() for each in inputs)
    bounds = torch.tensor((0, 128), dtype=torch.int32, device="cuda")
    used = torch.tensor((100,), dtype=torch.int32, device="cuda")
    table = torch.zeros((1, 1), dtype=torch.int32, device="cuda")
    page = torch.zeros(1, 256, 2, 64, dtype=q.dtype, device="cuda")

    def both(**options: object) -> Callable[[], object]:
        return lambda: torch.autograd.grad(
            flash_attn.flash_attn_func(*inputs, **options).sum(), inputs
        )

    promised: dict[str, tuple[bool, Callable[[], object]]] = {
        "causal": (True, both(causal=True)),
        "dropout": (True, both(dropout_p=0.1)),
        "window": (fc.has("window"), both(window_size=(32, 0))),
        "softcap": (fc.has("softcap"), both(softcap=20.0)),
        "alibi": (fc.has("alibi"), both(alibi_slopes=fc.slopes(2))),
        "deterministic": (fc.has("deterministic"), both(deterministic=True)),
        "varlen": (
            hasattr(flash_attn, "flash_attn_varlen_func"),
            lambda: flash_attn.flash_attn_varlen_func(q[0], k[0], v[0], bounds, bounds, 128, 128),
        ),
        "kvcache": (
            hasattr(flash_attn, "flash_attn_with_kvcache"),
            lambda: flash_attn.flash_attn_with_kvcache(q[:, :1], k, v, cache_seqlens=used),
        ),
        "paged_kvcache": (
            fc.has("paged", "flash_attn_with_kvcache"),
            lambda: flash_attn.flash_attn_with_kvcache(
                q[:, :1], page, page, cache_seqlens=used, block_table=table
            ),
        ),
    }
    return {name: run for name, (there, run) in promised.items() if there}


FEATURES = (
    "causal",
    "dropout",
    "window",
    "softcap",
    "alibi",
    "deterministic",
    "varlen",
    "kvcache",
    "paged_kvcache",
)


@pytest.mark.parametrize("feature", FEATURES)
def test_feature(feature: str, record_suite: Record) -> None:
    """What a function's signature promises, the kernel does, backward included."""
    import flash_attn

    run = features().get(feature)
    if run is None:
        record_suite(f"has.{feature}", "absent")
        pytest.skip(f"absent: flash_attn {flash_attn.__version__} has no {feature}")
    text = attempt(run)
    record_suite(f"has.{feature}", text)
    assert text == "yes"
