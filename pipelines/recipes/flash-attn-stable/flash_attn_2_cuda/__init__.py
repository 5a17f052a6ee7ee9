"""flash_attn's extension by name and arguments, over operators on torch's stable ABI.

flash_attn/flash_attn_interface.py imports this module; it is upstream's, unchanged. What makes it
unusable is an ImportError, as of any extension: callers of flash_attn look for that alone.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_LIBRARY = Path(__file__).with_name("_C.dll" if sys.platform == "win32" else "_C.so")
_LEAST_TORCH = (2, 10)


def _load() -> None:
    """Load the library; ImportError says what it does not work with."""
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < _LEAST_TORCH:
        least = ".".join(map(str, _LEAST_TORCH))
        raise ImportError(f"this flash_attn needs torch {least} or newer, not {torch.__version__}")
    if torch.version.cuda is None:
        raise ImportError(f"this flash_attn needs a torch for CUDA, not {torch.__version__}")
    try:
        torch.ops.load_library(str(_LIBRARY))
        library = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        raise ImportError(f"{_LIBRARY} with torch {torch.__version__}: {error}") from error
    driver, runtime = ctypes.c_int(), ctypes.c_int()
    text = ctypes.create_string_buffer(600)
    if library.flash_cuda_versions(ctypes.byref(driver), ctypes.byref(runtime), text):
        raise ImportError(text.value.decode(errors="replace"))
    # Releases of one major version run on all its drivers. Without any driver, calls say so.
    if 0 < driver.value < runtime.value // 1000 * 1000:
        raise ImportError(
            f"this flash_attn needs a driver for CUDA {runtime.value // 1000}, and the installed "
            f"one is for CUDA {driver.value // 1000}.{driver.value % 1000 // 10}: update it"
        )


_load()
# The functions below are called for each layer of each token: every microsecond here is theirs.
_fwd = torch.ops.flash_attn_2_cuda.fwd.default
_varlen_fwd = torch.ops.flash_attn_2_cuda.varlen_fwd.default
_bwd = torch.ops.flash_attn_2_cuda.bwd.default
_varlen_bwd = torch.ops.flash_attn_2_cuda.varlen_bwd.default
_fwd_kvcache = torch.ops.flash_attn_2_cuda.fwd_kvcache.default


def _check_generator(gen: torch.Generator | None) -> None:
    if gen is not None:
        raise TypeError("this flash_attn draws from torch's default generator: gen must be None")


def fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor | None,
    alibi_slopes: Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen: torch.Generator | None,
    /,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention of (batch, seqlen, heads, head_dim): out, softmax_lse, S_dmask, rng_state."""
    _check_generator(gen)
    result = _fwd(
        q,
        k,
        v,
        alibi_slopes,
        p_dropout,
        softmax_scale,
        is_causal,
        window_size_left,
        window_size_right,
        softcap,
        return_softmax,
    )
    return result if out is None else (out.copy_(result[0]), *result[1:])


def varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    alibi_slopes: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen: torch.Generator | None,
    /,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As :func:`fwd`, of sequences one after another: (total, heads, head_dim)."""
    _check_generator(gen)
    result = _varlen_fwd(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        seqused_k,
        leftpad_k,
        block_table,
        alibi_slopes,
        max_seqlen_q,
        max_seqlen_k,
        p_dropout,
        softmax_scale,
        zero_tensors,
        is_causal,
        window_size_left,
        window_size_right,
        softcap,
        return_softmax,
    )
    return result if out is None else (out.copy_(result[0]), *result[1:])


def bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    alibi_slopes: Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen: torch.Generator | None,
    rng_state: Tensor | None,
    /,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of :func:`fwd`: dq, dk, dv and the sum of dout * out."""
    _check_generator(gen)
    dq = torch.empty_like(q) if dq is None else dq
    dk = torch.empty_like(k) if dk is None else dk
    dv = torch.empty_like(v) if dv is None else dv
    total = _bwd(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        dq,
        dk,
        dv,
        alibi_slopes,
        p_dropout,
        softmax_scale,
        is_causal,
        window_size_left,
        window_size_right,
        softcap,
        deterministic,
        rng_state,
    )
    return dq, dk, dv, total


def varlen_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    alibi_slopes: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen: torch.Generator | None,
    rng_state: Tensor | None,
    /,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of :func:`varlen_fwd`."""
    _check_generator(gen)
    dq = torch.empty_like(q) if dq is None else dq
    dk = torch.empty_like(k) if dk is None else dk
    dv = torch.empty_like(v) if dv is None else dv
    total = _varlen_bwd(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        dq,
        dk,
        dv,
        cu_seqlens_q,
        cu_seqlens_k,
        alibi_slopes,
        max_seqlen_q,
        max_seqlen_k,
        p_dropout,
        softmax_scale,
        zero_tensors,
        is_causal,
        window_size_left,
        window_size_right,
        softcap,
        deterministic,
        rng_state,
    )
    return dq, dk, dv, total


def fwd_kvcache(
    q: Tensor,
    kcache: Tensor,
    vcache: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    seqlens_k: Tensor | None,
    rotary_cos: Tensor | None,
    rotary_sin: Tensor | None,
    cache_batch_idx: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    alibi_slopes: Tensor | None,
    out: Tensor | None,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    is_rotary_interleaved: bool,
    num_splits: int,
    /,
) -> tuple[Tensor, Tensor]:
    """A decoder's step: appends k and v to the caches, in place; out and softmax_lse."""
    result = _fwd_kvcache(
        q,
        kcache,
        vcache,
        k,
        v,
        seqlens_k,
        rotary_cos,
        rotary_sin,
        cache_batch_idx,
        leftpad_k,
        block_table,
        alibi_slopes,
        softmax_scale,
        is_causal,
        window_size_left,
        window_size_right,
        softcap,
        is_rotary_interleaved,
        num_splits,
    )
    return result if out is None else (out.copy_(result[0]), result[1])


# -- shapes alone, for torch.compile and torch.export ---------------------------------------------


def _round(length: int) -> int:
    return (length + 127) // 128 * 128


def _forward_shapes(q: Tensor, lse: tuple[int, ...], mask: tuple[int, ...]) -> tuple[Tensor, ...]:
    return (
        torch.empty_like(q),
        q.new_empty(lse, dtype=torch.float32),
        q.new_empty(mask),
        q.new_empty((2,), dtype=torch.int64),
    )


@torch.library.register_fake("flash_attn_2_cuda::fwd")
def _fwd_fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    batch, seqlen, heads, _ = q.shape
    mask = (batch, heads, _round(seqlen), _round(k.shape[1])) if rest[-1] else (0,)
    return _forward_shapes(q, (batch, heads, seqlen), mask)


@torch.library.register_fake("flash_attn_2_cuda::varlen_fwd")
def _varlen_fwd_fake(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    total, heads, _ = q.shape
    max_q, max_k = rest[5:7]
    batch = cu_seqlens_q.shape[0] - 1
    mask = (batch, heads, _round(max_q), _round(max_k)) if rest[-1] else (0,)
    return _forward_shapes(q, (heads, total), mask)


@torch.library.register_fake("flash_attn_2_cuda::bwd")
def _bwd_fake(dout: Tensor, q: Tensor, *rest: Any) -> Tensor:
    batch, seqlen, heads, _ = q.shape
    return q.new_empty((batch, heads, _round(seqlen)), dtype=torch.float32)


@torch.library.register_fake("flash_attn_2_cuda::varlen_bwd")
def _varlen_bwd_fake(dout: Tensor, q: Tensor, *rest: Any) -> Tensor:
    total, heads, _ = q.shape
    batch = rest[7].shape[0] - 1
    return q.new_empty((heads, total + 128 * batch), dtype=torch.float32)


@torch.library.register_fake("flash_attn_2_cuda::fwd_kvcache")
def _fwd_kvcache_fake(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    batch, seqlen, heads, _ = q.shape
    return torch.empty_like(q), q.new_empty((batch, heads, seqlen), dtype=torch.float32)
