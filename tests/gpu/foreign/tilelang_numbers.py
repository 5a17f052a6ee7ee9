"""TileLang's compiler against numpy: for ``invoke lab tilelang==VERSION --suite``.

Its Windows DLL turns two programs into CUDA C++, NVRTC compiles that with the wheel's own headers,
and cupy launches it: PyPI has no torch with CUDA for Windows, whose arrays its own launcher takes.
The code is TileLang's for 8.0 on every GPU: that for 9.0 wants tensor maps from its launcher.
"""

import importlib.metadata
import math
import pathlib

import cupy
import numpy
import tilelang
import tilelang.language as T
from cupy_backends.cuda.libs import nvrtc
from tilelang import tvm

M, N, K, ROWS, COLUMNS = 256, 384, 512, 128, 1024
random = numpy.random.default_rng(7)
site = pathlib.Path(tilelang.__file__).parent.parent
wrong: "list[str]" = []


@T.prim_func
def product(
    a: T.Tensor((M, K), "float16"),
    b: T.Tensor((K, N), "float16"),
    c: T.Tensor((M, N), "float32"),
):
    """Products of 64 x 64 in tensor cores, the next tiles copied meanwhile."""
    with T.Kernel(N // 64, M // 64, threads=128) as (column, row):
        left = T.alloc_shared((64, 32), "float16")
        right = T.alloc_shared((32, 64), "float16")
        total = T.alloc_fragment((64, 64), "float32")
        T.clear(total)
        for step in T.Pipelined(K // 32, num_stages=2):
            T.copy(a[row * 64, step * 32], left)
            T.copy(b[step * 32, column * 64], right)
            T.gemm(left, right, total)
        T.copy(total, c[row * 64, column * 64])


@T.prim_func
def softmax(x: T.Tensor((ROWS, COLUMNS), "float32"), y: T.Tensor((ROWS, COLUMNS), "float32")):
    """A block's threads share the maximum and the sum of its rows."""
    with T.Kernel(ROWS // 4, threads=128) as block:
        tile = T.alloc_fragment((4, COLUMNS), "float32")
        most = T.alloc_fragment((4,), "float32")
        total = T.alloc_fragment((4,), "float32")
        T.copy(x[block * 4, 0], tile)
        T.reduce_max(tile, most, dim=1)
        for i, j in T.Parallel(4, COLUMNS):
            tile[i, j] = T.exp(tile[i, j] - most[i])
        T.reduce_sum(tile, total, dim=1)
        for i, j in T.Parallel(4, COLUMNS):
            tile[i, j] = tile[i, j] / total[i]
        T.copy(tile, y[block * 4, 0])


def generated(program: object) -> "tuple[str, str, list[int], list[int], int]":
    """Its CUDA C++, with the kernel's name, grid, block and bytes of shared memory."""
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    with target:
        made = tilelang.lower(program, target=target)
    ((name, kernel),) = made.device_mod.functions.items()
    extents = {str(tag): int(size) for tag, size in kernel.attrs["thread_extent"].items()}
    grid, block = (
        [extents.get(f"{kind}Idx.{axis}", 1) for axis in "xyz"] for kind in ("block", "thread")
    )
    shared = int(kernel.attrs.get("dyn_shared_memory_buf", 0))
    return made.kernel_source, str(name.name_hint), grid, block, shared


def compiled(source: str, architecture: str) -> bytes:
    """Machine code for ``architecture``, such as ``sm_90``; needs no GPU."""
    headers = site / "nvidia/cu13/include"
    places = [
        site / "tilelang/src",
        site / "tilelang/3rdparty/cutlass/include",
        headers,
        headers / "cccl",
        headers / "cccl/cuda/std",
    ]
    options = [f"-arch={architecture}", "-default-device", *(f"-I{place}" for place in places)]
    program = nvrtc.createProgram(
        f"#include <tl_templates/cuda/nvrtc_std.h>\n{source}", "made.cu", (), ()
    )
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        raise RuntimeError(nvrtc.getProgramLog(program)[:1500]) from None
    return nvrtc.getCUBIN(program)


def compare(program: object, within: float, known: "numpy.ndarray", *given: "numpy.ndarray") -> None:
    """The largest difference as a part of the largest value; and how much all are too large."""
    source, name, grid, block, shared = generated(program)
    print(f"{name}: {len(source)} characters, grid {grid}, block {block}, {shared} bytes")
    kernel = cupy.cuda.function.Module()
    kernel.load(compiled(source, f"sm_{cupy.cuda.Device().compute_capability}"))
    arrays = [cupy.asarray(one) for one in given]
    out = cupy.asarray(numpy.full(known.shape, math.nan, "f4"))  # what is not written shows
    launched = kernel.get_function(name)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    launched(tuple(grid), tuple(block), (*arrays, out), shared_mem=shared)
    begin.record()
    for _ in range(100):
        launched(tuple(grid), tuple(block), (*arrays, out), shared_mem=shared)
    end.record()
    end.synchronize()
    print(f"{name} milliseconds = {cupy.cuda.get_elapsed_time(begin, end) / 100:.4f}")
    got, ideal = cupy.asnumpy(out).astype("f8").ravel(), known.ravel()
    worst = float(numpy.abs(got - ideal).max() / numpy.abs(ideal).max())
    scale = float(got @ ideal / (ideal @ ideal))
    print(f"{name} worst error = {worst:.3e}")
    print(f"{name} scale = {scale:.5f}")
    if not (worst <= within and abs(scale - 1) <= 0.005):
        wrong.append(name)


def main() -> None:
    print("version:", importlib.metadata.version("tilelang"))
    print("device:", cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    a, b = (random.standard_normal(shape).astype("f2") for shape in ((M, K), (K, N)))
    compare(product, 1e-5, a.astype("f8") @ b.astype("f8"), a, b)
    x = random.standard_normal((ROWS, COLUMNS), "f4")
    raised = numpy.exp(x.astype("f8"))
    compare(softmax, 1e-5, raised / raised.sum(1, keepdims=True), x)
    assert not wrong, f"wrong: {', '.join(wrong)}"


if __name__ == "__main__":
    main()
