"""Forward attention on an NVIDIA GPU, for host buffers: the standard library is all it needs.

Tensors are contiguous ``(batch, heads, seqlen, head_dim)``, native-endian float32 or float16, in
anything with a contiguous buffer: ``bytes``, ``bytearray``, ``array.array``, a NumPy array.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HERE = Path(__file__).resolve().parent
_DLL_DIRECTORIES: list[object] = []  # a directory stays registered while its handle lives

if sys.platform == "win32":
    # cudart64_13.dll comes from the nvidia-cuda-runtime wheel beside us, or from a toolkit.
    _places = [_HERE.parent / "nvidia" / "cu13" / "bin" / "x86_64"]
    if os.environ.get("CUDA_PATH"):
        _toolkit = Path(os.environ["CUDA_PATH"])
        _places += [_toolkit / "bin" / "x86_64", _toolkit / "bin"]
    _DLL_DIRECTORIES += [os.add_dll_directory(str(p.resolve())) for p in _places if p.is_dir()]

from . import _core  # noqa: E402  the DLL directories have to be known first

__all__ = [
    "Device",
    "__version__",
    "attention",
    "build_info",
    "device_count",
    "devices",
    "time_attention",
]

Dtype = Literal["float32", "float16"]
_ITEMSIZE: Mapping[str, int] = {"float32": 4, "float16": 2}


class Device(TypedDict):
    """One GPU. Versions are CUDA's integers (13000 is 13.0), ``total_memory`` is in bytes."""

    index: int
    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    driver_version: int
    runtime_version: int
    total_memory: int


def build_info() -> dict[str, Any]:
    """Return how this wheel was built: version, archs asked for, sass, ptx and CUDA release."""
    return cast(
        "dict[str, Any]", json.loads((_HERE / "_build_info.json").read_text(encoding="utf-8"))
    )


__version__: str = build_info()["version"]


def device_count() -> tuple[int, int]:
    """Return ``(cudaError_t of cudaGetDeviceCount, number of devices)``. Never raises."""
    return cast("tuple[int, int]", _core.device_count())


def devices() -> list[Device]:
    """Return every CUDA device, or an empty list without a GPU or driver."""
    return [cast("Device", _core.device_info(i)) for i in range(device_count()[1])]


def attention(
    q: Buffer,
    k: Buffer,
    v: Buffer,
    *,
    batch: int,
    heads: int,
    head_dim: int,
    seqlen_q: int,
    seqlen_k: int,
    dtype: Dtype,
    causal: bool = False,
    scale: float | None = None,
) -> bytes:
    """Return ``softmax(scale * q @ k.T) @ v`` as bytes, in the shape and dtype of ``q``.

    ``q`` has ``seqlen_q`` rows, ``k`` and ``v`` ``seqlen_k``. ``head_dim`` is 32, 64, 96 or 128.
    Sums are float32 for both dtypes. ``scale`` is ``1 / sqrt(head_dim)`` unless given.

    ``causal`` is aligned to the bottom-right corner: query ``i`` sees key ``j`` if
    ``j <= i + seqlen_k - seqlen_q``. A query that sees no key gives a row of zeros.

    Raises ``ValueError`` for sizes or buffers that do not fit (it names the bytes expected),
    ``TypeError`` for objects without a buffer and ``RuntimeError`` for what CUDA reports.
    """
    # `out` has the size of q. If q's is wrong, the extension says so, before it looks at `out`.
    out = bytearray(memoryview(q).nbytes)
    if scale is None:
        scale = 1 / sqrt(head_dim) if head_dim > 0 else 1.0
    _core.forward(
        q, k, v, out, batch, heads, seqlen_q, seqlen_k, head_dim, dtype, causal, scale
    )  # fmt: skip
    return bytes(out)


def time_attention(
    *,
    batch: int,
    heads: int,
    head_dim: int,
    seqlen: int,
    dtype: Dtype,
    causal: bool = False,
    warmup: int = 3,
    repeats: int = 20,
) -> float:
    """Return the mean milliseconds of one kernel on all-zero tensors, without the copies."""
    size = batch * heads * seqlen * head_dim * _ITEMSIZE[dtype]
    zeros = bytes(size)
    return cast(
        "float",
        _core.time_forward(
            zeros, zeros, zeros, bytearray(size), batch, heads, seqlen, seqlen, head_dim, dtype,
            causal, 1 / sqrt(head_dim), warmup, repeats,
        ),
    )  # fmt: skip
