"""The kernels against exact attention; how near is in :mod:`attending_8bit`."""

from __future__ import annotations

from importlib.metadata import Distribution
from typing import Any

import pytest
from smoke_batches import Record
from smoke_facts import Expected, Facts
from smoke_gpu import Device

dtypes = pytest.mark.parametrize("dtype", ["fp16", "bf16"])
dims = pytest.mark.parametrize("dim", [64, 128])
causality = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
layouts = pytest.mark.parametrize("layout", ["HND", "NHD"])
#: Module -> the architectures for which its setup.py builds it.
MODULES = {
    "_qattn_sm80": {"80"},
    "_qattn_sm89": {"89", "100a", "120a", "121a"},
    "_qattn_sm90": {"90a"},
}


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_there_for_what_was_asked(
    module: str, expected: Expected, facts: Facts, installed: Distribution
) -> None:
    """A module that is missing is no error of the package: it takes a slower way in silence.

    They are linked with the driver: where there is none they are in the wheel, and no more.
    """
    import importlib

    if not MODULES[module] & set(expected.get("archs") or ()):
        pytest.skip(f"no architecture of {module} was asked for")
    names = [file.name for file in installed.files or []]
    assert [name for name in names if name.partition(".")[0] == module], names
    if facts["gpu"]["devices"]:
        importlib.import_module(f"sageattention.{module}")


@layouts
@causality
@dims
@dtypes
@pytest.mark.usefixtures("gpu")
def test_attention(
    dtype: str, dim: int, causal: bool, layout: str, record_property: Record
) -> None:
    """The way that the package chooses for this GPU; sizes that fill its blocks."""
    import attending_8bit as a8
    from sageattention import sageattn

    inputs = a8.normal(dtype, dim, (1024, 1024), layout=layout)
    got = sageattn(*inputs, tensor_layout=layout, is_causal=causal)
    want, _ = a8.exact(inputs, causal=causal, layout=layout)
    a8.verdict(a8.shares(got, want, 1 if layout == "HND" else 2), record_property)


@pytest.mark.parametrize("rows", [(17, 17), (64, 64), (333, 333), (1000, 1000), (2049, 2049)])
@causality
@dims
@pytest.mark.usefixtures("gpu")
def test_odd_lengths(
    dim: int, causal: bool, rows: tuple[int, int], record_property: Record
) -> None:
    """Lengths that leave blocks unfilled: what is behind the last key must count for nothing."""
    import attending_8bit as a8
    from sageattention import sageattn

    inputs = a8.normal("fp16", dim, rows)
    got = sageattn(*inputs, is_causal=causal)
    want, _ = a8.exact(inputs, causal=causal)
    a8.verdict(a8.shares(got, want), record_property)


@pytest.mark.parametrize("rows", [(100, 700), (700, 100)])
@dims
@pytest.mark.usefixtures("gpu")
def test_queries_and_keys_of_other_lengths(
    dim: int, rows: tuple[int, int], record_property: Record
) -> None:
    """Cross attention."""
    import attending_8bit as a8
    from sageattention import sageattn

    inputs = a8.normal("bf16", dim, rows)
    want, _ = a8.exact(inputs)
    a8.verdict(a8.shares(sageattn(*inputs), want), record_property)


@pytest.mark.parametrize("heads", [(8, 2), (6, 1)], ids=["gqa", "mqa"])
@causality
@dims
@pytest.mark.usefixtures("gpu")
def test_grouped_heads(
    dim: int, causal: bool, heads: tuple[int, int], record_property: Record
) -> None:
    """Several heads of queries share one of keys and values; each head is judged by itself."""
    import attending_8bit as a8
    from sageattention import sageattn

    inputs = a8.normal("fp16", dim, (512, 512), heads)
    want, _ = a8.exact(inputs, causal=causal)
    a8.verdict(a8.shares(sageattn(*inputs, is_causal=causal), want), record_property)


@pytest.mark.parametrize("dim", [40, 96])
@causality
@pytest.mark.usefixtures("gpu")
def test_dimensions_that_are_padded(dim: int, causal: bool, record_property: Record) -> None:
    """The scale is that of the dimension that was given, not of the padded one."""
    import attending_8bit as a8
    from sageattention import sageattn

    inputs = a8.normal("fp16", dim, (512, 512))
    want, _ = a8.exact(inputs, causal=causal)
    a8.verdict(a8.shares(sageattn(*inputs, is_causal=causal), want), record_property)


@pytest.mark.usefixtures("gpu")
def test_keys_with_an_offset(record_property: Record) -> None:
    """What all keys have in common is taken off before they are rounded, else nothing is left."""
    import attending_8bit as a8
    from sageattention import sageattn

    inputs = a8.normal("bf16", 64, (512, 512), offset=8.0)
    want, _ = a8.exact(inputs)
    a8.verdict(a8.shares(sageattn(*inputs), want), record_property)


@causality
@pytest.mark.usefixtures("gpu")
def test_a_scale_of_ones_own_and_the_sums(causal: bool, record_property: Record) -> None:
    """The logarithm of each row's sum, by which parts of a long sequence are put together."""
    import attending_8bit as a8
    import torch
    from sageattention import sageattn

    inputs = a8.normal("fp16", 128, (640, 640))
    got, sums = sageattn(*inputs, is_causal=causal, sm_scale=0.05, return_lse=True)
    want, logs = a8.exact(inputs, causal=causal, scale=0.05)
    errors = a8.shares(got, want)
    errors["lse"] = (sums.double() - logs).abs().max().item() / a8.LSE
    a8.verdict(errors, record_property)
    assert torch.isfinite(sums).all()


#: Function -> the module it needs, the GPUs on which its code runs, more arguments.
KERNELS: dict[str, tuple[str, range, dict[str, Any]]] = {
    "sageattn_qk_int8_pv_fp16_cuda": ("SM80_ENABLED", range(80, 90), {"pv_accum_dtype": "fp32"}),
    "sageattn_qk_int8_pv_fp8_cuda": (
        "SM89_ENABLED",
        range(89, 90),
        {"pv_accum_dtype": "fp32+fp32"},
    ),
    "sageattn_qk_int8_pv_fp8_cuda_sm90": ("SM90_ENABLED", range(90, 91), {}),
    "sageattn_qk_int8_pv_fp16_triton": ("", range(75, 130), {}),
}


@pytest.mark.parametrize("grain", ["per_warp", "per_thread"])
@causality
@pytest.mark.parametrize("name", KERNELS)
def test_each_kernel(
    name: str, causal: bool, grain: str, gpu: Device, record_property: Record
) -> None:
    """By its own name, with both grains of its scales; Triton's too."""
    import attending_8bit as a8
    import sageattention
    from sageattention import core

    needs, runs_on, more = KERNELS[name]
    if needs and not getattr(core, needs):
        pytest.skip(f"absent: the wheel has no {needs.partition('_')[0].lower()} module")
    if int(gpu["arch"]) not in runs_on:
        pytest.skip(f"not on this GPU: {name} is for {runs_on.start} to {runs_on.stop - 1}")
    if name.endswith("triton"):
        if grain == "per_warp":
            pytest.skip("Triton's has scales for blocks alone")
    else:
        more = more | {"qk_quant_gran": grain}
    inputs = a8.normal("fp16", 128, (700, 700))
    got = getattr(sageattention, name)(*inputs, is_causal=causal, **more)
    want, _ = a8.exact(inputs, causal=causal)
    a8.verdict(a8.shares(got, want), record_property)


@dims
@pytest.mark.parametrize("rows", [128, 300])
@pytest.mark.usefixtures("gpu")
def test_rounding_to_8_bit(dim: int, rows: int) -> None:
    """Each number is its 8 bit one times its block's scale, half a step away at most."""
    import attending_8bit as a8
    from sageattention.quant import per_block_int8

    q, k, _ = a8.normal("fp16", dim, (rows, rows))
    _, _, keys, scales = per_block_int8(q, k, BLKQ=128, BLKK=64, tensor_layout="HND")
    each = scales.repeat_interleave(64, 2)[:, :, :rows, None].double()
    off = (keys.double() * each - k.double()).abs() / each
    assert off.max() <= 0.5 + 2e-3
    assert keys.abs().amax() == 127
