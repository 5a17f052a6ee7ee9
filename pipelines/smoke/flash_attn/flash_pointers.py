"""The kernels of a build on torch's stable ABI by plain pointers: without torch's CUDA.

Only :func:`drawn` and :func:`wanted` import torch. What the library imports of it has to be
loadable.
"""

from __future__ import annotations

import ctypes as c
import hashlib
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

BATCH, ROWS, KEYS, HEADS, HEADS_K = 2, 150, 333, 4, 2
DIMS = (32, 64, 96, 128, 192, 256)
#: Errors as a share of the largest number of an array, by whether it is bfloat16.
MOST = {False: 4e-3, True: 2.5e-2}
SEED, OFFSET = 1234567, 8  # of dropout's random numbers


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Philox(c.Structure):
    """at::PhiloxCudaState."""

    _fields_ = [
        *_fields(c.c_uint64, "seed offset"),
        ("intragraph", c.c_uint64),
        ("captured", c.c_bool),
    ]


class Forward(c.Structure):
    """Flash_fwd_params of csrc/flash_attn/src/flash.h."""

    _fields_ = [
        *_fields(c.c_void_p, "q k v"),
        *_fields(c.c_int64, "q_batch k_batch v_batch q_row k_row v_row q_head k_head v_head"),
        *_fields(c.c_int, "h h_k ratio"),
        *_fields(c.c_void_p, "o oaccum"),
        *_fields(c.c_int64, "o_batch o_row o_head"),
        *_fields(c.c_void_p, "p lse lseaccum"),
        *_fields(c.c_int, "b seqlen_q seqlen_k seqlen_knew d seqlen_q_rounded seqlen_k_rounded"),
        *_fields(c.c_int, "d_rounded rotary_dim total_q"),
        *_fields(c.c_float, "scale scale_log2"),
        *_fields(c.c_void_p, "cu_q cu_k leftpad_k seqused_k blockmask knew vnew"),
        *_fields(c.c_int64, "knew_batch vnew_batch knew_row vnew_row knew_head vnew_head"),
        *_fields(c.c_void_p, "cos sin cache_batch_idx block_table"),
        *_fields(c.c_int64, "block_table_batch"),
        *_fields(c.c_int, "page"),
        *_fields(c.c_float, "p_dropout"),
        *_fields(c.c_uint8, "p_dropout_8"),
        *_fields(c.c_float, "rp_dropout scale_rp"),
        *_fields(c.c_int, "left right"),
        *_fields(c.c_float, "softcap"),
        ("philox", Philox),
        *_fields(c.c_void_p, "rng_state"),
        *_fields(c.c_bool, "bf16 causal cumulative interleaved"),
        *_fields(c.c_int, "num_splits"),
        *_fields(c.c_void_p, "alibi"),
        *_fields(c.c_int64, "alibi_batch"),
        *_fields(c.c_bool, "unpadded swapped"),
    ]


class Backward(Forward):
    """Flash_bwd_params."""

    _fields_ = [
        *_fields(c.c_void_p, "do_ dq dk dv dq_accum dk_accum dv_accum"),
        *_fields(c.c_int64, "do_batch do_row do_head dq_batch dk_batch dv_batch"),
        *_fields(c.c_int64, "dq_row dk_row dv_row dq_head dk_head dv_head"),
        *_fields(c.c_void_p, "d_sum"),
        *_fields(c.c_bool, "deterministic"),
        *_fields(c.c_int64, "dq_accum_split"),
    ]


class Gpu:
    """The driver's memory, in the context that the library's runtime uses."""

    def __init__(self) -> None:
        self.cuda = c.WinDLL("nvcuda") if os.name == "nt" else c.CDLL("libcuda.so.1")
        self.made: list[int] = []
        device, context = c.c_int(), c.c_void_p()
        self._done("cuInit", 0)
        self._done("cuDeviceGet", c.byref(device), 0)
        self._done("cuDevicePrimaryCtxRetain", c.byref(context), device)
        self._done("cuCtxSetCurrent", context)

    def _done(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: CUDA error {code}")

    def put(self, data: bytes) -> int:
        at = c.c_uint64()
        self._done("cuMemAlloc_v2", c.byref(at), c.c_size_t(len(data)))
        self._done("cuMemcpyHtoD_v2", at, data, c.c_size_t(len(data)))
        self.made.append(at.value)
        return at.value

    def get(self, at: int, size: int) -> bytes:
        self._done("cuCtxSynchronize")
        data = c.create_string_buffer(size)
        self._done("cuMemcpyDtoH_v2", data, c.c_uint64(at), c.c_size_t(size))
        return data.raw

    def free(self) -> None:
        for at in self.made:
            self._done("cuMemFree_v2", c.c_uint64(at))
        self.made.clear()


def halves(name: str, count: int, bf16: bool) -> bytes:
    """``count`` numbers between 2**-5 and 2 of both signs, drawn by the name alone."""
    drawn = hashlib.shake_256(name.encode()).digest(2 * count)
    # The high byte: a sign, and exponents for numbers of that size.
    high = [61, 62, 63] if bf16 else [e << 2 | m for e in range(11, 16) for m in range(4)]
    table = bytes((b & 128) | high[b % 128 % len(high)] for b in range(256))
    both = bytearray(drawn)
    both[1::2] = drawn[1::2].translate(table)
    return bytes(both)


class Device(c.Structure):
    """``flash_device`` of kernels.h."""

    _fields_ = _fields(c.c_int, "major minor multiprocessors shared_memory")


class Library:
    """The library's plain C functions: csrc/stable/kernels.h."""

    def __init__(self, path: Path) -> None:
        self.calls = c.CDLL(str(path.resolve()))
        self.device = Device()
        self.call("flash_current_device", c.byref(self.device))

    def call(self, name: str, *arguments: Any) -> None:
        text = c.create_string_buffer(600)
        if getattr(self.calls, name)(*arguments, text):
            raise RuntimeError(f"{name}: {text.value.decode(errors='replace')}")


def cases(dims: list[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and kind: every unit forward, split and backward, plain and with what it can do."""
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "dropout": {"dropout": 0.25},
        "window": {"left": 70, "right": 20},
        "softcap": {"softcap": 5.0},
        "alibi": {"alibi": True},
        "narrow": {"narrow": True},
    }
    for dim in dims:
        for bf16 in (False, True):
            for causal in (False, True):
                for kind, options in kinds.items():
                    if causal and kind == "window":
                        continue
                    one = {"dim": dim, "bf16": bf16, "causal": causal, **options}
                    words = ("bf16" if bf16 else "fp16", "causal" if causal else "full", kind)
                    name = f"{dim} {' '.join(words)}"
                    yield name, one
                    if "dropout" not in one:
                        yield f"{name} split", {**one, "splits": 3}


def fill(p: Forward, one: dict[str, Any], dim: int) -> None:
    """All but pointers and strides: as flash_api.cpp does."""
    dropout, cap, scale = one.get("dropout", 0.0), one.get("softcap", 0.0), dim**-0.5
    p.h, p.h_k, p.ratio, p.b, p.d = HEADS, HEADS_K, HEADS // HEADS_K, BATCH, dim
    p.d_rounded = -(-dim // 32) * 32 if dim <= 128 else -(-dim // 64) * 64
    p.seqlen_q, p.seqlen_q_rounded = ROWS, -(-ROWS // 128) * 128
    p.seqlen_k, p.seqlen_k_rounded = KEYS, -(-KEYS // 128) * 128
    p.scale = cap or scale
    p.scale_log2 = p.scale * math.log2(math.e)
    p.softcap = scale / cap if cap else 0.0
    p.p_dropout = 1 - dropout
    p.p_dropout_8 = math.floor((1 - dropout) * 255)
    p.rp_dropout = 1 / (1 - dropout)
    p.scale_rp = p.rp_dropout * p.scale
    p.left = one.get("left", -1)
    p.right = 0 if one["causal"] else one.get("right", -1)
    p.causal, p.bf16, p.cumulative, p.page = one["causal"], one["bf16"], True, 1


def run(library: Library, gpu: Gpu, one: dict[str, Any]) -> dict[str, bytes]:
    """What the forward, and where keys are not split the backward, write."""
    dim = one["dim"] - 8 if one.get("narrow") else one["dim"]
    bf16, dropout, splits = one["bf16"], one.get("dropout", 0.0), one.get("splits", 0)
    shapes = {"q": (ROWS, HEADS), "k": (KEYS, HEADS_K), "v": (KEYS, HEADS_K), "o": (ROWS, HEADS)}
    shapes |= {"do_": (ROWS, HEADS), "dq": (ROWS, HEADS), "dk": (KEYS, HEADS), "dv": (KEYS, HEADS)}
    written: dict[str, tuple[int, int]] = {}
    p = Backward()

    def room(name: str, size: int, fill: int = 0xFF) -> int:
        at = gpu.put(bytes([fill]) * size)
        written[name] = at, size
        return at

    for name, (rows, heads) in shapes.items():
        size = BATCH * rows * heads * dim
        drawn = name in ("q", "k", "v", "do_")
        setattr(p, name, gpu.put(halves(name, size, bf16)) if drawn else room(name, 2 * size))
        short = name.rstrip("_")
        setattr(p, f"{short}_batch", rows * heads * dim)
        setattr(p, f"{short}_row", heads * dim)
        setattr(p, f"{short}_head", dim)
    fill(p, one, dim)
    p.lse = room("lse", 4 * BATCH * HEADS * ROWS)
    state = room("state", 16, 0)
    if dropout:
        p.philox.seed, p.philox.offset, p.rng_state = SEED, OFFSET, state
    if one.get("alibi"):
        p.alibi = gpu.put(struct.pack(f"<{HEADS}f", *(0.5**i for i in range(1, HEADS + 1))))
    if splits:
        p.num_splits = splits
        p.lseaccum = gpu.put(bytes(4 * splits * BATCH * HEADS * ROWS))
        p.oaccum = gpu.put(bytes(4 * splits * BATCH * HEADS * ROWS * p.d_rounded))
    library.call(
        "flash_forward", c.byref(p), c.c_size_t(c.sizeof(Forward)), None, int(bool(splits))
    )
    names = ["o", "lse", *(["state"] if dropout else [])]
    if not splits:
        parts = -(-library.device.multiprocessors // (BATCH * HEADS))
        p.dq_accum_split = BATCH * p.seqlen_q_rounded * HEADS * p.d_rounded
        p.dq_accum = gpu.put(bytes(4 * parts * p.dq_accum_split))
        p.d_sum = room("d_sum", 4 * BATCH * HEADS * p.seqlen_q_rounded, 0)
        p.deterministic = True
        library.call("flash_backward", c.byref(p), c.c_size_t(c.sizeof(Backward)), None)
        names += ["dq", "dk", "dv", "d_sum"]
    found = {name: gpu.get(*written[name]) for name in names}
    gpu.free()
    if unwritten := [name for name, data in found.items() if b"\xff\xff\xff\xff" in data]:
        raise RuntimeError(f"not written throughout: {unwritten}")
    return found


def drawn(name: str, rows: int, heads: int, dim: int, bf16: bool) -> Tensor:
    """An input, in float64."""
    import torch

    data = bytearray(halves(name, BATCH * rows * heads * dim, bf16))
    kind = torch.bfloat16 if bf16 else torch.float16
    flat = torch.frombuffer(data, dtype=kind).double()
    return flat.reshape(BATCH, rows, heads, dim)


def wanted(one: dict[str, Any]) -> dict[str, Tensor]:
    """The arrays of a case without dropout, by the definition of attention, in float64."""
    import torch
    from smoke_reference import Rule, slopes_bias, visible

    dim, bf16 = one["dim"] - 8 if one.get("narrow") else one["dim"], one["bf16"]
    q = drawn("q", ROWS, HEADS, dim, bf16).requires_grad_()
    groups = HEADS // HEADS_K
    k, v = (
        drawn(name, KEYS, HEADS_K, dim, bf16).repeat_interleave(groups, 2).requires_grad_()
        for name in "kv"
    )
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * dim**-0.5
    if cap := one.get("softcap"):
        scores = cap * torch.tanh(scores / cap)
    if one.get("alibi"):
        slopes = 0.5 ** torch.arange(1, HEADS + 1).double()
        # Causal kernels leave out what is the same for a whole row.
        causal = slopes[:, None, None] * torch.arange(KEYS)
        scores = scores + (causal if one["causal"] else slopes_bias(slopes, ROWS, KEYS))
    rule = Rule(causal=one["causal"], window=(one.get("left", -1), one.get("right", -1)))
    scores = scores.masked_fill(~visible(ROWS, KEYS, rule, scores.device), -math.inf)
    out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    arrays = {"o": out, "lse": scores.logsumexp(-1)}
    if not one.get("splits"):
        dout = drawn("do_", ROWS, HEADS, dim, bf16)
        arrays |= zip(("dq", "dk", "dv"), torch.autograd.grad(out, (q, k, v), dout), strict=True)
        room = -(-ROWS // 128) * 128 - ROWS
        d_sum = (out * dout).sum(-1).transpose(1, 2)
        arrays["d_sum"] = torch.nn.functional.pad(d_sum, (0, room))
    return arrays


def error(got: Tensor, want: Tensor) -> float:
    """The largest, as a share of the largest number."""
    whole = want.detach().flatten()
    return float((got - whole).abs().max() / whole.abs().max())
