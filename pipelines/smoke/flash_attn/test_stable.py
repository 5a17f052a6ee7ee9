"""What is particular to a build on torch's stable ABI; other builds skip all of it.

The operators' checks come before they ask for a GPU, so what they refuse is tried on any torch.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flash_pointers import Device
from smoke_batches import Record

if TYPE_CHECKING:
    import torch

KIB = 1024
pytest_plugins = "flash_stable"


@pytest.mark.usefixtures("library")
def test_without_cuda_the_import_is_an_import_error() -> None:
    """What callers of flash_attn look for, and it names the torch that is here."""
    import torch

    if torch.version.cuda:
        pytest.skip("this torch is for CUDA")
    sys.modules.pop("flash_attn_2_cuda", None)
    with pytest.raises(ImportError, match="torch for CUDA") as caught:
        importlib.import_module("flash_attn_2_cuda")
    assert torch.__version__ in str(caught.value)


@pytest.mark.parametrize(
    ("head_dim", "dropout", "shared", "possible"),
    [
        (192, True, 99, True),
        (200, True, 99, False),
        (256, True, 99, False),
        (256, False, 99, True),
        (256, True, 143, False),
        (256, True, 144, True),
    ],
)
def test_backward_that_no_kernel_has_is_refused(
    library: Path, head_dim: int, dropout: bool, shared: int, possible: bool
) -> None:
    """RTX 30 and 40 have 99 KiB for a block: upstream's leaves the gradients unwritten there."""
    text = ctypes.create_string_buffer(600)
    device = Device(8, 6, 84, shared * KIB)
    code = ctypes.CDLL(str(library)).flash_check_backward(
        ctypes.byref(device), head_dim, int(dropout), text
    )
    assert code == int(not possible)
    assert bool(text.value) != possible
    if not possible:
        assert f"{shared}" in text.value.decode()
        assert f"{head_dim}" in text.value.decode()


def test_kernels_refuse_another_layout(library: Path) -> None:
    """The size of the parameters is compared at each call."""
    text = ctypes.create_string_buffer(600)
    kernels = ctypes.CDLL(str(library))
    room = ctypes.create_string_buffer(4096)
    for call in (
        lambda: kernels.flash_forward(room, ctypes.c_size_t(8), None, 0, text),
        lambda: kernels.flash_backward(room, ctypes.c_size_t(8), None, text),
    ):
        text.value = b""
        assert call() == 1
        assert b"laid out" in text.value


def _wrong(ops: Any) -> dict[str, tuple[Callable[[], object], str]]:
    """Calls that no operator may run, and a part of what each says."""
    import torch

    half = torch.float16

    def new(*shape: int, dtype: torch.dtype = half) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    def ints(*numbers: int) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int32)

    q, k, v = new(2, 5, 4, 64), new(2, 7, 2, 64), new(2, 7, 2, 64)

    def fwd(**given: Any) -> Callable[[], object]:
        return lambda: ops.fwd(
            *(given.get("q", q), given.get("k", k), given.get("v", v), given.get("alibi")),
            *(given.get("p", 0.0), 0.1, False, given.get("left", -1), -1),
            *(given.get("softcap", 0.0), given.get("mask", False)),
        )

    def dim(n: int) -> dict[str, torch.Tensor]:
        return {"q": new(1, 1, 1, n), "k": new(1, 1, 1, n), "v": new(1, 1, 1, n)}

    starts = ints(0, 3, 5)
    flat_q, flat_k, flat_v = new(5, 4, 64), new(5, 2, 64), new(5, 2, 64)
    pages, table = new(4, 256, 2, 64), torch.zeros(2, 2, dtype=torch.int32)

    def varlen(**given: Any) -> Callable[[], object]:
        return lambda: ops.varlen_fwd(
            *(flat_q, given.get("k", flat_k), given.get("v", flat_v)),
            *(given.get("cq", starts), given.get("ck", starts), given.get("used")),
            *(given.get("leftpad"), given.get("table"), None, 3, given.get("max_k", 3), 0.0, 0.1),
            *(False, False, -1, -1, 0.0, False),
        )

    lse = torch.zeros(2, 4, 5)

    def bwd(**given: Any) -> Callable[[], object]:
        made = {name: torch.empty_like(x) for name, x in (("dq", q), ("dk", k), ("dv", v))} | given
        return lambda: ops.bwd(
            *(made.get("dout", q), q, k, v, q, made.get("lse", lse)),
            *(made["dq"], made["dk"], made["dv"], None, 0.0, 0.1, True, -1, -1, 0.0, False),
            made.get("rng"),
        )

    cache = new(2, 256, 2, 64)

    def step(**given: Any) -> Callable[[], object]:
        return lambda: ops.fwd_kvcache(
            *(
                given.get("q", new(2, 1, 4, 64)),
                given.get("cache", cache),
                given.get("cache", cache),
            ),
            *(
                given.get("k"),
                given.get("v"),
                given.get("lengths"),
                given.get("cos"),
                given.get("sin"),
            ),
            *(
                given.get("index"),
                given.get("leftpad"),
                given.get("table"),
                None,
                0.1,
                True,
                -1,
                -1,
            ),
            *(0.0, True, given.get("splits", 0)),
        )

    one = new(2, 1, 2, 64)
    long = new(1, 1, 1, 128).expand(1, 2**17, 128, 128)
    cases: dict[str, tuple[Callable[[], object], str]] = {
        "on the CPU": (fwd(), "q must be on CUDA"),
        "float32": (fwd(q=q.float()), "only supports fp16 and bf16"),
        "k of another type": (fwd(k=k.bfloat16()), "k must have the same dtype as q"),
        "head dimension 60": (fwd(**dim(60)), "multiple of 8"),
        "head dimension 264": (fwd(**dim(264)), "up to 256"),
        "3 heads for 2": (fwd(q=new(2, 5, 3, 64)), "must divide"),
        "shape of v": (fwd(v=new(2, 6, 2, 64)), "v must have shape (2, 7, 2, 64), has (2, 6,"),
        "three dimensions": (fwd(q=new(5, 4, 64)), "q must have 4 dimensions, has 3"),
        "strided rows": (fwd(q=new(2, 5, 4, 128)[..., ::2]), "contiguous last dimension"),
        "dropout of 1": (fwd(p=1.0), "less than 1"),
        "softcap with dropout": (fwd(p=0.1, softcap=3.0), "softcap does not support dropout"),
        "mask without dropout": (fwd(mask=True), "return_softmax"),
        "slopes in half": (fwd(alibi=new(4)), "float32"),
        "slopes of 3 heads": (fwd(alibi=torch.zeros(3)), "alibi_slopes must have shape"),
        "window of 2^40": (fwd(left=2**40), "does not fit in 32 bits"),
        "no sequence": (fwd(**{n: x[:0] for n, x in (("q", q), ("k", k), ("v", v))}), "positive"),
        "varlen on the CPU": (varlen(), "q must be on CUDA"),
        "starts in int64": (varlen(cq=starts.long()), "cu_seqlens_q must have dtype int32"),
        "starts of one": (varlen(ck=ints(0, 5)), "cu_seqlens_k must have shape (3)"),
        "used of three": (varlen(used=ints(1, 2, 3)), "seqused_k must have shape (2)"),
        "pages of 128": (
            varlen(k=pages[:, :128], v=pages[:, :128], table=table),
            "multiple of 256",
        ),
        "too few pages": (varlen(k=pages, v=pages, table=table, max_k=513), "hold 512"),
        "pages with padding": (
            varlen(k=pages, v=pages, table=table, leftpad=ints(0, 0)),
            "leftpad_k",
        ),
        "gradient on the CPU": (bwd(), "q must be on CUDA"),
        "dk of q": (bwd(dk=torch.empty_like(q)), "dk must have shape"),
        "seed of floats": (bwd(rng=torch.zeros(2)), "int64"),
        "lse in half": (bwd(lse=lse.half()), "float32"),
        "lse of another shape": (bwd(lse=lse[:, :, :4]), "softmax_lse must have shape (2, 4, 5)"),
        "lse turned": (bwd(lse=torch.zeros(5, 4, 2).permute(2, 1, 0)), "contiguous"),
        "2^31 elements of q": (
            lambda: ops.bwd(
                *(long, long, long, long, long, torch.zeros(1, 128, 2**17), long, long, long),
                *(None, 0.0, 0.1, True, -1, -1, 0.0, False, None),
            ),
            "2^31",
        ),
        "step on the CPU": (step(), "q must be on CUDA"),
        "v missing": (step(k=one), "v is missing"),
        "k missing": (step(v=one), "k is missing"),
        "lengths missing": (step(k=one, v=one), "seqlens_k is missing"),
        "rotary without k": (step(cos=new(256, 16), sin=new(256, 16)), "rotary_cos needs k"),
        "a smaller cache": (step(cache=cache[:1]), "kcache has 1 sequences, and q 2"),
        "index with pages": (step(index=ints(0, 1), table=table), "cache_batch_idx"),
        "a word": (lambda: ops.fwd("q", k, v, None, 0.0, 1.0, False, -1, -1, 0.0, False), ""),
        "too few": (lambda: ops.fwd(q, k, v), "missing value"),
    }
    return cases


def test_wrong_arguments_are_refused(ops: Any, record_property: Record) -> None:
    """Each with an exception that says what is wrong, and none reaches a kernel."""
    wrong = {}
    cases = _wrong(ops)
    for name, (call, words) in cases.items():
        try:
            call()
        except (RuntimeError, TypeError) as error:
            said = str(error)
        else:
            said = "nothing was raised"
        if words not in said or said == "nothing was raised":
            wrong[name] = said.splitlines()[0]
    record_property("refused", str(len(cases) - len(wrong)))
    assert not wrong
