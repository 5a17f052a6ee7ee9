"""The kernels of a build on torch's stable ABI, called by pointers: also with a torch for the CPU.

So a Windows library is tried on a GPU where no torch for Windows reaches it: by the bridge.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flash_pointers as fp
import pytest

if TYPE_CHECKING:
    from torch import Tensor

pytest_plugins = "flash_stable"
pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture(scope="module")
def kernels(library: Path) -> fp.Library:
    """The library, loaded with the torch that is here."""
    import torch

    torch.ops.load_library(str(library))
    return fp.Library(library)


@pytest.fixture(scope="module")
def memory() -> Iterator[fp.Gpu]:
    """The GPU's memory."""
    gpu = fp.Gpu()
    yield gpu
    gpu.free()


@pytest.fixture
def dim(request: pytest.FixtureRequest, library: Path) -> int:
    """A head dimension that this build has."""
    built = json.loads(library.with_name("_build_info.json").read_text())["head_dims"]
    if request.param not in built:
        pytest.skip(f"this build has no kernels for head dimension {request.param}")
    return int(request.param)


def tensor(name: str, data: bytes, bf16: bool) -> Tensor:
    """All numbers of an array."""
    import torch

    half = torch.bfloat16 if bf16 else torch.float16
    kind = torch.float32 if name in ("lse", "d_sum") else half
    return torch.frombuffer(bytearray(data), dtype=kind).double()


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("bf16", [False, True], ids=["fp16", "bf16"])
@pytest.mark.parametrize("dim", fp.DIMS, indirect=True)
def test_kernels_by_pointers(
    kernels: fp.Library, memory: fp.Gpu, dim: int, bf16: bool, causal: bool
) -> None:
    """Forward, split and backward with all that masks scores, in float64; dropout by itself."""
    for name, one in fp.cases([dim]):
        if one["bf16"] != bf16 or one["causal"] != causal:
            continue
        got = fp.run(kernels, memory, one)
        arrays = {key: tensor(key, data, bf16) for key, data in got.items() if key != "state"}
        if one.get("dropout"):
            check_dropout(kernels, memory, one, got, arrays)
            continue
        wanted = fp.wanted(one)
        assert wanted.keys() == arrays.keys()
        for key, want in wanted.items():
            assert fp.error(arrays[key], want) <= fp.MOST[bf16], f"{name}: {key}"


def check_dropout(
    kernels: fp.Library,
    memory: fp.Gpu,
    one: dict[str, Any],
    got: dict[str, bytes],
    arrays: dict[str, Tensor],
) -> None:
    """The seed makes the numbers, and both passes drop the same: the output is linear in v."""
    assert struct.unpack("<2Q", got["state"]) == (fp.SEED, fp.OFFSET)
    assert fp.run(kernels, memory, one) == got, "other numbers with the same seed"
    bf16, dim = one["bf16"], one["dim"]
    groups = fp.HEADS // fp.HEADS_K
    values = fp.drawn("v", fp.KEYS, fp.HEADS_K, dim, bf16).repeat_interleave(groups, 2)
    dout = fp.drawn("do_", fp.ROWS, fp.HEADS, dim, bf16)
    products = arrays["o"] * dout.flatten(), arrays["dv"] * values.flatten()
    assert abs(products[0].sum() - products[1].sum()) <= 2e-3 * products[0].abs().sum()
    plain = fp.wanted({**one, "dropout": 0.0})["o"].detach().flatten()
    assert fp.error(arrays["o"], plain) > 2 * fp.MOST[bf16], "nothing was dropped"
